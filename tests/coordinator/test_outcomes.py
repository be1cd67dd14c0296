"""Waiting for runs to end: at once, without polling, through whatever happens to the server."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from signal import SIGKILL

import pytest
from support.concurrency import ThreadBarrier, running
from support.servers import Server, until
from support.world import World, checked

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import NotFound, WaitTimedOut
from agentq.coordinator.model.ids import new_run_id
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.runs import end_waiter as outcomes_module
from agentq.coordinator.runs.end_waiter import RunEndWaiter
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.storage.connection import Connection

PROMPT_MS = 25_000
"""Less than a reader's own patience, and than that of those who wait: what comes within it was told, not found."""


@pytest.fixture(autouse=True)
def _patient_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes_module, "FOLLOW_BLOCK_MS", 120_000)


@pytest.fixture
def alone(durable: Server) -> Iterator[World]:
    """On a server that nobody else talks to."""
    with closing(Connection(durable.url)) as connection, checked(connection) as world:
        yield world


class Waiting:
    """Threads that each wait for a run; what they were told, and when."""

    def __init__(self, outcomes: RunEndWaiter, runs: list[str]) -> None:
        self.told: dict[str, RunRecord] = {}
        self.loops = [partial(self._wait, outcomes, run) for run in runs]
        self.runs = runs

    def _wait(self, outcomes: RunEndWaiter, run: str, _: threading.Event) -> None:
        self.told[run] = outcomes.wait(run, 60_000)

    def all_told(self) -> bool:
        return set(self.told) == set(self.runs)


def commands(world: World) -> dict[str, int]:
    """How often each command has been called on the server."""
    text = world.store.connection.command("INFO", "commandstats")
    return {name: int(calls) for name, calls in re.findall(r"cmdstat_(\S+?):calls=(\d+)", text)}


def entered(outcomes: RunEndWaiter, number: int) -> bool:
    """Whether so many threads wait."""
    return sum(len(bells) for reader in outcomes._readers.values() for bells in reader._bells.values()) == number


def finish(world: World, *claims: Claim) -> None:
    assert not any(world.queue.finish([(claim, Outcome(result=claim.id)) for claim in claims]))


def test_a_run_that_has_ended_is_told_at_once(world: World) -> None:
    claim = world.held("w1")
    finish(world, claim)

    ended = world.outcomes.wait(claim.id, 0)

    assert ended.outcome == Outcome(result=claim.id)


def test_a_run_that_there_is_not_is_not_waited_for(world: World) -> None:
    with pytest.raises(NotFound):
        world.outcomes.wait(new_run_id())


@pytest.mark.parametrize("end", ["finish", "cancel", "skip", "expire"])
def test_every_way_to_end_ends_the_wait(world: World, end: str) -> None:
    parent = world.held("w1")
    run = parent.id
    if end == "skip":
        run = world.submit(after=[parent.id])
    elif end in ("cancel", "expire"):
        run = world.submit(expires_ms=1000)
    acts: dict[str, Callable[[], object]] = {
        "finish": partial(finish, world, parent),
        "cancel": partial(world.queue.cancel, run),
        "skip": partial(world.queue.fail, parent, Outcome.model_validate({"class": "exit"})),
        "expire": world.tick,
    }
    waiting = Waiting(world.outcomes, [run])
    with running(*waiting.loops):
        until(lambda: entered(world.outcomes, 1), "the thread to wait")
        world.pass_ms(1000 if end == "expire" else 0)
        acts[end]()
        until(waiting.all_told, "the wait to end", PROMPT_MS / 1000)

    assert waiting.told[run].state in (State.COMPLETED, State.CANCELLED, State.SKIPPED, State.FAILED)


def test_a_run_that_ends_as_its_wait_begins_is_never_missed(world: World) -> None:
    """Note the place, enter the wait, look: in any other order one of these would hang."""
    lease = world.worker("w1")
    with ThreadBarrier(2) as threads:
        for _ in range(150):
            run = world.submit()
            (claim,) = lease.claim(1)
            begun = monotonic_ms()

            _, ended = threads.at_once(partial(finish, world, claim), partial(world.outcomes.wait, run, 30_000))

            assert isinstance(ended, RunRecord)
            assert ended.state is State.COMPLETED
            assert monotonic_ms() - begun < PROMPT_MS


def test_waiting_asks_the_server_nothing(alone: World) -> None:
    """A hundred waits cost a look each and one blocking read for all of them, however long they take."""
    runs = [alone.submit() for _ in range(50)]
    waiting = Waiting(alone.outcomes, runs)
    with running(*waiting.loops):
        until(lambda: entered(alone.outcomes, 50), "all threads to wait")
        until(lambda: commands(alone).get("hgetall", 0) >= 50, "all threads to have looked")
        until(lambda: "blocked_clients:1" in alone.store.connection.command("INFO", "clients"), "the one read to block")
        before = commands(alone)
        until(lambda: commands(alone)["info"] >= before["info"] + 20, "a while to pass")
        more = {name: calls - before.get(name, 0) for name, calls in commands(alone).items()}
        assert {name for name, calls in more.items() if calls} <= {"info", "xread"}
        assert more.get("xread", 0) <= 1, "which ends after some seconds and begins again"
        assert len(re.findall(r"cmd=xread", alone.store.connection.command("CLIENT", "LIST"))) == 1

        finish(alone, *alone.worker("w1").claim(50))
        until(waiting.all_told, "all waits to end", PROMPT_MS / 1000)

    assert commands(alone)["hgetall"] - before["hgetall"] <= 50 + 5, "one more look for each"


def test_only_those_whose_run_ended_look_again(alone: World) -> None:
    runs = [alone.submit() for _ in range(20)]
    lease = alone.worker("w1")
    waiting = Waiting(alone.outcomes, runs)
    with running(*waiting.loops):
        until(lambda: entered(alone.outcomes, 20), "all threads to wait")
        until(lambda: commands(alone).get("hgetall", 0) >= 20, "all threads to have looked")
        claims = lease.claim(20)
        before = commands(alone)["hgetall"]
        finish(alone, claims[0])
        until(lambda: claims[0].id in waiting.told, "the first to be told")
        assert len(waiting.told) == 1
        assert commands(alone)["hgetall"] == before + 1
        finish(alone, *claims[1:])
        until(waiting.all_told, "the others to be told")


def test_many_threads_wait_for_one_run(world: World) -> None:
    claim = world.held("w1")
    with running(*[partial(Waiting(world.outcomes, [claim.id])._wait, world.outcomes, claim.id)] * 10):
        until(lambda: entered(world.outcomes, 10), "all threads to wait")
        finish(world, claim)

    assert entered(world.outcomes, 0), "nothing is kept of a wait that is over"


def test_many_runs_are_waited_for_by_one_thread(world: World) -> None:
    runs = [world.submit() for _ in range(30)]
    found: list[RunRecord] = []
    with running(lambda _: found.extend(world.outcomes.wait_all(runs, 60_000))):
        lease = world.worker("w1")
        for claim in reversed(lease.claim(30)):
            finish(world, claim)

    assert [run.id for run in found] == runs
    assert {run.state for run in found} == {State.COMPLETED}


def test_a_wait_that_takes_too_long_says_what_the_run_waits_for(world: World) -> None:
    parent = world.submit()
    child = world.submit(after=[parent])

    with pytest.raises(WaitTimedOut, match=rf"^The run {child} has not ended in time; it is blocked: dependency.$"):
        world.outcomes.wait(child, 20)
    with pytest.raises(WaitTimedOut, match="it is pending"):
        world.outcomes.wait(parent, 0)

    assert entered(world.outcomes, 0)


def test_the_time_is_that_of_all_runs_together(world: World) -> None:
    runs = [world.submit() for _ in range(5)]
    begun = monotonic_ms()

    with pytest.raises(WaitTimedOut, match=runs[0]):
        world.outcomes.wait_all(runs, 50)

    assert monotonic_ms() - begun < PROMPT_MS


def test_a_wait_goes_on_through_a_killed_server(durable: Server, alone: World) -> None:
    """And sees what ended before, and what ends after."""
    before, after = alone.held("w1"), alone.held("w2")
    waiting = Waiting(alone.outcomes, [before.id, after.id])
    with running(*waiting.loops):
        until(lambda: entered(alone.outcomes, 2), "both threads to wait")
        durable.signal(SIGKILL)
        durable.start()
        finish(alone, before)
        until(lambda: before.id in waiting.told, "the first to be told")
        finish(alone, after)
        until(waiting.all_told, "the second to be told")


def test_a_wait_that_begins_while_the_server_is_away_lasts_as_long_as_it_may(durable: Server, alone: World) -> None:
    claim = alone.held("w1")
    with pytest.raises(WaitTimedOut):
        alone.outcomes.wait(claim.id, 0)
    durable.signal(SIGKILL)
    waiting = Waiting(alone.outcomes, [claim.id])
    with running(*waiting.loops):
        until(lambda: entered(alone.outcomes, 1), "the thread to wait")
        durable.start()
        finish(alone, claim)
        until(waiting.all_told, "the wait to end")


def test_a_wait_sees_an_end_whose_event_is_gone(alone: World) -> None:
    """The stream was trimmed, or deleted, while its reader was cut off: whoever waits looks for itself."""
    claim = alone.held("w1")
    waiting = Waiting(alone.outcomes, [claim.id])
    with running(*waiting.loops):
        until(lambda: entered(alone.outcomes, 1), "the thread to wait")
        key, command = alone.store.key(0, "events"), alone.store.connection.command
        command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        finish(alone, claim)
        command("DEL", key)
        until(waiting.all_told, "the wait to end")


def test_a_reader_that_falls_far_behind_tells_everyone_to_look(alone: World) -> None:
    """More happened than is kept: nobody can know what the missing events were."""
    claim = alone.held("w1")
    waiting = Waiting(alone.outcomes, [claim.id])
    with running(*waiting.loops):
        until(lambda: entered(alone.outcomes, 1), "the thread to wait")
        (reader,) = alone.outcomes._readers.values()
        with reader._lock:  # it can read on, and tell nobody
            other = alone.submit()
            alone.queue.cancel(other)
            finish(alone, claim)
            key = alone.store.key(0, "events")
            list(alone.queue.submit_many([RunSpec(kind="command", argv=["true"])] * 1500))
            alone.store.connection.command("XTRIM", key, "MAXLEN", "=", 1200)
        until(waiting.all_told, "the wait to end", PROMPT_MS / 1000)


def test_closing_takes_no_time(world: World) -> None:
    run = world.submit()
    for _ in range(3):
        with pytest.raises(WaitTimedOut):
            world.outcomes.wait(run, 0)
        begun = monotonic_ms()
        world.outcomes.close()
        assert monotonic_ms() - begun < PROMPT_MS
