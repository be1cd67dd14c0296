"""The handles of runs and sessions for event loops: what `Run` and `Session` are, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, Unpack, cast

from pydantic import JsonValue

from agentq.coordinator.errors import AgentqError
from agentq.coordinator.events.stream import STREAM_START, Event
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.runs import run_record
from agentq.coordinator.runs.logs import RunLogEntry
from agentq.sdk.agent_options import AgentOptions
from agentq.sdk.blocking_client import BlockingClient
from agentq.sdk.options import Duration, to_timeout_ms
from agentq.sdk.run_handle import Run, wait_timeout_error
from agentq.sdk.sessions import Session
from agentq.sdk.wait.stream import stream_async

if TYPE_CHECKING:
    from agentq.coordinator.model.agent_events import AnyAgentEvent
    from agentq.coordinator.sessions.verbs import SessionRecord
    from agentq.sdk.wait.run_ends import RunWaiters

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class ThreadedCaller(Protocol):
    """A client for event loops, for the handles that it makes."""

    @property
    def sync(self) -> BlockingClient:
        """The client whose calls block."""

    async def call(self, func: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Call something that blocks, in a thread."""


class AsyncRun(Generic[R_co]):
    """A run, by its id: what `Run` is, awaited. `await run` is `await run.result()`."""

    __slots__ = ("_client", "id", "sync")

    def __init__(self, client: ThreadedCaller, run: Run[R_co]) -> None:
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

        def set_answer(answer: run_record.RunRecord | AgentqError) -> None:
            # A closed loop has no waiting task.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, answer)

        endings = await self._endings()
        endings.on_end(self.id, set_answer)
        limit_ms = to_timeout_ms(timeout)
        try:
            async with asyncio.timeout(None if limit_ms is None else limit_ms / 1000):
                answer = await future
        except TimeoutError:
            raise wait_timeout_error(self.id) from None
        finally:
            endings.leave(self.id, set_answer)
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

    def agent_events(self, *, follow: bool = False) -> AsyncGenerator[AnyAgentEvent]:
        """What its agent said and did, in order; with `follow`, until it has ended."""
        return stream_async(lambda: self.sync.agent_events(follow=follow))

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
        """Wake the run, regardless of its wait."""
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


class AsyncSession:
    """A conversation with an agent, by its name: what `Session` is, awaited."""

    __slots__ = ("_client", "name", "sync")

    def __init__(self, client: ThreadedCaller, session: Session) -> None:
        self._client = client
        self.sync = session
        self.name = session.name

    async def send(self, prompt: str, **options: Unpack[AgentOptions]) -> AsyncRun[Any]:
        """Say something. The turn is a run; if another one goes on, it begins when that has ended."""
        return AsyncRun(self._client, await self._client.call(self.sync.send, prompt, **options))

    async def turns(self) -> list[AsyncRun[Any]]:
        """Its turns that are kept, the first first."""
        return [AsyncRun(self._client, run) for run in await self._client.call(self.sync.turns)]

    async def record(self) -> SessionRecord:
        """Everything that is known of it."""
        return await self._client.call(self.sync.record)

    async def fork(self, name: str | None = None) -> AsyncSession:
        """Another session that goes on from where this one is."""
        return AsyncSession(self._client, await self._client.call(self.sync.fork, name))

    async def close(self, *, cancel: bool = False) -> None:
        """Let it take no more turns."""
        await self._client.call(self.sync.close, cancel=cancel)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncSession) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"<session {self.name}>"
