"""The server fails under workers that are well: full, frozen, and replaced by a replica that knows less than it did."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chaos.fleet import passed
from support.attempt_journal import Journal
from support.crew import TIMES, Crew
from support.network_line import Line
from support.servers import Server, free_port, until, valkey_binary

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import NotFound, TryLater
from agentq.coordinator.events.stream import PartitionEvents
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.runs.queries import RunQueries
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.coordinator.storage.connection import Connection

MakeCrew = Callable[..., Crew]


@pytest.fixture
def journal(folder: Path) -> Journal:
    return Journal(folder / "journal")


@pytest.fixture
def replicated(folder: Path) -> Iterator[tuple[Server, Server]]:
    """A server and its replica."""
    options = ("--repl-diskless-sync-delay", "0")
    primary, replica = (
        Server(valkey_binary(), folder / name, *options, port=free_port()).start() for name in ("one", "two")
    )
    command = Connection(replica.url).command
    command("REPLICAOF", "127.0.0.1", primary.port)
    until(lambda: command("ROLE")[3] == "connected", "the replica to be in step")
    yield primary, replica
    primary.stop()
    replica.stop()


def events(crew: Crew) -> set[str]:
    return {event.event for event in PartitionEvents(crew.queue.store).replay()}


def knows(records: RunQueries, run: str) -> str:
    """The state of a run on a server that may not have heard of it."""
    try:
        return records.get(run).state.value
    except NotFound:
        return ""


@pytest.mark.full("takes 2 s")
def test_p1_p4_a_full_server_takes_nothing_new_and_everything_in_it_is_worked_off(
    durable: Server, make_crew: MakeCrew, journal: Journal
) -> None:
    """Also what writes a lot: its log is refused meanwhile, and that holds nothing up."""
    crew = make_crew(durable)
    command = crew.queue.store.connection.command
    runs = [crew.queue.submit(journal.spec(0.1, before="seq 1000;")).id for _ in range(30)]
    command("CONFIG", "SET", "maxmemory", 1_000_000)
    with pytest.raises(TryLater, match="maxmemory"):
        crew.queue.submit(journal.spec(0))
    crew.worker(slots=5)

    crew.wait(runs)

    assert {crew.state(run) for run in runs} == {"completed"}
    assert journal.begun() == 30
    with pytest.raises(TryLater, match="maxmemory"):
        crew.queue.submit(journal.spec(0))
    command("CONFIG", "SET", "maxmemory", 0)
    crew.wait([crew.queue.submit(journal.spec(0)).id])
    crew.check()


@pytest.mark.full("takes 7 s")
def test_p3_a_server_that_is_frozen_for_longer_than_a_lease_declares_nobody_lost(
    durable: Server, make_crew: MakeCrew, journal: Journal
) -> None:
    """The workers cannot know that nobody else has a say either; they end their runs, and it costs the runs nothing."""
    crew = make_crew(durable, heartbeat_ms=800, lease_ms=4000, forget_ms=4000)
    for _ in range(2):
        crew.worker(slots=2)
    runs = [crew.queue.submit(journal.spec(7)).id for _ in range(4)]
    until(lambda: journal.begun() == 4, "4 runs to begin")
    durable.signal(signal.SIGSTOP)
    until(passed(3 * crew.settings.lease_ms // 2), "the freeze to last")
    durable.signal(signal.SIGCONT)

    crew.wait(runs)

    records = [crew.records.get(run) for run in runs]
    assert {(record.state, record.crashes) for record in records} == {(State.COMPLETED, 0)}
    assert {attempt.verb for record in records for attempt in record.attempts[:-1]} == {"release"}
    assert "lost" not in events(crew)
    assert journal.overlaps() == []
    crew.check()


@pytest.mark.full("takes 9 s")
def test_p2_what_a_promoted_replica_does_not_know_runs_again_under_a_new_fence_and_never_beside_itself(
    replicated: tuple[Server, Server], make_crew: MakeCrew, journal: Journal
) -> None:
    """The replica has seen a run wait that is held by now; one in hand that has ended; and never saw a third."""
    primary, replica = replicated
    crew = make_crew(primary, **TIMES)
    replicas = RunVerbs.open(Settings(url=replica.url), bootstrap=False).store
    command, known = replicas.connection.command, RunQueries(replicas)
    with Line(primary) as line:
        crew.worker(url=line.url, slots=2)
        long, ended = crew.queue.submit(journal.spec(5)).id, crew.queue.submit(journal.spec(2)).id
        until(lambda: journal.begun() == 2, "2 runs to begin")
        waiting = crew.queue.submit(journal.spec(3)).id
        until(lambda: knows(known, long) == knows(known, ended) == "running", "the replica to know two that run")
        until(lambda: knows(known, waiting) == "pending", "the replica to know one that waits")
        command("REPLICAOF", "127.0.0.1", 1)
        unknown = crew.queue.submit(journal.spec(0)).id
        until(lambda: len(journal.of(waiting)) == 1, "the third run to begin")
        assert crew.state(ended) == "completed"

        primary.signal(signal.SIGKILL)
        command("REPLICAOF", "NO", "ONE")
        line.lead_to(replica)
        after = make_crew(replica, **TIMES)
        after.wait([long, ended, waiting])

        assert journal.overlaps() == []
        lives = {run: [life.ended for life in journal.of(run)] for run in (long, ended, waiting, unknown)}
        assert lives[waiting] == [False, True], "it was ended, and ran again"
        assert lives[ended] == [True, True], "the effect twice, each under its own fence"
        assert len({life.fence for run in (ended, waiting) for life in journal.of(run)}) == 4
        assert {after.state(run) for run in (long, ended, waiting)} == {"completed"}
        assert knows(known, unknown) == "", "what was lost with the primary is not there"
        after.check()
        crew.workers[0].send_signal(signal.SIGTERM)
        assert crew.workers[0].wait(timeout=60) == 0
