"""Measures a coordinator between a worker and Redis for `agentq bench`: the same worker, straight and through one.

Both are measured in turn on the same server; the coordinator is a process of its own, and all three share the machine.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from agentq.bench.http_server import start_server
from agentq.bench.throughput import BenchFigure, BenchNamespace, median_ratio, process_environment
from agentq.bench.worker_throughput import BENCH_SLOTS, WorkerBench, WorkerScale, read_cpu_s, wait_until
from agentq.coordinator.clock import monotonic_ns
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.end_waiter import RunEndWaiter
from agentq.coordinator.runs.function_submitter import FunctionSubmitter

NO_OP_FUNCTION = "agentq.bench.no_op_functions:nothing"


@dataclass(frozen=True, slots=True)
class RemoteWorkerScale:
    """How much of everything."""

    rounds: int = 3
    commands: int = 1_500
    functions: int = 20_000
    pings: int = 200
    idle_s: float = 20


REMOTE_WORKER_QUICK = RemoteWorkerScale(rounds=1, commands=60, functions=500, pings=10, idle_s=1)


class RemoteWorkerBench:
    """One server, and workers on it: `straight`, and through a coordinator that `serve` starts."""

    def __init__(
        self, place: BenchNamespace, scale: RemoteWorkerScale, worker: Sequence[str], serve: Sequence[str], folder: Path
    ):
        self.place = place
        self.scale = scale
        self.serve = serve
        self.folder = folder
        self.worker = worker
        self.straight = WorkerBench(place, WorkerScale(), worker, folder)
        self.queue = self.straight.queue

    def figures(self) -> Iterator[BenchFigure]:
        """Every figure, one after the other."""
        with self._coordinator() as (through, coordinator):
            yield self.commands(through)
            yield self.functions(through)
            yield self.latency(through)
            yield self.idle(through, coordinator)
        self.queue.store.connection.close()

    def commands(self, through: WorkerBench) -> BenchFigure:
        rates: tuple[list[float], list[float]] = ([], [])
        for _ in range(self.scale.rounds):
            for bench, found in zip((self.straight, through), rates, strict=True):
                with bench.worker(BENCH_SLOTS), closing(RunEndWaiter(self.queue.store)) as outcomes:
                    started = monotonic_ns()
                    specs = (RunSpec(kind="command", argv=("true",)) for _ in range(self.scale.commands))
                    outcomes.wait_all([receipt.id for receipt in self.queue.submit_many(specs)], 300_000)
                    found.append(self.scale.commands / _seconds_since(started))
        return _compare_rates("`true` in a row, through to straight", rates, least=0.6)

    def functions(self, through: WorkerBench) -> BenchFigure:
        rates: tuple[list[float], list[float]] = ([], [])
        calls, runs = (
            FunctionSubmitter(self.queue, RunSpec(kind="function", function=NO_OP_FUNCTION)),
            self.scale.functions,
        )
        for _ in range(self.scale.rounds):
            for bench, found in zip((self.straight, through), rates, strict=True):
                self.place.clear()
                with bench.worker(1):
                    started = monotonic_ns()
                    for first in range(0, runs, 1000):
                        calls.submit_many([f"[{number}]" for number in range(first, min(first + 1000, runs))])
                    wait_until(self._nothing_runs, "the calls to end", pause_s=0.01)
                    found.append(runs / _seconds_since(started))
        return _compare_rates("no-op functions, through to straight", rates, least=0.5)

    def latency(self, through: WorkerBench) -> BenchFigure:
        """From before the submit until the program has written its line, with the worker idle."""
        took: tuple[list[float], list[float]] = ([], [])
        for bench, found in zip((self.straight, through), took, strict=True):
            with bench.first_lines() as line:
                line()
                found += [line() for _ in range(self.scale.pings)]
        ours, straight = median(took[1]), median(took[0])
        told = f"{ours * 1e3:.2f} ms, straight {straight * 1e3:.2f} ms"
        return BenchFigure("submit → first line, p50, through to straight", told, ours / straight, most=2)

    def idle(self, through: WorkerBench, coordinator: subprocess.Popen[bytes]) -> BenchFigure:
        """What a coordinator uses while one worker waits there."""
        with through.worker(BENCH_SLOTS):
            before, started = read_cpu_s(coordinator.pid), monotonic_ns()
            wait_until(lambda: _seconds_since(started) >= self.scale.idle_s, "time to pass", pause_s=0.1)
            used = read_cpu_s(coordinator.pid) - before
        found = f"in {self.scale.idle_s:g} s, its own duties included"
        return BenchFigure("coordinator of an idle worker, CPU", found, 100 * used / self.scale.idle_s, "%", most=1)

    def _nothing_runs(self) -> bool:
        return not self.straight.records.count([State.PENDING, State.CLAIMED, State.RUNNING])

    @contextmanager
    def _coordinator(self) -> Iterator[tuple[WorkerBench, subprocess.Popen[bytes]]]:
        """A coordinator, and workers that reach nothing else."""
        settings = Settings(url=self.place.url, namespace=self.place.namespace)
        variables = process_environment(settings, self.folder) | {"AGENTQ_SERVER_LOG_LEVEL": "warning"}
        with start_server((*self.serve, "--port", "0"), variables) as (port, process):
            command = (*self.worker, "--connect", f"http://127.0.0.1:{port}")
            yield WorkerBench(self.place, WorkerScale(), command, self.folder), process


def _compare_rates(measure: str, rates: tuple[list[float], list[float]], *, least: float) -> BenchFigure:
    straight, ours = rates
    found = f"{median(ours):,.0f} runs/s, straight {median(straight):,.0f} /s"
    return BenchFigure(measure, found, median_ratio(ours, straight), least=least)


def _seconds_since(since_ns: int) -> float:
    return (monotonic_ns() - since_ns) / 1e9
