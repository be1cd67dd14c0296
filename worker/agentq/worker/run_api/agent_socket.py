"""The agent socket: a Unix socket on which an agent uses agentq for its own run and its children, and nothing else.

1. An admitted run gets the path of the socket and a token for this attempt. Only the token's hash is kept, and only
   during the attempt. The server's address is never told.
2. A client names its run, shows the token, sends one request (`agent_requests.py`) and gets one answer.
3. Everything is bounded: the number of clients, their time, the size of requests. Excess clients are refused at once,
   and a slow or silent client does not block others for long.

Only the worker's user can enter the socket's folder. Other programs of that user are not kept out: that takes a
sandbox.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic_core import from_json, to_json

from agentq.coordinator.bounds import PROMPT_BYTES, STDIN_BYTES
from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError, Invalid, NotAllowed, TryLater, Unreachable, WaitTimedOut
from agentq.coordinator.model.ids import new_nonce
from agentq.coordinator.model.lifecycle import TERMINAL_STATES
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.children import WorkerChildren
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import Claim
from agentq.worker.run_api.agent_requests import (
    AgentRequest,
    CancelChildRequest,
    ReadLogRequest,
    ReportProgressRequest,
    RequestHandler,
    ShowRunRequest,
    SubmitChildRequest,
    WaitRunRequest,
    parse_request,
)
from agentq.worker.run_api.result_channel import ProgressFields, parse_progress

SOCKET_VARIABLE, TOKEN_VARIABLE = "AGENTQ_AGENT_SOCKET", "AGENTQ_TOKEN"
TOKEN_BYTES = 32
GREETING_BYTES = 1 << 10
REQUEST_BYTES = PROMPT_BYTES + STDIN_BYTES
READ_BYTES = 64 << 10
GREETING_S = 5.0
REQUEST_S = 30.0
"""How long a client may take to send its request, and to read the answer."""
UNAUTHENTICATED_MAX = 64
"""Clients that have not authenticated, at a time."""
RUN_REQUESTS_MAX = 16
"""Open requests of one run, at a time."""
THREADS = 4
PATH_BYTES_MAX = 100
"""Length limit of a socket's name, with a margin."""

T = TypeVar("T")


@dataclass(eq=False)
class AdmittedAttempt:
    """An attempt that may use the socket."""

    handler: RequestHandler
    digest: bytes
    on_progress: Callable[[ProgressFields], None]
    requests: set[asyncio.Task[Any]] = field(default_factory=set)


class AgentSocket:
    """Lives on the worker's event loop; opens with the first admitted attempt."""

    def __init__(self, children: WorkerChildren, folder: Path) -> None:
        self._children = children
        self._folder = folder
        self._temporary_folder: str | None = None
        self._path: Path | None = None
        self._server: asyncio.Server | None = None
        self._open_lock = asyncio.Lock()
        self._attempts: dict[str, AdmittedAttempt] = {}
        self._unauthenticated = 0
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="agentq-socket")

    async def admit(self, claim: Claim, spec: RunSpec, on_progress: Callable[[ProgressFields], None]) -> dict[str, str]:
        """Admit an attempt; returns the variables for its process. `on_progress` is called with its progress."""
        async with self._open_lock:
            if self._server is None:
                await self._open()
        token = f"aqr_{secrets.token_urlsafe(TOKEN_BYTES)}"
        self.revoke(claim)
        self._attempts[claim.id] = AdmittedAttempt(
            RequestHandler(self._children, claim, spec), _digest_token(token), on_progress
        )
        return {SOCKET_VARIABLE: str(self._path), TOKEN_VARIABLE: token}

    def revoke(self, claim: Claim) -> None:
        """An attempt has ended: its token becomes invalid, and its open requests are cancelled."""
        attempt = self._attempts.get(claim.id)
        if attempt is not None and attempt.handler.claim.fence == claim.fence:
            del self._attempts[claim.id]
            for task in attempt.requests:
                task.cancel()

    async def close(self) -> None:
        """Revoke all tokens and remove the socket."""
        for attempt in list(self._attempts.values()):
            self.revoke(attempt.handler.claim)
        if self._server is not None:
            self._server.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        if self._temporary_folder is not None:
            shutil.rmtree(self._temporary_folder, ignore_errors=True)
        await asyncio.to_thread(self._children.close)
        self._threads.shutdown(wait=False)

    async def _open(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_stale_sockets(self._folder)
        path = self._folder / f"{os.getpid()}-{new_nonce()}"
        if len(os.fsencode(path)) > PATH_BYTES_MAX:
            self._temporary_folder = tempfile.mkdtemp(prefix="agentq-")
            path = Path(self._temporary_folder, "socket")
        self._server = await asyncio.start_unix_server(self._serve, path, limit=READ_BYTES, backlog=UNAUTHENTICATED_MAX)
        path.chmod(0o600)
        self._path = path

    # ---- serving

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = to_json({"ok": True, **await self._handle_connection(reader)})
        except AgentqError as error:
            answer = to_json({"ok": False, "error": _format_error(error), "code": error.exit_code})
        except (OSError, asyncio.CancelledError):
            answer = b""  # the client disconnected, or its attempt has ended
        except BaseException:
            writer.close()
            raise
        try:
            writer.write(answer + b"\n" if answer else b"")
            async with asyncio.timeout(REQUEST_S):
                await writer.drain()
        except (OSError, TimeoutError):
            writer.transport.abort()
        finally:
            writer.close()

    async def _handle_connection(self, reader: asyncio.StreamReader) -> dict[str, Any]:
        if self._unauthenticated >= UNAUTHENTICATED_MAX:
            raise TryLater("Too many clients of this socket have not authenticated yet; try again.")
        self._unauthenticated += 1
        try:
            attempt, rest = await self._authenticate(reader)
        finally:
            self._unauthenticated -= 1
        if len(attempt.requests) >= RUN_REQUESTS_MAX:
            raise TryLater(f"This run has {RUN_REQUESTS_MAX} open requests, which is the limit; try again.")
        task = asyncio.current_task()
        assert task is not None
        attempt.requests.add(task)
        try:
            line, _ = await _read_line(reader, REQUEST_BYTES, REQUEST_S, rest)
            return await self._answer(attempt, parse_request(line), reader)
        finally:
            attempt.requests.discard(task)

    async def _authenticate(self, reader: asyncio.StreamReader) -> tuple[AdmittedAttempt, bytes]:
        """The attempt of this client. An unknown run and a wrong token get the same answer."""
        line, rest = await _read_line(reader, GREETING_BYTES, GREETING_S)
        try:
            greeting = from_json(line)
        except ValueError:
            greeting = None
        run, token = (greeting.get("run"), greeting.get("token")) if isinstance(greeting, dict) else (None, None)
        if not isinstance(run, str) or not isinstance(token, str):
            raise Invalid('The first line is {"run": ID, "token": TOKEN}.')
        attempt = self._attempts.get(run)
        if not hmac.compare_digest(_digest_token(token), attempt.digest if attempt else bytes(32)) or attempt is None:
            raise NotAllowed("This token is invalid: it belongs to no run that this worker holds now.")
        return attempt, rest

    async def _answer(
        self, attempt: AdmittedAttempt, request: AgentRequest, reader: asyncio.StreamReader
    ) -> dict[str, Any]:
        handler = attempt.handler
        match request:
            case SubmitChildRequest():
                return await self._in_thread(lambda: handler.submit(request))
            case ShowRunRequest():
                run = await self._in_thread(lambda: handler.show(request))
                return {"run": run.model_dump(mode="json", by_alias=True)}
            case WaitRunRequest():
                run = await self._wait_for_end(handler, request, reader)
                return {"run": run.model_dump(mode="json", by_alias=True)}
            case ReadLogRequest():
                return await self._in_thread(lambda: handler.logs(request))
            case CancelChildRequest():
                return await self._in_thread(lambda: handler.cancel(request))
            case ReportProgressRequest():
                progress = parse_progress(to_json(request.progress))
                if progress is None:
                    raise Invalid("Progress is an object with any of done, of, fraction and note.")
                attempt.on_progress(progress)
                return {}

    async def _wait_for_end(
        self, handler: RequestHandler, request: WaitRunRequest, reader: asyncio.StreamReader
    ) -> RunRecord:
        """Wait until the run has ended, without blocking a thread. Cancels the wait when the client disconnects."""
        deadline_ms = monotonic_ms() + request.timeout_ms
        children, signal = self._children, _ThreadSignal()
        await self._in_thread(lambda: children.enter(handler.claim, request.run, signal))
        disconnected = asyncio.ensure_future(reader.read(1))
        try:
            while True:
                run = await self._in_thread(lambda: handler.show(request))
                if run.state in TERMINAL_STATES:
                    return run
                left_ms = deadline_ms - monotonic_ms()
                if left_ms <= 0:
                    raise WaitTimedOut(f"The run {run.id} has not ended in time; it is {run.state}.")
                changed = asyncio.ensure_future(signal.event.wait())
                await asyncio.wait({changed, disconnected}, timeout=left_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                if disconnected.done():
                    raise ConnectionAbortedError
                signal.event.clear()
        finally:
            disconnected.cancel()
            children.leave(request.run, signal)

    def _in_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, call)


class _ThreadSignal:
    """An event that is set in any thread and awaited on the loop."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def set(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.event.set)


async def _read_line(
    reader: asyncio.StreamReader, bytes_max: int, within_s: float, initial: bytes = b""
) -> tuple[bytes, bytes]:
    """A line, and the bytes received after it."""
    received = bytearray(initial)
    try:
        async with asyncio.timeout(within_s):
            while b"\n" not in received[-READ_BYTES:] and len(received) <= bytes_max:
                piece = await reader.read(READ_BYTES)
                if not piece:
                    break
                received += piece
    except TimeoutError:
        raise TryLater(f"The line took longer than {within_s:g} s to arrive.") from None
    line, _, rest = bytes(received).partition(b"\n")
    if len(line) > bytes_max:
        raise Invalid(f"A line is longer than {bytes_max} bytes, which is the limit.")
    return line, rest


def _format_error(error: AgentqError) -> str:
    """The error without the address of the server, which is not told here."""
    message = str(error)
    if not isinstance(error, Unreachable) and not message.startswith("The server "):
        return message
    later = isinstance(error, Unreachable | TryLater)
    return "The server cannot do that at the moment; try again." if later else "The server does not do that."


def _digest_token(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _remove_stale_sockets(folder: Path) -> None:
    """Remove the sockets of killed workers."""
    for path in folder.iterdir():
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1)
            try:
                probe.connect(os.fspath(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except OSError:
                continue  # it is busy, or no socket
