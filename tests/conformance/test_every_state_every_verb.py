"""Every verb, in every way that it comes to be said, in every variant of every state, held against the table."""

from __future__ import annotations

import pytest
from conformance.stage import MakeStage, Stage
from conformance.variants import VARIANTS, Fence, Variant
from conformance.ways import WAYS, Way

from agentq.coordinator.errors import AgentqError, Duplicate, Fenced, NotFound, WrongState
from agentq.coordinator.events.stream import Event
from agentq.coordinator.model.lifecycle import (
    TERMINAL_STATES,
    TRANSITIONS,
    VERBS,
    State,
    Transition,
    find_transition,
    source_states,
)
from agentq.coordinator.runs.verbs import SubmitReceipt

MOVES = [(variant, WAYS[way]) for variant in VARIANTS for way in variant.moves]
MOVE_IDS = [f"{variant.name} - {way.name}" for variant, way in MOVES]


def row_of(variant: Variant, way: Way) -> Transition:
    """The row of the table that a case goes along."""
    verb, target = variant.moves[way.name]
    row = find_transition(verb, variant.state, target)
    assert row is not None, f"the table has no arrow {verb} from {variant.state} to {target}"
    return row


# ---- what the table allows


@pytest.mark.parametrize(("variant", "way"), MOVES, ids=MOVE_IDS)
def test_a_verb_takes_a_run_along_its_arrow_once(variant: Variant, way: Way, make_stage: MakeStage) -> None:
    """With one event, which says so; sent again it is answered as before and changes nothing."""
    stage = make_stage(children=variant.children)
    variant.build(stage)
    events, attempt = len(stage.events()), stage.attempt()
    waiting = [child for child in stage.children if stage.world.state(child) == "blocked"]

    reply = way.say(stage)

    row, (_, target) = row_of(variant, way), variant.moves[way.name]
    assert stage.present() == target
    (event,) = [event for event in stage.events(events) if event.run == stage.run]
    assert (event.event, event.state) == (row.event, target)
    assert event.attempt == stage.attempt() == attempt + (row.verb == "claim")
    check_answer(way, reply, target)
    check_others(stage, stage.events(events), waiting, target)
    variant.next(stage)
    # The world is checked when the test is over; until then nothing changes any more.
    with stage.unchanged():
        if way.again is None:
            assert way.say(stage) == reply
        else:
            way.again(stage)


def check_answer(way: Way, reply: object, target: State) -> None:
    """Who said a verb of the run learns the state that it is in now."""
    if way.names_the_run:
        assert reply is None or isinstance(reply, SubmitReceipt) or reply == target


def check_others(stage: Stage, events: list[Event], waiting: list[str], target: State) -> None:
    """The parents and children told of themselves only, and the dependents learned of an end and of nothing else."""
    family = (stage.run, *(parent.id for parent in stage.parents), *stage.own_children, *stage.rivals)
    others = [event for event in events if event.run not in family]
    learned = ("unblocked", "pending") if target is State.COMPLETED else ("skipped", "skipped")
    expected = [(child, *learned) for child in waiting if target in TERMINAL_STATES]
    assert [(event.run, event.event, event.state) for event in others] == expected


# ---- what it does not allow


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_a_verb_without_an_arrow_is_answered_by_name_and_changes_nothing(
    variant: Variant, make_stage: MakeStage
) -> None:
    stage = make_stage()
    stage.add_neighbours()
    variant.build(stage)
    stage.lease("w2")

    for way in WAYS.values():
        if way.name not in variant.moves and not (way.verb == "submit" and variant.state is None):
            refuse(stage, variant, way)

    with stage.unchanged(standing=True):
        assert stage.world.tidy() == 0


def refuse(stage: Stage, variant: Variant, way: Way) -> None:
    """Say it, see what answers, and that not one byte has changed. About workers some may, where a worker is lost."""
    expected = answer(variant, way)
    about_workers = way.verb == "lose" or way.name == "leave"
    with stage.unchanged(runs_only=about_workers, standing=way.verb == "claim"):
        refused: type[AgentqError] | None = None
        try:
            way.late(stage)
        except AgentqError as error:
            refused = type(error)
    assert refused == expected, f"{way.name} of a run that is {variant.name}"


def answer(variant: Variant, way: Way) -> type[AgentqError] | None:
    """What answers a verb that changes nothing; None where that is what the verb wanted."""
    if way.name in variant.refused:
        return variant.refused[way.name]
    if way.name in variant.idle or not way.names_the_run:
        return None
    if way.verb == "submit":
        return Duplicate if way.name == "submit changed" else None
    if variant.state is None:
        return NotFound
    if way.shows_a_fence and variant.fence is not Fence.VALID:
        return None if way.verb == variant.ended_by else Fenced
    return None if (way.verb, variant.state) in REACHED or leads_to(way.verb, variant.state) else WrongState


REACHED = {("wake", State.PENDING), ("cancel", State.CANCELLED)}
"""A run that is pending is about to be awake, and one that is cancelled need not be cancelled: nobody is refused."""


def leads_to(verb: str, state: State) -> bool:
    """Whether a worker's own verb may have brought the run where it is: a second time, it is answered as the first."""
    return verb not in ("wake", "cancel", "requeue") and any(
        row.verb == verb and row.target == state for row in TRANSITIONS
    )


# ---- the cases are complete


def test_every_state_has_a_variant() -> None:
    assert {variant.state for variant in VARIANTS} == {None, *State}


def test_every_verb_has_a_way() -> None:
    assert {row_of(variant, way).verb for variant, way in MOVES} == set(VERBS)


def test_every_arrow_of_the_table_is_gone_along() -> None:
    gone = {(verb, variant.state, target) for variant in VARIANTS for verb, target in variant.moves.values()}

    assert gone == {(row.verb, *each) for row in TRANSITIONS for each in row.arrows()}


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_what_the_table_allows_in_a_state_leads_somewhere_or_is_said_not_to(variant: Variant) -> None:
    """So that no verb passes for one that is refused because its way was left out of a variant's moves."""
    allowed = {way.name for way in WAYS.values() if variant.state in source_states(way.verb) and way.names_the_run}

    assert allowed <= {*variant.moves, *variant.idle, *variant.refused}
