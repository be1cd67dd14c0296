"""Measures the HTTP server for `agentq bench`: beside a bare one of the same framework that does one XADD a request.

Both are processes of their own, asked by the same clients in turn. And how long a runner waits for its run while very
many wait in vain and many follow what happens; and whether the server grows meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any, TypeVar

from agentq.bench.throughput import BenchFigure, BenchNamespace, CoreBench, CoreScale, median_ratio, process_environment
from agentq.coordinator.clock import monotonic_ns
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import AgentqError

BARE_SERVER_SOURCE = """
import sys, redis.asyncio, uvicorn
from fastapi import FastAPI
app, client = FastAPI(), redis.asyncio.Redis.from_url(sys.argv[1])
@app.post("/runs", status_code=201)
async def submit(run: dict):
    entry = await client.xadd(sys.argv[2], {"run": run["argv"][0]})
    return {"id": entry.decode()}
class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        print("serving at http://127.0.0.1:%d;" % port, file=sys.stderr, flush=True)
Server(uvicorn.Config(app, port=0, access_log=False, log_level="warning", http="httptools")).run()
"""
"""A minimal server of the same framework, for comparison."""
COMMAND_BODY = json.dumps({"kind": "command", "argv": ["true"]}).encode()
DIALECT_BODY = json.dumps({"type": "start_session", "prompt": "do it"}).encode()
WARMUP_S = 5
LATE_RUNS_TIMEOUT_S = 30
"""How long to wait for runs that no runner has yet, when the last has been asked for."""
GROWTH_MAX_MIB = 16

Measured = TypeVar("Measured")


@dataclass(frozen=True, slots=True)
class ServerScale:
    """How much of everything."""

    rounds: int = 5
    requests: int = 4_000
    clients: int = 32
    """That ask at the same time; in turn they are runners."""
    cycles: int = 2_000
    pollers: int = 2_000
    followers: int = 500
    probes: int = 240
    probe_ms: int = 500


SERVER_QUICK = ServerScale(
    rounds=1, requests=200, clients=8, cycles=40, pollers=20, followers=5, probes=10, probe_ms=20
)


_open_writers: set[asyncio.StreamWriter] = set()
"""The connections of callers."""


async def _close_callers(measured: Awaitable[Measured]) -> Measured:
    """What was measured, when all callers have hung up."""
    try:
        return await measured
    finally:
        for writer in _open_writers:
            writer.close()
        _open_writers.clear()
        await asyncio.sleep(0)


class HttpCaller:
    """One connection of a client, which asks one thing after the other."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """The status, and the body; over the same connection each time."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            _open_writers.add(self._streams[1])
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        told = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", told)
        answer = await reader.readexactly(int(length[1])) if length else b""
        return int(told[9:12]), answer

    async def ask_ok(self, method: str, path: str, body: bytes = b"") -> Any:
        """The answer, which has to be good."""
        status, answer = await self.ask(method, path, body)
        if status >= 300:
            raise AgentqError(f"{method} {path} was answered {status}: {answer[:300].decode(errors='replace')}")
        return json.loads(answer) if answer else None

    async def follow(self, path: str, heard: Callable[[int], None]) -> None:
        """Read what has no end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
        _open_writers.add(writer)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode())
        while piece := await reader.read(1 << 16):
            heard(len(piece))


class ServerBench(CoreBench):
    """The same store and namespace as the core's bench, with servers before it."""

    def __init__(self, place: BenchNamespace, scale: ServerScale, serve: tuple[str, ...], folder: Path) -> None:
        super().__init__(place, CoreScale())
        self.much = scale
        self.serve = serve
        """The words that start a server of ours."""
        self.folder = folder

    def figures(self) -> Iterator[BenchFigure]:
        """Every figure, one after the other."""
        _allow_many_files()
        with self._ours() as (ours, _), self._bare() as (bare, _):
            costs = self._in_turn({ours: self._submits, bare: self._submits})
            yield self._figure("submit over HTTP, requests a second", costs[bare], costs[ours], 1)
        with self._ours() as (ours, _), self._bare() as (bare, _):
            costs = self._in_turn({ours: self._cycles, bare: self._submits})
            yield self._figure("poll, claim, complete, requests a second", costs[bare], costs[ours], 3)
        with self._ours() as (port, process):
            yield from asyncio.run(_close_callers(self._crowd(port, process)))
        self.place.clear()
        self.connection.close()

    def _figure(self, name: str, bare: list[float], ours: list[float], each: int) -> BenchFigure:
        """Of seconds for each request, the rates."""
        found = f"{1 / median(ours):,.0f}/s, bare FastAPI with one XADD {1 / median(bare):,.0f}/s"
        found += f"; {1 / median(ours) / each:,.0f} runs/s" if each > 1 else ""
        return BenchFigure(name, found, median_ratio(bare, ours), least=0.6)

    def _in_turn(self, measures: Mapping[int, Callable[[int], Coroutine[Any, Any, float]]]) -> dict[int, list[float]]:
        """Seconds for each request, by port, in rounds."""
        costs: dict[int, list[float]] = {port: [] for port in measures}
        for port, measure in measures.items():
            asyncio.run(_close_callers(measure(port)))  # the first round warms up
        for _ in range(self.much.rounds):
            for port, measure in measures.items():
                costs[port].append(asyncio.run(_close_callers(measure(port))))
        return costs

    async def _submits(self, port: int) -> float:
        left = iter(range(self.much.requests))

        async def submit() -> None:
            caller = HttpCaller(port)
            for _ in left:
                await caller.ask_ok("POST", "/runs", COMMAND_BODY)

        started = _monotonic_s()
        await asyncio.gather(*(submit() for _ in range(self.much.clients)))
        return (_monotonic_s() - started) / self.much.requests

    async def _cycles(self, port: int) -> float:
        """Runners that each take one run after the other, of those that are there."""
        client = HttpCaller(port)
        for _ in range(self.much.cycles):
            await client.ask_ok("POST", "/runs", DIALECT_BODY)
        left = iter(range(self.much.cycles))
        runners = [await _DialectRunner(HttpCaller(port)).register() for _ in range(self.much.clients)]

        async def work(runner: _DialectRunner) -> None:
            for _ in left:
                await runner.complete(await runner.poll())

        started = _monotonic_s()
        await asyncio.gather(*map(work, runners))
        return (_monotonic_s() - started) / self.much.cycles / 3

    async def _crowd(self, port: int, process: subprocess.Popen[bytes]) -> list[BenchFigure]:
        """Very many that wait, and one run now and then: how long until its runner has it, and what that costs."""
        heard, grown = [0], list[int]()
        runners = [await _DialectRunner(HttpCaller(port)).register() for _ in range(self.much.pollers)]
        asked_at: dict[str, float] = {}
        came_at: dict[str, float] = {}
        all_came = asyncio.Event()

        async def wait(runner: _DialectRunner) -> None:
            while True:
                run = await runner.poll()
                came_at[run] = _monotonic_s()
                if len(came_at) == self.much.probes:
                    all_came.set()
                await runner.complete(run)

        def hear(size: int) -> None:
            heard[0] += size

        tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(wait(runner)) for runner in runners]
        tasks += [asyncio.ensure_future(HttpCaller(port).follow("/events", hear)) for _ in range(self.much.followers)]
        await asyncio.sleep(min(WARMUP_S, self.much.probes * self.much.probe_ms / 1000))
        client = HttpCaller(port)
        for number in range(self.much.probes):
            asked = _monotonic_s()
            # A runner may have the run before the answer is here, and the next one may be asked for before that.
            asked_at[(await client.ask_ok("POST", "/runs", DIALECT_BODY))["run_id"]] = asked
            await asyncio.sleep(self.much.probe_ms / 1000)
            if number * 8 >= self.much.probes:
                grown.append(_resident_bytes(process.pid))
        tasks.append(asyncio.ensure_future(all_came.wait()))
        await asyncio.wait(tasks, timeout=LATE_RUNS_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        for each in ended:
            if isinstance(each, Exception):
                raise each
        return self._figures([at - asked_at[run] for run, at in came_at.items()], grown, heard[0])

    def _figures(self, took: list[float], grown: list[int], heard: int) -> list[BenchFigure]:
        if len(took) < self.much.probes:
            raise AgentqError(f"Of {self.much.probes} runs, {len(took)} came to a runner.")
        many = f"{self.much.pollers:,} waiting runners, {self.much.followers:,} that follow all events"
        p99 = quantiles(took, n=100)[98] * 1e3
        quarter = max(1, len(grown) // 4)
        before, after = median(grown[:quarter]), median(grown[-quarter:])
        seconds = self.much.probes * self.much.probe_ms / 1000
        found = f"{many}, {heard / (1 << 20):,.1f} MiB of events; p50 {median(took) * 1e3:.1f} ms"
        size = f"{after / (1 << 20):,.0f} MiB, after {seconds:.0f} s of that"
        return [
            BenchFigure("submit to a waiting runner, p99", found, p99, "ms", most=50),
            BenchFigure(
                "memory that the server has grown by", size, (after - before) / (1 << 20), "MiB", most=GROWTH_MAX_MIB
            ),
        ]

    # ---- the processes

    @contextmanager
    def _ours(self) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
        settings = Settings(url=self.place.url, namespace=self.place.namespace)
        variables = process_environment(settings, self.folder) | {"AGENTQ_SERVER_LOG_LEVEL": "warning"}
        with start_server((*self.serve, "--port", "0"), variables) as found:
            yield found

    @contextmanager
    def _bare(self) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
        argv = (sys.executable, "-c", BARE_SERVER_SOURCE, self.place.url, self.place.key("raw"))
        with start_server(argv, dict(os.environ)) as found:
            yield found


class _DialectRunner:
    """A runner of the oldest kind."""

    def __init__(self, caller: HttpCaller) -> None:
        self.caller = caller
        self.id = ""

    async def register(self) -> _DialectRunner:
        self.id = (await self.caller.ask_ok("POST", "/runner/register", b"{}"))["runner_id"]
        return self

    async def poll(self) -> str:
        """The id of the next run, however long it takes."""
        while True:
            told = await self.caller.ask_ok("GET", f"/runner/runs?runner_id={self.id}")
            if told is not None:
                return str(told["run"]["run_id"])

    async def complete(self, run: str) -> None:
        body = json.dumps({"runner_id": self.id, "status": "success"}).encode()
        for verb in ("started", "completed"):
            await self.caller.ask_ok("POST", f"/runner/runs/{run}/{verb}", body)


@contextmanager
def start_server(argv: tuple[str, ...], variables: Mapping[str, str]) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A server process, once it has said where it listens."""
    process = subprocess.Popen(argv, env=variables, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    try:
        said = b""
        while not (found := re.search(rb"serving at http://127\.0\.0\.1:(\d+)", said)):
            line = process.stderr.readline()
            said += line
            if not line:
                raise AgentqError(f"The server did not start: {said.decode(errors='replace')[-500:]}")
        yield int(found[1]), process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def _monotonic_s() -> float:
    """Seconds on a clock that never jumps."""
    return monotonic_ns() / 1e9


def _resident_bytes(pid: int) -> int:
    """Bytes of memory that a process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def _allow_many_files() -> None:
    """Each client is a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 10_000)), hard))
