"""The thread pool: its calls return, and no thread is left."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial

import pytest
from support.servers import until

from agentq.server.thread_pool import ThreadPool


@pytest.fixture
def hands() -> Iterator[ThreadPool]:
    before = set(threading.enumerate())
    hands = ThreadPool(2, "hand")
    hands.start()
    yield hands
    hands.stop()
    assert set(threading.enumerate()) <= before, "others may have ended meanwhile"


def test_what_a_call_returns_or_raises_comes_to_whoever_waits(hands: ThreadPool) -> None:
    async def test() -> None:
        calls = [hands.call(partial(divmod, 1, each)) for each in (1, 0)]
        told = await asyncio.gather(*calls, return_exceptions=True)
        assert told[0] == (1, 0)
        assert isinstance(told[1], ZeroDivisionError)

    asyncio.run(test())


def test_as_many_calls_are_under_way_as_there_are_threads_and_the_others_wait(hands: ThreadPool) -> None:
    begun, go = threading.Semaphore(0), threading.Event()

    def call() -> None:
        begun.release()
        go.wait()

    async def test() -> None:
        calls = [hands.call(call) for _ in range(3)]
        for _ in range(2):
            assert await asyncio.to_thread(begun.acquire, timeout=10)
        assert not begun.acquire(blocking=False)
        go.set()
        await asyncio.gather(*calls)

    asyncio.run(test())


def test_nobody_has_to_wait_for_what_was_called(hands: ThreadPool) -> None:
    go = threading.Event()

    async def test() -> None:
        given_up = hands.call(go.wait)
        given_up.cancel()
        go.set()
        assert await hands.call(lambda: "next") == "next"

    asyncio.run(test())


def test_what_was_given_up_before_it_began_is_not_done(hands: ThreadPool) -> None:
    go, done = threading.Event(), list[int]()

    async def test() -> None:
        for _ in range(2):
            hands.call(go.wait)
        for each in range(5):
            hands.call(partial(done.append, each)).cancel()
        go.set()
        await hands.call(lambda: None)

    asyncio.run(test())
    assert done == []


def test_what_has_not_begun_never_does_when_they_end() -> None:
    hands, begun, go, done = ThreadPool(1, "hand"), threading.Event(), threading.Event(), list[str]()

    def first() -> None:
        begun.set()
        go.wait()
        done.append("first")

    def release() -> None:
        until(calls[1].cancelled, "the second to be called off")
        go.set()

    calls: list[asyncio.Future[None]] = []

    async def test() -> None:
        hands.start()
        calls.extend((hands.call(first), hands.call(lambda: done.append("second"))))
        assert await asyncio.to_thread(begun.wait, 10)
        releasing = threading.Thread(target=release)
        releasing.start()
        hands.stop()
        releasing.join()
        await calls[0]
        assert done == ["first"]
        with pytest.raises(RuntimeError):
            hands.call(go.wait)

    asyncio.run(test())
