"""Events and logs: replayed, followed, and gone on with after a break."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from itertools import islice

import pytest
from sdk import works
from sdk.conftest import executing
from support.servers import until

from agentq.coordinator.errors import Invalid, NotFound
from agentq.sdk import Client


def names(client: Client, run_id: str) -> list[str]:
    return [event.event for event in client.run(run_id).events(follow=False)]


def test_the_events_of_a_run_are_followed_to_its_end(client: Client) -> None:
    run = works.double.submit(1)

    with executing(client):
        heard = [event.event for event in run.events()]

    assert heard == ["submitted", "claimed", "started", "completed"]
    assert names(client, run.id) == heard


@pytest.mark.full("takes 1 s")
@pytest.mark.usefixtures("client")
def test_whoever_keeps_the_last_event_goes_on_there() -> None:
    run = works.double.submit(1)
    (first,) = islice(run.events(), 1)

    run.cancel()

    assert [event.event for event in run.events(after=first.id)] == ["cancelled"]


def test_the_events_of_all_runs_have_a_place_to_go_on_from(client: Client) -> None:
    runs = works.double.map(range(3))
    first = next(event for event in client.events(after="0-0") if event.run == runs[0].id)

    rest = client.events(after=first.place, follow=False)

    assert [event.run for event in rest] == [run.id for run in runs[1:]]
    with pytest.raises(Invalid, match="not a position"):
        list(client.events(after="1-0,2-0"))


def test_events_are_an_async_iterator(client: Client) -> None:
    async def main() -> list[str]:
        run = await client.aio.submit(works.double, 1)
        heard = []
        async for event in run.events():
            heard.append(event.event)
            if event.event == "submitted":
                await run.cancel()
        async for event in client.aio.events(after="0-0"):
            heard.append(event.event)
            break
        return heard

    assert asyncio.run(main()) == ["submitted", "cancelled", "submitted"]


@pytest.mark.usefixtures("worker")
def test_logs_are_read_and_followed(client: Client) -> None:
    run = client.submit(works.talks, 3)

    followed = "".join(entry.text for entry in run.logs(follow=True))

    assert followed == "line 0\nline 1\nline 2\n"
    assert "".join(entry.text for entry in run.logs()) == followed

    async def main() -> str:
        return "".join([entry.text async for entry in client.aio.run(run.id).logs(follow=True)])

    assert asyncio.run(main()) == followed


def test_a_fault_of_a_stream_is_raised_where_it_is_awaited(client: Client) -> None:
    async def main() -> None:
        run = client.aio.run("run_01k9zq3c5007m2x4c8r1tnqabc")
        async for _ in run.logs():
            raise AssertionError("there is no such run")

    with pytest.raises((NotFound, Invalid)):
        asyncio.run(main())


def test_a_stream_that_is_left_leaves_no_thread_behind(client: Client) -> None:
    run = works.double.submit(1)

    async def main() -> None:
        for stream in (client.aio.events(after="0-0"), client.aio.run(run.id).events(), client.aio.events()):
            beginning = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0.05)
            beginning.cancel()
            await asyncio.gather(beginning, return_exceptions=True)
            await stream.aclose()
        reading = asyncio.ensure_future(anext(client.aio.run(run.id).logs(follow=True)))
        await asyncio.sleep(0.05)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    asyncio.run(main())

    ours = {"agentq-stream", "agentq-events"}
    until(
        lambda: not [each for each in threading.enumerate() if each.name in ours], "the threads of the streams to end"
    )


@pytest.mark.full("takes 1 s")
def test_a_program_that_ends_while_it_waits_ends_in_silence(valkey_url: str) -> None:
    program = f"""
from agentq.sdk import connect
client = connect({valkey_url!r}, namespace="ends")
run = client.submit("nowhere.module:f")
try:
    run.result(timeout=0.2)
except TimeoutError:
    print("over")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")
