"""Children that die, grow or have had their time, and what that means for the runs in them."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from support.function_workers import Callers
from support.processes import alive
from support.servers import until

from agentq.coordinator.model.retry_policy import RetryPolicy

RETRY = RetryPolicy(failures=1, delay_ms=1)


def test_a_child_that_is_killed_takes_only_the_call_that_it_was_at(callers: Callers, folder: Path) -> None:
    callers.worker(slots=1)
    callers.wait([callers.call("nothing") for _ in range(1000)])
    go = folder / "go"
    specs = [callers.spec("noted", retry=RETRY) for _ in range(99)]
    specs.insert(50, callers.spec("slept_until", str(go), retry=RETRY))
    runs = [each.id for each in callers.queue.submit_many(specs)]
    victim = runs[50]
    until(lambda: callers.effects("begin")[victim], "the victim to begin")

    os.kill(callers.pids()[victim], signal.SIGKILL)
    go.touch()
    callers.wait(runs)

    assert {callers.state(run) for run in runs} == {"completed"}
    assert callers.effects("begin") == {run: 2 if run == victim else 1 for run in runs}
    assert [attempt.outcome.class_ for attempt in callers.records.get(victim).attempts if attempt.outcome] == [
        "signal",
        "ok",
    ]


@pytest.mark.full("takes 1 s")
def test_a_child_that_leaves_says_how(callers: Callers) -> None:
    callers.worker()

    ended = callers.ended(callers.call("left", 3))

    assert (ended.state, ended.outcome.class_, ended.outcome.error) == ("failed", "exit", "exited with code 3")


@pytest.mark.full("takes 4 s")
def test_the_children_of_a_killed_worker_die_with_it_and_their_runs_go_on(callers: Callers) -> None:
    worker = callers.worker(slots=2)
    runs = [callers.call("slept", 0.3) for _ in range(12)]
    until(lambda: len(callers.effects("begin")) >= 2, "runs to begin")
    children = callers.children(worker)

    worker.kill()
    worker.wait()
    callers.worker(slots=2)
    callers.lose(worker)
    callers.wait(runs, 60_000)

    assert {callers.state(run) for run in runs} == {"completed"}
    assert children
    until(lambda: not any(map(alive, children)), "the children to be gone")


@pytest.mark.full("takes 3 s")
def test_a_child_is_replaced_after_so_many_runs(callers: Callers) -> None:
    callers.worker(child_runs=10)

    runs = [callers.call("pid") for _ in range(100)]
    pids = Counter(callers.ended(run).outcome.result for run in runs)

    assert max(pids.values()) <= 10
    assert len(pids) >= 10


@pytest.mark.full("takes 1 s")
def test_a_child_that_has_grown_is_replaced(callers: Callers) -> None:
    callers.worker(child_rss="400M")

    first, second, third = (callers.ended(callers.call("grown", 200 << 20)).outcome.result for _ in range(3))

    assert first == second
    assert third != first


@pytest.mark.full("takes 1 s")
def test_a_function_that_runs_out_of_memory_fails_alone(callers: Callers) -> None:
    callers.worker(child_memory="500M")

    greedy = callers.ended(callers.call("grown", 1 << 30))
    modest = callers.ended(callers.call("grown", 1 << 20))

    assert (greedy.state, greedy.outcome.class_) == ("failed", "oom")
    assert modest.state == "completed"


@pytest.mark.full("takes 1 s")
def test_a_run_with_limits_variables_and_a_folder_has_a_child_of_its_own(callers: Callers, folder: Path) -> None:
    callers.worker()
    common = callers.ended(callers.call("surroundings")).outcome.result

    own = callers.ended(callers.call("surroundings", env={"WORD": "mine"}, cwd=str(folder))).outcome.result
    bounded = callers.ended(callers.call("grown", 1 << 30, caps={"memory_bytes": 500 << 20}))
    again = callers.ended(callers.call("surroundings")).outcome.result

    assert (own["word"], own["cwd"]) == ("mine", str(folder))
    assert own["pid"] != common["pid"]
    assert bounded.outcome.class_ == "oom"
    assert again == common


@pytest.mark.parametrize("fields", [{"env": {"PYTHONHOME": "/no/such"}}, {"cwd": "/no/such"}])
def test_a_child_that_cannot_even_start_is_a_failed_start(callers: Callers, fields: dict[str, object]) -> None:
    callers.worker()

    ended = callers.ended(callers.call("nothing", retry=RetryPolicy(crashes=1, delay_ms=1), **fields))

    assert (ended.state, ended.outcome.class_, ended.attempt) == ("failed", "spawn", 2)


@pytest.mark.full("takes 4 s")
def test_what_waited_in_a_killed_worker_is_made_once_and_costs_nothing(callers: Callers) -> None:
    worker = callers.worker(slots=2)
    callers.wait([callers.call("nothing") for _ in range(1000)])
    runs = [each.id for each in callers.queue.submit_many(callers.spec("slept", 0.002) for _ in range(2000))]
    until(lambda: callers.effects("begin"), "some to begin")

    worker.kill()
    worker.wait()
    before = callers.effects("begin")
    untold = [run for run in runs if callers.state(run) == "claimed"]
    callers.worker(slots=2)
    callers.lose(worker)
    callers.wait(runs, 60_000)

    effects = callers.effects("begin")
    assert before
    assert untold
    assert {run for run in runs if effects[run] > 1} <= before.keys() & set(untold)
    assert max(effects.values()) <= 2
    assert {(callers.state(run), callers.records.get(run).crashes) for run in untold} == {("completed", 0)}
