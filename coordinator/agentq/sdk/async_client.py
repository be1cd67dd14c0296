"""The client for event loops: the same calls, each in a thread of the client's own, and waits that take none.

A client belongs to no loop: one that stands at the top of a module serves every loop that comes and goes. A call that
is cancelled while it is on its way may still reach the server.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, Unpack, cast, overload

from pydantic import JsonValue

from agentq.coordinator.errors import AgentqError
from agentq.coordinator.events.stream import STREAM_START, Event
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.runs import run_record
from agentq.coordinator.runs.logs import RunLogEntry
from agentq.sdk.agent_options import AgentOptions, SessionOptions
from agentq.sdk.functions.task import Task
from agentq.sdk.options import Duration, to_timeout_ms
from agentq.sdk.run_handle import Run, wait_timeout_error
from agentq.sdk.wait.stream import Stream, stream_async

if TYPE_CHECKING:
    from agentq.coordinator.model.agent_events import AnyAgentEvent
    from agentq.sdk.administration import JsonRecord, ScheduleTiming
    from agentq.sdk.client import Client
    from agentq.sdk.sessions import AsyncSession
    from agentq.sdk.wait.event_streams import PositionedEvent
    from agentq.sdk.wait.run_ends import RunWaiters

THREADS_MAX = 4
"""Calls of one client that are on their way at the same time. Waiting is no call."""

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class AsyncClient:
    """A client whose calls are awaited."""

    def __init__(self, client: Client) -> None:
        self.sync = client
        self._pool: ThreadPoolExecutor | None = None
        self._pid = 0

    @overload
    async def submit(self, func: Task[P, R], /, *args: P.args, **kwargs: P.kwargs) -> AsyncRun[R]: ...
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
    async def submit_many(self, func: Task[..., R], calls: Iterable[Any]) -> list[AsyncRun[R]]: ...
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
        from agentq.sdk.sessions import AsyncSession

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
        """A handle of any run, whoever submitted it."""
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


class AsyncRun(Generic[R_co]):
    """A run, by its id: what `Run` is, awaited. `await run` is `await run.result()`."""

    __slots__ = ("_client", "id", "sync")

    def __init__(self, client: AsyncClient, run: Run[R_co]) -> None:
        self._client = client
        self.sync = run
        self.id = run.id

    @property
    def __agentq_run__(self) -> str:
        return self.id

    @property
    def later(self) -> R_co:
        """The run as an argument of another submit, where it stands for its result: for type checkers, its result."""
        return cast(R_co, self)

    async def record(self) -> run_record.RunRecord:
        """Everything that is known of it."""
        return await self._client.call(self.sync.record)

    async def state(self) -> State:
        """The state that it is in."""
        return await self._client.call(self.sync.state)

    async def wait(self, timeout: float | Duration | None = None) -> State:
        """Wait until it has ended, however it did."""
        return (await self._ended(timeout)).state

    async def result(self, timeout: float | Duration | None = None) -> R_co:
        """What the function returned, once it has ended; RunFailed if it did not complete."""
        ended = await self._ended(timeout)
        return await self._client.call(self.sync.returned, ended)

    def __await__(self) -> Generator[Any, None, R_co]:
        return self.result().__await__()

    async def _ended(self, timeout: float | Duration | None) -> run_record.RunRecord:
        """Once the run has ended. Nothing is held meanwhile but a place in a table."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[run_record.RunRecord | AgentqError] = loop.create_future()

        def settle(answer: run_record.RunRecord | AgentqError) -> None:
            if not future.done():
                future.set_result(answer)

        def told(answer: run_record.RunRecord | AgentqError) -> None:
            # A loop that is closed has nobody in it who waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, answer)

        endings = await self._endings()
        endings.tell(self.id, told)
        limit_ms = to_timeout_ms(timeout)
        try:
            async with asyncio.timeout(None if limit_ms is None else limit_ms / 1000):
                answer = await future
        except TimeoutError:
            raise wait_timeout_error(self.id) from None
        finally:
            endings.leave(self.id, told)
        if isinstance(answer, AgentqError):
            raise answer
        return answer

    async def _endings(self) -> RunWaiters:
        sync = self._client.sync
        ready = sync.peek_endings()
        return ready if ready is not None else await self._client.call(sync.connect_endings)

    def logs(self, *, follow: bool = False, after: str = STREAM_START) -> AsyncGenerator[RunLogEntry]:
        """What it wrote, as far as the server keeps it; with `follow`, until it has ended."""
        return stream_async(lambda: self.sync.logs(follow=follow, after=after))

    def doings(self, *, follow: bool = False) -> AsyncGenerator[AnyAgentEvent]:
        """What its agent said and did, in order; with `follow`, until it has ended."""
        return stream_async(lambda: self.sync.doings(follow=follow))

    def events(self, *, follow: bool = True, after: str | None = None) -> AsyncGenerator[Event]:
        """What has happened to it, and with `follow` what does until it has ended."""
        return stream_async(lambda: self.sync.events(follow=follow, after=after))

    async def cancel(self, reason: str = "cancelled on request") -> State:
        """End it."""
        return await self._client.call(self.sync.cancel, reason)

    async def signal(self, name: str, data: JsonValue = None) -> State:
        """Send it something to know."""
        return await self._client.call(self.sync.signal, name, data)

    async def approve(self, comment: str = "") -> State:
        """Say yes to what it asks for."""
        return await self._client.call(self.sync.approve, comment)

    async def deny(self, comment: str = "") -> State:
        """Say no to it."""
        return await self._client.call(self.sync.deny, comment)

    async def wake(self) -> State:
        """Have it go on, whatever it waits for."""
        return await self._client.call(self.sync.wake)

    async def requeue(self) -> State:
        """Have it begin again, once it has ended."""
        return await self._client.call(self.sync.requeue)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncRun) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<run {self.id}>"


def connect_async(
    url: str | None = None,
    *,
    namespace: str | None = None,
    partitions: int | None = None,
    token: str | Path | None = None,
) -> AsyncClient:
    """A client for event loops; it can be made outside of one, and connects when it is first used."""
    from agentq.sdk.client import connect

    return connect(url, namespace=namespace, partitions=partitions, token=token).aio
