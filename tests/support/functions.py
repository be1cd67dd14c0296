"""Functions for workers to call in the tests. What they do is noted down in the file that EFFECTS_FILE names."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

from agentq.sdk import Cancelled, Fail, Retry, SoftTimeout, current_run

kept: list[bytes] = []
_there: list[str] = []


def note(what: str) -> None:
    """In one write, so that the lines of several processes do not mix."""
    run = current_run()
    line = f"{what} {run.id} {run.attempt} {os.getpid()}\n"
    file = os.open(os.environ["EFFECTS_FILE"], os.O_WRONLY | os.O_APPEND)
    os.write(file, line.encode())
    os.close(file)


def nothing() -> None:
    """Nothing at all."""


def noted() -> None:
    note("begin")


def added(first: int, second: int) -> int:
    return first + second


async def awaited(first: int, second: int) -> int:
    await asyncio.sleep(0.01)
    return first + second


async def slept_beside(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return os.getpid()


async def met(count: int) -> int:
    """Returns when so many of these calls are under way in this process."""
    _there.append(current_run().id)
    while len(_there) < count:
        await asyncio.sleep(0.01)
    return os.getpid()


def slept(seconds: float) -> float:
    note("begin")
    time.sleep(seconds)
    note("end")
    return seconds


def slept_until(path: str) -> None:
    note("begin")
    while not Path(path).exists():
        time.sleep(0.01)
    note("end")


def raised() -> None:
    raise ValueError("no good")


def failed(kind: str) -> None:
    raise Fail("as I say", class_=kind)


def tried_again() -> int:
    if current_run().attempt == 1:
        raise Retry("not yet", after="10ms")
    return current_run().attempt


def unkept() -> Any:
    return object()


def printed() -> None:
    print("to stdout")
    print("to stderr", file=sys.stderr)
    print("no end", end="")


def half_way() -> None:
    current_run().progress(1, 2)


def caught(seconds: float) -> str:
    try:
        note("begin")
        time.sleep(seconds)
    except SoftTimeout:
        return "caught"
    return "slept"


async def caught_beside(seconds: float) -> str:
    try:
        await asyncio.sleep(seconds)
    except SoftTimeout:
        return "caught"
    return "slept"


def stubborn() -> None:
    """Cannot be stopped but by force."""
    begun = False
    while True:
        try:
            if not begun:
                begun = True
                note("begin")
            time.sleep(60)
        except BaseException:  # noqa: BLE001 - so stubborn
            note("struck")


def tidied(seconds: float) -> None:
    try:
        note("begin")
        time.sleep(seconds)
    except Cancelled:
        note("tidied")
        raise


async def tidied_beside(seconds: float) -> None:
    try:
        note("begin")
        await asyncio.sleep(seconds)
    except Cancelled:
        note("tidied")
        raise


def grown(size: int) -> int:
    kept.append(b"x" * size)
    return os.getpid()


def pid() -> int:
    return os.getpid()


def left(code: int) -> None:
    os._exit(code)


def surroundings() -> dict[str, str]:
    return {"cwd": os.getcwd(), "word": os.environ.get("WORD", ""), "pid": str(os.getpid())}


def asked() -> Any:
    note("begin")
    return current_run().wait_for_signal("go")


def chatted(seconds: float) -> None:
    for _ in range(10):
        print("still here")
        time.sleep(seconds / 10)


def napped(seconds: float) -> None:
    time.sleep(seconds)


def spanned() -> None:
    """What it does is a span of its own."""
    from opentelemetry.trace import get_tracer

    with get_tracer("support.functions").start_as_current_span("inside"):
        pass


async def spanned_beside() -> None:
    await asyncio.sleep(0)
    spanned()
