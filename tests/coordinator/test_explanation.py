"""Why a run is where it is, in words, for every state and cause."""

from __future__ import annotations

import pytest
from support.world import World

from agentq.coordinator.errors import NotFound
from agentq.coordinator.explain.run import RunExplanation
from agentq.coordinator.model.durations import format_iso
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.workers.lease import order_drain


def why(world: World, run: str) -> list[str]:
    """The sentences; explaining changes nothing."""
    with world.unchanged():
        _, sentences = RunExplanation(world.store, world.settings).of(run)
    return sentences


def fail(world: World, worker: str = "w1", **fields: object) -> str:
    claim = world.held(worker, started=True, **fields)
    world.queue.fail(claim, Outcome.model_validate({"class": "exit", "exit_code": 3}))
    return claim.id


def test_no_worker_serves_its_queue(world: World) -> None:
    world.worker("w1", "other")

    assert why(world, world.submit(queue="lonely")) == [
        "No worker is registered for its queue, lonely.",
        "Start one with `agentq worker --queue lonely`.",
        "It is the next of its lane.",
    ]


def test_nobody_meets_a_demand(world: World) -> None:
    world.worker("w1", labels={"gpu": "t4", "os": "linux"})
    run = world.submit(demands={"gpu": "a100", "os": "linux"})

    assert why(world, run)[:2] == [
        "It demands gpu=a100, and no worker registered for its queue, default, offers that.",
        "Start one with `agentq worker --queue default --label gpu=a100`.",
    ]


def test_nobody_meets_all_demands_at_once(world: World) -> None:
    world.worker("w1", labels={"gpu": "a100"})
    world.worker("w2", labels={"os": "linux"})
    run = world.submit(demands={"gpu": "a100", "os": "linux"})

    assert why(world, run)[0] == (
        "Some worker of its queue, default, meets each of its demands (gpu=a100, os=linux), but none meets them all."
    )


def test_its_workers_are_busy_and_others_are_ahead(world: World) -> None:
    world.held("w1", started=True)
    for _ in range(3):
        world.submit()
    run = world.submit()
    world.submit(priority=9)
    world.submit(priority=9)
    world.submit(priority=1)

    assert why(world, run) == [
        "1 worker can take it, with 1 slot, all taken.",
        "3 runs are ahead of it in its lane.",
        "2 runs are in lanes of its queue with a higher priority.",
    ]


def test_its_workers_are_silent_or_draining(world: World) -> None:
    run = world.submit()
    world.worker("w1")
    order_drain(world.store, 0, "w1", "test")
    assert why(world, run)[0] == "Its 1 worker can take no new runs, because of a drain."

    world.pass_ms(world.settings.lease_ms + 1)
    assert why(world, run)[0] == "No heartbeat comes from its 1 worker: w1."


def test_it_waits_for_others(world: World) -> None:
    parents = [world.held("w1", started=True).id, *(world.submit() for _ in range(6))]
    run = world.submit(after=parents, on_failed="fail")

    sentences = why(world, run)

    assert sentences[0].startswith("It waits for run_")
    assert sentences[0].endswith("and 2 more to end.")
    assert f"{min(parents)} (" in sentences[0]
    assert sentences[1] == "If one of them does not complete, it fails."


def test_it_is_due_later(world: World) -> None:
    run = world.submit(delay_ms=90_000)
    due_at_ms = world.now_ms + 90_000

    assert why(world, run) == [f"It is due at {format_iso(due_at_ms)}, in 1 m 30 s, as set at submit."]

    world.pass_ms(120_000)
    assert why(world, run) == [
        f"It was due at {format_iso(due_at_ms)}, 30 s ago, as set at submit.",
        "No process makes due runs pending. Every worker does: start one with `agentq worker`.",
    ]


def test_it_is_tried_again_after_a_failure(world: World) -> None:
    run = fail(world, retry={"failures": 1})

    (sentence,) = why(world, run)

    assert sentence.startswith("It is due at ")
    assert sentence.endswith(", after attempt 1, which failed on w1 (exit code 3).")


def test_it_fails_if_it_waits_too_long(world: World) -> None:
    run = world.submit(expires_ms=60_000)

    assert why(world, run)[-1] == f"If it has not started by {format_iso(world.now_ms + 60_000)}, in 1 m, it fails."


def test_a_worker_has_it(world: World) -> None:
    claim = world.held("w1")
    began_ms = world.now_ms
    world.pass_ms(2000)
    assert why(world, claim.id) == [
        f"The worker w1 claimed it at {format_iso(began_ms)}, 2 s ago, and has not started it."
    ]

    world.queue.start([claim])
    began_ms = world.now_ms
    world.pass_ms(65_000)
    assert why(world, claim.id) == [
        "Its worker w1 has sent no heartbeat for 1 m 7 s and is declared lost in the next round of a worker or "
        "`agentq reap`; the run is then requeued.",
        f"It was started there at {format_iso(began_ms)}, 1 m 5 s ago.",
    ]


def test_its_worker_is_not_heard_any_more(world: World) -> None:
    """It is not shown as running while its heartbeats are missing."""
    claim = world.held("w1", started=True)
    began_ms = world.now_ms
    world.pass_ms(14_000)
    assert why(world, claim.id) == [f"It has run on w1 since {format_iso(began_ms)}, for 14 s."]

    world.pass_ms(8_000)

    assert why(world, claim.id) == [
        "Its worker w1 has sent no heartbeat for 22 s and is declared lost in 10.5 s; the run is then requeued.",
        f"It was started there at {format_iso(began_ms)}, 22 s ago.",
    ]


def test_it_is_being_stopped(world: World) -> None:
    claim = world.held("w1", started=True)
    world.queue.cancel(claim.id)

    assert why(world, claim.id)[1] == (
        "A stop was ordered: it is cancelled when its worker confirms, or in 1 m at the latest."
    )


def test_it_was_lost_before(world: World) -> None:
    claim = world.held("w1", started=True)
    world.watch_ms(world.lost_after_ms())

    assert why(world, claim.id)[-1].startswith("Attempt 1 was lost on w1")


def test_it_sleeps(world: World) -> None:
    claim = world.held("w1", started=True)
    world.queue.park(claim, "an answer", alarm_at_ms=world.now_ms + 60_000)

    assert why(world, claim.id)[:2] == [
        f"It waits for a time (an answer), since {format_iso(world.now_ms)}, 0 ms ago, and holds no slot.",
        f"It continues at {format_iso(world.now_ms + 60_000)}, in 1 m, in any case.",
    ]


def test_an_attempt_that_parked_is_not_counted_as_a_try(world: World) -> None:
    claim = world.held("w1", started=True)
    world.queue.park(claim, "an answer", alarm_at_ms=world.now_ms + 1000)
    world.pass_ms(2000)
    world.tick()
    (again,) = world.worker("w2").claim(1)
    world.queue.start([again])
    world.queue.fail(again, Outcome(class_=OutcomeClass.EXIT, exit_code=3))

    assert "It was tried 1 time; 0 of 0 retries are spent." in why(world, claim.id)


def test_it_has_ended(world: World) -> None:
    good = world.held("w1", started=True)
    world.queue.finish([(good, Outcome(exit_code=0))])
    ended_ms = world.now_ms
    world.pass_ms(5000)
    assert why(world, good.id) == [f"It completed at {format_iso(ended_ms)}, 5 s ago."]

    bad = fail(world, "w2")
    assert why(world, bad)[1:] == [
        "The reason is exit with code 3.",
        "It was tried 1 time; 0 of 0 retries are spent.",
        f"`agentq retry {bad}` starts it again.",
    ]

    child = world.submit(after=[bad])
    assert why(world, child)[:2] == [
        f"It was skipped at {format_iso(world.now_ms)}, 0 ms ago.",
        f"The reason is rejected: dependency {bad} is failed.",
    ]


def test_a_run_that_does_not_exist_has_no_reason(world: World) -> None:
    with pytest.raises(NotFound):
        why(world, "run_00000000000000000000000")
