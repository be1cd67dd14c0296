"""Runs that failed for good: found by how and when they ended, let begin again, and forgotten before their time."""

from __future__ import annotations

from itertools import count, product
from typing import Any

import pytest
from conformance import lives
from conformance.stage import MakeStage
from conformance.variants import VARIANTS, Variant
from support.world import World

from agentq.coordinator.bounds import DEPENDENTS_PER_CALL, KEEP_MS_MIN
from agentq.coordinator.errors import NotFound, TryLater, WrongState
from agentq.coordinator.model.lifecycle import TERMINAL_STATES, OutcomeClass, State
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.runs.queries import RunFilter

DEAD = (State.FAILED,)
NUMBERS = count()


def dead(world: World, class_: OutcomeClass, **fields: Any) -> str:
    """A run that failed for good, as it says."""
    claim = world.held(f"w{next(NUMBERS)}", started=True, **fields)
    world.queue.fail(claim, Outcome(class_=class_, error="all the same"))
    return claim.id


def ids(world: World, **which: object) -> set[str]:
    return {run.id for run in world.records.all(RunFilter(states=DEAD, **which))}  # type: ignore[arg-type]


def test_dead_letters_are_found_by_their_class_and_their_end(world: World) -> None:
    first = dead(world, OutcomeClass.TIMEOUT, queue="default")
    world.pass_ms(1000)
    half = world.now_ms
    second = dead(world, OutcomeClass.EXIT)
    third = dead(world, OutcomeClass.TIMEOUT)
    world.submit()

    assert ids(world) == {first, second, third}
    assert ids(world, class_=OutcomeClass.TIMEOUT) == {first, third}
    assert ids(world, ended_since_ms=half) == {second, third}
    assert ids(world, ended_until_ms=half) == {first}
    assert ids(world, class_=OutcomeClass.TIMEOUT, ended_since_ms=half, queue="default") == {third}
    assert ids(world, class_=OutcomeClass.LOST) == set()
    assert ids(world, queue="other") == set()


def test_the_end_counts_and_not_the_submit(world: World) -> None:
    claim = world.held("w1")
    world.pass_ms(5000)
    since = world.now_ms
    world.queue.fail(claim, Outcome(class_=OutcomeClass.EXIT))

    assert ids(world, ended_since_ms=since) == {claim.id}


def test_pages_of_few_among_many_go_on_to_the_end(world: World) -> None:
    """rq-dashboard#396: slow with many failed. A page looks at no more runs than it may have."""
    wanted = {
        dead(world, OutcomeClass.OOM) if number % 7 == 0 else dead(world, OutcomeClass.EXIT) for number in range(30)
    }
    which = RunFilter(states=DEAD, class_=OutcomeClass.OOM)
    found, cursor = set[str](), None
    while True:
        page = world.records.page(which, limit=4, cursor=cursor)
        found |= {run.id for run in page.runs}
        cursor = page.cursor
        if cursor is None:
            break

    assert len(found) == 5
    assert found <= wanted


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_only_what_has_ended_can_be_forgotten(variant: Variant, make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.submit_other(queue="other")
    variant.build(stage)
    before = stage.present()
    stage.world.pass_ms(KEEP_MS_MIN)
    state = variant.state or State.FAILED

    if state in TERMINAL_STATES and before != "none":
        others = [each for each in TERMINAL_STATES if each != state]
        with stage.unchanged():
            (refused,) = stage.queue.forget([(stage.run, others[0])])
            assert isinstance(refused, WrongState), "it is not in the state that it was seen in"
        assert stage.queue.forget([(stage.run, state)]) == [None]
        assert stage.present() == "none"
        with stage.unchanged():
            (refused,) = stage.queue.forget([(stage.run, state)])
            assert isinstance(refused, NotFound)
        return
    with stage.unchanged():
        (refused,) = stage.queue.forget([(stage.run, state)])
    assert isinstance(refused, NotFound if before == "none" else WrongState)


def test_what_ended_just_now_is_kept_for_a_submit_that_is_sent_again(make_stage: MakeStage) -> None:
    stage = make_stage()
    lives.failed(stage)
    stage.world.pass_ms(KEEP_MS_MIN - 1)

    with stage.unchanged():
        (refused,) = stage.queue.forget([(stage.run, State.FAILED)])
        assert isinstance(refused, TryLater)
        stage.queue.submit(stage.spec, run_id=stage.run)

    stage.world.pass_ms(1)
    assert stage.queue.forget([(stage.run, State.FAILED)]) == [None]


def test_nobody_is_forgotten_before_all_dependents_are_told(make_stage: MakeStage) -> None:
    stage = make_stage(children=DEPENDENTS_PER_CALL + 1)
    lives.failed(stage)
    stage.world.pass_ms(KEEP_MS_MIN)

    with stage.unchanged():
        (refused,) = stage.queue.forget([(stage.run, State.FAILED)])
        assert isinstance(refused, TryLater)

    stage.tick()
    assert stage.queue.forget([(stage.run, State.FAILED)]) == [None]
    assert {stage.world.state(child) for child in stage.children} == {"skipped"}


def test_many_are_forgotten_in_one_call_and_each_is_answered(world: World) -> None:
    """rq#519: what failed stays as long as somebody wants, and no longer; nothing of it is left behind."""
    gone = [dead(world, OutcomeClass.EXIT, plan="p", session="s") for _ in range(5)]
    live = world.submit(plan="p")
    world.pass_ms(KEEP_MS_MIN)

    answers = world.queue.forget(list(product([*gone, live], DEAD)))

    assert answers[:5] == [None] * 5
    assert isinstance(answers[5], WrongState)
    assert {run.id for run in world.records.all(RunFilter(plan="p"))} == {live}
