"""Waiting for several runs: `gather` for threads, `gather_async` for event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from queue import Empty, SimpleQueue
from typing import Any, Literal, TypeVar, overload

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError, Invalid, quote_input
from agentq.coordinator.runs import run_record
from agentq.sdk.async_handles import AsyncRun
from agentq.sdk.errors import RunFailed
from agentq.sdk.options import Duration, to_timeout_ms
from agentq.sdk.run_handle import Run, wait_timeout_error

R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
H = TypeVar("H", Run[Any], AsyncRun[Any])
WaitTimeout = float | Duration | None

# Runs that are given one by one have a type each. It is a list all the same: the tuple, and the overlaps, are those of
# asyncio.gather in typeshed.


@overload
def gather(  # type: ignore[overload-overlap]
    a: Run[A], b: Run[B], /, *, timeout: WaitTimeout = None, return_exceptions: Literal[False] = False
) -> tuple[A, B]: ...
@overload
def gather(
    a: Run[A], b: Run[B], /, *, timeout: WaitTimeout = None, return_exceptions: bool
) -> tuple[A | BaseException, B | BaseException]: ...
@overload
def gather(  # type: ignore[overload-overlap]
    a: Run[A], b: Run[B], c: Run[C], /, *, timeout: WaitTimeout = None, return_exceptions: Literal[False] = False
) -> tuple[A, B, C]: ...
@overload
def gather(
    a: Run[A], b: Run[B], c: Run[C], /, *, timeout: WaitTimeout = None, return_exceptions: bool
) -> tuple[A | BaseException, B | BaseException, C | BaseException]: ...
@overload
def gather(  # type: ignore[overload-overlap]
    a: Run[A],
    b: Run[B],
    c: Run[C],
    d: Run[D],
    /,
    *,
    timeout: WaitTimeout = None,
    return_exceptions: Literal[False] = False,
) -> tuple[A, B, C, D]: ...
@overload
def gather(
    a: Run[A], b: Run[B], c: Run[C], d: Run[D], /, *, timeout: WaitTimeout = None, return_exceptions: bool
) -> tuple[A | BaseException, B | BaseException, C | BaseException, D | BaseException]: ...
@overload
def gather(  # type: ignore[overload-overlap]
    a: Run[A],
    b: Run[B],
    c: Run[C],
    d: Run[D],
    e: Run[E],
    /,
    *,
    timeout: WaitTimeout = None,
    return_exceptions: Literal[False] = False,
) -> tuple[A, B, C, D, E]: ...
@overload
def gather(
    a: Run[A], b: Run[B], c: Run[C], d: Run[D], e: Run[E], /, *, timeout: WaitTimeout = None, return_exceptions: bool
) -> tuple[A | BaseException, B | BaseException, C | BaseException, D | BaseException, E | BaseException]: ...
@overload
def gather(  # type: ignore[overload-overlap]
    a: Run[A],
    b: Run[B],
    c: Run[C],
    d: Run[D],
    e: Run[E],
    f: Run[F],
    /,
    *,
    timeout: WaitTimeout = None,
    return_exceptions: Literal[False] = False,
) -> tuple[A, B, C, D, E, F]: ...
@overload
def gather(
    a: Run[A],
    b: Run[B],
    c: Run[C],
    d: Run[D],
    e: Run[E],
    f: Run[F],
    /,
    *,
    timeout: WaitTimeout = None,
    return_exceptions: bool,
) -> tuple[
    A | BaseException, B | BaseException, C | BaseException, D | BaseException, E | BaseException, F | BaseException
]: ...
@overload
def gather(*runs: Run[R], timeout: WaitTimeout = None, return_exceptions: Literal[False] = False) -> list[R]: ...
@overload
def gather(*runs: Run[R], timeout: WaitTimeout = None, return_exceptions: bool) -> list[R | BaseException]: ...
def gather(*runs: Run[Any], timeout: WaitTimeout = None, return_exceptions: bool = False) -> Any:
    """The results in the order of the runs, once all have ended.

    The first run that fails ends the wait with its exception, and the others go on; with `return_exceptions` it takes
    the place of its result.
    """
    results: dict[str, Any] = {}
    for run, ended in _iterate_ended(runs, timeout):
        try:
            results[run.id] = run.returned(ended)
        except RunFailed as failed:
            if not return_exceptions:
                raise
            results[run.id] = failed
    return [results[run.id] for run in runs]


def as_completed(runs: Iterable[Run[R]], timeout: WaitTimeout = None) -> Iterator[Run[R]]:
    """The runs in the order in which they end, however they do."""
    if not isinstance(runs, Iterable):
        raise Invalid(f"as_completed takes a list of runs, not {quote_input(runs)}.")
    for run, _ in _iterate_ended(list(runs), timeout):
        yield run


def _iterate_ended(runs: Iterable[Run[Any]], timeout: WaitTimeout) -> Iterator[tuple[Run[Any], run_record.RunRecord]]:
    limit_ms = to_timeout_ms(timeout)
    deadline_ms = None if limit_ms is None else monotonic_ms() + limit_ms
    left = {run.id: run for run in _check_runs(runs, Run)}
    told: SimpleQueue[run_record.RunRecord | AgentqError] = SimpleQueue()
    for run in left.values():
        run._client.endings.on_end(run.id, told.put)
    try:
        while left:
            try:
                answer = told.get(timeout=None if deadline_ms is None else max(0, deadline_ms - monotonic_ms()) / 1000)
            except Empty:
                raise wait_timeout_error(next(iter(left))) from None
            if isinstance(answer, AgentqError):
                raise answer
            yield left.pop(answer.id), answer
    finally:
        for run in left.values():
            run._client.endings.leave(run.id, told.put)


@overload
async def gather_async(  # type: ignore[overload-overlap]
    a: AsyncRun[A], b: AsyncRun[B], /, *, timeout: WaitTimeout = None, return_exceptions: Literal[False] = False
) -> tuple[A, B]: ...
@overload
async def gather_async(
    a: AsyncRun[A], b: AsyncRun[B], /, *, timeout: WaitTimeout = None, return_exceptions: bool
) -> tuple[A | BaseException, B | BaseException]: ...
@overload
async def gather_async(  # type: ignore[overload-overlap]
    a: AsyncRun[A],
    b: AsyncRun[B],
    c: AsyncRun[C],
    /,
    *,
    timeout: WaitTimeout = None,
    return_exceptions: Literal[False] = False,
) -> tuple[A, B, C]: ...
@overload
async def gather_async(
    a: AsyncRun[A], b: AsyncRun[B], c: AsyncRun[C], /, *, timeout: WaitTimeout = None, return_exceptions: bool
) -> tuple[A | BaseException, B | BaseException, C | BaseException]: ...
@overload
async def gather_async(  # type: ignore[overload-overlap]
    a: AsyncRun[A],
    b: AsyncRun[B],
    c: AsyncRun[C],
    d: AsyncRun[D],
    /,
    *,
    timeout: WaitTimeout = None,
    return_exceptions: Literal[False] = False,
) -> tuple[A, B, C, D]: ...
@overload
async def gather_async(
    a: AsyncRun[A],
    b: AsyncRun[B],
    c: AsyncRun[C],
    d: AsyncRun[D],
    /,
    *,
    timeout: WaitTimeout = None,
    return_exceptions: bool,
) -> tuple[A | BaseException, B | BaseException, C | BaseException, D | BaseException]: ...
@overload
async def gather_async(  # type: ignore[overload-overlap]
    a: AsyncRun[A],
    b: AsyncRun[B],
    c: AsyncRun[C],
    d: AsyncRun[D],
    e: AsyncRun[E],
    /,
    *,
    timeout: WaitTimeout = None,
    return_exceptions: Literal[False] = False,
) -> tuple[A, B, C, D, E]: ...
@overload
async def gather_async(
    a: AsyncRun[A],
    b: AsyncRun[B],
    c: AsyncRun[C],
    d: AsyncRun[D],
    e: AsyncRun[E],
    /,
    *,
    timeout: WaitTimeout = None,
    return_exceptions: bool,
) -> tuple[A | BaseException, B | BaseException, C | BaseException, D | BaseException, E | BaseException]: ...
@overload
async def gather_async(  # type: ignore[overload-overlap]
    a: AsyncRun[A],
    b: AsyncRun[B],
    c: AsyncRun[C],
    d: AsyncRun[D],
    e: AsyncRun[E],
    f: AsyncRun[F],
    /,
    *,
    timeout: WaitTimeout = None,
    return_exceptions: Literal[False] = False,
) -> tuple[A, B, C, D, E, F]: ...
@overload
async def gather_async(
    a: AsyncRun[A],
    b: AsyncRun[B],
    c: AsyncRun[C],
    d: AsyncRun[D],
    e: AsyncRun[E],
    f: AsyncRun[F],
    /,
    *,
    timeout: WaitTimeout = None,
    return_exceptions: bool,
) -> tuple[
    A | BaseException, B | BaseException, C | BaseException, D | BaseException, E | BaseException, F | BaseException
]: ...
@overload
async def gather_async(
    *runs: AsyncRun[R], timeout: WaitTimeout = None, return_exceptions: Literal[False] = False
) -> list[R]: ...
@overload
async def gather_async(
    *runs: AsyncRun[R], timeout: WaitTimeout = None, return_exceptions: bool
) -> list[R | BaseException]: ...
async def gather_async(*runs: AsyncRun[Any], timeout: WaitTimeout = None, return_exceptions: bool = False) -> Any:
    """The same, awaited."""
    waits = [asyncio.ensure_future(run.result(timeout)) for run in _check_runs(runs, AsyncRun)]
    try:
        return list(await asyncio.gather(*waits, return_exceptions=return_exceptions))
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


def _check_runs(runs: Iterable[H], kind: type[H]) -> Iterator[H]:
    """Check that all arguments are runs; a common mistake is to forget the star."""
    for run in runs:
        if not isinstance(run, kind):
            raise Invalid(f"{quote_input(run)} is no {kind.__name__}; several are given as in gather(*runs).")
        yield run
