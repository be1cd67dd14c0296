"""Measures waiting runs for `agentq bench`: limits, lines of waiters, due runs, keys that take turns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from agentq.bench.throughput import BATCH_SIZE, BenchFigure, BenchNamespace, CoreBench, CoreScale, time_call
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.queues.limits import Limits


@dataclass(frozen=True, slots=True)
class WaitingScale:
    """How much of everything."""

    rounds: int = 7
    runs: int = 5_000
    waiters: tuple[int, int] = (100, 100_000)
    wakes: int = 500
    scheduled: int = 1_000_000
    due: int = 50_000


WAITING_QUICK = WaitingScale(rounds=2, runs=500, waiters=(50, 1_000), wakes=50, scheduled=5_000, due=1_000)


class WaitingBench(CoreBench):
    """The same server and namespace as the core's bench."""

    def __init__(self, place: BenchNamespace, scale: WaitingScale) -> None:
        super().__init__(place, CoreScale())
        self.much = scale

    def figures(self) -> Iterator[BenchFigure]:
        """Every figure, one after the other."""
        yield from self.limits()
        yield self.turns()
        yield from self.waiters()
        yield from self.promotion()
        self.connection.close()

    def limits(self) -> Iterator[BenchFigure]:
        """Claim and finish of runs that need room under no key, one and three, in turn."""
        costs: dict[int, list[float]] = {0: [], 1: [], 3: []}
        for _ in range(self.much.rounds):
            for keys, found in costs.items():
                with self.fresh():
                    for key in range(keys):
                        Limits(self.queue.store).set(f"key-{key}", most=1_000_000)
                    found.append(self._cost(limits={f"key-{key}": 1 for key in range(keys)}))
        plain = median(costs[0])
        for keys, most in ((1, 1.8), (3, 2.8)):
            found_us = f"{median(costs[keys]) * 1e6:.1f} µs a run, {plain * 1e6:.1f} µs without"
            name = f"claim + finish with {keys} {'limit' if keys == 1 else 'limits'}"
            yield BenchFigure(name, found_us, median(costs[keys]) / plain, most=most)

    def turns(self) -> BenchFigure:
        """The same of runs whose keys take turns."""
        plain, fair = [], []
        for _ in range(self.much.rounds):
            with self.fresh():
                plain.append(self._cost())
            with self.fresh():
                fair.append(self._cost(fair_key="a"))
        found = f"{median(fair) * 1e6:.1f} µs a run, {median(plain) * 1e6:.1f} µs without"
        return BenchFigure("claim + finish with a fair key", found, median(fair) / median(plain), most=2)

    def waiters(self) -> Iterator[BenchFigure]:
        """What it costs to let one in, with few and with very many in line; and to stand there."""
        costs, bytes_each = {}, 0.0
        for waiting in self.much.waiters:
            with self.fresh():
                Limits(self.queue.store).set("one", most=1)
                self._submit(1, limits={"one": 1})
                lease = self._lease()
                held = lease.claim(1)
                before = self.raw.info("memory")["used_memory"]
                self._submit(waiting, limits={"one": 1})
                bytes_each = (self.raw.info("memory")["used_memory"] - before) / waiting
                took = []
                for _ in range(min(self.much.wakes, waiting - 1)):
                    took.append(time_call(lambda: self.queue.finish([(held[0], Outcome(exit_code=0))])))  # noqa: B023
                    held = lease.claim(1)
                costs[waiting] = median(took)
        few, many = self.much.waiters
        found = f"{costs[few] * 1e6:.0f} µs with {few:,} in line, {costs[many] * 1e6:.0f} µs with {many:,}"
        yield BenchFigure("finish that lets one in, by waiters", found, costs[many] / costs[few], most=1.5)
        yield BenchFigure("server memory per waiter", f"{many:,} waiters", bytes_each, "bytes", most=700)

    def promotion(self) -> Iterator[BenchFigure]:
        """Due runs among very many scheduled ones: how many a second, and the longest call."""
        due = wall_ms() + 3_600_000
        with self.fresh():
            self._submit(self.much.scheduled - self.much.due, due_at_ms=due + 86_400_000)
            self._submit(self.much.due, due_at_ms=due)
            store, calls, rung = self._queue(lambda: due + 1_000).store, list[float](), list[int]()
            while sum(rung) < self.much.due:
                calls.append(time_call(lambda: rung.append(store.call("duty/run_timers", 0)[0])))
        rate = sum(rung) / sum(calls)
        found = f"{sum(rung):,} due of {self.much.scheduled:,} scheduled"
        yield BenchFigure("promotion of due runs", found, rate, "/s", least=20_000)
        # The very longest waits for a sync of the append-only file, if it meets one.
        found = f"{len(calls):,} calls, the longest {max(calls) * 1e3:.1f} ms"
        yield BenchFigure("promotion, a call, p99", found, quantiles(calls, n=100)[98] * 1e3, "ms", most=10)

    def _cost(self, **fields: Any) -> float:
        """Seconds to claim and finish one run, of many in batches."""
        self._submit(self.much.runs, **fields)
        lease = self._lease()
        return time_call(lambda: self._work_off(lease, self.much.runs // BATCH_SIZE * BATCH_SIZE)) / self.much.runs
