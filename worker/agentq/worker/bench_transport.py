"""What a coordinator between a worker and Redis costs, for `agentq bench`: the same worker, straight and through one.

Both are measured in turn on the same server; the coordinator is a process of its own, and all three share the machine.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from agentq.coordinator.bench import Figure, Place, environment, ratio
from agentq.coordinator.bench_server import listening
from agentq.coordinator.calling import Calls
from agentq.coordinator.clock import monotonic_ns
from agentq.coordinator.lifecycle import State
from agentq.coordinator.outcomes import Outcomes
from agentq.coordinator.run import RunSpec
from agentq.coordinator.settings import Settings
from agentq.worker.bench import SLOTS, Bench, Scale, cpu_s, until

NOTHING = "agentq.worker.bodies:nothing"


@dataclass(frozen=True, slots=True)
class TransportScale:
    """How much of everything."""

    rounds: int = 3
    commands: int = 1_500
    functions: int = 20_000
    pings: int = 200
    idle_s: float = 20


TRANSPORT_QUICK = TransportScale(rounds=1, commands=60, functions=500, pings=10, idle_s=1)


class TransportBench:
    """One server, and workers on it: `straight`, and through a coordinator that `serve` starts."""

    def __init__(self, place: Place, scale: TransportScale, worker: Sequence[str], serve: Sequence[str], folder: Path):
        self.place = place
        self.scale = scale
        self.serve = serve
        self.folder = folder
        self.worker = worker
        self.straight = Bench(place, Scale(), worker, folder)
        self.queue = self.straight.queue

    def figures(self) -> Iterator[Figure]:
        """Every figure, one after the other."""
        with self._coordinator() as (through, coordinator):
            yield self.commands(through)
            yield self.functions(through)
            yield self.latency(through)
            yield self.idle(through, coordinator)
        self.queue.store.connection.close()

    def commands(self, through: Bench) -> Figure:
        rates: tuple[list[float], list[float]] = ([], [])
        for _ in range(self.scale.rounds):
            for bench, found in zip((self.straight, through), rates, strict=True):
                with bench.worker(SLOTS), closing(Outcomes(self.queue.store)) as outcomes:
                    started = monotonic_ns()
                    specs = (RunSpec(kind="command", argv=("true",)) for _ in range(self.scale.commands))
                    outcomes.wait_all([receipt.id for receipt in self.queue.submit_many(specs)], 300_000)
                    found.append(self.scale.commands / _seconds(started))
        return _compared("`true` in a row, through to straight", rates, least=0.6)

    def functions(self, through: Bench) -> Figure:
        rates: tuple[list[float], list[float]] = ([], [])
        calls, runs = Calls(self.queue, RunSpec(kind="function", function=NOTHING)), self.scale.functions
        for _ in range(self.scale.rounds):
            for bench, found in zip((self.straight, through), rates, strict=True):
                self.place.clear()
                with bench.worker(1):
                    started = monotonic_ns()
                    for first in range(0, runs, 1000):
                        calls.submit_many([f"[{number}]" for number in range(first, min(first + 1000, runs))])
                    until(self._nothing_runs, "the calls to end", pause_s=0.01)
                    found.append(runs / _seconds(started))
        return _compared("no-op functions, through to straight", rates, least=0.5)

    def latency(self, through: Bench) -> Figure:
        """From before the submit until the program has written its line, with the worker idle."""
        took: tuple[list[float], list[float]] = ([], [])
        for bench, found in zip((self.straight, through), took, strict=True):
            with bench.first_lines() as line:
                line()
                found += [line() for _ in range(self.scale.pings)]
        ours, straight = median(took[1]), median(took[0])
        told = f"{ours * 1e3:.2f} ms, straight {straight * 1e3:.2f} ms"
        return Figure("submit → first line, p50, through to straight", told, ours / straight, most=2)

    def idle(self, through: Bench, coordinator: subprocess.Popen[bytes]) -> Figure:
        """What a coordinator uses while one worker waits there."""
        with through.worker(SLOTS):
            before, started = cpu_s(coordinator.pid), monotonic_ns()
            until(lambda: _seconds(started) >= self.scale.idle_s, "time to pass", pause_s=0.1)
            used = cpu_s(coordinator.pid) - before
        found = f"in {self.scale.idle_s:g} s, its own duties included"
        return Figure("coordinator of an idle worker, CPU", found, 100 * used / self.scale.idle_s, "%", most=1)

    def _nothing_runs(self) -> bool:
        return not self.straight.records.count([State.PENDING, State.CLAIMED, State.RUNNING])

    @contextmanager
    def _coordinator(self) -> Iterator[tuple[Bench, subprocess.Popen[bytes]]]:
        """A coordinator, and workers that reach nothing else."""
        settings = Settings(url=self.place.url, namespace=self.place.namespace)
        variables = environment(settings, self.folder) | {"AGENTQ_SERVER_LOG_LEVEL": "warning"}
        with listening((*self.serve, "--port", "0"), variables) as (port, process):
            command = (*self.worker, "--connect", f"http://127.0.0.1:{port}")
            yield Bench(self.place, Scale(), command, self.folder), process


def _compared(measure: str, rates: tuple[list[float], list[float]], *, least: float) -> Figure:
    straight, ours = rates
    found = f"{median(ours):,.0f} runs/s, straight {median(straight):,.0f} /s"
    return Figure(measure, found, ratio(ours, straight), least=least)


def _seconds(since_ns: int) -> float:
    return (monotonic_ns() - since_ns) / 1e9
