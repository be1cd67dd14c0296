"""Workers that are told to go: how soon they are gone, and what becomes of what they held."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from support.crew import Crew
from support.network_line import Line
from support.servers import Server, until

from agentq.coordinator.model.ids import new_nonce
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.workers.lease import order_drain

MakeCrew = Callable[..., Crew]


def stop(crew: Crew, name: str) -> None:
    """What `agentq worker stop` says."""
    order_drain(crew.queue.store, 0, name, "asked by a test", hurry=True)


@pytest.mark.full("takes 2 s")
def test_p6_a_worker_that_is_stopped_hands_back_at_once_and_its_runs_go_on_elsewhere(
    durable: Server, make_crew: MakeCrew
) -> None:
    crew = make_crew(durable)
    worker = crew.worker(slots=3, drain_grace="10m")
    runs = [crew.submit('[ "$AGENTQ_ATTEMPT" != 1 ] || sleep 300') for _ in range(3)]
    until(lambda: len(crew.effects("begin")) == 3, "3 runs to begin")
    before = set(crew.processes())

    stop(crew, crew.name_of(worker))

    assert worker.wait(timeout=60) == 0, "it did not wait for the grace of ten minutes"
    assert not before & set(crew.processes())
    assert crew.records.workers() == []
    crew.worker(slots=3)
    crew.wait(runs)
    assert {crew.state(run) for run in runs} == {"completed"}
    assert {crew.records.get(run).crashes for run in runs} == {0}, "it cost them nothing"
    crew.check()


def test_a_worker_that_drains_already_can_be_stopped_and_told_so_twice(durable: Server, make_crew: MakeCrew) -> None:
    crew = make_crew(durable)
    worker = crew.worker(drain_grace="10m")
    run = crew.submit("sleep 300")
    until(lambda: crew.effects("begin")[run] == 1, "the run to begin")
    name = crew.name_of(worker)
    order_drain(crew.queue.store, 0, name, "asked by a test")
    until(lambda: crew.records.workers()[0].state == "draining", "the drain to begin")

    # It cannot leave between the two.
    worker.send_signal(signal.SIGSTOP)
    stop(crew, name)
    stop(crew, name)
    worker.send_signal(signal.SIGCONT)

    assert worker.wait(timeout=60) == 0
    assert crew.state(run) == "pending"
    assert crew.processes() == []
    crew.check()


@pytest.mark.full("takes 3 s")
def test_a_worker_on_a_slow_line_leaves_without_waiting_for_a_round_of_the_janitor(
    valkey: Server, make_crew: MakeCrew
) -> None:
    """A round over sixty queues is some six hundred calls, which take three minutes on this line."""
    with Line(valkey) as line:
        crew = make_crew(valkey, namespace=new_nonce(), heartbeat_ms=1000)
        elsewhere = {"kind": "command", "argv": ["true"], "delay_ms": 600_000}
        for number in range(60):
            crew.queue.submit(RunSpec.checked(**elsewhere, queue=f"q{number}"))
        line.delay_ms = 300
        worker = crew.worker(url=line.url)
        lock = crew.queue.store.key(0, "duty_owner")
        until(lambda: crew.queue.store.connection.command("GET", lock), "the worker to begin the duties")

        worker.send_signal(signal.SIGTERM)

        assert worker.wait(timeout=60) == 0
        assert crew.records.workers() == []
        crew.check()
