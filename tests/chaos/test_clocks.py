"""A host's clock is set while runs go on: the server's, which judges leases; a worker's, which judges nothing."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chaos.clock import HOUR_S, Clock, durable_server
from chaos.fleet import passed
from support.attempt_journal import Journal
from support.crew import Crew
from support.servers import Server, until

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.events.stream import PartitionEvents

pytestmark = pytest.mark.needs("libfaketime")

MakeCrew = Callable[..., Crew]
TIMES = {"heartbeat_ms": 1000, "lease_ms": 6000, "reap_grace_ms": 500, "tick_ms": 1000, "forget_ms": 3000}
JUMPS = {
    "less than a gap": (2,),
    "three hours ahead": (3 * HOUR_S,),
    "three hours back": (-3 * HOUR_S,),
    "ahead and back": (3 * HOUR_S, -3 * HOUR_S),
}
SLACK_MS = 10_000
"""For a machine with much else to do."""


@pytest.fixture
def clock(folder: Path) -> Clock:
    return Clock(folder)


@pytest.fixture
def server(folder: Path, clock: Clock) -> Iterator[Server]:
    """Whose clock can be set."""
    server = durable_server(folder, clock).start()
    yield server
    server.stop()


@pytest.fixture
def journal(folder: Path) -> Journal:
    return Journal(folder / "journal")


def told(crew: Crew) -> set[str]:
    return {event.event for event in PartitionEvents(crew.queue.store).replay()}


def set_clock(crew: Crew, clock: Clock, jump_s: int) -> None:
    """Set the server's clock, and see that the server has noticed."""

    def by_clock_ms() -> int:
        seconds, micros = crew.queue.store.connection.command("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    ahead_ms = by_clock_ms() - monotonic_ms() + jump_s * 1000
    clock.jump(jump_s)
    until(lambda: abs(by_clock_ms() - monotonic_ms() - ahead_ms) < 1000, "the server to look at its clock")


@pytest.mark.parametrize("jumps", JUMPS.values(), ids=JUMPS.keys())
def test_p2_p3_the_servers_clock_is_set_and_no_live_worker_is_lost_and_nothing_runs_twice(
    server: Server, clock: Clock, make_crew: MakeCrew, journal: Journal, jumps: tuple[int, ...]
) -> None:
    """And whoever dies by that time is found out as fast as by any other."""
    crew = make_crew(server, **TIMES)
    _, mortal = crew.worker(slots=2), crew.worker(slots=2, label="soul=none")
    runs = [crew.queue.submit(journal.spec(5)).id for _ in range(4)]
    until(lambda: journal.begun() == 4, "4 runs to begin")
    for jump in jumps:
        set_clock(crew, clock, jump)
        until(passed(1500), "some heartbeats and a reaper's round")
    runs += [crew.queue.submit(journal.spec(0.2)).id for _ in range(4)]

    crew.wait(runs)

    assert journal.begun() == len(runs)
    assert not told(crew) & {"lost", "released"}
    last = crew.queue.submit(journal.spec(1.5, demands={"soul": "none"})).id
    until(lambda: len(journal.of(last)) == 1, "a run to begin")
    mortal.send_signal(signal.SIGKILL)
    dead_at = monotonic_ms()
    crew.worker(label="soul=none")
    crew.wait([last])
    assert monotonic_ms() - dead_at < crew.settings.lease_ms + 3 * crew.settings.tick_ms + SLACK_MS
    assert journal.overlaps() == []
    crew.check()


def test_p3_a_worker_that_died_before_the_clock_was_set_back_is_lost_though_it_had_every_lock(
    server: Server, clock: Clock, make_crew: MakeCrew, journal: Journal
) -> None:
    """By the server's clock its lease, and its locks on the duties, have three hours to go."""
    crew = make_crew(server, **TIMES)
    victim = crew.worker(slots=2)
    keeper = crew.queue.store.key(0, "duty_owner")
    command = crew.queue.store.connection.command
    until(lambda: command("GET", keeper) == crew.name_of(victim), "the first worker to do the duties")
    runs = [crew.queue.submit(journal.spec(1)).id for _ in range(2)]
    until(lambda: journal.begun() == 2, "2 runs to begin")
    crew.worker(slots=2)

    victim.send_signal(signal.SIGKILL)
    set_clock(crew, clock, -3 * HOUR_S)

    crew.wait(runs)
    assert {crew.state(run) for run in runs} == {"completed"}
    assert journal.overlaps() == []
    crew.check()


@pytest.mark.parametrize("jump", [3 * HOUR_S, -3 * HOUR_S], ids=["ahead", "back"])
def test_p3_the_clock_of_a_worker_decides_nothing(
    durable: Server, clock: Clock, make_crew: MakeCrew, journal: Journal, jump: int
) -> None:
    """Neither when its runs have taken too long, nor how long it may trust its lease."""
    crew = make_crew(durable, **TIMES)
    crew.worker(slots=3, environment=clock.environment)
    calm = [crew.queue.submit(journal.spec(3, timeout_ms=60_000)).id for _ in range(2)]
    endless = crew.queue.submit(journal.spec(600, timeout_ms=3000, stop_grace_ms=500)).id
    until(lambda: journal.begun() == 3, "3 runs to begin")

    clock.jump(jump)
    crew.wait([*calm, endless])

    assert [crew.state(run) for run in (*calm, endless)] == ["completed", "completed", "failed"]
    outcome = crew.records.get(endless).outcome
    assert outcome is not None
    assert outcome.class_ == "timeout"
    assert not told(crew) & {"lost", "released"}
    assert journal.survivors() == []
    crew.check()
