"""The run's own door: a socket on which an agent may use agentq for its own run and its children, and nothing else.

1. A run that is let in is given the path of the socket and a token of its own, made for this attempt; only the token's
   hash is kept, and only while the attempt goes on. The address of the server is never told.
2. Whoever knocks says which run it is and shows the token, then asks for one thing (`requests.py`), and is answered.
3. Everything is bounded: how many may knock, how long they may take, how much they may say. Whoever is too many is told
   so at once, and nobody who is slow or silent keeps others out for long.

The socket is in a folder that nobody but the worker's user can enter. Who is the same user is not kept out by that:
against such programs only a sandbox helps.
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
from agentq.worker.run_api.result_channel import ProgressFields as Told
from agentq.worker.run_api.result_channel import parse_progress

SOCKET_VARIABLE, TOKEN_VARIABLE = "AGENTQ_DOOR", "AGENTQ_TOKEN"
TOKEN_BYTES = 32
GREETING_BYTES = 1 << 10
REQUEST_BYTES = PROMPT_BYTES + STDIN_BYTES
READ_BYTES = 64 << 10
GREETING_S = 5.0
REQUEST_S = 30.0
"""How long they may take to say it, and to take the answer."""
UNAUTHENTICATED_MAX = 64
"""Who has not said yet who it is, at a time."""
RUN_REQUESTS_MAX = 16
"""How many one run may have open at a time."""
THREADS = 4
PATH_BYTES_MAX = 100
"""What the name of a socket may have, with some to spare."""

T = TypeVar("T")


@dataclass(eq=False)
class AdmittedAttempt:
    """An attempt that was let in."""

    asker: RequestHandler
    digest: bytes
    told: Callable[[Told], None]
    asking: set[asyncio.Task[Any]] = field(default_factory=set)


class AgentSocket:
    """See above. Lives on the worker's event loop; opens when the first is let in."""

    def __init__(self, kin: WorkerChildren, folder: Path) -> None:
        self._kin = kin
        self._folder = folder
        self._own_folder: str | None = None
        self._path: Path | None = None
        self._server: asyncio.Server | None = None
        self._opening = asyncio.Lock()
        self._guests: dict[str, AdmittedAttempt] = {}
        self._knocking = 0
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="agentq-door")

    async def admit(self, claim: Claim, spec: RunSpec, told: Callable[[Told], None]) -> dict[str, str]:
        """Let an attempt in; what its process is to have in its environment. `told` hears of its progress."""
        async with self._opening:
            if self._server is None:
                await self._open()
        token = f"aqr_{secrets.token_urlsafe(TOKEN_BYTES)}"
        self.leave(claim)
        self._guests[claim.id] = AdmittedAttempt(RequestHandler(self._kin, claim, spec), _digest_token(token), told)
        return {SOCKET_VARIABLE: str(self._path), TOKEN_VARIABLE: token}

    def leave(self, claim: Claim) -> None:
        """An attempt is over: its token opens nothing any more, and what it still asks is not answered."""
        guest = self._guests.get(claim.id)
        if guest is not None and guest.asker.claim.fence == claim.fence:
            del self._guests[claim.id]
            for task in guest.asking:
                task.cancel()

    async def close(self) -> None:
        """Let nobody in any more."""
        for guest in list(self._guests.values()):
            self.leave(guest.asker.claim)
        if self._server is not None:
            self._server.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        if self._own_folder is not None:
            shutil.rmtree(self._own_folder, ignore_errors=True)
        await asyncio.to_thread(self._kin.close)
        self._threads.shutdown(wait=False)

    async def _open(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_stale_sockets(self._folder)
        path = self._folder / f"{os.getpid()}-{new_nonce()}"
        if len(os.fsencode(path)) > PATH_BYTES_MAX:
            self._own_folder = tempfile.mkdtemp(prefix="agentq-")
            path = Path(self._own_folder, "door")
        self._server = await asyncio.start_unix_server(self._serve, path, limit=READ_BYTES, backlog=UNAUTHENTICATED_MAX)
        path.chmod(0o600)
        self._path = path

    # ---- serving

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = to_json({"ok": True, **await self._heard(reader)})
        except AgentqError as error:
            answer = to_json({"ok": False, "error": _format_error(error), "code": error.exit_code})
        except (OSError, asyncio.CancelledError):
            answer = b""  # it went away, or its attempt is over
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

    async def _heard(self, reader: asyncio.StreamReader) -> dict[str, Any]:
        if self._knocking >= UNAUTHENTICATED_MAX:
            raise TryLater("Too many knock at this door at the moment; try again.")
        self._knocking += 1
        try:
            guest, rest = await self._recognized(reader)
        finally:
            self._knocking -= 1
        if len(guest.asking) >= RUN_REQUESTS_MAX:
            raise TryLater(
                f"This run asks for {RUN_REQUESTS_MAX} things at the same time, which is the most; try again."
            )
        task = asyncio.current_task()
        assert task is not None
        guest.asking.add(task)
        try:
            line, _ = await _read_line(reader, REQUEST_BYTES, REQUEST_S, rest)
            return await self._answer(guest, parse_request(line), reader)
        finally:
            guest.asking.discard(task)

    async def _recognized(self, reader: asyncio.StreamReader) -> tuple[AdmittedAttempt, bytes]:
        """Who knocks. A run that is not here and a wrong token are the same to whoever tries."""
        line, rest = await _read_line(reader, GREETING_BYTES, GREETING_S)
        try:
            said = from_json(line)
        except ValueError:
            said = None
        run, token = (said.get("run"), said.get("token")) if isinstance(said, dict) else (None, None)
        if not isinstance(run, str) or not isinstance(token, str):
            raise Invalid('The first line is {"run": ID, "token": TOKEN}.')
        guest = self._guests.get(run)
        if not hmac.compare_digest(_digest_token(token), guest.digest if guest else bytes(32)) or guest is None:
            raise NotAllowed("This token opens nothing here: it is not that of a run that this worker has now.")
        return guest, rest

    async def _answer(
        self, guest: AdmittedAttempt, request: AgentRequest, reader: asyncio.StreamReader
    ) -> dict[str, Any]:
        asker = guest.asker
        match request:
            case SubmitChildRequest():
                return await self._in_thread(lambda: asker.submit(request))
            case ShowRunRequest():
                run = await self._in_thread(lambda: asker.show(request))
                return {"run": run.model_dump(mode="json", by_alias=True)}
            case WaitRunRequest():
                run = await self._ended(asker, request, reader)
                return {"run": run.model_dump(mode="json", by_alias=True)}
            case ReadLogRequest():
                return await self._in_thread(lambda: asker.logs(request))
            case CancelChildRequest():
                return await self._in_thread(lambda: asker.cancel(request))
            case ReportProgressRequest():
                progress = parse_progress(to_json(request.progress))
                if progress is None:
                    raise Invalid("Progress is an object with any of done, of, fraction and note.")
                guest.told(progress)
                return {}

    async def _ended(self, asker: RequestHandler, request: WaitRunRequest, reader: asyncio.StreamReader) -> RunRecord:
        """The run, once it has ended; nobody's thread waits for that. Whoever asked and goes away does not wait."""
        deadline_ms = monotonic_ms() + request.timeout_ms
        kin, bell = self._kin, _ThreadSignal()
        await self._in_thread(lambda: kin.enter(asker.claim, request.run, bell))
        gone = asyncio.ensure_future(reader.read(1))
        try:
            while True:
                run = await self._in_thread(lambda: asker.show(request))
                if run.state in TERMINAL_STATES:
                    return run
                left_ms = deadline_ms - monotonic_ms()
                if left_ms <= 0:
                    raise WaitTimedOut(f"The run {run.id} has not ended in time; it is {run.state}.")
                rung = asyncio.ensure_future(bell.rung.wait())
                await asyncio.wait({rung, gone}, timeout=left_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
                rung.cancel()
                if gone.done():
                    raise ConnectionAbortedError
                bell.rung.clear()
        finally:
            gone.cancel()
            kin.leave(request.run, bell)

    def _in_thread(self, ask: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, ask)


class _ThreadSignal:
    """Rung in a thread, heard on the loop."""

    def __init__(self) -> None:
        self.rung = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def set(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.rung.set)


async def _read_line(
    reader: asyncio.StreamReader, most: int, within_s: float, begun: bytes = b""
) -> tuple[bytes, bytes]:
    """A line, and what came with it of the next."""
    said = bytearray(begun)
    try:
        async with asyncio.timeout(within_s):
            while b"\n" not in said[-READ_BYTES:] and len(said) <= most:
                piece = await reader.read(READ_BYTES)
                if not piece:
                    break
                said += piece
    except TimeoutError:
        raise TryLater(f"It took longer than {within_s:g} s to say that.") from None
    line, _, rest = bytes(said).partition(b"\n")
    if len(line) > most:
        raise Invalid(f"A line has {most} bytes at the most here.")
    return line, rest


def _format_error(error: AgentqError) -> str:
    """What went wrong, without the address of the server, which is not told here."""
    told = str(error)
    if not isinstance(error, Unreachable) and not told.startswith("The server "):
        return told
    later = isinstance(error, Unreachable | TryLater)
    return "The server cannot do that at the moment; try again." if later else "The server does not do that."


def _digest_token(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _remove_stale_sockets(folder: Path) -> None:
    """Take away the sockets of workers that were killed: nobody answers there."""
    for path in folder.iterdir():
        with socket.socket(socket.AF_UNIX) as knocking:
            knocking.settimeout(1)
            try:
                knocking.connect(os.fspath(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except OSError:
                continue  # it is busy, or no socket
