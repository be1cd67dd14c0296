"""How many queues, sessions and schedules a namespace has: bounded, and what is not used any more makes room."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.world import World

from agentq.coordinator.errors import NotNow, Refused
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.queues.queues import Queues
from agentq.coordinator.schedules.cron import ScheduleRule
from agentq.coordinator.sessions.verbs import Sessions
from agentq.coordinator.storage.scripts import ScriptSet
from agentq.coordinator.token_context import use_token
from agentq.server.observe import metrics

COMMAND = {"kind": "command", "argv": ["true"]}
SPEC = RunSpec.checked(**COMMAND)


@pytest.fixture
def narrow(make_world: Callable[..., World]) -> World:
    """A namespace that has two of everything at the most."""
    return make_world(scripts=ScriptSet(bounds={"QUEUES": 2, "SESSIONS": 2, "SCHEDULES": 2}))


def refused(world: World, act: Callable[[], object], match: str) -> None:
    with world.unchanged(), pytest.raises((NotNow, Refused), match=match):
        act()


@pytest.mark.parametrize("fields", [{}, {"dedupe_key": "one"}, {"delay_ms": 5}])
def test_a_run_of_a_queue_too_many_is_refused_and_those_of_others_are_not(
    narrow: World, fields: dict[str, object]
) -> None:
    for queue in ("a", "b", "a"):
        narrow.submit(queue=queue)

    refused(narrow, lambda: narrow.submit(queue="c", **fields), "there are 2, which is the maximum")
    narrow.submit(queue="b", **fields)


def test_a_queue_is_forgotten_after_its_last_run_and_makes_room(narrow: World) -> None:
    runs = [narrow.submit(queue=queue, keep_ms=60_000) for queue in ("a", "b")]
    for run in runs:
        narrow.queue.cancel(run)
    narrow.tidy()
    assert narrow.records.queues() == ["a", "b"], "their runs can still be looked up"
    narrow.pass_ms(60_000)
    narrow.tick()
    narrow.tidy()

    assert narrow.records.queues() == []
    narrow.submit(queue="c")
    narrow.submit(queue="a")
    assert narrow.records.queues() == ["a", "c"], "also where its lane is still there"


def test_a_schedule_whose_queue_is_one_too_many_skips_its_tick(narrow: World) -> None:
    narrow.schedules.add("hourly", ScheduleRule(every_ms=3_600_000), SPEC.model_copy(update={"queue": "c"}))
    for queue in ("a", "b"):
        narrow.submit(queue=queue)
    narrow.pass_ms(3_600_000)

    assert narrow.fire() == {"skipped": 1}
    assert narrow.schedules.history("hourly")[0].why == "there are as many queues as there may be"


def test_sessions_are_bounded(narrow: World) -> None:
    sessions = Sessions(narrow.store)
    for name in ("one", "two"):
        sessions.new(name, "claude")

    refused(narrow, lambda: sessions.new("three", "claude"), "there are 2, including those closed")
    refused(narrow, lambda: sessions.new("three", "claude", fork="one"), "there are 2, including those closed")


def test_schedules_are_bounded_and_one_of_them_can_still_be_changed(narrow: World) -> None:
    for name in ("one", "two"):
        narrow.schedules.add(name, ScheduleRule(every_ms=3_600_000), SPEC)

    refused(
        narrow,
        lambda: narrow.schedules.add("three", ScheduleRule(every_ms=1000), SPEC),
        "there are 2, which is the maximum",
    )
    narrow.schedules.add("two", ScheduleRule(every_ms=60_000), SPEC, replace=True)
    narrow.schedules.remove("one")
    narrow.schedules.add("three", ScheduleRule(every_ms=1000), SPEC)


def test_one_token_makes_half_of_what_there_may_be_and_leaves_the_rest_to_others(
    make_world: Callable[..., World],
) -> None:
    """Whoever has it. What it made and is gone counts no more; what is there already is changed and used as before."""
    world = make_world(
        scripts=ScriptSet(bounds={"QUEUES": 6, "SESSIONS": 6, "SCHEDULES": 6, "TOKEN_ITEMS_PER_CALL": 2})
    )
    sessions, schedules, hour = Sessions(world.store), world.schedules, ScheduleRule(every_ms=3_600_000)
    makers: dict[str, Callable[[str], object]] = {
        "queues": lambda name: world.submit(queue=name),
        "sessions": lambda name: sessions.new(name, "claude"),
        "schedules": lambda name: schedules.add(name, hour, SPEC.model_copy(update={"queue": "a"})),
    }
    for kind, make in makers.items():
        with use_token("3f09c2ab41d7"):
            for name in "abc":
                make(name)
            world.submit(queue="a")
            with pytest.raises(NotNow, match=f"this token has created 3 {kind}"):
                make("d")
        make("d")
        with use_token("a1b2c3d4e5f6"):
            make("e")

    schedules.remove("c")
    with use_token("3f09c2ab41d7"):
        schedules.add("a", hour, SPEC, replace=True)
        makers["schedules"]("f")
        with pytest.raises(NotNow, match="3 schedules"):
            makers["schedules"]("g")


def test_queues_are_told_in_pages_by_their_names(world: World) -> None:
    for queue in ("c", "a", "b"):
        world.submit(queue=queue)
    overview = Queues(world.store)

    first = overview.page(2)
    rest = overview.page(2, first.cursor)

    assert [each.queue for each in first.queues] == ["a", "b"]
    assert ([each.queue for each in rest.queues], rest.cursor) == (["c"], None)
    assert [each.queue for each in overview.page(2, None, ("c", "nobody")).queues] == ["c"]
    assert overview.get("nobody") is None
    found = overview.get("a")
    assert found is not None
    assert (found.counts, found.oldest_ms is not None) == ({State.PENDING: 1}, True)


def test_metrics_tell_of_the_busiest_queues_and_of_all_others_together(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "NAMES_MAX", 2)
    for queue in ("a", "b", "b", "c"):
        world.submit(queue=queue)

    (depth,) = [each for each in metrics.StoreCollector(world.store).collect() if each.name == "agentq_queue_depth"]

    pending = {each.labels["queue"]: each.value for each in depth.samples if each.labels["state"] == "pending"}
    assert pending == {"b": 2, "other": 2}
