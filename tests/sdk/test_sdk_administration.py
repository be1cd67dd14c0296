"""Schedules, limits, queues and dead letters from Python, over Redis and over HTTP."""

from __future__ import annotations

import asyncio
import warnings
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from sdk import works
from sdk.conftest import executing

from agentq.coordinator.errors import Invalid, NotFound
from agentq.sdk import Client

pytestmark = pytest.mark.usefixtures("client")


def test_a_task_is_scheduled_with_its_options_and_arguments(client: Client) -> None:
    made = works.double.options(queue="mail", retries=2).schedule("nightly", [4], cron="30 2 * * *", tz="Europe/Berlin")

    found = client.schedules.get("nightly")
    assert (made["state"], made["cron"], made["tz"]) == ("active", "30 2 * * *", "Europe/Berlin")
    assert (found["spec"]["function"], found["spec"]["args"], found["spec"]["queue"]) == (
        "sdk.works:double",
        [4],
        "mail",
    )
    client.schedules.remove("nightly")


@pytest.mark.full("takes 2 s")
def test_a_schedule_is_replaced_paused_run_and_removed(client: Client) -> None:
    works.double.schedule("often", kwargs={"number": 2}, every="1h", jitter="1m", overlap="queue")
    works.double.schedule("often", [3], every="2h")

    assert [each["every_ms"] for each in client.schedules.all()] == [7_200_000]
    assert client.schedules.pause("often", "a holiday")["state"] == "paused"
    assert client.schedules.resume("often")["state"] == "active"
    run = client.run(client.schedules.run("often"))
    with executing(client):
        assert run.result(20) == 6
    client.schedules.remove("often")
    with pytest.raises(NotFound):
        client.schedules.get("often")


@pytest.mark.full("takes 1 s")
@pytest.mark.parametrize(
    ("timing", "message"),
    [
        ({}, "needs one of cron, every and at"),
        ({"cron": "@daily", "every": "1h"}, "needs one of cron, every and at"),
        ({"cron": "61 2 * * *"}, "61 2"),
        ({"corn": "30 2 * * *"}, "There is no option 'corn'"),
        ({"every": 60}, "not a duration"),
        ({"at": "tomorrow"}, "at: 'tomorrow' is no time; give a datetime"),
        ({"every": "1h", "until": 5}, "until: 5 is no time; give a datetime"),
        ({"every": "1h", "overlap": "wait"}, "'wait' is not a policy; there are skip, queue"),
        ({"at": datetime(2030, 1, 1, tzinfo=UTC), "tz": "Mars/Olympus"}, "Mars/Olympus"),
    ],
)
def test_a_wrong_schedule_is_refused_and_nothing_is_made(
    client: Client, timing: dict[str, object], message: str
) -> None:
    with pytest.raises(Invalid, match=message):
        works.double.schedule("wrong", [1], **timing)  # type: ignore[arg-type]

    assert client.schedules.all() == []


def test_a_wrong_argument_of_a_schedule_is_refused(client: Client) -> None:
    nothing: Any = None
    for arguments, message in (
        (["four"], "the argument 'number'"),
        (nothing, "arguments of a schedule are a list, such as .*, not None"),
        ("four", "arguments of a schedule are a list, such as .*, not 'four'"),
    ):
        with pytest.raises(Invalid, match=message):
            works.double.schedule("wrong", arguments, every="1h")
    with pytest.raises(Invalid, match=r"keywords of a schedule are a dict, such as .*, not 5"):
        works.double.schedule("wrong", [4], cast(Any, 5), every="1h")
    with pytest.raises(Invalid, match=r"5 is not .*it should be a text"):
        works.double.schedule(cast(Any, 5), [4], every="1h")

    assert client.schedules.all() == []


def test_limits_are_set_listed_and_removed(client: Client) -> None:
    told = client.limits.set("repo/acme", 3, rate="100/1m")

    assert (told["max"], told["rate"]["per_ms"]) == (3, 60_000)
    assert [each["key"] for each in client.limits.all()] == ["repo/acme"]
    client.limits.remove("repo/acme")
    assert client.limits.all() == []
    with pytest.raises(NotFound):
        client.limits.remove("repo/acme")


@pytest.mark.parametrize(
    ("key", "most", "rate", "message"),
    [
        ("repo", "many", None, "whole number"),
        ("repo", 1.5, None, "whole number"),
        ("repo", -1, None, "from 0 to 1000000000|greater than or equal to 0"),
        ("repo", 1, 5, "rate"),
        (None, 1, None, "None is not .*it should be a text"),
        (5, 1, None, "5 is not .*it should be a text"),
    ],
)
def test_a_wrong_limit_is_refused_with_its_value(client: Client, key: Any, most: Any, rate: Any, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        client.limits.set(key, most, rate=rate)

    assert client.limits.all() == []


def test_names_that_are_no_texts_are_refused(client: Client) -> None:
    nothing: Any = None
    for verb in (
        client.limits.remove,
        client.queues.pause,
        client.queues.drain,
        client.queues.purge,
        client.schedules.get,
        client.schedules.run,
        client.schedules.remove,
    ):
        with pytest.raises(Invalid, match=r"None is not .*it should be a text"):
            verb(nothing)


def test_a_queue_is_paused_moved_and_purged(client: Client) -> None:
    runs = [works.double.options(queue="post").submit(number) for number in range(3)]
    client.queues.pause("post", "a leak")

    (found,) = [each for each in client.queues.all() if each["queue"] == "post"]
    assert (found["pending"], found["paused"]["why"]) == (3, "a leak")
    client.queues.resume("post")
    assert client.queues.move("post", "attic") == 3
    assert client.queues.purge("attic") == 3
    assert {run.state() for run in runs} == {"cancelled"}


def test_dead_letters_are_found_and_begin_again(client: Client) -> None:
    run = works.breaks.submit("no")
    with executing(client):
        run.wait(20)

    assert run in list(client.dead())
    assert list(client.dead("another")) == []
    assert run.requeue() == "pending"


def test_an_event_loop_schedules_and_finds_dead_letters(client: Client) -> None:
    async def main() -> None:
        made = await client.aio.schedule("tick", works.double, [1], every="1h")
        assert made["name"] == "tick"
        assert [run async for run in client.aio.dead("nothing")] == []
        await client.aio.call(lambda: client.schedules.remove("tick"))

    asyncio.run(main())


def test_a_call_that_blocks_an_event_loop_warns_once_for_each_place(client: Client) -> None:
    async def main() -> None:
        for number in range(3):
            works.double.submit(number)
        client.queues.all()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        asyncio.run(main())

    assert [(each.category, each.filename) for each in caught] == [(RuntimeWarning, __file__)] * 2
    assert "blocks the event loop" in str(caught[0].message)


def test_an_awaited_call_does_not_warn(client: Client) -> None:
    async def main() -> None:
        await works.double.submit_async(1)
        await client.aio.call(lambda: client.queues.all())

    asyncio.run(main())
