"""What a worker costs, beside what the machine and the server can do at best, for `agentq bench`.

The worker is a process like any other; the bare loops that it is compared with run in turn with it, so that what
disturbs one disturbs both. The many idle workers are seats, hundreds in a process; see `idle_workers`.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

from agentq.bench.throughput import BenchFigure, BenchNamespace, process_environment
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.model.lifecycle import TERMINAL_STATES, State
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.end_waiter import RunEndWaiter
from agentq.coordinator.runs.logs import Logs
from agentq.coordinator.runs.queries import RunQueries
from agentq.coordinator.runs.verbs import RunVerbs

BENCH_SLOTS = 8
SPAWN_WIDTHS = (2, 4, 8, 16)
WAIT_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class WorkerScale:
    """How much of everything."""

    pings: int = 200
    bulk: int = 1_500
    settle_s: float = 3
    idle_s: float = 30
    seats: int = 1_000
    processes: int = 4
    submits: int = 20


WORKER_QUICK = WorkerScale(pings=20, bulk=100, settle_s=0.5, idle_s=1, seats=40, processes=2, submits=5)


class WorkerBench:
    """One server, and workers on it. `command` runs a worker with the settings in its environment."""

    def __init__(self, place: BenchNamespace, scale: WorkerScale, command: Sequence[str], folder: Path) -> None:
        self.place = place
        self.scale = scale
        self.command = command
        self.folder = folder
        self.settings = Settings(url=place.url, namespace=place.namespace)
        self.queue = RunVerbs.open(self.settings)
        self.connection = self.queue.store.connection
        self.records = RunQueries(self.queue.store)

    def figures(self) -> Iterator[BenchFigure]:
        """Every figure, one after the other."""
        yield from self.latency()
        yield self.rate()
        yield from self.idle()
        yield from self.crowd()
        self.connection.close()

    def latency(self) -> Iterator[BenchFigure]:
        """From submit to the first line of output, with the worker idle, against a bare wake-up plus a bare spawn.

        Both programs write the line to a fifo that the bench reads; a second measure follows it in the run's log.
        """
        ours, bare, told = [], [], []
        with self.worker(1), _open_fifo(self.folder / "line") as fifo:
            self._first_line()
            for _ in range(self.scale.pings):
                bare.append(self.wake_up() + _time_bare_spawn(fifo))
                ours.append(self._first_output(fifo))
                told.append(self._first_line())
        wanted = median(bare)
        found = f"{median(ours) * 1e3:.2f} ms, bare wake-up + spawn {wanted * 1e3:.2f} ms"
        yield BenchFigure("submit → first line, p50", found, median(ours) / wanted, most=1.5)
        found = f"{median(told) * 1e3:.2f} ms, bare wake-up + spawn {wanted * 1e3:.2f} ms"
        yield BenchFigure("submit → first line in `logs -f`, p50", found, median(told) / wanted, most=3)
        ours99, bare99 = quantiles(ours, n=100)[98], quantiles(bare, n=100)[98]
        found = f"{ours99 * 1e3:.2f} ms, bare p50 {wanted * 1e3:.2f} ms, bare p99 {bare99 * 1e3:.2f} ms"
        yield BenchFigure("submit → first line, p99 to bare p50", found, ours99 / wanted, most=3)

    @contextmanager
    def first_lines(self) -> Iterator[Callable[[], float]]:
        """With one worker: how long a submit takes until the program has written its line."""
        with self.worker(1), _open_fifo(self.folder / "line") as fifo:
            yield lambda: self._first_output(fifo)

    def _first_output(self, fifo: StartFifo) -> float:
        """Seconds from before the submit until the program has written its line."""
        started = perf_counter()
        run = self.queue.submit(RunSpec(kind="command", argv=fifo.argv)).id
        fifo.line()
        took = perf_counter() - started
        wait_until(lambda: self.records.get(run).state in TERMINAL_STATES, "a run to end")
        return took

    def _first_line(self) -> float:
        """Seconds from before the submit until the line is in the run's log."""
        with closing(Logs(self.queue.store)) as reader:
            started = perf_counter()
            run = self.queue.submit(RunSpec(kind="command", argv=("echo", "hello"))).id
            next(line for line in reader.follow(run) if "hello" in line.text)
            took = perf_counter() - started
        wait_until(lambda: self.records.get(run).state in TERMINAL_STATES, "a run to end")
        return took

    def wake_up(self) -> float:
        """Seconds from an XADD until a blocked XREADGROUP of another connection has it."""
        key = self.place.key("bare")
        self.connection.command("DEL", key)
        self.connection.command("XGROUP", "CREATE", key, "bare", "0", "MKSTREAM")
        reader = self.connection.another()
        got = list[float]()

        def read() -> None:
            reader.block("XREADGROUP", "GROUP", "bare", "c", "BLOCK", 5000, "STREAMS", key, ">", timeout_ms=5000)
            got.append(perf_counter())

        blocked = self._blocked()
        thread = threading.Thread(target=read)
        thread.start()
        wait_until(lambda: self._blocked() > blocked, "a read to block", pause_s=0.001)
        started = perf_counter()
        self.connection.command("XADD", key, "*", "run", "x")
        thread.join()
        reader.close()
        return got[0] - started

    def _blocked(self) -> int:
        return int(self.place.raw.info("clients")["blocked_clients"])

    def rate(self) -> BenchFigure:
        """`true` in a row: one worker against a bare asyncio loop at its best concurrency, each at its best of two."""
        ours, bare = 0.0, 0.0
        with self.worker(BENCH_SLOTS), closing(RunEndWaiter(self.queue.store)) as outcomes:
            for _ in range(2):
                bare = max(bare, *(asyncio.run(_measure_bare_rate(wide, self.scale.bulk)) for wide in SPAWN_WIDTHS))
                started = perf_counter()
                specs = (RunSpec(kind="command", argv=("true",)) for _ in range(self.scale.bulk))
                ids = [receipt.id for receipt in self.queue.submit_many(specs)]
                outcomes.wait_all(ids, 120_000)
                ours = max(ours, self.scale.bulk / (perf_counter() - started))
        return BenchFigure("`true` in a row", f"{ours:,.0f} runs/s, bare {bare:,.0f} /s", ours / bare, least=0.8)

    def idle(self) -> Iterator[BenchFigure]:
        """What a worker with nothing to do sends and uses."""
        with self.worker(BENCH_SLOTS) as worker:
            threading.Event().wait(self.scale.settle_s)
            cpu = read_cpu_s(worker.pid)
            calls = self._calls_a_second()
            used, resident = read_cpu_s(worker.pid) - cpu, read_resident_bytes(worker.pid)
        span = f"in {self.scale.idle_s:g} s"
        yield BenchFigure("idle worker, commands sent", span, calls, "/s", most=1)
        yield BenchFigure("idle worker, CPU", span, 100 * used / self.scale.idle_s, "%", most=0.2)
        yield BenchFigure("idle worker, resident memory", f"{BENCH_SLOTS} slots", resident / 2**20, "MiB", most=60)

    def crowd(self) -> Iterator[BenchFigure]:
        """What many workers with nothing to do send, and how many of them a submit wakes."""
        seats, submits = self.scale.seats, self.scale.submits
        with self._seated() as woken:
            self._one_run()  # which opens the lane, and all hear of that
            threading.Event().wait(self.scale.settle_s)
            calls = self._calls_a_second()
            known = woken.qsize()
            for _ in range(submits):
                self._one_run()
            threading.Event().wait(self.scale.settle_s)
            each = (woken.qsize() - known) / submits
        found = f"in {self.scale.idle_s:g} s, as seats in {self.scale.processes} processes"
        yield BenchFigure(f"{seats:,} idle workers, commands sent", found, calls, "/s", most=float(seats))
        yield BenchFigure(f"{seats:,} idle workers, woken by a submit", f"{submits} submits", each, most=1)

    def _one_run(self) -> None:
        run = self.queue.submit(RunSpec(kind="command", argv=("true",))).id
        wait_until(lambda: self.records.get(run).state in TERMINAL_STATES, "a run to end")

    def _calls_a_second(self) -> float:
        """What clients sent meanwhile: the server's count of reads from their sockets, a command each here."""
        before = self._reads()
        threading.Event().wait(self.scale.idle_s)
        return (self._reads() - before - 1) / self.scale.idle_s

    def _reads(self) -> int:
        return int(self.place.raw.info("stats")["total_reads_processed"])

    @contextmanager
    def worker(self, slots: int) -> Iterator[subprocess.Popen[bytes]]:
        """A worker process, registered."""
        argv, variables = [*self.command, "--slots", str(slots)], process_environment(self.settings, self.folder)
        said = self.folder / "worker"
        with said.open("wb") as file:
            process = subprocess.Popen(argv, env=variables, stdin=subprocess.DEVNULL, stderr=file)
        try:
            wait_until(lambda: process.poll() is not None or bool(self.records.workers()), "a worker to register")
            if process.poll() is not None:
                raise AgentqError(f"A worker ended at once: {said.read_text(errors='replace').strip()}")
            yield process
            process.terminate()
            process.wait(WAIT_TIMEOUT_S)
            wait_until(lambda: not self.records.count([State.RUNNING]), "runs to end")
        finally:
            process.kill()
            process.wait()

    @contextmanager
    def _seated(self) -> Iterator[queue.SimpleQueue[str]]:
        """Very many idle workers; the queue gets the name of each that is woken."""
        woken, ready = queue.SimpleQueue[str](), threading.Semaphore(0)

        def listen(process: subprocess.Popen[str]) -> None:
            assert process.stdout is not None
            for line in process.stdout:
                if line == "ready\n":
                    ready.release()
                else:
                    woken.put(line)

        with ExitStack() as stack:
            for number in range(self.scale.processes):
                names = [f"seat-{seat}" for seat in range(number, self.scale.seats, self.scale.processes)]
                told = json.dumps({"settings": self.settings.model_dump(), "names": names})
                argv = [sys.executable, "-m", "agentq.bench.idle_workers", told]
                process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                stack.enter_context(process)
                listener = threading.Thread(target=listen, args=(process,))
                listener.start()
                stack.callback(listener.join)
                stack.callback(process.kill)
            for _ in range(self.scale.processes):
                if not ready.acquire(timeout=WAIT_TIMEOUT_S):
                    raise AgentqError(f"{self.scale.seats} idle workers did not get ready in {WAIT_TIMEOUT_S:.0f} s.")
            yield woken


@dataclass(frozen=True, slots=True)
class StartFifo:
    """The fifo to which each program writes its first line."""

    path: Path
    fd: int

    @property
    def argv(self) -> tuple[str, ...]:
        return ("dd", f"of={self.path}", "if=/proc/self/cmdline", "status=none", "conv=notrunc")

    def line(self) -> None:
        os.read(self.fd, 4096)


@contextmanager
def _open_fifo(path: Path) -> Iterator[StartFifo]:
    os.mkfifo(path)
    fd = os.open(path, os.O_RDWR)
    try:
        yield StartFifo(path, fd)
    finally:
        os.close(fd)
        path.unlink()


def _time_bare_spawn(fifo: StartFifo) -> float:
    """Seconds from before a spawn until its first line is read."""
    started = perf_counter()
    with subprocess.Popen(fifo.argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE):
        fifo.line()
        return perf_counter() - started


async def _measure_bare_rate(wide: int, bulk: int) -> float:
    """`true` a second from a bare asyncio loop that captures output, `wide` at a time."""
    rest = iter(range(bulk))

    async def spawn() -> None:
        for _ in rest:
            process = await asyncio.create_subprocess_exec(
                "true", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            await process.communicate()

    started = perf_counter()
    await asyncio.gather(*(spawn() for _ in range(wide)))
    return bulk / (perf_counter() - started)


def read_cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def wait_until(condition: Callable[[], bool], what: str, *, pause_s: float = 0.05) -> None:
    """Wait for something, PATIENCE_S at the longest."""
    deadline = perf_counter() + WAIT_TIMEOUT_S
    while not condition():
        if perf_counter() > deadline:
            raise AgentqError(f"Waited {WAIT_TIMEOUT_S:.0f} s for {what}.")
        threading.Event().wait(pause_s)
