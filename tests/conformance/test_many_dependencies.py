"""A run with more dependencies than one call takes is blocked until the last call, whatever happens in between."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from conformance.stage import COMMAND, MakeStage, Stage
from pydantic_core import to_json

from agentq.coordinator import bounds
from agentq.coordinator.errors import Invalid, NotFound
from agentq.coordinator.model.ids import new_run_id
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome, RunSpec

PARENTS = 2500


def open_behind(stage: Stage, parents: Sequence[str], **fields: object) -> None:
    """The submit of a run of whose dependencies more are to come."""
    options = to_json(RunSpec.checked(**COMMAND, after=parents, **fields).to_submit_options() | {"open": True})
    words = (stage.run, stage.spec.lane, stage.spec.to_wire(), options)
    assert stage.world.store.call("run/submit", stage.partition, *words) == ["ok"]


def depend(stage: Stage, seal: int, *parents: str, expires_ms: int = 0) -> str:
    return str(stage.world.store.call("run/add_dependencies", stage.partition, stage.run, seal, expires_ms, *parents))


def depend_twice(stage: Stage, seal: int, *parents: str, expires_ms: int = 0) -> None:
    """A further call, and the same again."""
    assert depend(stage, seal, *parents, expires_ms=expires_ms) == "ok"
    with stage.unchanged():
        assert depend(stage, seal, *parents, expires_ms=expires_ms) == "ok"


def test_a_run_is_blocked_until_the_last_call_even_when_all_its_dependencies_have_ended(make_stage: MakeStage) -> None:
    stage = make_stage()
    first, second, third = stage.add_parents(3)
    open_behind(stage, [first])
    stage.end_parent()
    stage.end_parent()

    depend_twice(stage, 0, second)
    assert stage.present() == "blocked"
    depend_twice(stage, 1, third)
    assert stage.present() == "blocked"

    stage.end_parent()
    assert stage.world.event_names(stage.run) == ["submitted", "unblocked"]


def test_the_last_call_lets_a_run_go_that_waits_for_nothing_any_more(make_stage: MakeStage) -> None:
    stage = make_stage()
    first, second = stage.add_parents(2)
    open_behind(stage, [first])
    stage.end_parent()
    stage.end_parent()

    depend_twice(stage, 1, second)

    assert stage.world.event_names(stage.run) == ["submitted", "unblocked"]


def test_the_last_call_sent_again_when_the_run_has_gone_on_changes_nothing(make_stage: MakeStage) -> None:
    """The caller would take a refusal for a failed submit, and cancel a run that is on its way."""
    stage = make_stage()
    (parent,) = stage.add_parents()
    open_behind(stage, [])
    stage.end_parent()
    depend_twice(stage, 1, parent)

    for step in (stage.take, stage.start, stage.finish):
        step()
        with stage.unchanged():
            assert depend(stage, 1, parent) == "ok"


def test_a_dependency_of_a_later_call_that_did_not_complete_skips_the_run(make_stage: MakeStage) -> None:
    stage = make_stage()
    first, second, third = stage.add_parents(3)
    open_behind(stage, [first])
    stage.parents.reverse()
    stage.end_parent(OutcomeClass.REJECTED)
    stage.end_parent()

    depend_twice(stage, 0, second)
    depend_twice(stage, 1, third)

    assert stage.world.event_names(stage.run) == ["submitted", "skipped"]


def test_a_run_whose_submit_was_given_up_halfway_fails(make_stage: MakeStage) -> None:
    stage = make_stage()
    open_behind(stage, stage.add_parents())
    stage.world.pass_ms(bounds.OPEN_SUBMIT_MS)
    stage.tick()

    assert stage.world.event_names(stage.run) == ["submitted", "failed"]
    with stage.unchanged():
        assert depend(stage, 1, stage.parents[0].id) == "ok"


def test_the_patience_of_a_run_counts_from_the_last_call_on(make_stage: MakeStage) -> None:
    stage = make_stage()
    (parent,) = stage.add_parents()
    open_behind(stage, [], expires_ms=1000)
    stage.world.pass_ms(5000)
    stage.tick()

    depend_twice(stage, 1, parent, expires_ms=1000)

    assert stage.timer() == stage.world.now_ms + 1000
    stage.come()
    assert stage.world.event_names(stage.run) == ["submitted", "failed"]


@pytest.mark.parametrize("missing", ["another", "itself"])
def test_a_dependency_that_does_not_exist_is_refused_and_awaited_by_nobody(missing: str, make_stage: MakeStage) -> None:
    stage = make_stage()
    (parent,) = stage.add_parents()
    open_behind(stage, [parent])
    orphan = stage.run if missing == "itself" else new_run_id(stage.partition)

    with stage.unchanged():
        assert depend(stage, 1, parent, orphan) == f"no_dependency {orphan}"


def test_dependencies_of_an_unknown_run_are_refused(make_stage: MakeStage) -> None:
    stage = make_stage()
    parents = stage.add_parents()

    with stage.unchanged():
        assert depend(stage, 1, *parents) == "not_found"


# ---- through the queue, which makes the calls


def many(stage: Stage, count: int) -> list[str]:
    ids = [new_run_id(stage.partition) for _ in range(count)]
    specs = [RunSpec.checked(**COMMAND, queue="parents")] * count
    assert all(receipt.created for receipt in stage.queue.submit_many(specs, run_ids=ids))
    return ids


def finish_many(stage: Stage, count: int) -> None:
    """As many of the parents complete, and the settler tells of those that one call could not tell of."""
    claims = stage.lease("parents", "parents").claim(count)
    assert len(claims) == count
    assert not any(stage.queue.finish([(claim, Outcome()) for claim in claims]))
    stage.tick()


def test_a_run_with_thousands_of_dependencies_waits_for_each(make_stage: MakeStage) -> None:
    stage = make_stage()
    parents = many(stage, PARENTS)
    finish_many(stage, 700)
    spec = RunSpec.checked(**COMMAND, after=parents)

    for _ in range(2):
        assert stage.queue.submit(spec, run_id=stage.run).created
    assert stage.size("SCARD", "dependencies", stage.run) == PARENTS - 700
    for count in (900, 899):
        finish_many(stage, count)
    assert stage.present() == "blocked"
    finish_many(stage, 1)

    assert stage.queue.submit(spec, run_id=stage.run).created
    assert stage.world.event_names(stage.run) == ["submitted", "unblocked"]


def test_a_run_with_a_thousand_dependencies_and_one_that_does_not_exist_is_cancelled(make_stage: MakeStage) -> None:
    stage = make_stage()
    parents = many(stage, bounds.DEPENDENCIES_PER_CALL)
    orphan = new_run_id(stage.partition)

    with pytest.raises(NotFound, match=orphan):
        stage.queue.submit(RunSpec.checked(**COMMAND, after=[*parents, orphan]), run_id=stage.run)

    assert stage.world.event_names(stage.run) == ["submitted", "cancelled"]


def test_two_runs_cannot_wait_for_each_other(make_stage: MakeStage) -> None:
    """An id can be made beforehand; then the other waits for this run already when it is named as a dependency."""
    stage = make_stage()
    open_behind(stage, stage.add_parents())
    other = stage.submit_other(after=[stage.run])

    with stage.unchanged():
        assert depend(stage, 1, other) == f"cycle {other}"
    assert depend(stage, 1) == "ok"
    stage.end_parent()
    assert stage.present() == "pending"


def test_nor_can_three_in_a_ring_or_two_that_are_both_open(make_stage: MakeStage) -> None:
    stage = make_stage()
    open_behind(stage, stage.add_parents())
    second = stage.submit_other(after=[stage.run])
    third = stage.submit_other(after=[second])
    with stage.unchanged():
        assert depend(stage, 0, third) == f"cycle {third}"

    older, stage.run = stage.run, new_run_id(stage.partition)
    open_behind(stage, [])
    assert depend(stage, 0, older) == "ok", "the older one came first"
    younger, stage.run = stage.run, older
    with stage.unchanged():
        assert depend(stage, 0, younger) == f"cycle {younger}"


def test_a_younger_run_that_waits_for_nobody_can_be_waited_for(make_stage: MakeStage) -> None:
    stage = make_stage()
    open_behind(stage, stage.add_parents())
    younger, later = stage.submit_other(), stage.submit_other(delay_ms=1000)

    assert depend(stage, 1, younger, later) == "ok"


def test_a_submit_that_would_make_a_ring_is_cancelled_and_says_why(make_stage: MakeStage) -> None:
    stage = make_stage()
    parents = [stage.submit_other() for _ in range(bounds.DEPENDENCIES_PER_CALL)]
    ring = new_run_id(stage.partition)
    spec = RunSpec.checked(**COMMAND, after=[*parents, ring])
    words = (stage.run, spec.lane, spec.to_wire(), to_json(spec.to_submit_options()))
    assert stage.world.store.call("run/submit", stage.partition, *words) == ["ok"], "the first call of several"
    stage.queue.submit(RunSpec.checked(**COMMAND, after=[stage.run]), run_id=ring)

    with pytest.raises(Invalid, match=f"cannot depend on {ring}, which was submitted or requeued later and is blocked"):
        stage.queue.submit(spec, run_id=stage.run)

    assert stage.world.states([stage.run, ring]) == ["cancelled", "skipped"]
