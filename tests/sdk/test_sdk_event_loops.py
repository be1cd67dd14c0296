"""The client in event loops: a program like one of FastAPI, many waits at once, several loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sdk import works
from sdk.conftest import executing
from sdk.ways import beside
from support.servers import Server, until

from agentq.sdk import AsyncClient, AsyncRun, Client, RunFailed, StillGoing, connect_async, gather_async

pytestmark = pytest.mark.usefixtures("client")


@asynccontextmanager
async def lifespan(url: str, namespace: str) -> AsyncIterator[AsyncClient]:
    """As an application of FastAPI opens what it needs, and closes it at its end."""
    async with connect_async(url, namespace=namespace) as client:
        yield client


async def handler(client: AsyncClient, number: int) -> int:
    """As one request of many."""
    run = await client.submit(works.later, number)
    return await run.result(timeout=30)


@pytest.mark.full("takes 2 s")
def test_an_application_serves_requests_that_wait_for_runs(valkey: Server, client: Client) -> None:
    namespace = beside(client).queue.store.keyspace.namespace

    async def application() -> list[int]:
        async with lifespan(valkey.url, namespace) as shared:
            return await asyncio.gather(*(handler(shared, number) for number in range(100)))

    with executing(client):
        assert asyncio.run(application()) == list(range(1, 101))


@pytest.mark.usefixtures("worker")
def test_tasks_are_submitted_and_awaited_through_the_default_client() -> None:
    async def main() -> None:
        run = await works.double.submit_async(4)
        assert await run == 8
        assert await run.state() == "completed"
        assert await run.wait() == "completed"
        assert (await run.record()).spec.args == (4,)

    asyncio.run(main())


@pytest.mark.usefixtures("worker")
def test_runs_are_gathered_with_or_without_their_failures(client: Client) -> None:
    async def main() -> None:
        aio = client.aio
        good, bad = await aio.submit_many(works.double, [(1,), (2,)]), await aio.submit(works.breaks)
        assert await gather_async(*good, timeout=20) == [2, 4]
        with pytest.raises(RunFailed):
            await gather_async(*good, bad, timeout=20)
        *_, failed = await gather_async(*good, bad, return_exceptions=True, timeout=20)
        assert isinstance(failed, RunFailed)
        total = await aio.submit(works.total, [run.later for run in good])
        assert await total == 6

    asyncio.run(main())


def test_a_wait_that_is_over_says_that_the_run_goes_on() -> None:
    async def main() -> None:
        run = await works.double.submit_async(1)
        with pytest.raises(StillGoing, match="It goes on"):
            await run.result(timeout=0.01)
        assert await run.cancel() == "cancelled"

    asyncio.run(main())


@pytest.mark.full("takes 3 s")
def test_thousands_of_waits_take_no_thread_and_no_connection_each(client: Client) -> None:
    number, before, queue = 3000, threading.active_count(), beside(client).queue

    def connections() -> int:
        return int(str(queue.store.connection.command("CLIENT", "LIST")).count("agentq-sdk"))

    async def main() -> tuple[list[int], int, int]:
        runs = await client.aio.submit_many(works.double, [(at,) for at in range(number)])
        waits = [asyncio.create_task(run.result(timeout=120)) for run in runs]
        await asyncio.sleep(0)
        threads, links = threading.active_count(), connections()
        for run in runs[:-1]:
            queue.cancel(run.id)
        with executing(client):
            last = await waits[-1]
        results = await asyncio.gather(*waits, return_exceptions=True)
        assert sum(isinstance(each, RunFailed) for each in results) == number - 1
        return [last], threads, links

    last, threads, links = asyncio.run(main())

    assert last == [2 * (number - 1)]
    assert threads - before < 20
    assert links < 20


def test_one_client_serves_loops_that_come_and_go_and_loops_in_threads(client: Client) -> None:
    results: list[int] = []

    def loop(number: int) -> None:
        results.append(asyncio.run(handler(client.aio, number)))

    with executing(client):
        loop(1)
        threads = [threading.Thread(target=loop, args=(number,)) for number in (2, 3, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert sorted(results) == [2, 3, 4, 5]


@pytest.mark.full("takes 2 s")
def test_a_wait_that_is_cancelled_leaves_nothing_behind(client: Client) -> None:
    async def main() -> AsyncRun[int]:
        run = await works.double.submit_async(1)
        wait = asyncio.create_task(run.result())
        await asyncio.sleep(0.05)
        wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wait
        return run

    run = asyncio.run(main())

    run.sync.cancel()
    assert run.sync.wait(20) == "cancelled"
    until(lambda: client.endings._callbacks == {}, "the wait to be forgotten")
