"""When a run that failed is tried again, how often, after what, and when not."""

from __future__ import annotations

import pytest
from conformance.stage import MakeStage, Stage

from agentq.coordinator.bounds import ATTEMPTS_KEPT
from agentq.coordinator.errors import Invalid
from agentq.coordinator.explain.run import RunExplanation
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import Outcome, RunSpec

O = OutcomeClass  # noqa: E741
LIMIT = Outcome(class_=O.LIMIT)
WAITS: dict[str, tuple[dict[str, object], list[int]]] = {
    "exponential with full jitter": ({}, [500, 1000, 2000, 4000]),
    "without jitter": ({"jitter": False}, [1000, 2000, 4000, 8000]),
    "up to the longest": ({"jitter": False, "delay_ms_max": 3000}, [1000, 2000, 3000, 3000]),
    "never less than the first": ({"jitter": False, "delay_ms": 9000, "delay_ms_max": 3000}, [9000, 9000, 9000]),
    "fixed, to the letter": ({"factor": 1.0, "delay_ms": 700_000}, [700_000, 700_000, 700_000]),
    "as listed, and the last again": ({"delays_ms": [10, 60_000, 0]}, [10, 60_000, 0, 0]),
    "another for the class": ({"classes": {"exit": {"delay_ms": 70, "factor": 1.0}}}, [70, 70, 70]),
    "none for another class": ({"classes": {"oom": {"delay_ms": 70, "factor": 1.0}}}, [500, 1000]),
    "not listed for the class": ({"delays_ms": [5], "classes": {"exit": {"delay_ms": 8, "factor": 1.0}}}, [8, 8]),
    "listed for the class": ({"classes": {"exit": {"delays_ms": [3, 4]}}}, [3, 4, 4]),
}


def fails(stage: Stage, class_: OutcomeClass = O.EXIT) -> int | None:
    """An attempt fails; how long the run then waits, or None if it has ended."""
    stage.take()
    state = stage.fail(class_)
    if state is State.FAILED:
        return None
    due_at_ms = stage.timer()
    assert due_at_ms is not None
    waits = due_at_ms - stage.world.now_ms
    stage.come()
    return waits


@pytest.mark.parametrize(("policy", "waits"), WAITS.values(), ids=WAITS.keys())
def test_a_run_waits_as_its_policy_says(policy: dict[str, object], waits: list[int], make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.submit(retry={"failures": len(waits), **policy})

    assert [fails(stage) for _ in waits] == waits
    assert fails(stage) is None


@pytest.mark.parametrize("class_", [O.EXIT, O.SIGNAL, O.TIMEOUT])
def test_a_failure_is_the_end_unless_a_policy_pays_for_another_try(class_: OutcomeClass, make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.submit()

    assert fails(stage, class_) is None
    assert stage.world.get(stage.run).attempt == 1


def test_a_class_with_a_number_of_its_own_is_counted_by_itself(make_stage: MakeStage) -> None:
    stage = make_stage()
    own = {"timeout": {"retries": 1, "delay_ms": 300_000, "factor": 1.0}}
    stage.submit(retry={"failures": 2, "classes": own, "jitter": False})

    assert fails(stage, O.TIMEOUT) == 300_000
    assert fails(stage, O.EXIT) == 1000
    assert fails(stage, O.EXIT) == 2000
    run = stage.world.get(stage.run)
    assert (run.failures, run.spent) == (2, {O.TIMEOUT: 1})
    assert fails(stage, O.TIMEOUT) is None
    _, sentences = RunExplanation(stage.world.store, stage.world.settings).of(stage.run)
    assert "It was tried 4 times; 1 of 1 retries after timeout are spent." in sentences


def test_a_requeued_run_has_fresh_budgets_of_every_kind(make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.submit(retry={"failures": 1, "classes": {"timeout": {"retries": 1}}})
    for class_ in (O.TIMEOUT, O.EXIT, O.TIMEOUT):
        fails(stage, class_)

    stage.queue.requeue(stage.run)

    assert stage.world.get(stage.run).spent == {}
    assert fails(stage, O.TIMEOUT) is not None
    assert fails(stage, O.EXIT) is not None
    assert fails(stage, O.EXIT) is None


@pytest.mark.parametrize(
    ("policy", "again", "ends"),
    [
        ({"failures": 9, "final": ["oom"]}, [O.EXIT, O.TIMEOUT], O.OOM),
        ({"failures": 9, "only": ["exit", "check"]}, [O.EXIT, O.CHECK, O.SPAWN], O.OOM),
        ({"only": ["exit"], "classes": {"oom": {"retries": 1}}}, [O.OOM], O.OOM),
        ({"failures": 9, "classes": {"oom": {"retries": 0}}}, [O.EXIT], O.OOM),
        ({"failures": 9}, [O.EXIT], O.REJECTED),
    ],
)
def test_a_policy_says_after_what_a_run_is_tried_again(
    policy: dict[str, object], again: list[OutcomeClass], ends: OutcomeClass, make_stage: MakeStage
) -> None:
    stage = make_stage()
    stage.submit(retry=policy)

    assert all(fails(stage, class_) is not None for class_ in again)
    assert fails(stage, ends) is None


def test_no_try_begins_later_than_max_elapsed(make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.submit(retry={"failures": 9, "max_elapsed_ms": 10_000, "delay_ms": 5_000, "factor": 1.0})

    assert [fails(stage), fails(stage), fails(stage)] == [5_000, 5_000, None]
    _, sentences = RunExplanation(stage.world.store, stage.world.settings).of(stage.run)
    assert any("another attempt would have begun more than 10 s after its submit" in each for each in sentences)

    stage.world.pass_ms(60_000)
    stage.queue.requeue(stage.run)
    assert fails(stage) == 5_000, "it counts from when an operator let it begin again"


def test_a_wait_that_the_failure_asks_for_is_bounded_too(make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.submit(retry={"failures": 9, "max_elapsed_ms": 10_000})
    stage.take()

    assert stage.queue.fail(stage.claim, Outcome(class_=O.EXIT), delay_ms=10_001) == State.FAILED


def test_a_deferral_past_max_elapsed_ends_the_run(make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.submit(retry={"max_elapsed_ms": 59_999})
    stage.take()

    assert stage.defer() == State.FAILED


def test_a_deferral_without_a_time_backs_off_by_the_number_of_deferrals(make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.submit(retry={"delay_ms": 1_000, "delay_ms_max": 3_000, "jitter": False})
    waits = []
    for _ in range(4):
        stage.take()
        before_ms = stage.world.now_ms
        assert stage.queue.defer(stage.claim, None, LIMIT) == State.SCHEDULED
        stage.come()
        waits.append(stage.world.now_ms - before_ms)

    assert waits == [1_000, 2_000, 3_000, 3_000]
    assert (stage.world.get(stage.run).deferrals, stage.world.get(stage.run).failures) == (4, 0)


def test_a_deferral_for_a_while_that_was_asked_for_is_to_the_letter(make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.submit(retry={"max_elapsed_ms": 60_000})
    stage.take()
    before_ms = stage.world.now_ms
    stage.queue.defer(stage.claim, None, LIMIT, delay_ms=7_000, gate="account:a")

    assert stage.timer() == before_ms + 7_000
    assert [limit.shut_until_ms for limit in stage.world.limits.all()] == [before_ms + 7_000]
    stage.come()
    stage.take()
    with pytest.raises(Invalid, match="until a time or for a while, not both"):
        stage.queue.defer(stage.claim, before_ms, LIMIT, delay_ms=1)
    assert stage.queue.defer(stage.claim, None, LIMIT, delay_ms=60_000) == State.FAILED


def test_a_limit_that_is_final_ends_the_run(make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.submit(retry={"final": ["limit"]})
    stage.take()

    assert stage.defer() == State.FAILED


def test_a_run_that_kills_its_workers_ends_with_the_evidence(make_stage: MakeStage) -> None:
    """rq#1129, rq#2236, BullMQ "stalled more than allowable limit": neither lost nor for ever."""
    stage = make_stage()
    stage.submit()
    for number in range(4):
        stage.take(f"victim-{number}")
        stage.start()
        stage.lose(f"victim-{number}")
        if stage.present() == State.SCHEDULED:
            stage.come()

    run = stage.world.get(stage.run)
    assert (run.state, run.crashes) == (State.FAILED, 3)
    assert run.outcome is not None
    assert run.outcome.class_ is O.LOST
    assert [attempt.worker for attempt in run.attempts] == [f"victim-{number}" for number in range(4)]
    assert all(attempt.outcome and attempt.outcome.class_ is O.LOST for attempt in run.attempts)


def test_every_attempt_is_kept_up_to_a_number(make_stage: MakeStage) -> None:
    """RQ drops all but the last."""
    stage = make_stage()
    stage.submit(retry={"failures": ATTEMPTS_KEPT + 5, "delays_ms": [0]})
    while fails(stage) is not None:
        pass

    attempts = stage.world.get(stage.run).attempts
    assert len(attempts) == ATTEMPTS_KEPT + 1, "those that ended before, and the last"
    assert attempts[-1].attempt == ATTEMPTS_KEPT + 6


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"only": ["lost"]}, "'lost' is paid from crashes"),
        ({"only": ["exit"], "final": ["exit"]}, "'exit' is never to be tried again, and is"),
        ({"classes": {"rejected": {"retries": 1}}}, "'rejected' is never tried again"),
        ({"classes": {"exit": {"retries": -1}}}, "retry.classes.exit.retries"),
        ({"classes": {"hunger": {}}}, "retry.classes.hunger"),
        ({"delays_ms": [-1]}, "retry.delays_ms.0"),
        ({"delays_ms": [1] * 101}, "retry.delays_ms"),
    ],
)
def test_a_policy_that_contradicts_itself_is_refused(policy: dict[str, object], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        RunSpec.checked(kind="command", argv=["true"], retry=policy)


def test_what_ran_out_of_memory_is_tried_again_where_its_policy_pays(make_stage: MakeStage) -> None:
    """rq#1129: OOM-killed jobs should requeue."""
    stage = make_stage()
    stage.submit(retry={"classes": {"oom": {"retries": 1, "delay_ms": 60_000, "factor": 1.0}}})

    assert [fails(stage, O.OOM), fails(stage, O.OOM)] == [60_000, None]
    assert [attempt.attempt for attempt in stage.world.get(stage.run).attempts] == [1, 2]
