"""Functions that the tests of the SDK submit."""

from __future__ import annotations

import enum
import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypedDict
from uuid import UUID

from pydantic import BaseModel, Field

from agentq.sdk import current_run, task

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]


SEVEN = UUID(int=7)
SETTINGS = {"password": "secret"}
print_out = print
environment = functools.partial(os.getenv, "HOME")


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    """A dataclass, as an argument and as a result."""

    x: int
    y: float = 0.5


class Customer(BaseModel):
    """A model whose fields have other names in JSON."""

    name: str
    born_in: int = Field(alias="bornIn")
    friends: list[Customer] = []


@dataclass
class Everything:
    """Whatever JSON can carry."""

    at: datetime = datetime(2030, 1, 2, tzinfo=UTC)
    span: timedelta = timedelta(minutes=3)
    price: Decimal = Decimal("1.10")
    name: UUID = SEVEN
    raw: bytes = b"\xff\x00"
    colour: Colour = Colour.RED
    numbers: tuple[int, ...] = (1, 2)
    letters: set[str] = field(default_factory=lambda: {"a"})


@task
def double(number: int) -> int:
    return 2 * number


@task
def move(point: Point, by: int = 1) -> Point:
    return Point(point.x + by, point.y)


@task
def befriend(customer: Customer) -> Customer:
    return customer.model_copy(update={"friends": [customer]})


@task
def carry(load: Everything) -> Everything:
    return load


def length(text: str) -> int:
    return len(text)


def plain(first: str, /, second: int, *rest: int, third: float = 3.0, **more: bool) -> list[Any]:
    return [first, second, list(rest), third, more]


def bare(one, two=2):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, RUF100
    return [one, two]


def half_known(one: Unknown, two: int) -> Any:
    return [one, two]


@task
async def later(number: int) -> int:
    return number + 1


@task
def grow(kilobytes: int) -> str:
    return "x" * (1024 * kilobytes)


@task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@task
def add(one: int, two: int) -> int:
    return one + two


@task
def breaks(words: str = "broken") -> int:
    raise ValueError(words)


@task
def returns(what: str) -> Any:
    return {"nan": float("nan"), "object": object(), "mark": {"$ref": "x", "bytes": 1, "sha256": ""}}[what]


@task(pickle=True)
def sealed(values: set[int]) -> frozenset[int]:
    return frozenset(values)


class Holder:
    @staticmethod
    def static(number: int) -> int:
        return number

    @classmethod
    def of_class(cls, number: int) -> int:
        return number

    def method(self) -> None: ...


class Loose(TypedDict):
    """Of which pydantic wants another kind before Python 3.12."""

    name: str


def loose(one: Loose, two: int) -> Any:
    return [one, two]


def open_to_all(**anything: str) -> None: ...


def made() -> Callable[[], None]:
    def inner() -> None: ...

    return inner


@task
def talks(lines: int) -> None:
    for line in range(lines):
        current_run().log("line", line)
