"""What becomes of a tick whose schedule has runs that have not ended; and the limits that its runs must meet."""

from __future__ import annotations

from conformance.timetable import HOUR, MINUTE, Timetable

from agentq.coordinator.model.ids import new_run_id
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.queues.limits import LimitFullPolicy


def test_a_tick_is_skipped_while_the_run_before_it_lives(timetable: Timetable) -> None:
    timetable.add(overlap="skip")
    timetable.pass_ms(MINUTE)
    timetable.pass_ms(MINUTE)
    (claim,) = timetable.claim()
    timetable.pass_ms(MINUTE)
    timetable.finish(claim.id)
    timetable.pass_ms(MINUTE)

    assert timetable.told() == [("made", 1), ("skipped", 2), ("skipped", 3), ("made", 4)]
    assert timetable.schedules.history("s")[1].run == claim.id


def test_queued_runs_go_one_after_the_other_even_if_one_between_them_is_cancelled(timetable: Timetable) -> None:
    timetable.add(overlap="queue")
    for _ in range(4):
        timetable.pass_ms(MINUTE)
    (first,) = timetable.claim(9)
    runs = timetable.runs()
    assert timetable.states() == ["running", "blocked", "blocked", "blocked"]

    timetable.world.queue.cancel(runs[1])
    assert timetable.states() == ["running", "cancelled", "blocked", "blocked"]
    timetable.world.queue.fail(first, Outcome(class_=OutcomeClass.EXIT))
    assert timetable.states() == ["failed", "cancelled", "pending", "blocked"]
    (third,) = timetable.claim(9)
    timetable.finish(third.id)

    assert timetable.states() == ["failed", "cancelled", "completed", "pending"]


def test_a_queue_of_runs_has_an_end(timetable: Timetable) -> None:
    timetable.add(overlap="queue", missed="all", catch_up_ms=24 * HOUR)

    timetable.pass_ms(103 * MINUTE)

    assert len(timetable.get().live) == 100
    assert timetable.told()[-3:] == [("skipped", 101), ("skipped", 102), ("skipped", 103)]
    assert timetable.schedules.history("s")[0].why == "100 runs before it have not ended"


def test_the_earlier_run_is_cancelled_and_the_later_waits_until_it_is_gone(timetable: Timetable) -> None:
    timetable.add(overlap="cancel_old")
    timetable.pass_ms(MINUTE)
    timetable.pass_ms(MINUTE)
    assert timetable.states() == ["cancelled", "pending"]
    (held,) = timetable.claim()

    timetable.pass_ms(MINUTE)
    assert timetable.states() == ["cancelled", "running", "blocked"]
    timetable.pass_ms(MINUTE // 2)
    timetable.world.queue.release(held)

    assert timetable.states() == ["cancelled", "cancelled", "pending"]
    outcome = timetable.world.get(timetable.runs()[0]).outcome
    assert outcome is not None
    assert timetable.runs()[1] in str(outcome.error)


def test_a_run_that_begins_again_counts_as_live(timetable: Timetable) -> None:
    timetable.add(overlap="skip")
    timetable.pass_ms(MINUTE)
    (run,) = timetable.runs()
    timetable.world.queue.cancel(run)
    timetable.world.queue.requeue(run)

    timetable.pass_ms(MINUTE)

    assert timetable.told() == [("made", 1), ("skipped", 2)]


def test_what_damage_leaves_among_the_live_runs_does_not_hold_up_the_next(timetable: Timetable) -> None:
    timetable.add(overlap="skip")
    world, partition = timetable.world, timetable.schedules.partition("s")
    world.store.connection.command("ZADD", world.store.key(partition, "schedule_runs", "s"), 0, new_run_id(partition))

    timetable.pass_ms(MINUTE)

    assert timetable.told() == [("made", 1)]


def test_a_run_of_a_schedule_passes_the_same_door_as_any_other(timetable: Timetable) -> None:
    world = timetable.world
    home = next(
        f"key-{each}"
        for each in range(99)
        if timetable.schedules.partition(f"key-{each}") == timetable.schedules.partition("s")
    )
    timetable.add(dedupe_key=home, limits={"gpu": 1}, keep_ms=MINUTE, retry={"failures": 2})
    world.limits.set("gpu", most=0, when_full=LimitFullPolicy.CANCEL_NEWEST)
    timetable.pass_ms(MINUTE)
    assert timetable.states() == ["cancelled"]
    world.limits.remove("gpu")
    timetable.pass_ms(MINUTE)
    timetable.pass_ms(MINUTE)

    assert timetable.told() == [("made", 1), ("made", 2), ("skipped", 3)]
    (_, second) = timetable.runs()
    assert timetable.schedules.history("s")[0].run == second
    (claim,) = timetable.claim()
    assert world.queue.fail(claim, Outcome(class_=OutcomeClass.EXIT)) == "scheduled"
