"""Eager mode: a submit is an execution."""

from __future__ import annotations

import asyncio

import pytest
from testing_kit import shop

from agentq.sdk import RunFailed, default_client, gather
from agentq.testing import Clock, MemoryClient, MemoryQueue, Worker, assert_submitted, eager


@pytest.mark.usefixtures("agentq_eager")
def test_a_submit_has_executed_when_it_returns() -> None:
    assert shop.send.submit("ann").result() == "ann: thanks"
    assert shop.flaky.submit(3).result() == 3
    assert gather(*shop.fetch.map([1, 2, 3])) == [2, 4, 6]
    assert_submitted(shop.fetch, times=3)


@pytest.mark.usefixtures("agentq_eager")
def test_what_a_function_raises_is_its_outcome() -> None:
    run = shop.refuses.submit()

    with pytest.raises(RunFailed, match="no such customer"):
        run.result()


def test_what_a_function_raises_can_be_raised_by_the_submit() -> None:
    with eager(raises=True), pytest.raises(Exception, match="no such customer"):
        shop.refuses.submit()


def test_children_are_executed_too(agentq_eager: MemoryClient) -> None:
    run = agentq_eager.submit(shop.total, [1, 2])

    assert run.result() == 6


@pytest.mark.usefixtures("agentq_eager")
def test_it_works_inside_an_event_loop() -> None:
    async def main() -> int:
        run = await shop.fetch.submit_async(4)
        return await run + shop.fetch.submit(1).result()

    assert asyncio.run(main()) == 10


def test_the_default_client_is_the_one_of_before_afterwards(agentq_client: MemoryClient) -> None:
    with eager() as client:
        assert default_client() is client

    assert default_client() is agentq_client


def test_a_worker_that_has_no_label_leaves_what_demands_it() -> None:
    client = MemoryClient(MemoryQueue(Clock()))
    run = client.submit(shop.fetch.options(demands={"gpu": "a100"}), 1)

    assert Worker(client).run_all() == 0
    assert Worker(client, labels={"gpu": "a100"}).run_all() == 1
    assert run.result() == 2
