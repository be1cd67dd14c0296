"""Runs that block all they can, and runs that talk without end: they end by their limits, and hold up nobody."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest
from support.attempt_journal import Journal
from support.concurrency import running
from support.crew import Crew
from support.servers import Server

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.events.stream import PartitionEvents
from agentq.coordinator.runs.logs import Logs

MakeCrew = Callable[..., Crew]
IGNORED = "HUP INT QUIT USR1 USR2 PIPE ALRM TERM TSTP TTIN TTOU"
BLOCKERS = {
    "stops itself": "kill -STOP $$;",
    "stops all that it started": "sleep 1000 & setsid sleep 1000 & kill -STOP 0;",
    "takes every core": "renice -n -20 $$ >/dev/null 2>&1; (while :; do :; done) & while :; do :; done;",
    "fills its pipes and reads nothing": "yes >&2 & yes;",
    "ignores every signal": f"trap '' {IGNORED}; while :; do sleep 1000; done;",
    "waits for what nobody writes": 'mkfifo "$JOURNAL-$$"; read -r _ < "$JOURNAL-$$";',
}
GB = 1_000_000_000
GROWTH_KIB_MAX = 50 * 1024
SLACK_MS = 10_000


@pytest.fixture
def journal(folder: Path) -> Journal:
    return Journal(folder / "journal")


@pytest.fixture
def crew(durable: Server, make_crew: MakeCrew) -> Crew:
    """Whose leases outlast what is done to the machine here."""
    return make_crew(durable, heartbeat_ms=1000, tick_ms=1000)


def told(crew: Crew) -> set[str]:
    return {event.event for event in PartitionEvents(crew.queue.store).replay()}


@contextmanager
def growth_kib(pid: int) -> Iterator[Callable[[], int]]:
    """By how much a process has been larger, at any time in the block, than at its beginning."""

    def resident() -> int:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024

    first = most = resident()

    def look(stop: Event) -> None:
        nonlocal most
        while not stop.wait(0.02):
            most = max(most, resident())

    with running(look):
        yield lambda: most - first


@pytest.mark.full("takes 4 s")
@pytest.mark.parametrize("blocker", BLOCKERS.values(), ids=BLOCKERS.keys())
def test_p3_p6_a_run_that_blocks_all_it_can_ends_by_its_timeout_and_holds_up_nobody(
    crew: Crew, journal: Journal, blocker: str
) -> None:
    crew.worker(slots=2)
    limits = {"timeout_ms": 2500, "stop_grace_ms": 500, "stdin": "x" * 1_000_000}
    bad = crew.queue.submit(journal.spec(0, before=blocker, **limits)).id
    good = [crew.queue.submit(journal.spec(0.1)).id for _ in range(5)]

    crew.wait(good)
    crew.wait([bad])

    record = crew.records.get(bad)
    assert record.outcome is not None
    assert (record.state, record.outcome.class_, record.crashes) == ("failed", "timeout", 0)
    assert record.finished_at_ms is not None
    assert record.started_at_ms is not None
    assert record.finished_at_ms - record.started_at_ms < 2500 + 500 + SLACK_MS
    assert {crew.state(run) for run in good} == {"completed"}
    assert not told(crew) & {"lost", "released"}
    assert journal.survivors() == []
    crew.check()


@pytest.mark.full("takes 9 s")
def test_p4_a_gigabyte_from_a_run_leaves_its_workers_memory_flat(crew: Crew) -> None:
    worker = crew.worker(slots=2)
    crew.wait([crew.submit("seq 1000")])
    with growth_kib(worker.pid) as growth:
        flood = crew.submit(f"yes 'a line of a flood' | head -c {GB}; head -c 100000000 /dev/zero; echo; echo the end")
        crew.outcomes.wait_all([flood], 120_000)

        assert growth() < GROWTH_KIB_MAX
    assert crew.state(flood) == "completed"
    assert "".join(entry.text for entry in Logs(crew.queue.store).follow(flood)).endswith("\nthe end\n")
    assert not told(crew) & {"lost", "released"}
    crew.check()


@pytest.mark.full("takes 3 s")
def test_p4_sixty_four_runs_that_talk_at_once_are_all_heard_to_the_end(crew: Crew) -> None:
    """Small lines, one after the other, as agents write them."""
    worker = crew.worker(slots=64)
    crew.wait([crew.submit("seq 1000")])
    with growth_kib(worker.pid) as growth:
        talk = "for i in $(seq 40); do echo line $i of $AGENTQ_RUN_ID; sleep 0.05; done"
        runs = [crew.submit(talk) for _ in range(64)]
        crew.outcomes.wait_all(runs, 120_000)

        assert growth() < GROWTH_KIB_MAX
    assert {crew.state(run) for run in runs} == {"completed"}
    for run in runs:
        text = "".join(entry.text for entry in Logs(crew.queue.store).follow(run))
        assert text == "".join(f"line {number} of {run}\n" for number in range(1, 41))
    assert not told(crew) & {"lost", "released"}


@pytest.mark.full("takes 2 s")
def test_p4_a_run_that_closes_its_streams_is_still_waited_for(crew: Crew) -> None:
    crew.worker()
    began = monotonic_ms()
    run = crew.submit("echo last words; exec >&- 2>&- <&-; sleep 1.5")

    crew.wait([run])

    assert monotonic_ms() - began >= 1500
    assert crew.effects("end")[run] == 1
    assert [entry.text for entry in Logs(crew.queue.store).follow(run)] == ["last words\n"]
    crew.check()
