"""One blocking read at a time, on a socket of its own, which another thread can end early.

Its tasks:

1. Wait for the reply as long as the command blocks, and a margin more, never the shorter time of other commands.
2. Never send the same command twice. A lost reply may have carried an entry, which the server has
   already booked on this consumer: only its pending list knows. So every fault is raised as `Unreachable`, and the
   caller reads its pending list before it blocks again.
3. Send a script right behind the command, so that the server runs it the moment the block ends, without a round trip.
4. Be woken: `wake` ends the current block, or else the next one. The server is asked to end the block
   (CLIENT UNBLOCK), so that nothing is lost; only if that is impossible, the link is cut.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from redis import exceptions

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.storage import server_errors
from agentq.coordinator.storage.script_call import ScriptCall, call_script, evalsha_command
from agentq.coordinator.storage.socket_link import CommandArgument, Endpoint, SocketLink, send_and_read, send_commands

UNBLOCK_TIMEOUT_MS = 1000
UNBLOCK_TRIES = 20
UNBLOCK_PAUSE_MS = 10


class BlockingLink:
    """A link for blocking reads, whose block another thread can end."""

    def __init__(self, link: Callable[[Endpoint, int], SocketLink], margin_ms: int) -> None:
        self._new_link = link
        self._margin_ms = margin_ms
        self._link: SocketLink | None = None
        self._place: Endpoint | None = None
        self._client_id: int | None = None
        self._poll = select.poll()
        self._turn = threading.Lock()
        self._closed = False
        self._bell, self._rope = os.pipe()
        os.set_blocking(self._bell, False)
        os.set_blocking(self._rope, False)
        # Not at the end of the process, when a thread may wait on them still.
        weakref.finalize(self, _close_descriptors, self._bell, self._rope).atexit = False

    def read(
        self, place: Endpoint, words: tuple[CommandArgument, ...], timeout_ms: int, then: ScriptCall | None = None
    ) -> tuple[Any, Any]:
        """Send the words once, and wait for the reply; None when the time is over or `wake` was called.

        With `then`, the reply of that script, too. It runs in any case, except that a call to `wake` came before.
        """
        if not self._turn.acquire(blocking=False):
            raise AgentqError("Another thread already blocks on this connection; give each its own.")
        try:
            return self._read(place, words, timeout_ms, then)
        except exceptions.ResponseError as refusal:
            if server_errors.needs_rediscovery(refusal):
                self._hang_up()
            raise
        except BaseException:
            # After any fault a reply may still be on its way, and must not become the answer to another command.
            self._hang_up()
            raise
        finally:
            if self._closed:
                self._hang_up()
            self._turn.release()

    def wake(self) -> None:
        """End the block that goes on, or else the next one. Any thread, and a signal handler, may call this."""
        # A full pipe means that it has been called often enough.
        with contextlib.suppress(BlockingIOError):
            os.write(self._rope, b"!")

    def close(self) -> None:
        """Close the link; a block that goes on is ended first, by the thread that waits in it."""
        self._closed = True
        self.wake()
        if self._turn.acquire(blocking=False):
            self._hang_up()
            self._turn.release()

    def _read(
        self, place: Endpoint, words: tuple[CommandArgument, ...], timeout_ms: int, then: ScriptCall | None
    ) -> tuple[Any, Any]:
        link = self._connected(place)
        if self._answered_the_bell():
            return None, None
        send_commands(link, words, *([evalsha_command(then)] if then is not None else []))
        deadline = monotonic_ms() + timeout_ms + self._margin_ms
        if self._wait(deadline) and self._answered_the_bell():
            self._unblock(link, place)
        # Some of what can be read may be TLS talking to itself, so the rest of the time is allowed for the reply.
        link.allow(max(deadline - monotonic_ms(), 1) / 1000)
        return read_replies(link, then)

    def _connected(self, place: Endpoint) -> SocketLink:
        if self._link is None or self._place != place:
            self._hang_up()
            link = self._new_link(place, self._margin_ms)
            link.connect()
            self._link, self._place = link, place
            self._poll = select.poll()
            self._poll.register(link._sock, select.POLLIN)
            self._poll.register(self._bell, select.POLLIN)
            try:
                self._client_id = int(send_and_read(link, ("CLIENT", "ID")))
            except exceptions.ResponseError:
                # An ACL may forbid it. Then a block can only be ended by cutting the link.
                self._client_id = None
        return self._link

    def _wait(self, deadline: int) -> bool:
        """Wait until there is something to read; true when it is only the bell."""
        ready = self._poll.poll(max(deadline - monotonic_ms(), 0))
        if not ready:
            raise exceptions.TimeoutError("no reply in time")
        return len(ready) == 1 and ready[0][0] == self._bell

    def _unblock(self, link: SocketLink, place: Endpoint) -> None:
        """Tell the server to answer now, and wait until it has; or else end the wait by cutting the link."""
        messenger = self._new_link(place, UNBLOCK_TIMEOUT_MS)
        poll = select.poll()
        poll.register(link._sock, select.POLLIN)
        try:
            # The first request may overtake the blocking command itself, and then finds no client to unblock.
            for _ in range(UNBLOCK_TRIES if self._client_id else 0):
                send_and_read(messenger, ("CLIENT", "UNBLOCK", self._client_id or 0))
                if poll.poll(UNBLOCK_PAUSE_MS):
                    return
        except exceptions.RedisError as fault:
            raise exceptions.TimeoutError("the block was ended by cutting the connection") from fault
        finally:
            messenger.disconnect()
        raise exceptions.TimeoutError("the block was ended by cutting the connection")

    def _answered_the_bell(self) -> bool:
        try:
            return bool(os.read(self._bell, 4096))
        except BlockingIOError:
            return False

    def _hang_up(self) -> None:
        if self._link is not None:
            self._link.disconnect()
        self._link = self._place = self._client_id = None


def read_replies(link: SocketLink, then: ScriptCall | None) -> tuple[Any, Any]:
    """The replies to what was sent together. A server that does not know the script is given it."""
    refused = None
    try:
        reply = link.read_response()
    except exceptions.ResponseError as error:
        if then is None:
            raise
        refused = error
    if then is None:
        return reply, None
    try:
        second = link.read_response()
    except exceptions.ResponseError as error:
        if refused is None and server_errors.error_code(error) == "NOSCRIPT":
            return reply, call_script(partial(send_and_read, link), then)
        refused = refused or error
    if refused is not None:
        raise refused
    return reply, second


def _close_descriptors(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
