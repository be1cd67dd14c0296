"""The record of what happened: replayed, followed, capped."""

from __future__ import annotations

import threading

import pytest
from support.concurrency import running
from support.servers import until
from support.world import World

from agentq.coordinator.events.stream import EVENT_ENTRIES_PER_READ, STREAM_START, PartitionEvents
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import Outcome, RunSpec

SPEC = RunSpec(kind="command", argv=["true"])


@pytest.fixture
def events(world: World) -> PartitionEvents:
    return PartitionEvents(world.store)


def test_an_event_tells_what_happened_to_which_run_when_and_by_whom(world: World, events: PartitionEvents) -> None:
    claim = world.held("w1", started=True)
    world.queue.report(claim, 1, {"step": 1})
    world.queue.finish([(claim, Outcome())])

    replayed = [each for each in events.replay() if not each.of_worker]
    told = [(each.event, each.run, each.state, each.attempt, each.worker, each.detail) for each in replayed]

    assert told == [
        ("submitted", claim.id, State.PENDING, 0, "", ""),
        ("claimed", claim.id, State.CLAIMED, 1, "w1", ""),
        ("started", claim.id, State.RUNNING, 1, "w1", ""),
        ("progressed", claim.id, State.RUNNING, 1, "w1", '{"step":1}'),
        ("completed", claim.id, State.COMPLETED, 1, "w1", ""),
    ]
    seconds = int(world.store.connection.command("TIME")[0])
    assert all(abs(each.at_ms / 1000 - seconds) < 60 for each in events.replay())


def test_the_event_that_ends_a_run_is_named_like_its_state(world: World, events: PartitionEvents) -> None:
    """So that whoever waits has to know only the terminal states."""
    done, stopped, failed = (world.held(f"w{number}") for number in range(3))
    skipped = world.submit(after=[failed.id])
    world.queue.finish([(done, Outcome())])
    world.queue.release(stopped)
    world.queue.cancel(stopped.id)
    world.queue.fail(failed, Outcome.model_validate({"class": "exit"}))

    last = {each.run: (each.event, str(each.state)) for each in events.replay() if each.run}

    assert last == {
        done.id: ("completed", "completed"),
        stopped.id: ("cancelled", "cancelled"),
        failed.id: ("failed", "failed"),
        skipped: ("skipped", "skipped"),
    }


def test_replay_reads_on_past_its_own_page(world: World, events: PartitionEvents) -> None:
    runs = [receipt.id for receipt in world.queue.submit_many([SPEC] * (2 * EVENT_ENTRIES_PER_READ + 1))]

    assert [each.run for each in events.replay()] == runs


def test_the_last_id_is_where_the_future_begins(world: World, events: PartitionEvents) -> None:
    assert events.last_id() == STREAM_START
    world.submit()
    place = events.last_id()
    run = world.submit()

    assert [each.run for each in events.replay(place)] == [run]
    assert list(events.replay(events.last_id())) == []


def test_following_returns_at_once_what_is_there_and_waits_for_what_is_not(
    world: World, events: PartitionEvents
) -> None:
    first = world.submit()
    assert [each.run for each in events.follow(STREAM_START, 10_000)] == [first]

    place, seen, over = events.last_id(), list[str](), threading.Event()

    def follow(_: threading.Event) -> None:
        nonlocal place
        while not over.is_set():
            for event in events.follow(place, 120_000):
                seen.append(event.run)
                place = event.id

    with running(follow):
        runs = [world.submit() for _ in range(20)]
        until(lambda: seen == runs, "all events to be seen, in order")
        over.set()
        events.interrupt()
    events.close()


def test_following_ends_with_nothing_when_its_time_is_over(events: PartitionEvents) -> None:
    assert events.follow(STREAM_START, 20) == []
    events.close()


def test_an_interrupt_ends_a_wait_though_it_came_first(world: World, events: PartitionEvents) -> None:
    """Nobody knows whether the other thread has got that far; a stop must not take a whole wait for that."""
    events.interrupt()

    with running(lambda _: None if events.follow(events.last_id(), 60_000) == [] else pytest.fail("woken by an event")):
        pass

    assert world.events() == []
    events.close()


def test_whoever_comes_back_too_late_is_told_so(world: World, events: PartitionEvents) -> None:
    run = world.submit()
    (first,) = events.replay()
    assert not events.missed(STREAM_START), "whoever has seen nothing cannot know"
    assert not events.missed(first.id)

    world.queue.cancel(run)
    world.store.connection.command("XTRIM", events.key, "MAXLEN", 1)

    assert events.missed(first.id)
    assert not events.missed(events.last_id())
    assert [each.event for each in events.replay(first.id)] == ["cancelled"]


def test_ids_of_one_millisecond_are_compared_as_numbers(world: World, events: PartitionEvents) -> None:
    command = world.store.connection.command
    for number in (9, 10):
        command("XADD", events.key, f"5-{number}", "event", "x", "run", "r", "state", "pending", "attempt", "0",
                "worker", "", "detail", "")  # fmt: skip
    command("XTRIM", events.key, "MAXLEN", 1)

    assert events.missed("5-9")
    assert not events.missed("5-10")


def test_events_of_a_newer_version_are_read(world: World, events: PartitionEvents) -> None:
    world.store.connection.command("XADD", events.key, "*", "event", "painted", "run", "r", "state", "pending",
                                   "attempt", "0", "worker", "", "detail", "", "colour", "red")  # fmt: skip

    assert [each.event for each in events.replay()] == ["painted"]
