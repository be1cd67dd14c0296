"""A worker's connection to the coordinator: a WebSocket in its own thread. Its tasks:

1. Connect and do the handshake; then carry requests of any thread, and their answers.
2. When the connection breaks, fail all pending requests as unreachable; their callers know what can be repeated.
   Reconnect without end, with growing random delays, so that a thousand workers do not reconnect at once. Only a stable
   connection resets the delay.
3. Detect a dead peer: an unanswered ping breaks the connection.
4. Treat a refusal of the worker itself as final: a wrong token, another protocol.
5. Send small messages before large ones.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI, WebSocketException

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import (
    AgentqError,
    Incompatible,
    Invalid,
    NotAllowed,
    Unreachable,
    has_untrusted_certificate,
)
from agentq.remote_worker.messages import (
    BAD_MESSAGE,
    FORBIDDEN,
    GOING_AWAY,
    MESSAGE_BYTES,
    PROTOCOL_VERSION,
    RESTARTING,
    WRONG_PROTOCOL,
    AnswerMessage,
    InitMessage,
    RefusalMessage,
    WakeMessage,
    WelcomeMessage,
    parse_coordinator_message,
    refusal_to_error,
)

OPEN_TIMEOUT_S = 10.0
WELCOME_TIMEOUT_S = 10.0
PING_INTERVAL_S = 3.0
PONG_TIMEOUT_S = 6.0
BUSY_PONG_TIMEOUT_S = 60.0
"""For a connection with large messages, behind which a pong may wait."""
RECONNECT_DELAY_MS = 200
RECONNECT_DELAY_MS_MAX = 5_000
FIRST_FAILURES_MAX = 4
"""After this many failures a starting worker reports that it waits, or gives up if it may not wait."""
STABLE_CONNECTION_MS = 10_000
"""After this time a connection counts as stable."""
URGENT_BYTES_MAX = 64 << 10
RECONNECT_WAIT_S = 1.0
"""How long a request waits for a connection that is being restored."""


@dataclass(frozen=True, slots=True)
class CoordinatorAddress:
    """The address of a coordinator, and its credentials."""

    url: str
    token: str = ""
    tls: ssl.SSLContext | None = None
    direct: bool = False
    """Whether it is on this machine, so that no proxy is used."""


class CoordinatorConnection:
    """A connection that restores itself."""

    def __init__(
        self,
        address: CoordinatorAddress,
        init: InitMessage,
        welcomed: Callable[[WelcomeMessage], None],
        broken: Callable[[], None] = lambda: None,
    ) -> None:
        self._address = address
        self._init = init
        self._welcomed = welcomed
        self._on_broken = broken
        self._pong_timeout_s = PONG_TIMEOUT_S if init.purpose == "heartbeat" else BUSY_PONG_TIMEOUT_S
        self._numbers = count(1)
        self._pending: dict[int, Future[Any]] = {}
        self._urgent: deque[str] = deque()
        self._bulk: deque[str] = deque()
        self._state_changed = threading.Condition()
        self._is_connected = self._was_connected = False
        self._connected_since_ms: int | None = None
        """Since when this connection is welcomed; None before."""
        self._refusal: AgentqError | None = None
        """Why the coordinator refuses this worker."""
        self._last_error = Unreachable("The coordinator was not reached yet.")
        self._failures = 0
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._send_wakeup = asyncio.Event()
        self._stop_requested = asyncio.Event()
        self._socket: ClientConnection | None = None
        self._thread = threading.Thread(target=self._run, name=f"agentq-connection-{init.purpose}", daemon=True)

    # ---- from any thread

    def open(self, within_s: float, on_wait: Callable[[AgentqError], None] | None = None) -> None:
        """Start; returns once welcomed. If the first attempts fail, calls `on_wait` and waits on, or raises the
        error."""
        self._thread.start()
        with self._state_changed:
            self._state_changed.wait_for(lambda: self._is_settled or self._failures >= FIRST_FAILURES_MAX, within_s)
            if on_wait is not None and not self._is_settled and not has_untrusted_certificate(self._last_error):
                on_wait(self._last_error)
                self._state_changed.wait_for(lambda: self._is_settled)
            if not self._is_connected:
                raise self._refusal or self._last_error

    @property
    def _is_settled(self) -> bool:
        """Whether the coordinator has welcomed this worker, or refused it for good."""
        return self._is_connected or self._refusal is not None

    def next_number(self) -> int:
        """The number of the next request."""
        return next(self._numbers)

    def ask(self, number: int, text: str, timeout_s: float) -> Any:
        """Send a request, and return its answer."""
        with self._state_changed:
            self._state_changed.wait_for(
                lambda: self._is_connected or self._refusal is not None or self._closed, RECONNECT_WAIT_S
            )
        future = self.begin(number, text)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            raise Unreachable(f"The coordinator has not answered within {timeout_s:g} s.") from None
        finally:
            self._pending.pop(number, None)

    def begin(self, number: int, text: str) -> Future[Any]:
        """Send a request; the future gets its answer or error."""
        if len(text) > MESSAGE_BYTES // 4 and len(text.encode()) > MESSAGE_BYTES:
            raise Invalid(f"A message of more than {MESSAGE_BYTES} bytes cannot be sent to a coordinator.")
        future: Future[Any] = Future()
        with self._state_changed:
            if self._is_connected:
                self._pending[number] = future
            else:
                future.set_exception(self._refusal or self._last_error)
        if not future.done():
            self._send(text)
        return future

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call a function later, in this thread."""
        self._call(lambda: self._loop.call_later(delay_s, callback))

    def wake(self, number: int) -> None:
        """End the wait with that number."""
        self._send(WakeMessage(id=number).to_wire())

    def abort(self) -> None:
        """Break the connection and reconnect: the heartbeat connection has detected a dead peer."""
        self._call(lambda: self._socket.transport.abort() if self._socket is not None else None)

    def close(self) -> None:
        """Close the connection and stop the thread."""
        with self._state_changed:
            self._closed = True
            self._state_changed.notify_all()
        self._call(self._stop_requested.set)
        self._thread.join()

    def _send(self, text: str) -> None:
        (self._urgent if len(text) <= URGENT_BYTES_MAX else self._bulk).append(text)
        self._call(self._send_wakeup.set)

    def _call(self, callback: Callable[[], Any]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(callback)

    # ---- in its own thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._reconnect_loop())
        finally:
            self._set_disconnected(Unreachable("The worker has left the coordinator."))
            self._loop.close()

    async def _reconnect_loop(self) -> None:
        attempts = 0
        stopping = asyncio.ensure_future(self._stop_requested.wait())
        while not self._stop_requested.is_set():
            self._connected_since_ms = None
            try:
                is_restart = await self._run_connection(stopping)
                self._set_disconnected(Unreachable("The coordinator has closed the connection."))
            except AgentqError as error:
                is_restart = False
                self._set_disconnected(error)
                if not isinstance(error, Unreachable):
                    return
            attempts = 0 if self._was_stable() else attempts + 1
            most_ms = (
                RECONNECT_DELAY_MS
                if is_restart
                else min(RECONNECT_DELAY_MS << min(attempts, 10), RECONNECT_DELAY_MS_MAX)
            )
            await asyncio.wait({stopping}, timeout=random.uniform(0, most_ms) / 1000)
        stopping.cancel()

    def _was_stable(self) -> bool:
        return (
            self._connected_since_ms is not None and monotonic_ms() - self._connected_since_ms >= STABLE_CONNECTION_MS
        )

    async def _run_connection(self, stopping: asyncio.Future[Any]) -> bool:
        """Run one connection to its end; whether the coordinator is only restarting."""
        headers = {"Authorization": f"Bearer {self._address.token}"} if self._address.token else {}
        more: dict[str, Any] = {"ssl": self._address.tls} if self._address.tls is not None else {}
        if self._address.direct:
            more["proxy"] = None
        try:
            async with _NoRedirectConnect(
                self._address.url,
                additional_headers=headers,
                open_timeout=OPEN_TIMEOUT_S,
                ping_interval=PING_INTERVAL_S,
                ping_timeout=self._pong_timeout_s,
                close_timeout=2,
                max_size=None,  # a claim may contain many runs, and the coordinator is trusted
                max_queue=64,
                **more,
            ) as socket:
                self._socket = socket
                await self._handshake(socket)
                await self._exchange(socket, stopping)
                return False
        except InvalidStatus as refused:
            raise _handshake_error(refused, self._was_connected) from refused
        except ConnectionClosed as closed:
            if closed.rcvd is not None and closed.rcvd.code in (GOING_AWAY, RESTARTING):
                return True
            raise _close_error(closed) from closed
        except (InvalidURI, InvalidHandshake, WebSocketException, OSError, TimeoutError, EOFError) as fault:
            text = str(fault).rstrip(". ") or type(fault).__name__
            raise Unreachable(f"The coordinator {self._address.url} cannot be reached ({text}).") from fault
        finally:
            self._socket = None

    async def _handshake(self, socket: ClientConnection) -> None:
        await socket.send(self._init.to_wire())
        async with asyncio.timeout(WELCOME_TIMEOUT_S):
            welcome = parse_coordinator_message(await socket.recv())
        if not isinstance(welcome, WelcomeMessage):
            raise Unreachable("The coordinator sent no welcome.")
        self._welcomed(welcome)
        self._urgent.clear()
        self._bulk.clear()
        with self._state_changed:
            self._is_connected = self._was_connected = True
            self._connected_since_ms = monotonic_ms()
            self._failures = 0
            self._state_changed.notify_all()

    async def _exchange(self, socket: ClientConnection, stopping: asyncio.Future[Any]) -> None:
        """Carry requests and answers until the connection breaks or is closed."""
        sender = asyncio.ensure_future(self._send_queued(socket))
        receiver = asyncio.ensure_future(self._receive_answers(socket))
        try:
            await asyncio.wait({sender, receiver, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in (receiver, sender):
                if task.done():
                    task.result()
        finally:
            for task in (receiver, sender):
                task.cancel()
            await asyncio.gather(receiver, sender, return_exceptions=True)

    async def _send_queued(self, socket: ClientConnection) -> None:
        while True:
            while self._urgent or self._bulk:
                await socket.send((self._urgent or self._bulk).popleft())
            await self._send_wakeup.wait()
            self._send_wakeup.clear()

    async def _receive_answers(self, socket: ClientConnection) -> None:
        while True:
            match parse_coordinator_message(await socket.recv()):
                case AnswerMessage(id=number, reply=reply):
                    if (future := self._pending.pop(number, None)) is not None:
                        future.set_result(reply)
                case RefusalMessage() as refusal:
                    if (future := self._pending.pop(refusal.id, None)) is not None:
                        future.set_exception(refusal_to_error(refusal))
                case _:
                    raise Unreachable("The coordinator sent an unexpected message.")

    def _set_disconnected(self, error: AgentqError) -> None:
        with self._state_changed:
            was_up, self._is_connected = self._is_connected, False
            self._failures += 1
            if isinstance(error, Unreachable):
                self._last_error = error
            else:
                self._refusal = error
            pending, self._pending = list(self._pending.values()), {}
            self._state_changed.notify_all()
        for future in pending:
            if not future.done():
                future.set_exception(error)
        if was_up:
            self._on_broken()


class _NoRedirectConnect(connect):
    """Follows no redirects: a token is for one address."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


def _handshake_error(refused: InvalidStatus, was_up: bool) -> AgentqError:
    """The error for an HTTP answer instead of a WebSocket."""
    status, body = refused.response.status_code, bytes(refused.response.body or b"")[:500].decode(errors="replace")
    if status in (401, 403):
        return NotAllowed(f"The coordinator does not let this worker in ({status}): {_error_detail(body)}")
    if status in (301, 302, 307, 308):
        return Invalid(f"The coordinator has moved to {refused.response.headers.get('Location', 'another address')}.")
    if status in (400, 404, 405) and not was_up:
        return Invalid(f"There is no coordinator for workers at that address ({status}); check it.")
    return Unreachable(f"The coordinator answers {status} at the moment.")


def _error_detail(body: str) -> str:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return "check its token, and the address."


def _close_error(closed: ConnectionClosed) -> AgentqError:
    """The error for a connection that the coordinator closed."""
    code, reason = (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd is not None else (1006, "")
    if code == FORBIDDEN:
        return NotAllowed(reason or "The coordinator does not let this worker in.")
    if code == WRONG_PROTOCOL:
        return Incompatible(reason or f"The coordinator does not speak version {PROTOCOL_VERSION} of the protocol.")
    if code == BAD_MESSAGE:
        return Incompatible(f"The coordinator does not understand this worker: {reason}")
    return Unreachable(f"The coordinator has closed the connection ({code}{f': {reason}' if reason else ''}).")
