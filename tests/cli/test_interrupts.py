"""Ctrl-C ends every command, whatever it is at, and never with a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ENTRY = "from agentq.cli.entry import app; app()"


def test_ctrl_c_while_the_command_is_loading_ends_it_without_a_word(tmp_path: Path) -> None:
    """A library that it imports sees to it that this is the moment."""
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    argv = [sys.executable, "-c", ENTRY, "ls"]

    done = subprocess.run(argv, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_a_ctrl_c_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """As under `nohup`, or of a job in the background of a script."""
    text = f"import os, signal; from agentq.cli.entry import app; os.kill(os.getpid(), signal.SIGINT); {ENTRY}"
    argv = [sys.executable, "-c", text, "version"]

    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    done = subprocess.run(argv, preexec_fn=ignore, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_ctrl_c_in_the_demo_ends_it_and_its_workers_without_a_traceback() -> None:
    argv = [sys.executable, "-u", "-c", ENTRY, "demo"]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    demo = subprocess.Popen(argv, text=True, start_new_session=True, **streams)  # type: ignore[call-overload]
    assert demo.stdout is not None
    folder = Path(demo.stdout.readline().rpartition(" in ")[2].strip().rstrip("."))
    assert folder.is_dir()
    assert "workers" in demo.stdout.readline()

    os.killpg(demo.pid, signal.SIGINT)
    _, err = demo.communicate(timeout=60)

    assert (demo.returncode, err) == (130, "")
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.killpg(demo.pid, 0)
