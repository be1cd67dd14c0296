"""What waits in a child, or for the server: it is given to others, handed back or said again, and never lost."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.function_workers import Callers
from support.servers import Server, until

from agentq.coordinator.model.retry_policy import RetryPolicy


@pytest.mark.full("takes 1 s")
def test_a_long_call_does_not_hold_up_those_behind_it(callers: Callers, folder: Path) -> None:
    callers.worker(slots=2)
    callers.wait([callers.call("nothing") for _ in range(1000)])
    go = folder / "go"
    first = callers.call("slept_until", str(go))
    runs = [each.id for each in callers.queue.submit_many(callers.spec("noted") for _ in range(200))]

    callers.wait(runs)
    until(lambda: callers.state(first) == "running", "the long one to be told of")
    go.touch()
    callers.ended(first)

    assert callers.effects("begin") == dict.fromkeys([first, *runs], 1)


@pytest.mark.full("takes 2 s")
def test_what_waits_behind_a_long_call_goes_to_another_worker(callers: Callers, folder: Path) -> None:
    callers.worker(slots=1)
    callers.wait([callers.call("nothing") for _ in range(1000)])
    go = folder / "go"
    specs = [callers.spec("slept_until", str(go)), *(callers.spec("noted") for _ in range(100))]
    first, *runs = [each.id for each in callers.queue.submit_many(specs)]
    until(lambda: callers.effects("begin")[first], "the long one to begin")

    callers.worker(slots=1)
    callers.wait(runs)
    go.touch()
    callers.ended(first)

    assert callers.effects("begin") == dict.fromkeys([first, *runs], 1)
    assert {callers.records.get(run).crashes for run in runs} == {0}


@pytest.mark.full("takes 1 s")
def test_a_drain_hands_back_at_once_what_has_not_begun(callers: Callers, folder: Path) -> None:
    worker = callers.worker(slots=1, drain_grace="600s")
    callers.wait([callers.call("nothing") for _ in range(1000)])
    go = folder / "go"
    specs = [callers.spec("slept_until", str(go)), *(callers.spec("noted") for _ in range(100))]
    first, *runs = [each.id for each in callers.queue.submit_many(specs)]
    until(lambda: callers.effects("begin")[first], "the long one to begin")

    worker.send_signal(signal.SIGTERM)
    until(lambda: {callers.state(run) for run in runs} == {"pending"}, "the rest to be handed back")
    still = callers.state(first)
    go.touch()

    assert worker.wait(timeout=60) == 0
    assert still in ("running", "claimed")
    assert callers.state(first) == "completed"
    assert {(callers.records.get(run).failures, callers.records.get(run).crashes) for run in runs} == {(0, 0)}
    assert list(callers.effects("begin")) == [first]


@pytest.mark.full("takes 2 s")
def test_an_order_to_stop_hands_back_what_runs(callers: Callers) -> None:
    worker = callers.worker(slots=1, drain_grace="600s")
    run = callers.call("tidied", 600)
    until(lambda: callers.effects("begin")[run] and callers.state(run) == "running", "it to begin")

    worker.send_signal(signal.SIGTERM)
    until(lambda: callers.records.workers()[0].state == "draining", "the drain to begin")
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(timeout=60) == 0
    assert callers.state(run) == "pending"
    assert callers.effects("tidied")[run] == 1


@pytest.mark.full("takes 4 s")
def test_outcomes_are_kept_while_the_server_is_away(durable: Server, folder: Path) -> None:
    callers = Callers(durable, folder)
    callers.worker(slots=2)
    callers.wait([callers.call("nothing") for _ in range(1000)])
    runs = [each.id for each in callers.queue.submit_many(callers.spec("slept", 0.002) for _ in range(2000))]
    until(lambda: len(callers.effects("end")) > 100, "some to have ended")

    durable.signal(signal.SIGKILL)
    until(lambda: len(callers.effects("begin")) == len(callers.effects("end")), "what was claimed to be over")
    ended = callers.effects("end")
    durable.start()
    callers.wait(runs, 60_000)
    callers.close()

    assert set(callers.effects("begin").values()) == {1}
    assert ended.keys() <= callers.effects("end").keys()
    callers.check()


def test_functions_and_commands_share_the_slots(callers: Callers, folder: Path) -> None:
    callers.worker(slots=2)
    go = folder / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.02; done"
    commands = [callers.submit(wait) for _ in range(4)]
    functions = [callers.call("slept_until", str(go)) for _ in range(4)]
    until(lambda: len(callers.effects("begin")) == 2, "two of them to begin")

    states = [callers.state(run) for run in (*commands, *functions)]
    go.touch()
    callers.wait([*commands, *functions])

    assert states.count("running") <= 2
    assert {callers.state(run) for run in (*commands, *functions)} == {"completed"}


@pytest.mark.full("takes 2 s")
def test_a_failed_call_is_tried_again_by_its_policy(callers: Callers) -> None:
    callers.worker()

    ended = callers.ended(callers.call("raised", retry=RetryPolicy(failures=2, delay_ms=1)))

    assert (ended.state, ended.attempt) == ("failed", 3)
