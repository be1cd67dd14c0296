"""Function runs in the children of a worker: what comes of them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.function_workers import Callers
from support.servers import until

from agentq.coordinator.model.retry_policy import RetryPolicy
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.token_context import use_token


def test_functions_of_both_kinds_return_their_results(callers: Callers) -> None:
    callers.worker()

    runs = [callers.call("added", 1, 2), callers.call("awaited", 3, 4)]
    by_name = callers.queue.submit(callers.spec("added").model_copy(update={"kwargs": {"first": 1, "second": 4}})).id

    assert [callers.ended(run).outcome.result for run in (*runs, by_name)] == [3, 7, 5]
    assert {callers.state(run) for run in (*runs, by_name)} == {"completed"}


def test_a_child_starts_without_a_redis_client_and_rq() -> None:
    """They take longer to import than all the rest; a function that needs them imports them itself."""
    program = "import sys, agentq.worker.functions.child_runtime.main; print({'redis', 'rq'} & sys.modules.keys())"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"


@pytest.mark.full("takes 3 s")
def test_an_exception_is_told_with_its_traceback(callers: Callers) -> None:
    callers.worker()

    ended = callers.ended(callers.call("raised"))

    assert (ended.state, ended.outcome.class_) == ("failed", "exit")
    assert ended.outcome.error == "ValueError: no good"
    assert 'raise ValueError("no good")' in ended.outcome.tail
    assert "worker/functions" not in ended.outcome.tail


@pytest.mark.full("takes 1 s")
@pytest.mark.parametrize(
    ("name", "args", "kind", "error"),
    [
        ("no_such", (), "spawn", "support.functions:no_such cannot be imported: AttributeError"),
        ("added", ("one", 2), "rejected", "the argument 'first'"),
        ("unkept", (), "check", "cannot be kept as JSON"),
        ("failed", ("conflict",), "conflict", "as I say"),
    ],
)
def test_what_is_wrong_is_told_by_its_class(
    callers: Callers, name: str, args: tuple[object, ...], kind: str, error: str
) -> None:
    callers.worker()

    ended = callers.ended(callers.call(name, *args, retry=RetryPolicy(crashes=0)))

    assert (ended.state, ended.outcome.class_) == ("failed", kind)
    assert error in ended.outcome.error


@pytest.mark.full("takes 2 s")
def test_an_import_error_is_not_retried_for_ever(callers: Callers) -> None:
    callers.worker()

    ended = callers.ended(callers.call("no_such", retry=RetryPolicy(crashes=2, delay_ms=1)))

    assert (ended.state, ended.attempt) == ("failed", 3)


@pytest.mark.full("takes 2 s")
def test_a_function_says_itself_when_it_is_to_be_tried_again(callers: Callers) -> None:
    callers.worker()

    ended = callers.ended(callers.call("tried_again", retry=RetryPolicy(failures=1, delay_ms=600_000)))

    assert (ended.state, ended.outcome.result) == ("completed", 2)


@pytest.mark.full("takes 1 s")
def test_what_a_function_prints_is_in_its_log_before_it_has_ended(callers: Callers) -> None:
    callers.worker()
    runs = [callers.call("printed") for _ in range(10)]

    for run in runs:
        callers.ended(run)

        assert callers.log(run) == "to stdout\nto stderr\nno end"


@pytest.mark.full("takes 3 s")
def test_a_function_says_how_far_it_is(callers: Callers) -> None:
    callers.worker()

    ended = callers.ended(callers.call("half_way"))

    assert ended.progress == {"done": 1, "total": 2}


@pytest.mark.full("takes 2 s")
def test_a_function_waits_for_a_signal_without_a_place(callers: Callers) -> None:
    callers.worker()
    run = callers.call("asked")
    until(lambda: callers.state(run) == "waiting", "the run to park")

    callers.queue.signal(run, "go", {"answer": 42})

    assert callers.ended(run).outcome.result == {"answer": 42}
    assert callers.effects("begin")[run] == 2


@pytest.mark.full("takes 2 s")
def test_many_asynchronous_calls_are_awaited_at_once_in_one_child(callers: Callers) -> None:
    callers.worker(children=1)
    callers.ended(callers.call("met", 1))

    runs = [callers.call("met", 100) for _ in range(100)]
    pids = {callers.ended(run, 60_000).outcome.result for run in runs}

    assert len(pids) == 1


@pytest.mark.full("takes 13 s")
def test_ten_thousand_calls_are_made_exactly_once_each(callers: Callers) -> None:
    callers.worker(slots=2)

    runs = [each.id for each in callers.queue.submit_many(callers.spec("noted") for _ in range(10_000))]
    callers.wait(runs, 100_000)

    assert {callers.state(run) for run in runs[::100]} == {"completed"}
    assert callers.effects("begin") == dict.fromkeys(runs, 1)


@pytest.mark.full("takes 2 s")
def test_a_worker_ends_when_nothing_is_left_or_it_has_had_its_runs(callers: Callers) -> None:
    runs = [callers.call("added", 1, place) for place in range(30)]

    counted = callers.begin(max_runs=10)
    assert counted.wait(timeout=60) == 0
    states = [callers.state(run) for run in runs]
    burst = callers.begin(burst=True)
    assert burst.wait(timeout=60) == 0

    assert (states.count("completed"), states.count("pending")) == (10, 20)
    assert {callers.state(run) for run in runs} == {"completed"}


def test_a_run_is_given_no_result_that_its_token_may_not_read(callers: Callers) -> None:
    """Neither among the arguments of a function nor in the words of a command; see `hand_out.lua`."""
    named = callers.call("added", 1, 2)
    after, inner = {"after": [named]}, {"after": [named], "queue": "inner"}
    echo = {"kind": "command", "argv": ["echo", "{{ tasks.x.result }}"], "inputs": {"x": named}}
    with use_token("3f09c2ab41d7", "inner"):
        # Those of the other queue have come there since.
        given = [
            callers.queue.submit(callers.spec("added", {"$run": named}, 1, **after)).id,
            callers.queue.submit(RunSpec.checked(**echo, **after)).id,
        ]
        refused = [
            callers.queue.submit(callers.spec("added", {"$run": named}, 1, **inner)).id,
            callers.queue.submit(RunSpec.checked(**echo, **inner)).id,
        ]
    callers.worker(queue=["default", "inner"])

    assert [callers.ended(run).state for run in given] == ["completed"] * 2
    for ended in map(callers.ended, refused):
        assert (ended.state, ended.outcome.class_) == ("failed", "rejected")
        assert f"{named} is in the queue default" in ended.outcome.error
