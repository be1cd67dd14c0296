"""How the ends of calls reach the server, by two threads that also ask for more."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from support.function_workers import Callers
from support.servers import Server, until
from support.world import World

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import AgentqError, NotAllowed
from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.runs.verbs import Claim, RunVerbs
from agentq.coordinator.storage.connection import Connection
from agentq.coordinator.workers.lease import FunctionOutcome, WorkerIdentity, WorkerLease
from agentq.worker.functions.exchange import FunctionExchange

OK = Outcome().to_wire()


class RecordingExchange:
    """An exchange that records its claims and its reports."""

    def __init__(self, lease: WorkerLease, wanted: Callable[[], int] = lambda: 0, **options: int) -> None:
        self.claims: list[Claim] = []
        self.ended: list[FunctionOutcome] = []
        self.failures: list[AgentqError] = []
        self.before: Callable[[], None] = lambda: None
        """Done when something was heard, before it counts."""
        self.exchange = FunctionExchange(lease, wanted, self._heard, lambda: None, self.failures.append, **options)
        self.exchange.start()

    def _heard(
        self, ended: Sequence[FunctionOutcome], _refusals: Sequence[AgentqError | None], claims: Sequence[Claim]
    ) -> None:
        self.before()
        self.ended += ended
        self.claims += claims


@contextmanager
def leased(server: Server, calls: int) -> Iterator[tuple[WorkerLease, list[Claim]]]:
    """A worker that has claimed so many calls."""
    settings = Settings(url=server.url)
    queue = RunVerbs.open(settings)
    spec = RunSpec(kind="function", function="support.functions:nothing")
    list(queue.submit_many(spec for _ in range(calls)))
    lease = WorkerLease(queue.store, WorkerIdentity(id="w", queues=("default",)), settings)
    lease.register()
    yield lease, lease.claim(0, calls)
    queue.store.connection.close()


def test_room_that_comes_while_the_last_end_is_told_is_filled_at_once(world: World) -> None:
    """Who sees the room then leaves it to the exchange, which is speaking to the server."""
    list(world.queue.submit_many(RunSpec(kind="function", function="support.functions:nothing") for _ in range(2)))
    lease, room = world.worker("w1"), [0]
    (claim,) = lease.claim(0, 1)
    told = RecordingExchange(lease, lambda: room[0])
    told.exchange.resume()

    def seen() -> None:
        room[0] = 0 if told.ended else 1

    told.before = seen
    told.exchange.report([FunctionOutcome(claim, "ok", OK)])

    until(lambda: told.claims, "the next call to be claimed")
    assert told.exchange.close(10_000)


def test_the_threads_together_ask_for_no_more_than_there_is_room_for(world: World) -> None:
    list(world.queue.submit_many(RunSpec(kind="function", function="support.functions:nothing") for _ in range(100)))
    lease, asked = world.worker("w1"), threading.Semaphore(0)

    def wanted() -> int:
        asked.release()
        return 10 - len(told.claims)

    def before() -> None:
        told.before = lambda: None
        while asked.acquire(blocking=False):
            pass
        told.exchange.resume()
        asked.acquire(timeout=5)

    told = RecordingExchange(lease, wanted)
    told.before = before

    told.exchange.resume()
    until(lambda: told.claims, "the calls to come")

    assert told.exchange.close(5_000)
    assert len(told.claims) == 10


def test_what_the_server_refuses_to_hear_is_not_taken_as_told(durable: Server) -> None:
    with leased(durable, 3) as (lease, claims):
        told = RecordingExchange(lease)
        admin = Connection(durable.url)
        admin.command("ACL", "SETUSER", "default", "-evalsha", "-eval")

        told.exchange.report([FunctionOutcome(claim, "ok", OK) for claim in claims])
        until(lambda: told.failures, "the refusal")
        said = told.exchange.close(5_000)

        assert isinstance(told.failures[0], NotAllowed)
        assert not said
        assert told.ended == []
        admin.close()


def test_outcomes_are_bounded_and_kept_while_the_server_is_away_and_the_end_does_not_wait_for_it(
    durable: Server,
) -> None:
    with leased(durable, 300) as (lease, claims):
        told = RecordingExchange(lease, kept_bytes=200 * len(OK))
        durable.signal(signal.SIGKILL)

        told.exchange.report([FunctionOutcome(claim, "ok", OK) for claim in claims[:150]])
        early = told.exchange.is_full
        told.exchange.report([FunctionOutcome(claim, "ok", OK) for claim in claims[150:]])
        late = told.exchange.is_full
        durable.start()
        until(lambda: len(told.ended) == 300, "all to be told")

        assert (early, late, told.exchange.is_full) == (False, True, False)
        durable.signal(signal.SIGKILL)
        told.exchange.report([FunctionOutcome(claims[0], "ok", OK)])
        assert not told.exchange.close(200), "it returns though the server is still away"
        durable.start()


@pytest.mark.full("takes 2 s")
def test_a_worker_that_has_had_its_runs_hands_back_what_came_beside_them(callers: Callers) -> None:
    runs = [callers.submit(), callers.call("noted")]

    assert callers.begin(max_runs=1).wait(timeout=60) == 0

    assert sorted(callers.state(run) for run in runs) == ["completed", "pending"]
    assert sum(callers.effects("begin").values()) == 1
