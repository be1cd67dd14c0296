"""The commands that change runs and workers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli.conftest import Cli, sentence
from support.coordinator_thread import CoordinatorThread
from support.leases import end_lease
from support.servers import until
from support.world import World

from agentq.coordinator.duties.reaper import Reaper
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.queues.limits import Limits
from agentq.coordinator.runs.logs import LogChunk
from agentq.coordinator.security.tokens import Tokens
from agentq.coordinator.sessions.verbs import Sessions
from agentq.coordinator.token_context import use_token
from agentq.worker.cleanup.takeover import describe_process


@contextmanager
def once_somebody_waits(real: World, act: Callable[[], object]) -> Iterator[None]:
    """Do something when one more request waits on the coordinator, or one more blocking read on the server, whichever
    of others have ended."""

    def blocked() -> set[str]:
        if CoordinatorThread.running:
            return {f"request {number}" for each in CoordinatorThread.running for number in range(each.waits)}
        clients = str(real.store.connection.command("CLIENT", "LIST")).splitlines()
        return {client.split()[0] for client in clients if " flags=b" in client}

    def wait() -> None:
        until(lambda: blocked() - before, "a blocking read")
        act()

    if CoordinatorThread.running:
        until(lambda: not blocked(), "requests of earlier commands to end")
    before = blocked()

    thread = threading.Thread(target=wait)
    thread.start()
    yield
    thread.join()


def test_cancel_ends_what_waits_and_stops_what_runs(cli: Cli, real: World) -> None:
    held = real.held("w1", started=True)
    waiting = real.submit()

    answer = cli("cancel", waiting, held.id, "--reason", "enough")

    assert answer.lines == [f"{waiting}\tcancelled", f"{held.id}\trunning\tis being stopped"]
    assert answer.code == 0
    outcome = real.get(waiting).outcome
    assert outcome is not None
    assert outcome.error == "enough"
    assert real.get(held.id).stop_at_ms is not None


def test_one_that_cannot_be_cancelled_keeps_no_other_from_it(cli: Cli, real: World) -> None:
    done = real.held("w1", started=True)
    real.queue.finish([(done, Outcome())])
    waiting = real.submit()

    answer = cli("cancel", done.id, waiting, "--json")

    assert json.loads(answer.out) == {"id": waiting, "state": "cancelled"}
    assert answer.err == f"agentq: The run {done.id} is completed; this verb does not apply to that state.\n"
    assert answer.code == 5


def test_retry_lets_an_ended_run_begin_again(cli: Cli, real: World) -> None:
    run = real.submit()
    real.queue.cancel(run)

    answer = cli("retry", run[:24])

    assert answer.lines == [f"{run}\tpending"]
    assert real.state(run) == "pending"


def test_wait_tells_how_each_ended(cli: Cli, real: World) -> None:
    good, bad = real.held("w1", started=True), real.submit()
    real.queue.finish([(good, Outcome(exit_code=0))])
    real.queue.cancel(bad)

    answer = cli("wait", good.id, bad)

    assert answer.lines == [f"{good.id}\tcompleted\texit 0", f"{bad}\tcancelled"]
    assert answer.code == 1
    assert cli("wait", good.id).code == 0


def test_wait_hears_of_an_end_that_is_to_come(cli: Cli, real: World) -> None:
    held = real.held("w1", started=True)

    with once_somebody_waits(real, lambda: real.queue.finish([(held, Outcome(exit_code=0))])):
        answer = cli("wait", held.id, "--timeout", "20s")

    assert answer.lines == [f"{held.id}\tcompleted\texit 0"]


def test_who_waits_for_an_agent_that_no_worker_has_is_told_once(cli: Cli, real: World) -> None:
    with once_somebody_waits(real, lambda: real.queue.cancel(real.records.page().runs[0].id)):
        answer = cli("submit", "--agent", "claude", "--wait", "Fix it")

    assert answer.err.count("o worker") == 1, answer.err
    assert answer.err.endswith(f"agentq: {answer.out.strip()} cancelled.\n")


def test_a_worker_is_listed_shown_and_drained(cli: Cli, real: World) -> None:
    lease = real.worker("host-1-abc", "a", "b", slots=3, labels={"gpu": "a100"})

    assert cli("worker", "ls").lines[0].split("\t")[:3] == ["host-1-abc", "ready", "0/3"]
    record = json.loads(cli("worker", "show", "host", "--json").out)
    assert (record["queues"], record["labels"], record["runs"]) == (["a", "b"], {"gpu": "a100"}, [])
    assert "gpu=a100" in cli("worker", "show", "host").out

    assert cli("worker", "drain", "host-1").lines == ["host-1-abc\tdraining"]

    assert lease.heartbeat().draining
    assert cli("worker", "ls").lines[0].split("\t")[1] == "draining"


def test_a_worker_that_left_is_listed_on_request_and_shown_with_its_end(cli: Cli, real: World) -> None:
    real.worker("w1").deregister()
    real.worker("w2")

    assert [line.split("\t")[0] for line in cli("worker", "ls").lines] == ["w2"]
    first, second = (line.split("\t") for line in cli("worker", "ls", "--all").lines)
    assert (first[:2], second[:2]) == (["w1", "left"], ["w2", "ready"])
    assert first[4] == json.loads(cli("worker", "show", "w1", "--json").out)["ended_at"]
    assert "runs ended" in cli("worker", "show", "w1").out
    assert cli("worker", "drain", "w1").code == 2


def test_a_worker_that_drains_can_be_told_once_to_end_now(cli: Cli, real: World) -> None:
    lease = real.worker("w1")
    cli("worker", "drain", "w1")

    answers = [cli("worker", "stop", "w1", "--json") for _ in range(3)]

    assert {answer.code for answer in answers} == {0}
    assert json.loads(answers[2].out) == {"id": "w1", "state": "draining"}
    assert [order.order for order in lease.heartbeat().orders] == ["drain", "hurry"]
    assert cli("worker", "drain", "w1").code == 0
    assert [order.order for order in lease.heartbeat().orders] == ["drain", "hurry"], "a drain does not take it back"


def test_a_beginning_that_fits_several_workers_is_refused(cli: Cli, real: World) -> None:
    real.worker("host-1-abc")
    real.worker("host-1-def")

    answer = cli("worker", "drain", "host")

    assert "host-1-abc, host-1-def" in sentence(answer)
    assert answer.code == 2


@pytest.mark.redis_only("agentq reap does the duties of the store itself")
def test_reap_finds_nothing_to_do(cli: Cli, real: World) -> None:
    real.worker("w1")

    answer = cli("reap", "--json")

    assert json.loads(answer.out) == {"lost": [], "runs": 0, "doubtful": 0, "scheduled": 0}
    assert answer.code == 0


@pytest.mark.redis_only("agentq reap does the duties of the store itself")
def test_reap_requeues_what_a_dead_worker_held_and_says_so_by_its_code(
    cli: Cli, real: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTQ_REAP_GRACE_MS", "20")
    run = real.held("w1").id
    Reaper(real.store, real.settings).reap(0)  # the server is watched from now on
    end_lease(real.store, "w1")

    answer = cli("reap")

    assert answer.lines == ["Lost w1; 1 run requeued."]
    assert answer.code == 10
    assert real.state(run) == "pending"


@pytest.mark.redis_only("agentq reap does the duties of the store itself")
@pytest.mark.full("takes 2 s")
@pytest.mark.usefixtures("cli")
def test_reap_requeues_at_once_what_a_worker_held_whose_process_on_this_host_is_dead(real: World) -> None:
    """Nobody has to wait for its lease to end."""
    text = (
        "import json; from agentq.worker.cleanup.takeover import describe_process; "
        "print(json.dumps(describe_process()))"
    )
    mark = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True).stdout
    run = real.submit()
    (claim,) = real.worker("w1", about=json.loads(mark)).claim(1)
    living = real.worker("w2", about=describe_process())

    reap = subprocess.run([sys.executable, "-m", "agentq.cli.main", "reap"], capture_output=True, text=True)

    assert claim.id == run
    assert reap.stdout == "Lost w1; 1 run requeued.\n"
    assert reap.returncode == 10
    assert real.state(run) == "pending"
    assert living.heartbeat().orders == []


def test_logs_keep_the_streams_apart(cli: Cli, real: World) -> None:
    held = real.held("w1", started=True)
    real.queue.log(
        held,
        1,
        [LogChunk("out", "one\n"), LogChunk("err", "two\n"), LogChunk("note", "three"), LogChunk("out", "four\n")],
    )

    answer = cli("logs", held.id)

    assert answer.out == "one\nfour\n"
    assert answer.err == "two\nagentq: three\n"
    records = [json.loads(line) for line in cli("logs", held.id, "--json").lines]
    assert [(each["stream"], each["attempt"]) for each in records] == [("out", 1), ("err", 1), ("note", 1), ("out", 1)]


def test_logs_follow_until_the_run_has_ended(cli: Cli, real: World) -> None:
    held = real.held("w1", started=True)
    real.queue.log(held, 1, [LogChunk("out", "begin\n")])

    def end() -> None:
        real.queue.log(held, 2, [LogChunk("out", "end\n")])
        real.queue.finish([(held, Outcome(exit_code=0))])

    with once_somebody_waits(real, end):
        answer = cli("logs", "-f", held.id)

    assert answer.out == "begin\nend\n"
    assert answer.code == 0


def test_logs_show_the_lines_that_are_wanted(cli: Cli, real: World) -> None:
    held = real.held("w1", started=True)
    real.queue.log(held, 1, [LogChunk("out", "one\ntw"), LogChunk("err", "oops\n"), LogChunk("out", "o\nthree\nfo")])

    assert cli("logs", held.id, "-n", "2").out == "three\nfo\n"
    tail = cli("logs", held.id, "--tail", "3")
    assert (tail.out, tail.err) == ("two\nthree\nfo\n", "")
    stamped = cli("logs", held.id, "--timestamps")
    assert [line.split("  ")[1] for line in stamped.lines] == ["one", "two", "three", "fo"]
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z  ", line) for line in stamped.lines)
    assert cli("logs", held.id, "--since", "1h").out == "one\ntwo\nthree\nfo"
    assert [json.loads(line)["text"] for line in cli("logs", held.id, "-n", "1", "--json").lines] == ["o\nthree\nfo"]


def test_logs_of_one_attempt_leave_the_others_out(cli: Cli, real: World) -> None:
    held = real.held("w1", started=True)
    real.queue.log(held, 1, [LogChunk("out", "first\n")])
    real.queue.fail(held, Outcome(exit_code=1, class_=OutcomeClass.EXIT))
    real.queue.requeue(held.id)
    (again,) = real.worker("w2").claim(1)
    real.queue.start([again])
    real.queue.log(again, 1, [LogChunk("out", "second\n")])

    assert cli("logs", held.id, "--attempt", "2").out == "second\n"
    assert cli("logs", held.id, "--attempt", "1").out == "first\n"


def test_logs_follow_from_the_newest_lines(cli: Cli, real: World) -> None:
    held = real.held("w1", started=True)
    real.queue.log(held, 1, [LogChunk("out", "one\ntwo\nthr")])

    def end() -> None:
        real.queue.log(held, 2, [LogChunk("out", "ee\n")])
        real.queue.finish([(held, Outcome(exit_code=0))])

    with once_somebody_waits(real, end):
        assert cli("logs", "-f", "-n", "1", held.id).out == "two\nthree\n"


def test_logs_in_full_come_from_the_workers_file(
    cli: Cli, real: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTQ_HOME", str(tmp_path))
    run = real.submit()

    assert "no file of what" in sentence(cli("logs", "--full", run))

    folder = tmp_path / "logs" / run
    folder.mkdir(parents=True)
    for name, text in (
        ("2-b.log.newer", "d"),
        ("10-a.log", "e"),
        ("2-b.log", "b"),
        ("1-z.log", "a"),
        ("2-b.log.older", "c"),
    ):
        (folder / name).write_text(text)
    assert cli("logs", "--full", run).out == "abcde"


def test_what_is_said_of_a_limit_is_one_line_whose_columns_are_parted_by_tabs(cli: Cli, real: World) -> None:
    printed = {
        ("set", "repo:acme", "3", "--rate", "10/1m"): "3 runs at once and 10 in 1 m",
        ("shut", "repo:acme", "--until", "2030-01-01T00:00:00Z"): "shut until 2030-01-01T00:00:00.000Z",
        ("open", "repo:acme"): "open",
        ("rm", "repo:acme"): "not limited any more",
    }

    for words, told in printed.items():
        assert cli("limit", *words).out == f"repo:acme\t{told}\n"
    assert Limits(real.store).all() == []


def test_a_token_is_revoked_with_what_it_made(cli: Cli, real: World, backend: str) -> None:
    """What another token made stays, and so does what is written to Redis itself, which bears none."""
    made, _ = Tokens(real.store).new("ci", ["submit"])
    with use_token(made.id):
        hidden, _ = Tokens(real.store).new("hidden", ["submit"])
        run = real.submit()
        Sessions(real.store).new("chat", "claude")
    kept = cli("submit", "--", "true").out.split()[0]

    answer = cli("token", "revoke", "--with-what-it-made", "ci")

    tokens = [f"token {made.id}\trevoked", f"token {hidden.id}\trevoked"]
    assert (answer.code, sorted(answer.lines)) == (
        0,
        sorted([*tokens, "session chat\tclosed", f"run {run}\tcancelled"]),
    )
    assert (real.get(run).state, real.get(kept).state) == ("cancelled", "pending")
    assert (real.get(kept).made_by, cli("token", "ls").out.count(made.id)) == ("local" if backend == "http" else "", 0)
    again = cli("token", "revoke", "--with-what-it-made", made.id)
    assert (again.code, sentence(again)) == (2, f"There is no token {made.id}, and nothing that it has made.")
