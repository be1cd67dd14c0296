"""What protects a user from a slip: swallowed options, names that do not exist, and commands that destroy."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable

import pytest
from cli.conftest import Cli, sentence
from support.world import World

from agentq.cli.main import load_command
from agentq.cli.parse.option_groups import COMMON_OPTIONS, OPTION_GROUPS
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.runs.logs import LogChunk

AFTER_THE_COMMAND = {
    "a value": (["make", "test", "--timeout", "5m"], "--timeout"),
    "an equals sign": (["make", "--timeout=5m"], "--timeout"),
    "a flag": (["sleep", "1", "--follow"], "--follow"),
    "before a -- of the command's own": (["make", "--queue", "a", "--", "--name"], "--queue"),
}


@pytest.mark.parametrize(("words", "option"), AFTER_THE_COMMAND.values(), ids=AFTER_THE_COMMAND.keys())
def test_an_option_of_ours_after_the_command_is_refused(cli: Cli, real: World, words: list[str], option: str) -> None:
    with real.unchanged():
        answer = cli("submit", *words)

    assert f"{option} after the command is passed to {words[0]}" in sentence(answer)
    assert "put it before the command, or write -- before the command" in sentence(answer)
    assert answer.code == 2


@pytest.mark.parametrize(
    "words",
    [
        ["--", "make", "test", "--timeout", "5m"],
        ["make", "--jobs", "4"],
        ["make", "--help"],
        ["tail", "-f", "log"],
        ["env", "--", "--timeout"],
    ],
)
def test_what_the_command_is_meant_to_have_is_passed_to_it(cli: Cli, real: World, words: list[str]) -> None:
    answer = cli("submit", *words)

    assert answer.code == 0
    assert list(real.get(answer.out.strip()).spec.argv) == [word for at, word in enumerate(words) if at or word != "--"]


def test_run_with_a_command_submits_and_follows_it(cli: Cli, real: World, background: Callable[..., None]) -> None:
    background(lambda claim: real.queue.finish([(claim, Outcome(exit_code=0))]))

    answer = cli("run", "--name", "tests", "--", "make", "test", "--queue", "x")

    (run,) = real.records.page().runs
    spec = real.get(run.id).spec
    assert (answer.code, answer.err.splitlines()[-1]) == (0, f"agentq: {run.id} completed, exit 0.")
    assert (spec.name, list(spec.argv)) == ("tests", ["make", "test", "--queue", "x"])


@pytest.mark.redis_only("a coordinator serves one namespace")
def test_the_server_may_be_named_after_any_command(cli: Cli, real: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run, here = real.submit(), real.store.keyspace.namespace
    monkeypatch.setenv("AGENTQ_NAMESPACE", "elsewhere")

    for argv in (["ls", "--namespace", here], ["queue", "ls", "--namespace", here], ["--namespace", here, "ls"]):
        assert cli(*argv).out != "", argv
    submitted = cli("submit", "--namespace", here, "--", "true").out.strip()
    assert {each.id for each in real.records.page().runs} == {run, submitted}


def test_help_shows_the_help_of_a_command(cli: Cli) -> None:
    for words in (["submit"], ["queue", "purge"], ["queue"], []):
        asked, answer = cli(*words, "--help"), cli("help", *words)
        assert answer == asked
        assert asked.out.startswith("Usage: agentq")


def test_help_shows_the_common_options_and_on_request_all_of_them(cli: Cli) -> None:
    for words in (["submit"], ["schedule", "add"], ["session", "send"]):
        common, everything = (set(re.findall(r"--[a-z-]+", cli(*words, how).out)) for how in ("--help", "--help-all"))
        assert {"--queue", "--retries", "--timeout", "--help-all"} < common < everything, words
        assert {"--dedupe-key", "--max-cost", "--never-retry"} < everything - common, words


def test_every_option_of_a_run_stands_in_one_group() -> None:
    grouped = [name for names in OPTION_GROUPS.values() for name in names]
    taken = [param.name for param in load_command("submit").params if param.param_type_name == "option"]
    own = [name for name in taken if name not in {"url", "namespace", "config"}]

    assert sorted(grouped) == sorted(own)
    assert set(grouped) >= COMMON_OPTIONS


def test_an_empty_program_is_refused(cli: Cli, real: World) -> None:
    with real.unchanged():
        answer = cli("submit", "--", "")
        line = cli("submit", "--from-jsonl", "-", stdin='{"argv": ["", "x"]}')

    assert "the command: the program to run is empty" in sentence(answer)
    assert "argv: the program to run is empty" in sentence(line)
    assert (answer.code, line.code) == (2, 2)


def test_an_id_that_does_not_exist_is_repeated_as_it_was_typed(cli: Cli) -> None:
    assert "There is no run 'RUN'" in sentence(cli("why", "RUN"))


def test_a_limit_that_does_not_exist_is_named(cli: Cli, real: World) -> None:
    real.limits.set("repo:acme", most=2)

    good = cli("submit", "--limit", "repo:acme", "--", "true")
    typo = cli("submit", "--limit", "repo:amce", "--", "true")
    lines = cli("submit", "--from-jsonl", "-", stdin='{"argv": ["true"], "limits": {"nope": 1}}\n' * 3)

    assert good.err == ""
    assert (typo.code, typo.err.count("\n")) == (0, 1)
    assert "There is no limit repo:amce, so it limits nothing; did you mean repo:acme?" in typo.err
    assert lines.err.count("There is no limit nope, so it limits nothing; `agentq limit set nope 1`") == 1


def test_a_queue_that_does_not_exist_is_named(cli: Cli, real: World) -> None:
    real.submit(queue="builds")
    real.worker("w1", "served")

    for verb, typo in (("pause", "bulds"), ("drain", "build"), ("purge", "buidls")):
        assert f"no queue is called {typo}; did you mean builds?" in cli("queue", verb, typo).err, verb
        assert "no queue" not in cli("queue", verb, "builds").err, verb
        assert "no queue" not in cli("queue", verb, "served").err, verb


def test_queue_purge_asks_for_yes_and_shows_what_it_would_do(cli: Cli, real: World) -> None:
    runs = [real.submit(queue="builds") for _ in range(3)]

    with real.unchanged():
        shown = cli("queue", "purge", "builds", "--dry-run")
        refused = cli("queue", "purge", "builds")
    done = cli("queue", "purge", "builds", "--yes")

    assert shown.out == "builds\t3 would be cancelled\n"
    assert (refused.code, refused.out) == (2, "")
    assert "3 runs of builds would be cancelled; --yes does it, --dry-run only shows it." in sentence(refused)
    assert done.out == "builds\t3 cancelled\n"
    assert {real.state(run) for run in runs} == {"cancelled"}
    assert cli("queue", "purge", "builds").out == "builds\t0 cancelled\n", "there is nothing to ask for"


@pytest.mark.parametrize(("typed", "state"), [(b"y\n", "cancelled"), (b"\n", "pending")])
def test_on_a_terminal_a_purge_asks_first(
    real: World, start: Callable[..., Terminal], typed: bytes, state: str
) -> None:
    run = real.submit(queue="builds")

    terminal = start("queue", "purge", "builds")
    terminal.waits_at("[y/N]")
    terminal.type(typed)

    assert terminal.code() == (0 if state == "cancelled" else 1)
    assert real.state(run) == state


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, environment: dict[str, str], argv: tuple[str, ...]) -> None:
        self._leader, follower = pty.openpty()
        words = [sys.executable, "-m", "agentq.cli.main", *argv]
        self._program = subprocess.Popen(words, stdin=follower, stdout=follower, stderr=follower, env=environment)
        os.close(follower)
        self.shown = ""

    def waits_at(self, words: str) -> None:
        """Read until it has shown these words."""
        while words not in self.shown:
            assert self._read(), f"{words!r} is not in {self.shown!r}"

    def type(self, keys: bytes) -> None:
        os.write(self._leader, keys)

    def code(self) -> int:
        """Read to the end; the exit code."""
        while self._read():
            pass
        return self._program.wait(timeout=20)

    def _read(self) -> bool:
        try:
            piece = os.read(self._leader, 65536)
        except OSError:
            return False  # the command has closed its side
        self.shown += piece.decode(errors="replace").replace("\r\n", "\n")
        return bool(piece)

    def close(self) -> None:
        os.close(self._leader)
        self._program.kill()
        self._program.wait()


@pytest.fixture
def start(cli: Cli, request: pytest.FixtureRequest) -> Callable[..., Terminal]:
    """Starts `agentq` on a terminal, with the settings that `cli` made."""
    assert cli("version").code == 0
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}

    def make(*argv: str) -> Terminal:
        terminal = Terminal(environment, argv)
        request.addfinalizer(terminal.close)
        return terminal

    return make


def test_a_webhook_to_http_is_refused_where_it_is_added(
    cli: Cli, real: World, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with real.unchanged():
        answer = cli("webhook", "add", "http://example.com/x")
    monkeypatch.setenv("AGENTQ_SERVER_WEBHOOK_HTTP", "true")

    assert "AGENTQ_SERVER_WEBHOOK_HTTP=true allows http" in sentence(answer)
    assert answer.code == 4
    # Over HTTP it is the server's setting that counts, not the command's.
    assert cli("webhook", "add", "http://example.com/x", "--json").code == (0 if backend == "redis" else 4)


CLOSED = [["ls", "--json"], ["logs", "RUN"], ["queue", "ls"], ["--help"]]


@pytest.mark.usefixtures("cli")
@pytest.mark.parametrize("argv", CLOSED, ids=" ".join)
def test_a_closed_pipe_is_code_141_for_every_command(real: World, argv: list[str]) -> None:
    held = real.held("w1", started=True)
    real.queue.log(held, 1, [LogChunk("out", "x" * 5000)])
    reader, writer = os.pipe()
    os.close(reader)
    words = [held.id if word == "RUN" else word for word in argv]

    done = subprocess.run([sys.executable, "-m", "agentq.cli.main", *words], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)

    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("columns", [50, 80, 100])
def test_ids_and_states_are_whole_on_a_narrow_terminal(
    cli: Cli, real: World, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    for number in range(2):
        claim = real.held(f"w{number}", started=True, name=f"a name with many words, number {number}")
        real.queue.fail(claim, Outcome(class_=OutcomeClass.EXIT, error="a long error " * 20))
        runs.append(claim.id)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    for command in (["ls"], ["dead", "ls"]):
        shown = cli(*command).lines
        rows = [line.split() for line in shown if line.startswith("run_")]

        assert sorted(row[0] for row in rows) == sorted(runs)
        assert all(row[1] in ("failed", "exit") for row in rows), shown
        assert all(len(line) <= columns for line in shown), shown


def test_the_version_is_said_by_an_option_as_by_the_command(cli: Cli) -> None:
    assert cli("--version").out == cli("version").out
