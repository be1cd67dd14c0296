"""The network between one worker and the server fails in every way it can, while another worker is well connected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.attempt_journal import PACE_S, Journal
from support.crew import Crew
from support.network_line import Line
from support.servers import Server, until

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.model.ids import new_nonce

MakeCrew = Callable[..., Crew]


@pytest.fixture
def line(valkey: Server) -> Iterator[Line]:
    with Line(valkey) as line:
        yield line


@pytest.fixture
def journal(folder: Path) -> Journal:
    return Journal(folder / "journal")


@pytest.fixture
def crew(valkey: Server, make_crew: MakeCrew) -> Crew:
    """Whose leases run out in a cut."""
    return make_crew(valkey, namespace=new_nonce(), heartbeat_ms=800, lease_ms=4000, forget_ms=4000)


@pytest.fixture
def patient(valkey: Server, make_crew: MakeCrew) -> Crew:
    """Whose leases outlast everything that is done to them here, also on a machine with too much to do."""
    return make_crew(valkey, namespace=new_nonce(), heartbeat_ms=1000, lease_ms=16_000, forget_ms=12_000)


def completed_once(crew: Crew, runs: list[str]) -> None:
    """Every run is completed, by its first attempt, which cost nobody anything."""
    crew.wait(runs)
    records = [crew.records.get(run) for run in runs]
    assert [attempt for record in records for attempt in record.attempts[:-1]] == []
    assert {record.state for record in records} == {"completed"}
    crew.check()


@pytest.mark.full("takes 10 s")
@pytest.mark.parametrize("deaf", ["", "trap '' TERM;"], ids=["polite", "deaf to SIGTERM"])
def test_p2_p3_a_worker_cut_off_for_longer_than_its_lease_ends_its_runs_before_another_begins_them(
    line: Line, crew: Crew, journal: Journal, deaf: str
) -> None:
    """Nothing closes its connections, so all it has is its clock; and its runs would ask for ten seconds to end."""
    crew.worker(url=line.url, slots=4, label="line=bad")
    runs = [crew.queue.submit(journal.spec(5, before=deaf)).id for _ in range(4)]
    until(lambda: journal.begun() == 4, "4 runs to begin")
    line.cut()
    crew.worker(slots=4)
    until(lambda: journal.begun() == 8, "the runs to begin again", 30)
    line.mend()
    only_there = crew.queue.submit(journal.spec(0, demands={"line": "bad"})).id

    crew.wait([*runs, only_there])

    assert journal.overlaps() == []
    assert {crew.state(run) for run in runs} == {"completed"}
    assert {crew.records.get(run).crashes for run in [*runs, only_there]} <= {0, 1}
    crew.check()


@pytest.mark.full("takes 8 s")
def test_p3_a_worker_cut_off_for_less_than_its_lease_loses_and_repeats_nothing(
    line: Line, patient: Crew, journal: Journal
) -> None:
    patient.worker(url=line.url, slots=4)
    runs = [patient.queue.submit(journal.spec(0.3)).id for _ in range(12)]
    for _ in range(3):
        seen = journal.ended()
        until(lambda seen=seen: journal.ended() > seen or seen == 12, "a run to end")  # type: ignore[misc]
        line.cut()
        back_at = monotonic_ms() + 2 * patient.settings.heartbeat_ms
        until(lambda back_at=back_at: monotonic_ms() >= back_at, "the cut to last")  # type: ignore[misc]
        line.mend()

    completed_once(patient, runs)
    assert journal.begun() == 12


@pytest.mark.full("takes 6 s")
def test_p1_p2_connections_that_are_reset_all_the_time_cost_no_run(line: Line, patient: Crew, journal: Journal) -> None:
    """Whatever was said and not answered is said again, and whatever was delivered and not heard is found again."""
    patient.worker(url=line.url, slots=4)
    runs = [patient.queue.submit(journal.spec(0.1)).id for _ in range(30)]
    resets = 0
    next_at = monotonic_ms()
    while journal.ended() < 30 and resets < 100:
        line.reset()
        resets, next_at = resets + 1, next_at + 200
        until(lambda next_at=next_at: monotonic_ms() >= next_at, "a fifth of a second to pass")  # type: ignore[misc]

    completed_once(patient, runs)
    assert journal.begun() == 30
    assert resets > 3


@pytest.mark.full("takes 9 s")
def test_p3_a_slow_line_makes_a_worker_slow_and_not_lost(line: Line, patient: Crew, journal: Journal) -> None:
    line.delay_ms = 300
    patient.worker(url=line.url, slots=4)
    runs = [patient.queue.submit(journal.spec(4 * PACE_S)).id for _ in range(12)]

    completed_once(patient, runs)
    assert journal.begun() == 12
