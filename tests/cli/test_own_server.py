"""With nothing configured: the server that agentq brings, from its first use to its end. Real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from pydantic_core import SchemaError
from servers import until

from agentq.cli.main import main
from agentq.coordinator.embedded import Embedded

AGENTQ = [sys.executable, "-m", "agentq.cli.main"]


@pytest.fixture
def user(fresh_home: dict[str, str], folder: Path) -> Iterator[dict[str, str]]:
    """The environment of a user without any server; theirs is stopped at the end."""
    yield fresh_home
    Embedded(folder / "data" / "agentq" / "server").stop()


def run(user: dict[str, str], *argv: str, code: int = 0) -> tuple[str, str]:
    done = subprocess.run([*AGENTQ, *argv], env=user, cwd=user["HOME"], capture_output=True, text=True, check=False)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout, done.stderr


def test_a_server_comes_with_the_first_submit_and_stays_until_it_is_stopped(user: dict[str, str], folder: Path) -> None:
    place = folder / "data" / "agentq" / "server"
    assert "No server runs" in run(user, "ls", code=3)[1]

    out, err = run(user, "submit", "--name", "kept", "--", "true")
    assert out.startswith("run_")
    assert err == f"agentq: started a server of its own in {place}; `agentq down` stops it.\n"
    assert "kept" in run(user, "ls")[0]
    assert run(user, "submit", "--", "true")[1] == ""

    assert run(user, "down")[0] == f"Stopped the server in {place}; everything in it is kept.\n"
    assert run(user, "down")[0] == f"No server ran in {place}.\n"
    assert run(user, "ls", code=3)[0] == ""

    run(user, "submit", "--", "true")
    assert "kept" in run(user, "ls")[0]


def test_up_works_until_it_is_told_to_end(user: dict[str, str], folder: Path) -> None:
    up = subprocess.Popen([*AGENTQ, "up"], env=user, cwd=user["HOME"], stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: Embedded(folder / "data" / "agentq" / "server").find(), "the server")
        out, _ = run(user, "submit", "--wait", "--", "sh", "-c", "echo hello; echo oops >&2")
        assert out.splitlines()[-1].endswith("  completed  exit 0")
        assert run(user, "logs", out.split()[0]) == ("hello\n", "oops\n")
        _, err = run(user, "submit", "--follow", "--", "sh", "-c", "exit 3", code=1)
        assert err.endswith(" failed, exit 3.\n")
        up.send_signal(signal.SIGINT)
        _, said = up.communicate(timeout=30)
        assert up.returncode == 0
        assert "Traceback" not in said
        assert said.endswith("agentq: the worker has ended; its server goes on until `agentq down`.\n")
    finally:
        up.kill()
        up.wait()


def test_ctrl_c_while_waiting_is_code_130_and_the_run_goes_on(user: dict[str, str]) -> None:
    argv = [*AGENTQ, "submit", "--wait", "--", "true"]
    waiting = subprocess.Popen(
        argv, env=user, cwd=user["HOME"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert waiting.stdout is not None
        said = waiting.stderr
        assert said is not None
        run_id = waiting.stdout.readline().strip()
        # It says that nobody works for it, and then waits.
        until(lambda: "no worker serves the queue default" in said.readline(), "it to wait")
        waiting.send_signal(signal.SIGINT)
        _, last = waiting.communicate(timeout=20)
    finally:
        waiting.kill()
        waiting.wait()

    assert waiting.returncode == 130
    assert last == f"agentq: {run_id} goes on; `agentq cancel` ends a run.\n"
    assert "pending" in run(user, "ls")[0]


def test_ctrl_c_while_models_are_made_is_code_130_and_no_other_fault_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made when they are first used; pydantic answers an interrupt there with an error of its own."""
    told = ['Error building "model" validator:\n  KeyboardInterrupt: ', 'Error building "model" validator']

    def make(_: object) -> None:
        raise SchemaError(told.pop(0))

    monkeypatch.setattr(typer.main, "get_command", make)

    assert main(["ls"]) == 130
    with pytest.raises(SchemaError):
        main(["ls"])


def test_help_imports_neither_redis_nor_pydantic(user: dict[str, str]) -> None:
    program = (
        "import sys; from agentq.cli.main import main; code = main(['--help']); "
        "print(code, sorted({'redis', 'pydantic', 'rich', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], env=user, capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "0 []"
    assert "submit" in done.stdout


def test_the_completion_of_a_shell_knows_the_commands(user: dict[str, str]) -> None:
    script, _ = run(user, "completion", "bash")
    assert "_AGENTQ_COMPLETE" in script

    asked = {**user, "_AGENTQ_COMPLETE": "complete_bash", "COMP_CWORD": "1"}
    assert run({**asked, "COMP_WORDS": "agentq su"}, code=0)[0].split() == ["submit"]
    assert run({**asked, "COMP_WORDS": "agentq worker dr", "COMP_CWORD": "2"})[0].split() == ["drain"]
    assert "--queue" in run({**asked, "COMP_WORDS": "agentq submit --qu", "COMP_CWORD": "2"})[0].split()
    assert os.environ.get("_AGENTQ_COMPLETE") is None
