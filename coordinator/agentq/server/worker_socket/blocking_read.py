"""A worker's blocking read as a coroutine: it holds a connection to Redis, but no thread.

As for a worker with its own connection, Redis wakes one worker per entry, and a claim follows at the end of the read.
If the partitions are on several servers there is one read for each, and the first to end ends the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from redis import exceptions

from agentq.coordinator.storage import server_errors
from agentq.coordinator.storage.blocking_read import read_replies
from agentq.coordinator.storage.connection import CommandArgument, Connection
from agentq.coordinator.storage.script_call import ScriptCall, evalsha_command
from agentq.coordinator.storage.socket_link import Endpoint, SocketLink, send_and_read, send_commands

REPLY_MARGIN_MS = 5_000
"""How much later than requested a server may reply."""
CallInThread = Callable[..., Awaitable[Any]]
"""Calls a blocking function in a thread."""


class WorkerBlockingRead:
    """A connection for one wait at a time. Use it on one loop only."""

    def __init__(self, connection: Connection, call_in_thread: CallInThread) -> None:
        self._connection = connection
        self._call_in_thread = call_in_thread
        self._link: SocketLink | None = None
        self._endpoint: Endpoint | None = None
        self._client_id = 0
        self._readable: asyncio.Future[None] | None = None
        self._closed = False

    async def wait(
        self, command: Sequence[CommandArgument], block_ms: int, then: ScriptCall | None = None
    ) -> tuple[Any, Any]:
        """The replies of a blocking read and of the script that the server runs after it, if there is one."""
        try:
            link = await self._connect(tuple(command))
            send_commands(link, tuple(command), *([evalsha_command(then)] if then is not None else []))
            await self._wait_readable(link, block_ms)
            reply, after = await self._call_in_thread(read_replies, link, then)
            return reply, after
        except exceptions.RedisError as fault:
            if not isinstance(fault, exceptions.ResponseError) or server_errors.needs_rediscovery(fault):
                self._disconnect()
            raise self._connection.misled(fault) from fault
        except BaseException:
            # A reply may still arrive, and must not be taken for that of the next command.
            self._disconnect()
            raise

    async def wake(self) -> None:
        """End the current wait by CLIENT UNBLOCK, so that no delivered entry is lost. Repeat until the wait has ended.

        The first UNBLOCK may overtake the blocking command, and then has no effect.
        """
        if self._readable is None or self._endpoint is None:
            return
        try:
            await self._call_in_thread(self._unblock, self._endpoint, self._client_id)
        except exceptions.RedisError:
            self._disconnect()

    def close(self) -> None:
        """Close the connection; the server drops its read."""
        self._closed = True
        self._disconnect()

    async def _connect(self, command: tuple[CommandArgument, ...]) -> SocketLink:
        endpoint = self._connection.place(command)
        if self._link is None or self._endpoint != endpoint:
            self._disconnect()
            link = self._connection.link(endpoint, REPLY_MARGIN_MS)
            client = await self._call_in_thread(_connect_link, link)
            if self._closed:
                link.disconnect()
                raise exceptions.ConnectionError("the worker has gone")
            self._link, self._endpoint, self._client_id = link, endpoint, client
        return self._link

    async def _wait_readable(self, link: SocketLink, block_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._readable = waiting = loop.create_future()
        loop.add_reader(link._sock.fileno(), _resolve_future, waiting)
        try:
            async with asyncio.timeout((block_ms + REPLY_MARGIN_MS) / 1000):
                await waiting
            if self._link is None:
                raise exceptions.ConnectionError("the wait was ended by cutting the link")
        except TimeoutError:
            raise exceptions.TimeoutError("no reply in time") from None
        finally:
            self._stop_waiting()

    def _stop_waiting(self) -> None:
        """Remove the reader from the loop, and end the wait."""
        if self._readable is not None and self._link is not None:
            asyncio.get_running_loop().remove_reader(self._link._sock.fileno())
        waiting, self._readable = self._readable, None
        if waiting is not None:
            _resolve_future(waiting)

    def _unblock(self, endpoint: Endpoint, client: int) -> None:
        link = self._connection.link(endpoint)
        try:
            send_and_read(link, ("CLIENT", "UNBLOCK", client))
        finally:
            link.disconnect()

    def _disconnect(self) -> None:
        # First: the descriptor of a closed connection may be reused at once.
        self._stop_waiting()
        if self._link is not None:
            self._link.disconnect()
        self._link = self._endpoint = None


def _resolve_future(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _connect_link(link: SocketLink) -> int:
    link.connect()
    try:
        return int(send_and_read(link, ("CLIENT", "ID")))
    except exceptions.ResponseError:
        return 0  # forbidden by an ACL, as UNBLOCK will be; then closing the connection ends a wait
