"""Runs that wait without a slot: what they wait for wakes them, whenever it comes, and is theirs until they took it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from conformance import lives
from conformance.stage import MakeStage, Stage

from agentq.coordinator import bounds
from agentq.coordinator.errors import Fenced, Invalid, NotFound, TryLater, WrongState
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.runs.wait import Resumption, RunWait, list_signals

APPROVED = {"verdict": "approved", "comment": ""}


@pytest.fixture
def stage(make_stage: MakeStage) -> Stage:
    """A run that runs."""
    stage = make_stage()
    lives.running(stage)
    return stage


def names(found: Resumption) -> list[str]:
    return [message.name for message in found.messages]


# ---- signals


def test_a_signal_that_comes_while_it_waits_wakes_it_with_what_it_says(stage: Stage) -> None:
    assert stage.park_for(signals=("go",), state={"step": 2}) is State.WAITING
    assert stage.queue.signal(stage.run, "go", {"how": ["fast", []]}, by="me") is State.PENDING

    found = stage.resume()

    assert (found.reason, found.state, found.children) == ("signal", {"step": 2}, [])
    (message,) = found.messages
    assert (message.name, message.data, message.by) == ("go", {"how": ["fast", []]}, "me")
    assert message.at_ms == stage.world.now_ms


@pytest.mark.parametrize("before", ["submitted", "claimed", "running"])
def test_a_signal_that_came_before_it_parked_is_not_lost(make_stage: MakeStage, before: str) -> None:
    stage = make_stage()
    steps: dict[str, Callable[[], object]] = {"submitted": stage.submit, "claimed": stage.take, "running": stage.start}
    for name, step in steps.items():
        step()
        if name == before:
            stage.queue.signal(stage.run, "go")

    assert stage.park_for(signals=("go",)) is State.PENDING

    assert names(stage.resume()) == ["go"]


def test_a_signal_that_it_does_not_wait_for_waits_for_it(stage: Stage) -> None:
    stage.park_for(signals=("go",))
    assert stage.queue.signal(stage.run, "later") is State.WAITING
    assert stage.queue.signal(stage.run, "go") is State.PENDING

    assert names(stage.resume()) == ["go"]
    assert stage.park_for(signals=("later",)) is State.PENDING
    assert names(stage.resume()) == ["later"]


def test_a_signal_that_is_sent_twice_comes_once_even_after_it_was_taken(stage: Stage) -> None:
    stage.park_for(signals=("go",))
    stage.queue.signal(stage.run, "go", operation="once")
    with stage.unchanged():
        stage.queue.signal(stage.run, "go", operation="once")
    stage.resume()

    assert stage.park_for(signals=("go",)) is State.WAITING
    with stage.unchanged():
        stage.queue.signal(stage.run, "go", operation="once")
    stage.queue.signal(stage.run, "go", operation="twice")

    assert len(stage.resume().messages) == 1


def test_two_signals_are_handed_over_in_their_order(stage: Stage) -> None:
    stage.park_for(signals=("a", "b"))
    for name in ("b", "a", "b"):
        stage.queue.signal(stage.run, name)

    assert names(stage.resume()) == ["b", "a", "b"]


def test_one_that_comes_after_the_attempt_has_received_is_for_the_next(stage: Stage) -> None:
    stage.park_for(signals=("go",))
    stage.queue.signal(stage.run, "go", 1)
    assert [message.data for message in stage.resume().messages] == [1]
    stage.queue.signal(stage.run, "go", 2)

    assert stage.park_for(signals=("go",)) is State.PENDING

    assert [message.data for message in stage.resume().messages] == [2]


def test_what_it_waits_for_anew_decides_and_not_what_it_waited_for_before(stage: Stage) -> None:
    stage.park_for(signals=("go",))
    stage.queue.wake(stage.run)
    assert stage.resume().reason == "wake"
    stage.park_for(signals=("other",))

    assert stage.queue.signal(stage.run, "go") is State.WAITING


def test_an_ended_run_takes_no_signal_and_a_run_that_is_not_there_neither(stage: Stage) -> None:
    stage.queue.signal(stage.run, "go", operation="in-time")
    stage.finish()

    with stage.unchanged():
        with pytest.raises(WrongState):
            stage.queue.signal(stage.run, "go")
        with pytest.raises(NotFound):
            stage.queue.signal(stage.run[:-4] + "0000", "go")
        # It was accepted when it was sent the first time, and only the answer was lost.
        assert stage.queue.signal(stage.run, "go", operation="in-time") is State.COMPLETED


def test_a_full_mailbox_refuses_and_takes_more_once_some_was_taken(stage: Stage) -> None:
    for number in range(bounds.PENDING_SIGNALS):
        stage.queue.signal(stage.run, "go", number)
    with stage.unchanged(), pytest.raises(TryLater):
        stage.queue.signal(stage.run, "go")
    stage.park_for(signals=("go",))
    assert len(stage.resume().messages) == bounds.PENDING_SIGNALS
    stage.park_for(signals=("go",))

    assert stage.queue.signal(stage.run, "go") is State.PENDING


@pytest.mark.parametrize("name", ["approval", "", "a b", "a\n", "x" * 200])
def test_what_cannot_be_a_signal_is_refused_at_the_door(stage: Stage, name: str) -> None:
    with stage.unchanged(), pytest.raises(Invalid):
        stage.queue.signal(stage.run, name)
    with pytest.raises(Invalid):
        RunWait.checked(signals=(name,))


@pytest.mark.parametrize("data", ["x" * (bounds.SIGNAL_BYTES + 1), float("nan"), object()])
def test_what_a_signal_cannot_say_is_refused_at_the_door(stage: Stage, data: object) -> None:
    with stage.unchanged(), pytest.raises(Invalid):
        stage.queue.signal(stage.run, "go", data)  # type: ignore[arg-type]
    with pytest.raises(Invalid):
        RunWait.checked(state=data)


# ---- at least once


def test_an_attempt_that_is_lost_leaves_what_it_was_handed_to_the_next(stage: Stage) -> None:
    stage.park_for(signals=("go",), state="kept")
    stage.queue.signal(stage.run, "go", 1)
    first = stage.resume()
    stage.lose()

    assert stage.resume() == first


@pytest.mark.parametrize("how", ["fail", "release", "defer"])
def test_an_attempt_that_gives_up_leaves_what_it_was_handed_to_the_next(make_stage: MakeStage, how: str) -> None:
    stage = make_stage(retry=lives.RETRY)
    stage.submit()
    stage.take(start=True)
    stage.park_for(signals=("go",))
    stage.queue.signal(stage.run, "go", 1)
    first = stage.resume()
    {"fail": stage.fail, "release": lambda: stage.queue.release(stage.claim), "defer": stage.defer}[how]()
    if how != "release":
        stage.come()

    assert stage.resume() == first


def test_an_attempt_that_received_nothing_takes_nothing_away(stage: Stage) -> None:
    """It parks as a program does that began anew; what its predecessor was handed is still there."""
    stage.park_for(signals=("go",))
    stage.queue.signal(stage.run, "go")
    stage.resume()
    stage.lose()
    stage.take(start=True)

    assert stage.park_for(signals=("go",)) is State.PENDING

    assert names(stage.resume()) == ["go"]


def test_what_was_received_can_be_received_again(stage: Stage) -> None:
    stage.park_for(signals=("go",))
    stage.queue.signal(stage.run, "go")
    first = stage.resume()

    with stage.unchanged():
        assert stage.queue.receive(stage.claim) == first


def test_a_park_that_is_sent_again_takes_nothing_more_away(stage: Stage) -> None:
    stage.park_for(signals=("go",))
    stage.queue.signal(stage.run, "go", 1)
    stage.resume()
    stage.queue.signal(stage.run, "go", 2)
    assert stage.park_for(signals=("go",)) is State.PENDING

    with stage.unchanged():
        assert stage.park_for(signals=("go",)) is State.PENDING


def test_a_superseded_attempt_receives_nothing_and_cannot_park(stage: Stage) -> None:
    stage.park_for(signals=("go",))
    stage.queue.signal(stage.run, "go")
    stage.resume()
    former = stage.claim
    stage.lose()
    stage.take("w2", start=True)

    with stage.unchanged():
        with pytest.raises(Fenced):
            stage.queue.receive(former)
        with pytest.raises(Fenced):
            stage.queue.park(former, wait=RunWait(signals=("go",)))


def test_a_worker_that_is_lost_before_its_park_is_heard_costs_a_crash_and_the_run_begins_anew(stage: Stage) -> None:
    stage.queue.signal(stage.run, "go")
    stage.lose()
    stage.take(start=True)

    assert stage.queue.receive(stage.claim) is None
    assert stage.park_for(signals=("go",)) is State.PENDING
    assert stage.world.get(stage.run).crashes == 1


def test_parking_spends_no_budget(make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.submit(retry={"failures": 1, "crashes": 0})
    stage.take(start=True)
    for number in range(bounds.CRASHES + 2):
        stage.park_for(signals=("go",), state=number)
        stage.queue.signal(stage.run, "go")
        assert stage.resume().state == number

    run = stage.world.get(stage.run)
    assert (run.attempt, run.failures, run.crashes, run.deferrals) == (bounds.CRASHES + 3, 0, 0, 0)
    assert stage.fail() is State.SCHEDULED


def test_a_run_that_waits_gives_its_room_back_and_waits_for_room_when_it_goes_on(make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.world.limits.set("gpu", most=1)
    stage.submit(limits={"gpu": 1})
    stage.take(start=True)
    other = stage.submit_other(limits={"gpu": 1}, queue="others")
    assert stage.world.state(other) == "blocked"
    stage.park_for(signals=("go",))
    (claim,) = stage.lease("others", "others").claim(1)
    assert claim.id == other

    assert stage.queue.signal(stage.run, "go") is State.PENDING
    assert stage.lease("w1").claim(1) == []
    assert stage.world.get(stage.run).reason == "limit gpu"
    stage.queue.finish([(claim, Outcome())])

    assert names(stage.resume()) == ["go"]


# ---- time


def test_the_time_wakes_it_if_nothing_else_does(stage: Stage) -> None:
    stage.park_for(signals=("go",), for_ms=5_000)
    stage.come()

    assert stage.resume().reason == "time"


@pytest.mark.parametrize("first", ["signal", "time"])
def test_a_signal_in_the_same_millisecond_as_the_time_is_not_missed(stage: Stage, first: str) -> None:
    stage.park_for(signals=("go",), for_ms=5_000)
    stage.world.pass_ms(5_000)
    if first == "time":
        stage.tick()
    stage.queue.signal(stage.run, "go")
    stage.tick()

    found = stage.resume()

    assert (found.reason, names(found)) == ("signal", ["go"])
    assert stage.world.event_names(stage.run).count("woken") == 1


def test_a_time_that_has_passed_does_not_let_it_park(stage: Stage) -> None:
    assert stage.park_for(until_ms=stage.world.now_ms) is State.PENDING
    assert stage.resume().reason == "time"


# ---- approvals


@pytest.mark.parametrize("verdict", ["approved", "denied"])
def test_a_verdict_wakes_who_asked_for_it(stage: Stage, verdict: str) -> None:
    assert stage.park_for(approval=True) is State.WAITING
    say = stage.queue.approve if verdict == "approved" else stage.queue.deny
    assert say(stage.run, "as it is", by="boss", operation="verdict") is State.PENDING
    with stage.unchanged():
        say(stage.run, "as it is", by="boss", operation="verdict")

    found = stage.resume()

    assert found.reason == "approval"
    assert [(each.data, each.by) for each in found.messages] == [({"verdict": verdict, "comment": "as it is"}, "boss")]


def test_an_approval_is_used_up_by_the_park_after_it(stage: Stage) -> None:
    stage.queue.approve(stage.run)
    assert stage.park_for(approval=True) is State.PENDING
    assert stage.resume().messages[0].data == APPROVED

    assert stage.park_for(approval=True) is State.WAITING


def test_a_run_that_begins_again_is_not_approved_and_remembers_nothing(stage: Stage) -> None:
    stage.park_for(approval=True, state="before")
    stage.queue.approve(stage.run)
    stage.resume()
    stage.fail(OutcomeClass.REJECTED)
    stage.queue.requeue(stage.run)
    stage.take(start=True)

    assert stage.queue.receive(stage.claim) is None
    assert stage.park_for(approval=True) is State.WAITING


# ---- cancelling


def test_a_run_that_is_cancelled_while_it_waits_takes_its_mail_along(stage: Stage) -> None:
    stage.park_for(signals=("go",))
    stage.queue.signal(stage.run, "other")
    assert stage.queue.cancel(stage.run) is State.CANCELLED

    assert list_signals(stage.world.store, stage.run) == []
    with pytest.raises(WrongState):
        stage.queue.signal(stage.run, "go")


def test_a_stop_that_was_ordered_wins_over_the_park(stage: Stage) -> None:
    stage.queue.signal(stage.run, "go")
    stage.queue.cancel(stage.run)

    assert stage.park_for(signals=("go",)) is State.CANCELLED


# ---- whatever it is


def test_whatever_comes_first_wakes_it_and_the_rest_stays(stage: Stage) -> None:
    (child,) = stage.add_own_children()
    stage.park_for(signals=("go",), approval=True, children="all", for_ms=60_000)
    stage.queue.signal(stage.run, "go")
    found = stage.resume()
    assert (found.reason, found.children) == ("signal", [])
    stage.queue.cancel(child)
    stage.queue.approve(stage.run)

    assert stage.park_for(approval=True, children="all") is State.PENDING

    found = stage.resume()
    assert (found.reason, names(found), [each.id for each in found.children]) == ("approval", ["approval"], [child])


def test_a_forgotten_run_leaves_nothing_behind(make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.submit(keep_ms=61_000)
    stage.take(start=True)
    children = stage.add_own_children(2, keep_ms=60_000)
    stage.queue.signal(stage.run, "go")
    stage.queue.signal(stage.run, "other")
    stage.park_for(signals=("go",))
    stage.resume()
    stage.queue.cancel(children[0])
    stage.fail(OutcomeClass.REJECTED)
    stage.world.pass_ms(61_000)
    stage.tick()

    assert [name for name in stage.dump() if any(run in name for run in (stage.run, *children))] == []
