"""Broken connections of workers at any moment lose and repeat nothing."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.attempt_journal import PACE_S, Journal
from support.crew import TIMES, Crew
from support.http_servers import MakeServing, Serving
from support.network_line import Line
from support.servers import Server, until

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.workers.lease import order_drain

pytestmark = pytest.mark.full("lines are cut and frozen until leases run out")

MakeCrew = Callable[..., Crew]
PATIENT = {"heartbeat_ms": 1000, "lease_ms": 8000, "forget_ms": 6000}
"""Leases that outlast everything that is done to them here, also on a machine with too much to do."""


@pytest.fixture
def journal(folder: Path) -> Journal:
    return Journal(folder / "journal")


@pytest.fixture
def patient(valkey: Server, make_serving: MakeServing) -> Serving:
    return make_serving(valkey, **PATIENT)


@pytest.fixture
def line(patient: Serving) -> Iterator[Line]:
    with Line(patient) as line:
        yield line


@pytest.fixture
def crew(valkey: Server, patient: Serving, make_crew: MakeCrew) -> Crew:
    return make_crew(valkey, namespace=patient.settings.namespace, **PATIENT)


def pass_ms(milliseconds: int) -> None:
    until_ms = monotonic_ms() + milliseconds
    until(lambda: monotonic_ms() >= until_ms, "time to pass")


def completed_once(crew: Crew, journal: Journal, runs: list[str]) -> None:
    """Every run is completed, by its first attempt, which cost nobody anything."""
    crew.wait(runs)
    records = [crew.records.get(run) for run in runs]
    assert [attempt for record in records for attempt in record.attempts[:-1]] == []
    assert {record.state for record in records} == {"completed"}
    assert journal.begun() == len(runs)
    crew.check()


def test_a_worker_that_is_cut_off_for_longer_than_its_lease_ends_its_runs_before_another_begins_them(
    valkey: Server, make_serving: MakeServing, make_crew: MakeCrew, journal: Journal
) -> None:
    """Nothing closes its connections, so all it has is its clock; what it then hears of is another life of it."""
    serving = make_serving(valkey, **TIMES)
    crew = make_crew(valkey, namespace=serving.settings.namespace)
    with Line(serving) as line:
        crew.worker_through(line.url, slots=2, label="line=bad")
        runs = [crew.queue.submit(journal.spec(4)).id for _ in range(2)]
        until(lambda: journal.begun() == 2, "2 runs to begin")
        line.cut()
        crew.begin(slots=2)
        until(lambda: journal.begun() == 4, "the runs to begin again", 60)
        line.mend()
        only_there = crew.queue.submit(journal.spec(0, demands={"line": "bad"})).id
        crew.wait([*runs, only_there])

    assert journal.overlaps() == []
    assert {crew.state(run) for run in runs} == {"completed"}
    crew.check()


def test_a_run_that_ends_while_the_line_is_dead_is_told_once_and_an_order_of_that_time_is_heard_after_it(
    line: Line, crew: Crew, journal: Journal
) -> None:
    """A black hole for less than the lease: no FIN, no RST, and then everything at once."""
    worker = crew.worker_through(line.url, slots=2)
    ends, goes_on = crew.queue.submit(journal.spec(0.5)).id, crew.queue.submit(journal.spec(60)).id
    until(lambda: journal.begun() == 2, "both to begin")
    line.cut()
    until(lambda: journal.ended() == 1, "one to end")
    crew.queue.cancel(goes_on)
    order_drain(crew.queue.store, 0, crew.name_of(worker), "a test")
    later = crew.queue.submit(journal.spec(0)).id
    line.mend()

    crew.wait([ends, goes_on])
    assert worker.wait(20) == 0
    assert [crew.state(run) for run in (ends, goes_on, later)] == ["completed", "cancelled", "pending"]
    assert [len(crew.records.get(run).attempts) for run in (ends, goes_on)] == [1, 1]
    assert journal.survivors() == []
    crew.queue.cancel(later)


def test_connections_that_are_reset_all_the_time_cost_no_run(line: Line, crew: Crew, journal: Journal) -> None:
    """Whatever was said and not answered is said again, and whatever was delivered and not heard is found again."""
    crew.worker_through(line.url, slots=4)
    runs = [crew.queue.submit(journal.spec(0.1)).id for _ in range(20)]
    for _ in range(8):
        seen = journal.begun()
        line.reset()
        until(lambda seen=seen: journal.begun() > seen or seen == 20, "something to happen")  # type: ignore[misc]

    completed_once(crew, journal, runs)


def test_a_flood_of_output_on_a_slow_line_holds_up_no_heartbeat(
    valkey: Server, make_serving: MakeServing, make_crew: MakeCrew
) -> None:
    """With a lease of two seconds, an attempt whose worker fell silent would be taken from it."""
    serving = make_serving(valkey, **TIMES)
    crew = make_crew(valkey, namespace=serving.settings.namespace)
    with Line(serving) as line:
        crew.worker_through(line.url)
        line.delay_ms = 200
        run = crew.submit("head -c 30000000 /dev/zero | tr '\\0' 'x' | fold -w 100")
        crew.wait([run], 60_000)
        crew.close()

    assert [attempt.outcome.class_ for attempt in crew.records.get(run).attempts if attempt.outcome] == ["ok"]


def test_a_coordinator_that_is_killed_and_started_again_is_not_missed(
    patient: Serving, crew: Crew, journal: Journal
) -> None:
    crew.worker_through(patient.url, slots=2)
    runs = [crew.queue.submit(journal.spec(0.4)).id for _ in range(8)]
    until(lambda: journal.ended() >= 2, "some runs to end")
    patient.signal(signal.SIGKILL)
    pass_ms(500)
    patient.start()

    completed_once(crew, journal, runs)


def test_a_worker_goes_on_with_another_coordinator_when_its_own_ends(
    valkey: Server, patient: Serving, line: Line, crew: Crew, journal: Journal, make_serving: MakeServing
) -> None:
    """As behind a balancer: one is asked to end, and says so; the next connection leads to the other."""
    other = make_serving(valkey, namespace=patient.settings.namespace, **PATIENT)
    crew.worker_through(line.url, slots=2)
    runs = [crew.queue.submit(journal.spec(0.4)).id for _ in range(8)]
    until(lambda: journal.ended() >= 2, "some runs to end")
    line._server = other
    patient.signal(signal.SIGTERM)

    completed_once(crew, journal, runs)


def test_a_redis_that_is_killed_under_a_coordinator_and_comes_back_costs_no_run(
    durable: Server, make_serving: MakeServing, make_crew: MakeCrew, journal: Journal
) -> None:
    serving = make_serving(durable, **PATIENT)
    crew = make_crew(durable, namespace=serving.settings.namespace, **PATIENT)
    crew.worker_through(serving.url, slots=2)
    runs = [crew.queue.submit(journal.spec(0.4)).id for _ in range(8)]
    until(lambda: journal.ended() >= 2, "some runs to end")
    durable.signal(signal.SIGKILL)
    pass_ms(500)
    durable.start()

    completed_once(crew, journal, runs)


def test_a_slow_line_makes_a_worker_slow_and_not_lost(line: Line, crew: Crew, journal: Journal) -> None:
    line.delay_ms = 300
    crew.worker_through(line.url, slots=4)
    runs = [crew.queue.submit(journal.spec(4 * PACE_S)).id for _ in range(4)]

    completed_once(crew, journal, runs)


@pytest.mark.full("a coordinator and two workers in turn; straight to Redis it is tested by default")
def test_what_a_worker_could_not_report_before_it_left_is_reported_by_the_next_one(
    valkey: Server,
    make_serving: MakeServing,
    make_crew: MakeCrew,
    folder: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The coordinator lets nobody report of a run that somebody else holds, so it is told by the name of the first."""
    serving = make_serving(valkey, heartbeat_ms=500, lease_ms=60_000)
    crew, gate = make_crew(valkey, namespace=serving.settings.namespace), folder / "gate"
    with Line(serving) as line:
        worker = crew.worker_through(line.url)
        run = crew.submit(f"until [ -e {gate} ]; do sleep 0.02; done")
        until(lambda: crew.state(run) == "running", "the run to begin")
        line.lead_to(Server("", folder / "never started"))
        gate.touch()
        until(lambda: crew.effects("end")[run] == 1, "the run to end")
        until(lambda: "goes on meanwhile" in capfd.readouterr().err, "the outage to be told")
        for number in (signal.SIGTERM, signal.SIGINT):
            worker.send_signal(number)
        assert worker.wait(timeout=60) == 3

        line.lead_to(serving)
        crew.worker_through(line.url)
        crew.wait([run])

    assert crew.effects("begin")[run] == 1, "it is not executed again"
    assert crew.records.get(run).attempt == 1
