"""What is kept of a webhook: who tells it, how far it has come, and what became of each attempt."""

from __future__ import annotations

import pytest
from support.world import World

from agentq.coordinator import bounds
from agentq.coordinator.errors import Fenced, Invalid, NotFound, Refused, WrongState
from agentq.coordinator.events.event_filter import EventFilter, RunLocator
from agentq.coordinator.events.stream import STREAM_START, PartitionEvents
from agentq.coordinator.webhooks.delivery import DeliveryMessage, DeliveryResult, LeasedWebhook, WebhookLease
from agentq.coordinator.webhooks.verbs import WebhookRecord, Webhooks

YES, NO = DeliveryResult(True, 204, "", 5), DeliveryResult(False, 500, "it answered 500", 5)
URL = "https://example.com/in"


@pytest.fixture
def hooks(world: World) -> Webhooks:
    hooks = Webhooks(world.store)
    hooks.add("hook", URL, EventFilter(events=("submitted",)))
    return hooks


def telling(world: World, owner: str = "server-1") -> WebhookLease:
    return WebhookLease(world.store, "hook", owner)


def in_hand(told: WebhookLease) -> LeasedWebhook:
    errand = told.acquire()
    assert isinstance(errand, LeasedWebhook)
    return errand


def message(world: World, errand: LeasedWebhook) -> DeliveryMessage:
    """That of the newest event."""
    (*_, last) = PartitionEvents(world.store).replay()
    (event,) = RunLocator(world.store).located(0, [last])
    return errand.message(event, event.id)


def test_one_has_it_in_hand_and_another_goes_on_when_it_is_not_heard_of(world: World, hooks: Webhooks) -> None:
    first, second = telling(world, "server-1"), telling(world, "server-2")
    errand = in_hand(first)
    world.submit()
    told = message(world, errand)

    assert second.acquire() == first.held_ms
    world.pass_ms(first.held_ms - 1)
    assert second.acquire() == 1
    first.acquire()
    world.pass_ms(first.held_ms)
    again = in_hand(second)

    assert message(world, again) == told
    with pytest.raises(Fenced):
        first.record(told, YES, "op-1")
    assert hooks.deliveries("hook") == []
    second.record(told, YES, "op-2")
    assert isinstance(first.acquire("9-9"), int)
    assert hooks.get("hook").positions == told.at
    second.release()
    assert in_hand(first).at == told.at


def test_what_is_sent_twice_is_done_once(world: World, hooks: Webhooks) -> None:
    told = telling(world)
    errand = in_hand(told)
    world.submit()
    say = message(world, errand)
    for _ in range(2):
        told.record(say, NO, "op-1")
    hooks.redeliver("hook", say.id, operation="op-2")
    hooks.redeliver("hook", say.id, operation="op-2")

    assert hooks.get("hook").failures == 1
    assert (len(hooks.deliveries("hook")), hooks.get("hook").requested_messages) == (1, 1)
    asked = in_hand(told).asked
    assert asked == DeliveryMessage(say.id, say.type, say.body, "")
    for _ in range(2):
        told.record(asked, YES, "op-3")
    assert (len(hooks.deliveries("hook")), hooks.get("hook").requested_messages) == (2, 0)
    assert hooks.get("hook").positions == STREAM_START, "what is asked for moves no place"
    secret, other = "whsec_" + "a" * 32, "whsec_" + "b" * 32
    for each in (secret, secret):
        assert hooks.add("own", URL, EventFilter(), secret=each, operation="op-4")[1] == secret
    with pytest.raises(Refused, match="exists already"):
        hooks.add("own", URL, EventFilter(), secret=other, operation="op-5")


def test_a_failure_keeps_the_place_waits_longer_each_time_and_ends_after_days(world: World, hooks: Webhooks) -> None:
    told = telling(world)
    world.submit()
    say = message(world, in_hand(told))
    waits = []
    for number in range(bounds.WEBHOOK_FAILURES):
        errand = in_hand(told)
        assert (errand.failures, errand.at) == (number, STREAM_START)
        told.record(say, NO, f"op-{number}")
        waits.append(in_hand(told).pause_ms)
        world.pass_ms(waits[-1])
    assert waits[:4] == [3750, 11_250, 33_750, 101_250]
    assert waits[-1] == bounds.WEBHOOK_DELAY_MS_MAX * 3 // 4
    assert hooks.get("hook").state == "active"

    world.pass_ms(bounds.WEBHOOK_FAILING_MS)
    told.record(say, NO, "last")

    found = hooks.get("hook")
    assert (found.state, found.why) == ("disabled", "it answered 500")
    assert told.acquire() is None
    (*_, notice) = PartitionEvents(world.store).replay()
    assert (notice.event, notice.run, notice.detail) == ("webhook_disabled", "", "hook: it answered 500")
    with pytest.raises(WrongState):
        hooks.test("hook")
    assert hooks.resume("hook").state == "active"
    assert (in_hand(told).pause_ms, in_hand(told).failures) == (0, 0)
    told.record(say, DeliveryResult(False, 410, "it answered 410", 5, gone=True), "gone")
    assert hooks.get("hook").state == "disabled"


@pytest.mark.parametrize(
    ("asked_ms", "waits_ms"),
    [(0, 3750), (1000, 3750), (60_000, 60_000), (10**12, bounds.WEBHOOK_DELAY_MS_MAX)],
)
@pytest.mark.usefixtures("hooks")
def test_a_receiver_that_asks_to_be_left_alone_is_within_bounds(world: World, asked_ms: int, waits_ms: int) -> None:
    told = telling(world)
    world.submit()
    say = message(world, in_hand(told))

    told.record(say, DeliveryResult(False, 503, "it answered 503", 5, wait_ms=asked_ms), "op-1")

    assert in_hand(told).pause_ms == waits_ms


def test_the_secret_before_signs_for_a_while(world: World, hooks: Webhooks) -> None:
    told = telling(world)
    (before,) = in_hand(told).secrets

    after = hooks.rotate("hook", overlap_ms=60_000)

    assert in_hand(told).secrets == (after, before)
    world.pass_ms(60_000)
    assert in_hand(told).secrets == (after,)
    assert before not in str(hooks.all())
    with pytest.raises(Invalid, match="24 to 64 random bytes"):
        hooks.rotate("hook", secret="whsec_c2hvcnQ=")


def test_its_limits_are_kept_and_nothing_of_it_stays(world: World, hooks: Webhooks) -> None:
    for number in range(bounds.WEBHOOKS - 1):
        hooks.add(f"n{number}", URL, EventFilter())
    with pytest.raises(Refused, match=f"there are {bounds.WEBHOOKS}, which is"):
        hooks.add("more", URL, EventFilter())
    told = telling(world)
    for number in range(bounds.DELIVERIES_KEPT + 20):
        world.submit()
        told.record(message(world, in_hand(told)), YES, f"op-{number}")

    assert len(hooks.deliveries("hook")) == bounds.DELIVERIES_KEPT
    with pytest.raises(NotFound, match="has no message"):
        hooks.redeliver("hook", "msg_unknown")
    for hook in hooks.all():
        assert isinstance(hook, WebhookRecord)
        hooks.remove(hook.name)
    with pytest.raises(NotFound):
        told.record(message(world, LeasedWebhook(URL, EventFilter(), (), STREAM_START, 0, 0, "b", None)), YES, "late")
    with pytest.raises(NotFound):
        hooks.remove("hook")
    keys = world.store.connection.command("KEYS", world.store.keyspace.root + "webhook*")
    assert keys == []


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("example.com/x", "looks like https://"),
        ("https://", "looks like https://"),
        ("https://ann:pw@example.com/", "no user or password"),
        ("https://example.com/#part", "no #"),
        ("https://exa mple.com/", "without spaces"),
        ("https://example.com:99999/", "not valid"),
        ("https://example.com/" + "x" * 2000, "2000 characters"),
    ],
)
def test_an_address_that_is_none_is_refused(world: World, url: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        Webhooks(world.store).add(None, url, EventFilter())
    assert Webhooks(world.store).all() == []
