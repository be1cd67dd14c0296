"""Workers that are killed, frozen, cut off and told to leave. Each test names the promise it tries to break."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Callable

import pytest
from support.crew import Crew
from support.servers import Server, until

MakeCrew = Callable[..., Crew]


@pytest.mark.promise("P3", "P6")
@pytest.mark.slow("forty processes and two workers")
def test_p3_the_runs_of_a_killed_worker_run_again_and_leave_no_process_behind(
    durable: Server, make_crew: MakeCrew
) -> None:
    crew = make_crew(durable)
    victim = crew.worker(slots=20)
    runs = [crew.submit('[ "$AGENTQ_ATTEMPT" != 1 ] || sleep 30') for _ in range(20)]
    until(lambda: len(crew.effects("begin")) == 20, "20 runs to begin")
    orphans = set(crew.processes())
    victim.kill()
    crew.worker(slots=20)
    crew.lose(victim)

    crew.wait(runs)

    assert {crew.state(run) for run in runs} == {"completed"}
    assert set(crew.effects("begin").values()) == {2}
    assert set(crew.effects("end").values()) == {1}, "the killed worker's processes were ended, not left to finish"
    assert not orphans & set(crew.processes())
    crew.check()


@pytest.mark.promise("P2")
def test_p2_a_frozen_worker_that_comes_back_is_fenced_and_its_processes_die(
    durable: Server, make_crew: MakeCrew
) -> None:
    crew = make_crew(durable)
    zombie = crew.worker(slots=1)
    run = crew.submit("sleep 600")
    until(lambda: crew.effects("begin")[run] == 1, "the run to begin")
    (before,) = crew.processes()
    zombie.send_signal(signal.SIGSTOP)
    crew.worker(slots=1)
    crew.lose(zombie)
    until(lambda: crew.effects("begin")[run] == 2, "the run to begin again")

    zombie.send_signal(signal.SIGCONT)

    until(lambda: before not in crew.processes(), "the zombie's process to die")
    until(lambda: crew.name_of(zombie) != "", "the zombie to register again")
    until(lambda: crew.state(run) == "running", "the start to be told")
    assert crew.records.get(run).attempt == 2
    crew.queue.cancel(run)
    crew.wait([run])
    crew.check()


@pytest.mark.promise("P1", "P3")
@pytest.mark.slow("a server is killed three times under load")
def test_p1_p3_a_server_that_is_killed_costs_nobody_a_run(durable: Server, make_crew: MakeCrew) -> None:
    crew = make_crew(durable)
    crew.worker(slots=4)
    runs = [crew.submit("sleep 0.2") for _ in range(40)]
    until(lambda: len(crew.effects("end")) >= 4, "some runs to end")
    for _ in range(3):
        durable.signal(signal.SIGKILL)
        durable.start()
        ended = len(crew.effects("end"))
        until(lambda ended=ended: len(crew.effects("end")) > ended, "work to go on")  # type: ignore[misc]

    crew.wait(runs)

    assert {crew.state(run) for run in runs} == {"completed"}
    assert set(crew.effects("begin").values()) == {1}, "no run was started twice"
    crew.check()


@pytest.mark.full("takes 3 s")
def test_p5_drain_lets_runs_finish_and_hands_back_the_rest(durable: Server, make_crew: MakeCrew) -> None:
    crew = make_crew(durable)
    worker = crew.worker(slots=2, drain_grace="2s")
    quick, slow = crew.submit("sleep 0.5"), crew.submit("sleep 60")
    waiting = crew.submit()
    until(lambda: len(crew.effects("begin")) == 2, "two runs to begin")

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(timeout=60) == 0
    assert [crew.state(run) for run in (quick, slow, waiting)] == ["completed", "pending", "pending"]
    assert crew.records.get(slow).crashes == 0
    assert crew.processes() == []
    assert crew.records.workers() == []
    crew.check()


def test_a_second_signal_does_not_wait(durable: Server, make_crew: MakeCrew) -> None:
    crew = make_crew(durable)
    worker = crew.worker(drain_grace="600s")
    run = crew.submit("sleep 600", stop_grace_ms=100)
    until(lambda: crew.effects("begin")[run] == 1, "the run to begin")

    worker.send_signal(signal.SIGTERM)
    until(lambda: crew.records.workers()[0].state == "draining" or worker.poll() is not None, "the drain to begin")
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(timeout=60) == 0
    assert crew.state(run) == "pending"


def test_a_flushed_script_cache_and_a_destroyed_group_are_not_noticed(durable: Server, make_crew: MakeCrew) -> None:
    crew = make_crew(durable)
    crew.worker(slots=4)
    runs = [crew.submit("sleep 0.05") for _ in range(40)]
    command, key = crew.queue.store.connection.command, crew.queue.store.key(0, "lane", "default:5:")
    for _ in range(5):
        ended = len(crew.effects("end"))
        command("SCRIPT", "FLUSH")
        command("XGROUP", "DESTROY", key, "workers")
        until(lambda ended=ended: len(crew.effects("end")) > ended, "work to go on")  # type: ignore[misc]

    crew.wait(runs)

    assert set(crew.effects("begin").values()) == {1}
    crew.check()


def test_a_burst_worker_ends_when_there_is_nothing_left(durable: Server, make_crew: MakeCrew) -> None:
    crew = make_crew(durable)
    runs = [crew.submit() for _ in range(30)]

    assert crew.begin(slots=3, burst=True).wait(timeout=60) == 0
    assert {crew.state(run) for run in runs} == {"completed"}


def test_a_worker_takes_no_more_runs_than_it_was_told(durable: Server, make_crew: MakeCrew) -> None:
    crew = make_crew(durable)
    runs = [crew.submit() for _ in range(10)]

    assert crew.begin(slots=4, max_runs=3).wait(timeout=60) == 0
    assert sorted(crew.state(run) for run in runs) == ["completed"] * 3 + ["pending"] * 7


@pytest.mark.full("takes 9 s")
def test_p4_a_run_that_kills_its_worker_ends_failed_with_the_evidence(durable: Server, make_crew: MakeCrew) -> None:
    """A command that kills whoever executes it: each time another worker comes, and after the third there is an end."""
    crew = make_crew(durable)
    run = crew.submit("kill -9 $PPID; sleep 30", retry={"crashes": 2, "delay_ms": 1})
    victims: list[subprocess.Popen[bytes]] = []
    for _ in range(3):
        worker = crew.worker(slots=1)
        crew.lose(*victims)
        worker.wait(timeout=60)
        victims = [worker]
    crew.worker(slots=1)
    crew.lose(*victims)

    crew.wait([run])

    ended = crew.records.get(run)
    assert ended.state == "failed"
    assert ended.outcome is not None
    assert ended.outcome.class_ == "lost"
    assert len({attempt.worker for attempt in ended.attempts}) == len(ended.attempts) == 3
    assert crew.effects("begin")[run] == 3
    assert crew.effects("end")[run] == 0
    until(lambda: crew.processes() == [], "the processes of the last attempt to be ended")
    crew.check()


def test_every_worker_has_its_host_its_id_and_its_version_as_labels(durable: Server, make_crew: MakeCrew) -> None:
    crew = make_crew(durable)
    worker = crew.name_of(crew.worker(slots=4))
    plain = crew.submit()
    crew.wait([plain])
    box = crew.name_of(crew.worker(slots=4, label="gpu=a100", only_matching=True))
    host = socket.gethostname()

    here = [crew.submit(demands={"host": host, "worker": name, "version": ">=0.0.1"}) for name in (worker, box)]
    nowhere = [crew.submit(demands=demands) for demands in ({"version": ">=999"}, {"host": f"!={host}"})]
    crew.wait(here)

    assert [crew.records.get(run).worker for run in here] == [worker, box]
    assert {crew.state(run) for run in nowhere} == {"pending"}
    for run in nowhere:
        crew.queue.cancel(run)
