"""Dedupe keys over time: kept for a while, put off, and the newest that follows. rq#204, and four modes of BullMQ."""

from __future__ import annotations

from itertools import pairwise

import pytest
from conformance import lives
from conformance.stage import COMMAND, MakeStage, Stage
from conformance.test_dedupe_keys import live, with_key
from conformance.variants import Variant
from support.world import World

from agentq.coordinator.errors import Duplicate, Invalid
from agentq.coordinator.explain.run import RunExplanation
from agentq.coordinator.model.ids import new_run_id
from agentq.coordinator.model.lifecycle import HELD_STATES, OutcomeClass, State
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.queues.limits import LimitFullPolicy
from agentq.coordinator.runs.verbs import SubmitReceipt


def put(stage: Stage, number: int = 0, **fields: object) -> SubmitReceipt:
    """A submit with the stage's key; runs of another number are not the same."""
    command = COMMAND | {"argv": ["echo", str(number)], "dedupe_key": stage.spec.dedupe_key}
    return stage.queue.submit(RunSpec.checked(**command | fields), run_id=new_run_id(stage.partition))


def key_of(stage: Stage) -> str:
    return stage.value("dedupe", str(stage.spec.dedupe_key))


def keyed(make_stage: MakeStage) -> Stage:
    stage = make_stage()
    stage.fields["dedupe_key"] = stage.key_at_home("key")
    return stage


# ---- a key that stays taken


@pytest.mark.parametrize("end", [lives.completed, lives.failed, lives.stop_confirmed])
def test_a_key_with_a_ttl_stays_taken_from_the_submit_on(end: lives.Build, make_stage: MakeStage) -> None:
    stage = keyed(make_stage)
    stage.fields["dedupe_ttl_ms"] = 10_000
    end(stage)

    stage.world.pass_ms(9_999)
    with stage.unchanged():
        assert put(stage) == SubmitReceipt(stage.run, created=False)
        with pytest.raises(Duplicate, match=stage.run):
            put(stage, if_live="reject")
        for mode in ({"if_live": "replace"}, {"if_live": "follow"}, {"if_live": "debounce", "delay_ms": 1}):
            assert put(stage, **mode) == SubmitReceipt(stage.run, created=False)

    stage.world.pass_ms(1)
    assert put(stage).created


def test_a_live_run_has_its_key_for_longer_than_the_ttl(make_stage: MakeStage) -> None:
    stage = keyed(make_stage)
    stage.submit(dedupe_ttl_ms=1000)
    stage.take()
    stage.world.pass_ms(5000)

    assert put(stage) == SubmitReceipt(stage.run, created=False)
    stage.finish()
    assert put(stage).created


def test_a_run_may_begin_again_while_its_key_is_kept_for_it(make_stage: MakeStage) -> None:
    stage = keyed(make_stage)
    stage.fields["dedupe_ttl_ms"] = 10_000
    lives.completed(stage)

    assert stage.queue.requeue(stage.run) == State.PENDING
    assert put(stage) == SubmitReceipt(stage.run, created=False)
    stage.queue.cancel(stage.run)
    assert put(stage) == SubmitReceipt(stage.run, created=False), "it counts from the submit still"


def test_a_run_whose_key_another_keeps_begins_again_when_that_is_over(make_stage: MakeStage) -> None:
    stage = keyed(make_stage)
    lives.completed(stage)
    other = put(stage, dedupe_ttl_ms=10_000).id
    stage.queue.cancel(other)

    with stage.unchanged(), pytest.raises(Duplicate, match=other):
        stage.queue.requeue(stage.run)
    stage.world.pass_ms(10_000)
    assert stage.queue.requeue(stage.run) == State.PENDING


# ---- put off


def test_each_submit_puts_the_run_off_and_the_last_one_counts(make_stage: MakeStage) -> None:
    stage = keyed(make_stage)
    stage.submit(if_live="debounce", delay_ms=1000)
    runs = [stage.run]
    for number in range(3):
        stage.world.pass_ms(900)
        stage.tick()
        runs.append(put(stage, number, if_live="debounce", delay_ms=1000).id)

    assert stage.world.states(runs) == ["cancelled", "cancelled", "cancelled", "scheduled"]
    assert key_of(stage) == runs[-1]
    assert [stage.world.events(run)[-1].detail for run in runs[:3]] == [
        f"replaced by {new}" for _, new in pairwise(runs)
    ]
    stage.world.pass_ms(1000)
    stage.tick()
    assert stage.world.state(runs[-1]) == "pending"
    assert stage.world.get(runs[-1]).spec.argv == ("echo", "2")


def test_a_run_is_put_off_no_longer_than_its_most(make_stage: MakeStage) -> None:
    stage = keyed(make_stage)
    mode = {"if_live": "debounce", "delay_ms": 1000, "debounce_max_ms": 2500}
    stage.submit(**mode)
    began_ms = stage.world.now_ms
    for number in range(4):
        stage.world.pass_ms(600)
        last = put(stage, number, **mode).id

    assert stage.world.get(last).due_at_ms == began_ms + 2500
    stage.world.pass_ms(100)
    stage.tick()
    assert stage.world.state(last) == "pending"

    follower = put(stage, 9, **mode).id
    assert stage.world.states([last, follower]) == ["pending", "blocked"], "its time has come: it keeps its place"


def test_what_is_submitted_after_it_began_is_put_off_behind_it(make_stage: MakeStage) -> None:
    stage = keyed(make_stage)
    stage.submit(if_live="debounce", delay_ms=0)
    stage.take()

    first, second = (put(stage, number, if_live="debounce", delay_ms=5000).id for number in range(2))

    assert stage.world.states([first, second]) == ["cancelled", "blocked"]
    stage.finish()
    assert stage.world.state(second) == "scheduled"


# ---- the newest follows


@live
def test_at_most_one_run_follows_a_live_one_and_the_newest_counts(variant: Variant, make_stage: MakeStage) -> None:
    stage, _ = with_key(variant, make_stage)
    begun = stage.world.get(stage.run).attempt > 0

    holders = [put(stage, number, if_live="follow").id for number in range(3)]

    if begun:
        assert stage.world.states(holders) == ["cancelled", "cancelled", "blocked"]
        assert key_of(stage) == stage.run
        assert stage.world.get(holders[-1]).reason == f"follows {stage.run}"
    else:
        assert stage.present() == "cancelled", "it has not begun, so the newest takes its place"
        assert stage.world.states(holders) == ["cancelled", "cancelled", "pending"]
        assert key_of(stage) == holders[-1]
    variant.next(stage)


ENDS: dict[str, lives.Build] = {
    "completes": Stage.finish,
    "fails": lambda stage: stage.fail(OutcomeClass.REJECTED),
    "is stopped": lives.then(lives.cancel, lambda stage: stage.fail(OutcomeClass.CANCELLED)),
    "does not confirm its stop": lives.then(lives.cancel, lives.come),
    "is lost for good": Stage.lose,
}


@pytest.mark.parametrize("end", ENDS)
def test_a_follower_begins_when_the_other_ends_however_it_ends(end: str, make_stage: MakeStage) -> None:
    stage = keyed(make_stage)
    stage.submit(retry={"crashes": 0})
    stage.take()
    stage.start()
    follower = put(stage, if_live="follow").id
    _, sentences = RunExplanation(stage.world.store, stage.world.settings).of(follower)
    assert sentences[0].startswith(f"It starts when {stage.run} (running on w1) has ended")

    ENDS[end](stage)

    assert stage.world.state(follower) == "pending"
    assert key_of(stage) == follower
    with stage.unchanged():
        assert put(stage) == SubmitReceipt(follower, created=False)


def test_a_follower_waits_through_retries_and_sleep(make_stage: MakeStage) -> None:
    stage = keyed(make_stage)
    stage.submit(retry={"failures": 1})
    stage.take()
    follower = put(stage, if_live="follow").id
    stage.fail()
    assert stage.world.state(follower) == "blocked"
    stage.come()
    stage.take(start=True)
    stage.park()
    assert stage.world.state(follower) == "blocked"
    stage.queue.cancel(stage.run)
    assert stage.world.state(follower) == "pending"


def test_the_same_once_more_is_not_new(make_stage: MakeStage) -> None:
    """So that a stream of equal submits neither pushes a waiting run back for ever, nor runs twice."""
    stage = keyed(make_stage)
    stage.imagine()
    first = put(stage, 0, if_live="follow")
    with stage.unchanged():
        assert put(stage, 0, if_live="follow") == SubmitReceipt(first.id, created=False)
    claims = stage.lease("w1").claim(1)
    follower = put(stage, 1, if_live="follow")
    assert [claim.id for claim in claims] == [first.id]
    with stage.unchanged():
        assert put(stage, 1, if_live="follow") == SubmitReceipt(follower.id, created=False)


def test_a_follower_that_is_sent_twice_is_one(make_stage: MakeStage) -> None:
    stage = keyed(make_stage)
    stage.submit()
    stage.take()
    follower = new_run_id(stage.partition)
    spec = RunSpec.checked(**COMMAND, dedupe_key=stage.spec.dedupe_key, if_live="follow")
    assert stage.queue.submit(spec, run_id=follower).created

    newer = put(stage, 1, if_live="follow").id
    with stage.unchanged():
        assert stage.queue.submit(spec, run_id=follower) == SubmitReceipt(follower, created=True)
    assert stage.world.states([follower, newer]) == ["cancelled", "blocked"]


def test_a_follower_that_is_cancelled_leaves_its_place(make_stage: MakeStage) -> None:
    stage = keyed(make_stage)
    stage.submit()
    stage.take()
    follower = put(stage, if_live="follow").id
    stage.queue.cancel(follower)
    with stage.unchanged():
        assert put(stage) == SubmitReceipt(stage.run, created=False)

    other = put(stage, 1, if_live="follow").id
    stage.finish()

    assert stage.world.states([follower, other]) == ["cancelled", "pending"]
    with stage.unchanged(), pytest.raises(Duplicate, match=other):
        stage.queue.requeue(follower)


def test_a_follower_waits_for_its_own_dependencies_too(make_stage: MakeStage) -> None:
    stage = keyed(make_stage)
    stage.submit()
    stage.take()
    parents = stage.add_parents()
    follower = put(stage, if_live="follow", after=parents).id
    stage.fail(OutcomeClass.REJECTED)
    assert stage.world.state(follower) == "blocked", "it does not mind how the other ended, and waits for its parent"

    stage.end_parent(OutcomeClass.REJECTED)

    assert stage.world.state(follower) == "skipped"
    assert put(stage).created, "and its key is free"


def test_what_has_a_follower_and_is_replaced_takes_it_along(make_stage: MakeStage) -> None:
    """Else two runs with one key would live."""
    stage = keyed(make_stage)
    mode = {"if_live": "debounce", "delay_ms": 0, "debounce_max_ms": 0}
    stage.submit(**mode)
    follower = put(stage, 1, **mode).id
    assert stage.world.states([stage.run, follower]) == ["pending", "blocked"]

    newest = put(stage, 2, if_live="replace").id

    assert stage.world.states([stage.run, follower, newest]) == ["cancelled", "cancelled", "pending"]
    assert key_of(stage) == newest


def test_of_many_submits_at_once_one_runs_and_one_follows(world: World) -> None:
    """A race of clients: whoever comes last is the one that follows."""
    specs = [
        RunSpec.checked(kind="command", argv=["echo", str(number)], dedupe_key="k", if_live="follow")
        for number in range(50)
    ]
    first, *rest = [receipt.id for receipt in world.queue.submit_many(specs)]
    held = world.worker("w1").claim(5)
    assert [claim.id for claim in held] == [rest[-1]]

    more = [receipt.id for receipt in world.queue.submit_many(specs)]

    assert world.state(first) == "cancelled"
    alive = [run for run in dict.fromkeys((*rest, *more)) if world.state(run) != "cancelled"]
    assert alive == [rest[-1], more[-1]]
    assert world.state(more[-1]) == "blocked"
    assert world.get(rest[-1]).state in HELD_STATES


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"dedupe_ttl_ms": 5}, "dedupe_ttl_ms means nothing without dedupe_key"),
        ({"dedupe_ttl_ms": 0, "dedupe_key": "k"}, "dedupe_ttl_ms"),
        ({"dedupe_ttl_ms": 5, "dedupe_key": "k", "if_live": "follow"}, "the key is free when the run ends"),
        ({"dedupe_key": "k", "if_live": "debounce"}, "needs delay_ms"),
        ({"dedupe_key": "k", "debounce_max_ms": 5}, "is for if_live 'debounce'"),
        ({"keep_ms": 59_999}, "a run is kept for 60000 ms at least"),
    ],
)
def test_what_does_not_go_together_is_refused(fields: dict[str, object], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        RunSpec.checked(**COMMAND, **fields)


def test_a_run_that_a_limit_turns_away_at_its_submit_leaves_its_key_free(make_stage: MakeStage) -> None:
    """It was cancelled first and took its key then, for ever."""
    stage = keyed(make_stage)
    stage.world.limits.set("k", most=1, when_full=LimitFullPolicy.CANCEL_NEWEST)
    stage.submit(limits={"k": 1})
    stage.take()
    stage.spec = RunSpec.checked(**COMMAND, dedupe_key=stage.key_at_home("other"))

    refused = put(stage, limits={"k": 1}).id

    assert stage.world.state(refused) == "cancelled"
    assert put(stage).created


def test_a_run_that_is_redelivered_has_its_key_still(make_stage: MakeStage) -> None:
    """docket#245."""
    stage = keyed(make_stage)
    stage.submit(retry={"crashes": 2})
    stage.take()
    follower = put(stage, if_live="follow").id
    stage.lose()

    stage.take("w2")
    with stage.unchanged():
        assert put(stage) == SubmitReceipt(stage.run, created=False)
    stage.finish()
    assert stage.world.state(follower) == "pending"
