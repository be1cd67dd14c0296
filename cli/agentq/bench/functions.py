"""What function runs cost, beside bare redis-py on the same server, for `agentq bench`.

One worker process drains what was submitted; the bare loop does the minimum with redis-py: it reads a
hundred entries at a time, stores a result for each, acknowledges and deletes them in one pipeline.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from agentq.bench.no_op_functions import MARK_FORMAT
from agentq.bench.throughput import BenchFigure, BenchNamespace, median_ratio, time_call
from agentq.bench.worker_throughput import WorkerBench, wait_until
from agentq.coordinator.clock import monotonic_ns
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.function_submitter import FunctionSubmitter

READ_COUNT = 100
RESULT_TTL_S = 600
HOLD_S = 2.0
FUNCTIONS_MODULE = "agentq.bench.no_op_functions"


@dataclass(frozen=True, slots=True)
class FunctionScale:
    """How much of everything."""

    rounds: int = 3
    bulk: int = 50_000
    singles: int = 2_000
    pings: int = 300
    depths: tuple[int, int] = (10_000, 1_000_000)
    window: int = 50_000
    """Runs drained at each depth, at the most."""
    kills: bool = True


FUNCTIONS_QUICK = FunctionScale(
    rounds=1, bulk=2_000, singles=100, pings=20, depths=(500, 4_000), window=500, kills=False
)


class FunctionBench:
    """One server, and one worker process on it."""

    def __init__(self, place: BenchNamespace, scale: FunctionScale, workers: WorkerBench) -> None:
        self.place = place
        self.scale = scale
        self.workers = workers
        self.queue = workers.queue
        self.raw: Any = place.raw
        self.raw.response_callbacks.pop("XREADGROUP", None)  # the reply as it came

    def figures(self) -> Iterator[BenchFigure]:
        """Every figure, one after the other."""
        yield from self.bulk()
        yield self.single()
        yield self.memory()
        yield self.latency()
        yield self.depth()
        if self.scale.kills:
            yield self.killed()

    def bulk(self) -> Iterator[BenchFigure]:
        runs, submit, drained, trips = self.scale.bulk, [], [], []
        raw_submit, raw_drained = [], []
        for _ in range(self.scale.rounds):
            self.place.clear()
            raw_submit.append(runs / time_call(lambda: self._fill_bare(runs)))
            raw_drained.append(runs / time_call(self._drain_bare))
            self.place.clear()
            submit.append(runs / time_call(lambda: self._fill(runs)))
            rate, reads = self._drain(runs)
            drained.append(rate)
            trips.append(reads)
        beside = f"bare pipelined XADD {median(raw_submit):,.0f} /s"
        yield BenchFigure(
            "bulk submit", f"{median(submit):,.0f} runs/s, {beside}", median_ratio(submit, raw_submit), least=0.4
        )
        beside = f"bare loop that stores results {median(raw_drained):,.0f} /s"
        found = f"{median(drained):,.0f} runs/s, {beside}"
        yield BenchFigure("no-op functions, one worker", found, median_ratio(drained, raw_drained), least=0.45)
        yield BenchFigure("round trips a hundred runs", f"{runs:,} runs", median(trips), most=3)

    def _fill(self, runs: int) -> None:
        calls = FunctionSubmitter(self.queue, RunSpec(kind="function", function=f"{FUNCTIONS_MODULE}:nothing"))
        for first in range(0, runs, 1000):
            calls.submit_many([f"[{number}]" for number in range(first, min(first + 1000, runs))])

    def _drain(self, runs: int) -> tuple[float, float]:
        """Let one worker drain that many pending runs; runs a second, and round trips per hundred."""
        with self.workers.worker(1):
            wait_until(lambda: self._ended() >= runs // 10, "the first tenth to end", pause_s=0.005)
            before, reads, started, looks = self._ended(), self._reads(), monotonic_ns(), 2

            def is_over() -> bool:
                nonlocal looks
                looks += 1
                return self._ended() >= runs

            wait_until(is_over, "the rest to end", pause_s=0.02)
            passed, ended = (monotonic_ns() - started) / 1e9, self._ended() - before
            return ended / passed, 100 * (self._reads() - reads - looks) / ended

    def _ended(self) -> int:
        return int(self.raw.zcard(self.place.key("index:default:completed")))

    def _reads(self) -> int:
        return int(self.raw.info("stats")["total_reads_processed"])

    def _fill_bare(self, runs: int) -> None:
        key = self.place.key("raw")
        self.raw.xgroup_create(key, "workers", "0", mkstream=True)
        for first in range(0, runs, 1000):
            pipe = self.raw.pipeline(transaction=False)
            for number in range(first, min(first + 1000, runs)):
                pipe.execute_command("XADD", key, "*", "f", "nothing", "a", number)
            pipe.execute()

    def _drain_bare(self) -> None:
        key = self.place.key("raw")
        words = ("XREADGROUP", "GROUP", "workers", "c", "COUNT", READ_COUNT, "STREAMS", key, ">")
        while got := self.raw.execute_command(*words):
            # A map or a list, by the version of the protocol.
            (_, entries), *_ = got.items() if isinstance(got, dict) else got
            ids = [entry for entry, _ in entries]
            pipe = self.raw.pipeline(transaction=False)
            for entry in ids:
                pipe.execute_command("SET", f"{key}:{entry}", b"null", "EX", RESULT_TTL_S)
            pipe.execute_command("XACK", key, "workers", *ids)
            pipe.execute_command("XDEL", key, *ids)
            pipe.execute()

    def single(self) -> BenchFigure:
        calls = FunctionSubmitter(self.queue, RunSpec(kind="function", function=f"{FUNCTIONS_MODULE}:nothing"))
        key, singles, ours, bare = self.place.key("raw"), self.scale.singles, [], []
        self.place.clear()
        for _ in range(self.scale.rounds):
            bare.append(singles / time_call(lambda: _repeat(singles, lambda n: self.raw.xadd(key, {"a": n}))))
            ours.append(singles / time_call(lambda: _repeat(singles, lambda n: calls.submit(f"[{n}]"))))
        found = f"{median(ours):,.0f} /s, bare XADD {median(bare):,.0f} /s"
        return BenchFigure("single submit", found, median_ratio(ours, bare), least=0.45)

    def memory(self) -> BenchFigure:
        self.place.clear()
        self._fill(1)
        before = int(self.raw.info("memory")["used_memory"])
        self._fill(self.scale.bulk)
        found = f"{self.scale.bulk:,} pending, with what the events tell of them"
        used = (int(self.raw.info("memory")["used_memory"]) - before) / self.scale.bulk
        return BenchFigure("a pending function run", found, used, "bytes", most=400)

    def latency(self) -> BenchFigure:
        """From before the submit until the function runs, with the worker idle, against a bare wake-up."""
        self.place.clear()
        ours, bare = [], []
        with self._calls("mark") as (calls, marks), self.workers.worker(1):
            for ping in range(self.scale.pings + 1):
                bare.append(self.workers.wake_up())
                started = monotonic_ns()
                calls.submit(f'["{marks.path}"]')
                began = marks.next()
                if ping:  # the first starts the child
                    ours.append((began - started) / 1e9)
                wait_until(self._nothing_runs, "a run to end", pause_s=0.002)
        found = f"{median(ours) * 1e6:,.0f} µs, bare wake-up {median(bare) * 1e6:,.0f} µs"
        return BenchFigure("submit → function begins, p50", found, median(ours) / median(bare), most=1.9)

    def _nothing_runs(self) -> bool:
        return not self.workers.records.count([State.PENDING, State.CLAIMED, State.RUNNING])

    def depth(self) -> BenchFigure:
        """Compare drain rates by the number of other pending runs."""
        rates = []
        for depth in self.scale.depths:
            self.place.clear()
            self._fill(depth)
            rates.append(self._drain(min(depth, self.scale.window))[0])
        few, many = self.scale.depths
        found = f"{rates[0]:,.0f} and {rates[1]:,.0f} runs/s"
        return BenchFigure(f"drain with {few:,} to {many:,} pending", found, rates[0] / rates[1], most=1.2)

    def killed(self) -> BenchFigure:
        """From SIGKILL until the function begins again, in a worker that comes at once; defaults everywhere."""
        self.place.clear()
        with self._calls("hold") as (calls, marks):
            with self.workers.worker(1) as worker:
                calls.submit(f'["{marks.path}",{HOLD_S}]')
                marks.next()
                worker.send_signal(signal.SIGKILL)
                worker.wait()
            killed = monotonic_ns()
            with self.workers.worker(1):
                began = marks.next()
        return BenchFigure("SIGKILL → begun again", "with the defaults", (began - killed) / 1e9, "s", most=35)

    @contextmanager
    def _calls(self, function: str) -> Iterator[tuple[FunctionSubmitter, _StartFifo]]:
        """Calls of a function that says when it begins."""
        path = self.workers.folder / "mark"
        os.mkfifo(path)
        fd = os.open(path, os.O_RDWR)
        try:
            yield (
                FunctionSubmitter(self.queue, RunSpec(kind="function", function=f"{FUNCTIONS_MODULE}:{function}")),
                _StartFifo(path, fd),
            )
        finally:
            os.close(fd)
            path.unlink()


@dataclass(frozen=True, slots=True)
class _StartFifo:
    """The fifo that functions write to when they begin."""

    path: Path
    fd: int

    def next(self) -> int:
        (at,) = MARK_FORMAT.unpack(os.read(self.fd, MARK_FORMAT.size))
        return int(at)


def _repeat(times: int, act: Callable[[int], object]) -> None:
    for number in range(times):
        act(number)
