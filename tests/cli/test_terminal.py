"""What a person sees: colours on a terminal and nowhere else, and nobody's control bytes anywhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.servers import Server
from support.world import World

from agentq.cli.render import clean, clean_lines
from agentq.coordinator.model.spec import Outcome

Terminal = Callable[..., str]
COMMANDS = [["ls"], ["queue", "ls"], ["config"], ["doctor"], ["worker", "ls"], ["events"]]


@pytest.fixture
def terminal(real: World, valkey: Server, here: Path) -> Terminal:
    """Calls `agentq` on a terminal of its own, 100 columns wide; what it shows there."""

    def call(*argv: str, **variables: str) -> str:
        leader, follower = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "HOME": str(here.parent / "home")}
        environment |= {"AGENTQ_URL": valkey.url, "AGENTQ_NAMESPACE": real.store.keyspace.namespace, **variables}
        program = subprocess.Popen(
            [sys.executable, "-m", "agentq.cli.main", *argv],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env=environment,
        )
        os.close(follower)
        shown = b""
        try:
            while piece := _read(leader):
                shown += piece
            assert program.wait(timeout=20) in (0, 1)
        finally:
            os.close(leader)
            program.kill()
            program.wait()
        return shown.decode().replace("\r\n", "\n")

    return call


def _read(leader: int) -> bytes:
    try:
        return os.read(leader, 65536)
    except OSError:
        return b""  # the last one on the other side has gone


def test_a_terminal_gets_a_table_with_heads_and_colours(terminal: Terminal, real: World) -> None:
    claim = real.held("w1", name="a\x1b[31mb")
    real.queue.finish([(claim, Outcome(exit_code=0))])

    shown = terminal("ls")

    assert "STATE" in shown
    assert "\x1b[32mcompleted\x1b[0m" in shown
    assert r"a\x1b[31mb" in shown
    assert all(len(line) < 180 for line in shown.splitlines())


@pytest.mark.full("takes 3 s")
def test_no_color_takes_the_colours_away(terminal: Terminal, real: World) -> None:
    real.queue.finish([(real.held("w1"), Outcome(exit_code=0))])

    shown = "".join(terminal(*argv, NO_COLOR="1") for argv in (["ls"], ["doctor"], ["show", real.submit()]))

    assert "completed" in shown
    assert "\x1b[3" not in shown


def test_a_pipe_gets_no_colours(real: World, valkey: Server, here: Path) -> None:
    """Not even where the environment begs for them."""
    real.queue.finish([(real.held("w1"), Outcome(exit_code=0))])
    environment = {**os.environ, "TERM": "xterm", "FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "AGENTQ_URL": valkey.url}
    environment["AGENTQ_NAMESPACE"] = real.store.keyspace.namespace
    script = "; ".join(f'"{sys.executable}" -m agentq.cli.main {" ".join(argv)}' for argv in COMMANDS)

    done = subprocess.run(["sh", "-c", script], env=environment, cwd=here, capture_output=True, check=False)

    assert b"completed" in done.stdout
    assert b"\x1b" not in done.stdout + done.stderr


def test_whoever_reads_no_more_ends_it_quietly(real: World, valkey: Server, here: Path) -> None:
    real.submit(argv=["x" * 100_000])
    real.submit(argv=["y" * 100_000])
    environment = {**os.environ, "AGENTQ_URL": valkey.url, "AGENTQ_NAMESPACE": real.store.keyspace.namespace}
    script = f'"{sys.executable}" -m agentq.cli.main ls --json | head -c 10'

    done = subprocess.run(["sh", "-c", script], env=environment, cwd=here, capture_output=True, check=False)

    assert len(done.stdout) == 10
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain äöü ✓ 漢字", "plain äöü ✓ 漢字"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("\x9b31m\x7f\x00", r"\x9b31m\x7f\x00"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\udcff", r"\udcff"),
    ],
)
def test_a_text_is_cleaned_into_one_line(text: str, expected: str) -> None:
    assert clean(text) == expected


def test_a_text_of_many_lines_keeps_them() -> None:
    assert clean_lines("a\tb\r\nc\rd\n\x1b]0;title\x07") == "a\tb\nc\nd\n" + r"\x1b]0;title\x07"


def test_in_a_list_what_a_run_is_gives_way_and_its_id_and_state_stay_whole(terminal: Terminal, real: World) -> None:
    run = real.submit(argv=("echo", *["word"] * 40))

    row = next(line for line in terminal("ls", NO_COLOR="1").splitlines() if line.startswith("run_"))

    assert row.split()[:3] == [run, "pending", "default"]
    assert len(row) <= 100
    assert row.endswith("…")
