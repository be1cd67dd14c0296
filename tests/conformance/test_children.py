"""Runs that wait for their children: each end is told once, in any order, by the thousand, and none is left behind."""

from __future__ import annotations

import itertools

import pytest
from conformance import lives
from conformance.stage import COMMAND, MakeStage, Stage

from agentq.coordinator import bounds
from agentq.coordinator.errors import Invalid, TryLater, WrongState
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.runs.verbs import Claim


@pytest.fixture
def stage(make_stage: MakeStage) -> Stage:
    """A run that runs."""
    stage = make_stage()
    lives.running(stage)
    return stage


def end_children(stage: Stage, *children: str) -> None:
    for child in children:
        stage.queue.cancel(child)


@pytest.mark.parametrize("mode", ["all", "any"])
def test_a_parent_of_no_children_does_not_wait_for_them(stage: Stage, mode: str) -> None:
    assert stage.park_for(children=mode) is State.PENDING

    found = stage.resume()
    assert (found.reason, found.children) == ("children", [])


def test_it_goes_on_when_the_last_of_all_its_children_has_ended(stage: Stage) -> None:
    first, second = stage.add_own_children(2)
    stage.park_for(children="all")
    child = stage.lease("own", "own").claim(1)[0]
    assert child.id == first
    stage.queue.finish([(child, Outcome(exit_code=0, result={"n": 1}))])
    assert stage.present() == "waiting"
    stage.queue.cancel(second)

    found = stage.resume()

    assert found.reason == "children"
    assert [(each.id, each.state) for each in found.children] == [(first, "completed"), (second, "cancelled")]
    assert found.children[0].outcome is not None
    assert found.children[0].outcome["result"] == {"n": 1}


def test_it_goes_on_with_any_of_them_and_hears_of_each_once(stage: Stage) -> None:
    children = stage.add_own_children(3)
    heard = []
    for child in children:
        assert stage.park_for(children="any") is State.WAITING
        stage.queue.cancel(child)
        heard.append([each.id for each in stage.resume().children])

    assert heard == [[child] for child in children]
    assert stage.park_for(children="any") is State.PENDING, "there is nobody left to wait for"


@pytest.mark.parametrize("mode", ["all", "any"])
def test_a_child_that_ended_before_its_parent_parked_counts(stage: Stage, mode: str) -> None:
    end_children(stage, *stage.add_own_children(2))

    assert stage.park_for(children=mode) is State.PENDING
    assert len(stage.resume().children) == 2


@pytest.mark.parametrize("order", list(itertools.permutations(("park", "first", "second"))), ids=" ".join)
def test_every_order_of_parking_and_ends_wakes_the_parent_once(stage: Stage, order: tuple[str, ...]) -> None:
    children = dict(zip(("first", "second"), stage.add_own_children(2), strict=True))
    for step in order:
        if step == "park":
            stage.park_for(children="all")
        else:
            end_children(stage, children[step])

    assert stage.present() == "pending"
    assert stage.world.event_names(stage.run).count("woken") == 1


def test_a_child_that_begins_again_is_waited_for_once_more(stage: Stage) -> None:
    first, second = stage.add_own_children(2)
    stage.park_for(children="all")
    end_children(stage, first)
    stage.queue.requeue(first)
    end_children(stage, second)
    assert stage.present() == "waiting"
    end_children(stage, first)

    assert {each.id for each in stage.resume().children} == {first, second}


def test_a_child_needs_a_live_parent(stage: Stage) -> None:
    stage.finish()

    with stage.unchanged(), pytest.raises(WrongState):
        stage.add_own_children()
    stranger = Claim(stage.run[:-4] + "0000", "", "", "")
    with stage.unchanged(), pytest.raises(WrongState):
        stage.submit_other(parent=stranger.id)


def test_a_child_cannot_take_the_place_of_its_parent(make_stage: MakeStage) -> None:
    """Seed 48 of the simulator: it was born as a child of a run that its own birth had just cancelled."""
    stage = make_stage()
    key = stage.key_at_home("family")
    stage.submit(dedupe_key=key)

    with stage.unchanged(), pytest.raises(WrongState):
        stage.add_own_children(dedupe_key=key, if_live="replace")


def test_a_child_lives_where_its_parent_does(stage: Stage) -> None:
    child = stage.queue.submit(RunSpec.checked(**COMMAND, parent=stage.run, dedupe_key="anywhere")).id
    assert partition_of(child) == stage.partition
    partitions = stage.world.store.keyspace.partitions
    homes = (RunSpec.checked(**COMMAND, plan=f"plan-{number}") for number in itertools.count())
    away = next(spec for spec in homes if stage.queue.home(spec) != stage.partition)

    if partitions > 1:
        with stage.unchanged(), pytest.raises(Invalid):
            stage.queue.submit(away.model_copy(update={"parent": stage.run}))


def test_a_child_that_replaces_the_last_one_keeps_its_parent_waiting(stage: Stage) -> None:
    key = stage.key_at_home("child")
    stage.add_own_children(dedupe_key=key)
    stage.park_for(children="all")

    stage.add_own_children(dedupe_key=key, if_live="replace")

    assert stage.present() == "waiting"


MANY = 5_000


def many_children(stage: Stage) -> list[str]:
    spec = RunSpec.checked(**COMMAND, parent=stage.run, queue="own")
    return [receipt.id for receipt in stage.queue.submit_many([spec] * MANY)]


def test_a_parent_hears_of_five_thousand_children_in_bounded_calls(stage: Stage) -> None:
    children = many_children(stage)
    assert stage.park_for(children="all") is State.WAITING
    lease = stage.lease("own", "own")
    while claims := lease.claim(1_000):
        assert stage.present() == "waiting"
        stage.queue.finish([(claim, Outcome()) for claim in claims])

    assert {each.id for each in stage.resume().children} == set(children)


def test_five_thousand_children_are_cancelled_in_bounded_calls(stage: Stage) -> None:
    children = many_children(stage)
    stage.park_for(children="all")
    stage.queue.cancel(stage.run)
    assert stage.size("ZCARD", "children", stage.run) == MANY - bounds.DEPENDENTS_PER_CALL

    stage.tick()

    assert stage.size("EXISTS", "children", stage.run) == 0
    assert {stage.world.state(child) for child in children[:: MANY // 20]} == {"cancelled"}


def test_a_parent_has_a_bounded_number_of_children(stage: Stage) -> None:
    stage.plant("ZADD", stage.key("children", stage.run), *_scored(bounds.CHILDREN_PER_RUN))

    with stage.unchanged(), pytest.raises(TryLater):
        stage.add_own_children()
    stage.plant("DEL", stage.key("children", stage.run))


def _scored(count: int) -> list[str | int]:
    return [word for number in range(count) for word in (0, f"run_{number:023d}")]


@pytest.mark.parametrize(
    ("policy", "ending", "left"),
    [
        ("cancel", "completed", True),
        ("cancel", "failed", False),
        ("cancel", "cancelled", False),
        ("leave", "failed", True),
        ("leave", "cancelled", True),
    ],
)
def test_what_becomes_of_children_when_their_parent_ends(
    make_stage: MakeStage, policy: str, ending: str, left: bool
) -> None:
    stage = make_stage()
    stage.submit(children=policy)
    stage.take(start=True)
    children = stage.add_own_children(2)
    (claim,) = stage.lease("own", "own").claim(1)
    waiting = next(child for child in children if child != claim.id)
    if ending == "completed":
        stage.finish()
    else:
        stage.fail(OutcomeClass.EXIT if ending == "failed" else OutcomeClass.CANCELLED)

    assert stage.world.state(waiting) == ("pending" if left else "cancelled")
    assert (stage.world.get(claim.id).stop_at_ms is None) == left
    stage.tick()
    assert stage.size("EXISTS", "children", stage.run) == 0


def test_the_children_of_children_go_too(stage: Stage) -> None:
    (child,) = stage.add_own_children()
    grandchild = stage.submit_other(parent=child)

    stage.fail(OutcomeClass.REJECTED)
    stage.tick()

    assert stage.world.states([child, grandchild]) == ["cancelled"] * 2


def test_children_stay_when_their_parent_is_tried_again(stage: Stage) -> None:
    (child,) = stage.add_own_children()
    stage.fail()
    stage.come()
    stage.take(start=True)

    assert stage.world.state(child) == "pending"
    assert stage.park_for(children="all") is State.WAITING


def test_the_janitor_finds_what_was_taken_from_the_store_by_hand(stage: Stage) -> None:
    gone, ended = stage.add_own_children(2)
    stage.park_for(children="all")
    end_children(stage, ended)
    stage.plant("DEL", stage.key("run", gone))

    assert stage.world.tidy() > 0

    assert stage.present() == "pending"
    assert sorted(each.state for each in stage.resume().children) == ["cancelled", "missing"]
