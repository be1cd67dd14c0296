"""The client for event loops: the same calls, each in a thread of the client's own, and waits that take none.

A client belongs to no loop: one that stands at the top of a module serves every loop that comes and goes. A call that
is cancelled while it is on its way may still reach the server.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, overload

from agentq.sdk.agent_options import AgentOptions, SessionOptions
from agentq.sdk.async_handles import AsyncRun, AsyncSession
from agentq.sdk.blocking_client import BlockingClient
from agentq.sdk.functions.definition import FunctionDefinition
from agentq.sdk.wait.stream import Stream, stream_async

if TYPE_CHECKING:
    from agentq.sdk.administration import JsonRecord, ScheduleTiming
    from agentq.sdk.wait.event_streams import PositionedEvent

THREADS_MAX = 4
"""Calls of one client that are on their way at the same time. Waiting is no call."""

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class AsyncClient:
    """A client whose calls are awaited."""

    def __init__(self, client: BlockingClient) -> None:
        self.sync = client
        self._pool: ThreadPoolExecutor | None = None
        self._pid = 0

    @overload
    async def submit(self, func: FunctionDefinition[P, R], /, *args: P.args, **kwargs: P.kwargs) -> AsyncRun[R]: ...
    @overload
    async def submit(
        self, func: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncRun[R]: ...
    @overload
    async def submit(self, func: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> AsyncRun[R]: ...
    @overload
    async def submit(self, func: str, /, *args: Any, **kwargs: Any) -> AsyncRun[Any]: ...
    async def submit(self, func: Any, /, *args: Any, **kwargs: Any) -> AsyncRun[Any]:
        """Submit one call of a task, of a function, or of `"module:function"` that only the workers have."""
        return AsyncRun(self, await self.call(self.sync.submit, func, *args, **kwargs))

    @overload
    async def submit_many(self, func: FunctionDefinition[..., R], calls: Iterable[Any]) -> list[AsyncRun[R]]: ...
    @overload
    async def submit_many(
        self, func: Callable[..., Coroutine[Any, Any, R]], calls: Iterable[Any]
    ) -> list[AsyncRun[R]]: ...
    @overload
    async def submit_many(self, func: Callable[..., R], calls: Iterable[Any]) -> list[AsyncRun[R]]: ...
    @overload
    async def submit_many(self, func: str, calls: Iterable[Any]) -> list[AsyncRun[Any]]: ...
    async def submit_many(self, func: Any, calls: Iterable[Any]) -> list[AsyncRun[Any]]:
        """Submit many calls, each a tuple of arguments or a dict of keywords."""
        runs = await self.call(self.sync.submit_many, func, calls)
        return [AsyncRun(self, run) for run in runs]

    async def submit_agent(self, agent: str, prompt: str, **options: Unpack[AgentOptions]) -> AsyncRun[Any]:
        """Have an agent do what the prompt asks for."""
        return AsyncRun(self, await self.call(self.sync.submit_agent, agent, prompt, **options))

    async def session(self, name: str | None, **options: Unpack[SessionOptions]) -> AsyncSession:
        """A conversation with an agent, by its name, which begins if there is none and an agent is named."""
        return AsyncSession(self, await self.call(self.sync.session, name, **options))

    async def schedule(
        self,
        name: str,
        func: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **timing: Unpack[ScheduleTiming],
    ) -> JsonRecord:
        """Have a call submitted again and again, or at a time; replaces the schedule of that name."""
        return await self.call(self.sync.schedule, name, func, args, kwargs, **timing)

    def dead(self, queue: str | None = None) -> AsyncGenerator[AsyncRun[Any]]:
        """The runs that failed for good, newest first."""
        return stream_async(lambda: Stream(AsyncRun(self, run) for run in self.sync.dead(queue)))

    def run(self, run_id: str) -> AsyncRun[Any]:
        """A handle of any run, by its id."""
        return AsyncRun(self, self.sync.run(run_id))

    def events(self, *, after: str | None = None, follow: bool = True) -> AsyncGenerator[PositionedEvent]:
        """What happens to all runs, from now on, or after an event."""
        return stream_async(lambda: self.sync.events(after=after, follow=follow))

    async def call(self, func: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Call something that blocks, in a thread of the client's."""
        return await asyncio.wrap_future(self._threads().submit(func, *args, **kwargs))

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None or self._pid != os.getpid():
            self._pool, self._pid = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="agentq-client"), os.getpid()
        return self._pool

    async def close(self) -> None:
        """Close the connections and end the threads."""
        await self.call(self.sync.close)
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
