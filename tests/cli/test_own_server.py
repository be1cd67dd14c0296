"""With nothing configured: the server that agentq brings, from its first use to its end. Real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import typer.main
from pydantic_core import SchemaError
from support.servers import until

from agentq.cli.main import main
from agentq.coordinator.storage.embedded import EmbeddedServer

AGENTQ = [sys.executable, "-m", "agentq.cli.main"]


@pytest.fixture
def user(fresh_home: dict[str, str], folder: Path) -> Iterator[dict[str, str]]:
    """The environment of a user without any server; theirs is stopped at the end."""
    yield fresh_home
    EmbeddedServer(folder / "data" / "agentq" / "server").stop()


def run(user: dict[str, str], *argv: str, code: int = 0) -> tuple[str, str]:
    done = subprocess.run([*AGENTQ, *argv], env=user, cwd=user["HOME"], capture_output=True, text=True, check=False)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout, done.stderr


@pytest.mark.full("takes 3 s")
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
        until(lambda: EmbeddedServer(folder / "data" / "agentq" / "server").find(), "the server")
        out, err = run(user, "submit", "--wait", "--", "sh", "-c", "echo hello; echo oops >&2")
        assert err.endswith(f"agentq: {out.strip()} completed, exit 0.\n")
        assert run(user, "logs", out.strip()) == ("hello\n", "oops\n")
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


@pytest.mark.full("takes 2 s")
def test_up_starts_its_server_again_when_that_is_killed_and_not_when_it_is_stopped(
    user: dict[str, str], folder: Path
) -> None:
    server = EmbeddedServer(folder / "data" / "agentq" / "server")
    up = subprocess.Popen([*AGENTQ, "up"], env=user, cwd=user["HOME"], stderr=subprocess.PIPE, text=True)
    assert up.stderr is not None
    try:
        while "a worker with" not in (line := up.stderr.readline()):
            assert line, "it looks after its server before it says that its worker is there"
        pid = server.pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(lambda: server.pid() not in (None, pid) and server.find(), "the server to be started again")
        assert run(user, "submit", "--wait", "--", "true")[0]
        run(user, "down")
        assert server.find() is None
        up.send_signal(signal.SIGINT)
        up.send_signal(signal.SIGINT)
        _, said = up.communicate(timeout=60)
    finally:
        up.kill()
        up.wait()
    assert said.count(" had died (its log does not say why, as when it is killed) and was started again.") == 1
    assert server.find() is None


@pytest.mark.full("takes 2 s")
def test_when_its_server_has_died_a_command_says_so_with_the_servers_last_words(
    user: dict[str, str], folder: Path
) -> None:
    server = EmbeddedServer(folder / "data" / "agentq" / "server")
    server.start()
    pid = server.pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(server.was_killed, "the server to be gone")

    _, err = run(user, "ls", code=3)

    assert "No server runs" in err
    assert "The server that agentq brought has died: its log does not say why, as when it is killed" in err
    assert str(server.log) in err
    server.start()
    server.stop()
    assert "has died" not in run(user, "ls", code=3)[1]


@pytest.mark.full("seven commands, each a process")
@pytest.mark.needs("root")
def test_a_full_disk_is_named_by_submit_and_by_the_doctor(user: dict[str, str], folder: Path) -> None:
    """Not taken for a fault of the network. There is room again, and everything goes on."""
    place = folder / "data" / "agentq" / "server"
    place.mkdir(parents=True, mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "none", str(place)], check=True)
    try:
        kept = run(user, "submit", "--", "true")[0].strip()
        with suppress(OSError), open(place / "filler", "wb", buffering=0) as filler:
            while True:
                filler.write(b"x" * 4096)
        assert "the disk of" in run(user, "doctor", code=1)[0]
        for _ in range(2):
            assert "disk" in run(user, "submit", "--", "echo", "x" * 9_000, code=3)[1]
        (place / "filler").unlink()
        assert run(user, "submit", "--", "true")[0]
        assert kept in run(user, "ls")[0]
    finally:
        EmbeddedServer(place).stop()
        subprocess.run(["umount", "-l", place], check=True)


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


@pytest.mark.full("takes 3 s")
def test_the_completion_of_a_shell_knows_the_commands(user: dict[str, str]) -> None:
    script, _ = run(user, "completion", "bash")
    assert "_AGENTQ_COMPLETE" in script

    asked = {**user, "_AGENTQ_COMPLETE": "complete_bash", "COMP_CWORD": "1"}
    assert run({**asked, "COMP_WORDS": "agentq su"}, code=0)[0].split() == ["submit"]
    assert run({**asked, "COMP_WORDS": "agentq worker dr", "COMP_CWORD": "2"})[0].split() == ["drain"]
    assert "--queue" in run({**asked, "COMP_WORDS": "agentq submit --qu", "COMP_CWORD": "2"})[0].split()
    assert os.environ.get("_AGENTQ_COMPLETE") is None
