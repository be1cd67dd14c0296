"""An example program that submits runs, for the tests of the kit."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from agentq.sdk import Fail, Retry, current_run, task


@dataclass
class Order:
    """An order of a customer."""

    number: int
    goods: list[str]


@task(queue="mail", retries=3, timeout="30s")
def send(to: str, text: str = "thanks") -> str:
    return f"{to}: {text}"


@task
def ship(order: Order) -> Order:
    return Order(order.number, [each.upper() for each in order.goods])


@task(retries=2)
def flaky(until: int) -> int:
    attempt = current_run().attempt
    if attempt < until:
        raise ConnectionError(f"attempt {attempt}")
    return attempt


@task(retries=5)
def refuses() -> None:
    raise Fail("there is no such customer")


@task(retries=1)
def patient() -> int:
    if current_run().attempt == 1:
        raise Retry(after=timedelta(hours=2))
    return current_run().attempt


@task
async def fetch(number: int) -> int:
    return number * 2


@task
def asks() -> str:
    approval = current_run().wait_for_approval("is it cheap enough?")
    data = current_run().wait_for_signal("address")
    return f"{approval.approved} {approval.comment} {data}"


@task
def naps() -> str:
    return str(current_run().wait_for_signal("bell", "1h", "overslept"))


@task
def total(prices: list[int]) -> int:
    context = current_run()
    children = [context.submit(fetch, price) for price in prices]
    context.progress(0, len(children))
    ended = context.wait_for_children()
    context.log("all", len(ended), "are there")
    return sum(child.result() for child in children)
