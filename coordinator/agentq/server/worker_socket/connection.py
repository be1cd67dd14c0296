"""One open connection at `/worker`, from a worker that cannot reach Redis. Its tasks:

1. Answer questions, several at a time: call a script that the worker may call (see `remote_worker/permissions.py`), or
   wait for entries without a thread.
2. Check the worker's token from time to time.
3. Replace an older connection of the same worker, which the worker has given up.
4. Clean up when it closes. Nothing else follows from that: the worker's lease tells whether it lives, and its next
   connection may go to another server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import AgentqError, Invalid, NotAllowed, TryLater, Unreachable
from agentq.coordinator.model.lifecycle import TERMINAL_STATES
from agentq.coordinator.package_version import installed_version
from agentq.coordinator.storage.blocking_read import UNBLOCK_PAUSE_MS
from agentq.coordinator.storage.connection import CommandArgument
from agentq.coordinator.workers.stream_read import WatchedStreams, blocking_read_command, read_pending_entries
from agentq.remote_worker.children import answer_request
from agentq.remote_worker.messages import (
    FORBIDDEN,
    REPLACED,
    AnswerMessage,
    AwaitChildMessage,
    InitMessage,
    PendingEntriesMessage,
    ScriptCallMessage,
    WakeMessage,
    WatchMessage,
    WelcomeMessage,
    WorkerMessage,
    WorkerQuestion,
    make_refusal,
    parse_worker_message,
)
from agentq.remote_worker.permissions import WorkerPermissions
from agentq.remote_worker.remote_store import TIME_SETTINGS
from agentq.server.http.problems import Denied
from agentq.server.worker_socket.blocking_read import WorkerBlockingRead

if TYPE_CHECKING:
    from agentq.server.service import ServerService

TOKEN_RECHECK_MS = 5_000
"""How long a valid token is trusted on an open connection."""
REQUESTS_MAX = 32
"""Concurrent requests of one connection, not counting waits; beyond them its messages are not read."""
CHILD_WAITS_MAX = 1_000
PENDING_TASKS_MAX = CHILD_WAITS_MAX + 2 * REQUESTS_MAX
"""Beyond this number of tasks, waits also take a request slot, so that further messages stay with the worker."""
CLOSE_REASON_BYTES = 120
"""The longest close reason of a WebSocket."""

log = logging.getLogger("agentq.server")


class WorkerConnections:
    """The connections of workers to this server."""

    def __init__(self) -> None:
        self._connections: dict[tuple[str, str, str | None], WorkerConnection] = {}

    def add(self, connection: WorkerConnection) -> None:
        """Add a connection; it replaces an older one of the same worker and purpose."""
        older = self._connections.get(connection.key)
        self._connections[connection.key] = connection
        if older is not None:
            older.replace()

    def remove(self, connection: WorkerConnection) -> None:
        """Remove a closed connection, unless it was replaced."""
        if self._connections.get(connection.key) is connection:
            del self._connections[connection.key]


class WorkerConnection:
    """A connection of one worker. `recheck` refuses a token that is no longer valid."""

    def __init__(
        self,
        socket: WebSocket,
        service: ServerService,
        init: InitMessage,
        permissions: WorkerPermissions,
        recheck: Callable[[], Awaitable[object]],
    ) -> None:
        self.key = (init.worker, init.purpose, permissions.bound)
        self._socket = socket
        self._service = service
        self._worker = init.worker
        self._permissions = permissions
        self._recheck = recheck
        self._token_checked_ms = monotonic_ms()
        self._blocking_reads: list[WorkerBlockingRead] = []
        self._active_watch: int | None = None
        self._woken_watch = -1
        self._request_slots = asyncio.Semaphore(REQUESTS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._child_waits = 0
        self._replaced: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Handle messages until the worker disconnects or its connection is replaced."""
        token_checks = asyncio.create_task(self._check_token_periodically())
        try:
            while True:
                message = await receive_message(self._socket)
                if self._replaced is not None:
                    return
                await self._take(message)
        finally:
            token_checks.cancel()
            self._cancel_all()

    async def _take(self, message: WorkerMessage) -> None:
        match message:
            case WakeMessage(id=number):
                self._wake(number)
            case InitMessage():
                raise Invalid("A connection has one init message.")
            case WatchMessage() | AwaitChildMessage() if len(self._tasks) < PENDING_TASKS_MAX:
                # A wait takes no request slot, unless there are too many.
                await self._check_token()
                self._spawn(self._answer(message))
            case _:
                await self._check_token()
                await self._request_slots.acquire()
                self._spawn(self._answer(message)).add_done_callback(lambda _: self._request_slots.release())

    def replace(self) -> None:
        """Cancel all tasks and close the connection, without waiting for the close."""
        self._cancel_all()
        self._replaced = asyncio.create_task(self._close_replaced())

    async def _close_replaced(self) -> None:
        with suppress(RuntimeError, WebSocketDisconnect):
            await self._socket.close(REPLACED, "another connection of this worker has taken its place")

    def _cancel_all(self) -> None:
        for vigil in self._blocking_reads:
            vigil.close()
        for task in self._tasks:
            task.cancel()

    async def _check_token(self) -> None:
        if monotonic_ms() - self._token_checked_ms >= TOKEN_RECHECK_MS:
            try:
                await self._recheck()
            except Denied:
                raise
            except (Unreachable, TryLater, NotAllowed):
                log.debug(
                    "a token could not be looked at"
                )  # while the store cannot be reached no token can be revoked either
            self._token_checked_ms = monotonic_ms()

    async def _check_token_periodically(self) -> None:
        """Check the token also while the worker waits and sends nothing."""
        while True:
            await asyncio.sleep(max(1, self._token_checked_ms + TOKEN_RECHECK_MS - monotonic_ms()) / 1000)
            try:
                await self._check_token()
            except Denied as denied:
                self._cancel_all()
                await close_socket(self._socket, FORBIDDEN, denied)
                return

    async def _answer(self, question: WorkerQuestion) -> None:
        try:
            text = AnswerMessage(id=question.id, reply=await self._reply(question)).to_wire()
        except AgentqError as error:
            text = make_refusal(question.id, error).to_wire()
        except Exception:
            log.exception("a request of the worker %s failed", self._worker)
            text = make_refusal(question.id, AgentqError("The coordinator failed; see its log.")).to_wire()
        with suppress(RuntimeError, WebSocketDisconnect):
            await self._socket.send_text(text)

    async def _reply(self, question: WorkerQuestion) -> Any:
        match question:
            case ScriptCallMessage():
                return await self._service.call_in_thread(self._call, question)
            case PendingEntriesMessage(partition=partition, lanes=lanes):
                return await self._service.call_in_thread(self._list_pending, partition, lanes)
            case WatchMessage():
                return await self._watch(question)
            case AwaitChildMessage():
                return await self._wait_for_child(question)
            case _:
                return await self._service.call_in_thread(
                    answer_request, self._service.run_verbs, self._permissions, question
                )

    def _call(self, call: ScriptCallMessage) -> Any:
        store, grants = self._service.store, self._permissions
        self._check_partition(call.partition)
        reply = store.call(call.script, call.partition, *grants.check_arguments(call.script, call.words))
        return grants.filter_reply(call.script, reply)

    def _list_pending(self, partition: int, lanes: Sequence[str]) -> list[tuple[str, str]]:
        self._check_partition(partition)
        return (
            read_pending_entries(
                self._service.store, partition, self._worker, self._permissions.check_lanes(lanes, former=True)
            )
            if lanes
            else []
        )

    def _check_partition(self, partition: int) -> None:
        if partition not in self._service.store.partitions():
            raise Invalid(f"There is no partition {partition} here.")

    # ---- waiting

    async def _wait_for_child(self, message: AwaitChildMessage) -> bool:
        """Whether a child has ended; as soon as it has, or when the time is over."""
        if self._child_waits >= CHILD_WAITS_MAX:
            raise TryLater(f"This worker waits for {CHILD_WAITS_MAX} children at once, which is the most.")

        async def read() -> bool | None:
            state = await self._service.call_in_thread(
                answer_request, self._service.run_verbs, self._permissions, message
            )
            return True if state in TERMINAL_STATES else None

        self._child_waits += 1
        try:
            with self._service.event_hub.watch_runs(message.child) as watch:
                return bool(await self._service.wait_until(watch, read, message.within_ms / 1000))
        finally:
            self._child_waits -= 1

    async def _watch(self, watch: WatchMessage) -> Any:
        if self._active_watch is not None:
            raise TryLater("This worker waits already; one wait at a time.")
        if self._woken_watch == watch.id:
            return None, None
        self._active_watch = watch.id
        try:
            return await self._read_streams(watch)
        finally:
            self._active_watch = None

    def _wake(self, number: int) -> None:
        """End a wait; the message may arrive before the wait itself."""
        self._woken_watch = number
        if self._active_watch == number:
            self._spawn(self._wake_all(number))

    async def _wake_all(self, number: int | None) -> None:
        while self._active_watch == number:
            await asyncio.gather(*(vigil.wake() for vigil in self._blocking_reads))
            await asyncio.sleep(UNBLOCK_PAUSE_MS / 1000)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _read_streams(self, watch: WatchMessage) -> tuple[list[tuple[int, str | None, Any]], Any]:
        store = self._service.store
        streams, arguments = await self._service.call_in_thread(self._build_streams, watch)
        if watch.id == self._woken_watch:
            return [], None
        groups = [streams] if not store.connection.is_spread else _group_by_partition(streams)
        while len(self._blocking_reads) < len(groups):
            self._blocking_reads.append(WorkerBlockingRead(store.connection, self._service.call_in_thread))
        then = None if arguments is None else store.worded("worker/claim", min(watch.lanes), *arguments)
        waits = [
            asyncio.ensure_future(
                vigil.wait(blocking_read_command(self._worker, group, watch.block_ms), watch.block_ms, then)
            )
            for vigil, group in zip(self._blocking_reads, groups, strict=False)
        ]
        if len(waits) > 1:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            self._wake(watch.id)
        try:
            replies = await asyncio.gather(*waits)
        finally:
            for wait in waits:
                wait.cancel()
        received = [(*streams[key], entries) for reply, _ in replies for key, entries in reply or ()]
        return received, self._permissions.filter_reply("claim", replies[0][1])

    def _build_streams(self, watch: WatchMessage) -> tuple[WatchedStreams, list[CommandArgument] | None]:
        """The streams to block on, and the arguments of the claim that follows. Blocks, since it may read the store."""
        store, streams = self._service.store, WatchedStreams()
        for partition, lanes in watch.lanes.items():
            self._check_partition(partition)
            streams[store.key(partition, "worker_inbox", self._worker)] = (partition, None)
            for lane in self._permissions.check_lanes(lanes):
                streams[store.key(partition, "lane", lane)] = (partition, lane)
        if not streams or (watch.claim is not None and len(watch.lanes) > 1):
            raise Invalid("A wait is for one partition at least, and a claim after it in one.")
        return streams, None if watch.claim is None else self._permissions.check_arguments("worker/claim", watch.claim)


def _group_by_partition(streams: WatchedStreams) -> list[WatchedStreams]:
    groups: dict[int, WatchedStreams] = {}
    for key, location in streams.items():
        groups.setdefault(location[0], {})[key] = location
    return list(groups.values())


def build_welcome(settings: Settings) -> WelcomeMessage:
    """The welcome message with the server's settings."""
    times = {name: getattr(settings, name) for name in TIME_SETTINGS}
    return WelcomeMessage(
        version=installed_version(), namespace=settings.namespace, partitions=settings.partitions, **times
    )


async def close_socket(socket: WebSocket, code: int, error: AgentqError) -> None:
    """Close a connection with the reason."""
    text = str(error) if not isinstance(error, Unreachable) else "its store cannot be reached at the moment"
    with suppress(RuntimeError, WebSocketDisconnect):  # already closed
        await socket.close(code, text.encode()[:CLOSE_REASON_BYTES].decode(errors="ignore"))


async def receive_message(socket: WebSocket) -> WorkerMessage:
    """Receive the next message."""
    frame = await socket.receive()
    if frame["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(frame.get("code", 1006))
    return parse_worker_message(frame.get("text") or frame.get("bytes") or "")
