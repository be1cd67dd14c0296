"""What the core costs, as ratios to bare redis-py in the same run, for `agentq bench`; and what every bench is made of.

Each figure is the median of some rounds, with raw and ours in turn, so that what disturbs one disturbs both. A bench
writes only to a namespace of its own, and removes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import redis

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.duties.reaper import Reaper
from agentq.coordinator.model.ids import new_nonce
from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.runs.queries import RunQueries
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.coordinator.storage.connection import Connection
from agentq.coordinator.storage.keys import Keyspace
from agentq.coordinator.storage.scripts import ScriptSet
from agentq.coordinator.storage.store import NamespaceStore, StoreClock
from agentq.coordinator.storage.topology import make_topology
from agentq.coordinator.storage.url import parse_url
from agentq.coordinator.workers.lease import WorkerIdentity, WorkerLease

BATCH_SIZE = 100
COMMAND_SPEC = RunSpec(kind="command", argv=["true"])


@dataclass(frozen=True, slots=True)
class BenchFigure:
    """What was found of one thing, and what was aimed at."""

    measure: str
    found: str
    value: float
    """The ratio to the bare counterpart; with a unit, what was measured itself."""
    unit: str = ""
    most: float | None = None
    least: float | None = None

    @property
    def aim(self) -> str:
        aim = f"≤ {self.most:,g}" if self.most is not None else f"≥ {self.least:,g}"
        return f"{aim} {self.unit}".rstrip()

    @property
    def reached(self) -> bool:
        return (self.most is None or self.value <= self.most) and (self.least is None or self.value >= self.least)


class BenchNamespace:
    """A namespace of its own on a server, and a bare client beside it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.namespace = f"bench-{new_nonce()}"
        self.raw = bare_client(url, self.key("raw"))

    def key(self, name: str) -> str:
        return f"agentq:{{{self.namespace}}}:{name}"

    def clear(self) -> None:
        """Leave nothing of it."""
        names = list(self.raw.scan_iter(match=self.key("*"), count=10_000))
        for first in range(0, len(names), 10_000):
            self.raw.unlink(*names[first : first + 10_000])

    def close(self) -> None:
        """Leave nothing, and go."""
        try:
            self.clear()
        finally:
            self.raw.close()


FUNCTIONS_MODULE = "agentq.bench.no_op_functions"
"""The functions that are called to measure."""


def process_environment(settings: Settings, folder: Path) -> dict[str, str]:
    """What a process of agentq is started with: these settings, a home there, and bytecode.

    All starts but the first have that, whether or not what is installed here does. Without it, compiling would be most
    of a start, and would stay in memory.
    """
    settings = settings.model_copy(update={"home": str(folder / "home")})
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    ours = {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "AGENTQ_WORKER_FUNCTIONS": FUNCTIONS_MODULE}
    return {**inherited, **settings.to_environment(), **ours}


def bare_client(url: str, key: str) -> redis.Redis:
    """redis-py's own client of whichever server has the key."""
    address = parse_url(url)
    host, port = make_topology(address, "agentq-bench").place(key)
    if not port:
        return redis.Redis(unix_socket_path=host, **address.options)
    return redis.Redis(host=host, port=port, ssl=address.tls, **address.options)


@dataclass(frozen=True, slots=True)
class CoreScale:
    """How much of everything."""

    rounds: int = 5
    bulk: int = 50_000
    singles: int = 2_000
    depths: tuple[int, int] = (1_000, 1_000_000)
    depth_rounds: int = 100
    queues: tuple[int, int] = (10, 20_000)
    workers: int = 1_000
    runs_each: int = 10


CORE_QUICK = CoreScale(
    rounds=2, bulk=2_000, singles=200, depths=(200, 5_000), depth_rounds=10, queues=(10, 1_000), workers=100
)


class CoreBench:
    """One server, bare and with agentq on it."""

    def __init__(self, place: BenchNamespace, scale: CoreScale) -> None:
        self.place = place
        self.scale = scale
        self.raw = place.raw
        self.settings = Settings(url=place.url, lease_ms=3_600_000, namespace=place.namespace)
        self.connection = Connection(place.url, timeout_ms=60_000)
        self.queue = self._queue()

    def figures(self) -> Iterator[BenchFigure]:
        """Every figure, one after the other."""
        yield from self.bulk()
        yield self.single()
        yield self.memory()
        yield self.depth()
        yield self.lists()
        yield from self.reap()
        self.connection.close()

    def bulk(self) -> Iterator[BenchFigure]:
        runs, raw, submit, work = self.scale.bulk, [], [], []
        for _ in range(self.scale.rounds):
            with self.fresh():
                raw.append(runs / time_call(self._raw_pipelined))
                submit.append(runs / time_call(lambda: self._submit(runs)))
                lease = self._lease()
                work.append(runs / time_call(lambda: self._work_off(lease, runs)))  # noqa: B023 - run at once
        beside = f"raw pipelined XADD {median(raw):,.0f} /s"
        yield BenchFigure(
            "bulk submit", f"{median(submit):,.0f} runs/s, {beside}", median_ratio(submit, raw), least=0.5
        )
        measure = f"claim + finish, {BATCH_SIZE} at a time"
        yield BenchFigure(measure, f"{median(work):,.0f} runs/s, {beside}", median_ratio(work, raw), least=0.2)

    def single(self) -> BenchFigure:
        raw, submit = [], []
        stream = self.place.key("raw")
        with self.fresh():
            self.queue.submit(COMMAND_SPEC)
            for _ in range(self.scale.singles):
                raw.append(time_call(lambda: self.raw.xadd(stream, {"run": "run_01k9zq3c5007m2x4c8r1tnq"})))
                submit.append(time_call(lambda: self.queue.submit(COMMAND_SPEC)))
        found = f"{median(submit) * 1e6:.0f} µs, bare XADD {median(raw) * 1e6:.0f} µs"
        return BenchFigure("single submit", found, median(submit) / median(raw), most=2.5)

    def memory(self) -> BenchFigure:
        runs = self.scale.bulk * 4
        with self.fresh():
            self.queue.submit(COMMAND_SPEC)
            before = self.raw.info("memory")["used_memory"]
            self._submit(runs)
            each = (self.raw.info("memory")["used_memory"] - before) / runs
        return BenchFigure("server memory per pending run", f"{runs:,} runs", each, "bytes", most=600)

    def depth(self) -> BenchFigure:
        """Claim and finish with few and with very many runs pending."""
        costs: dict[int, float] = {}
        for depth in self.scale.depths:
            with self.fresh():
                self._submit(depth)
                lease, rounds = self._lease(), []
                for _ in range(self.scale.depth_rounds):
                    rounds.append(time_call(lambda: self._work_off(lease, BATCH_SIZE)) / BATCH_SIZE)  # noqa: B023 - run at once
                    self._submit(BATCH_SIZE)
                costs[depth] = median(rounds)
        few, many = self.scale.depths
        found = f"{costs[few] * 1e6:.1f} µs a run with {few:,} pending, {costs[many] * 1e6:.1f} µs with {many:,}"
        return BenchFigure("claim + finish, by runs pending", found, costs[many] / costs[few], most=1.2)

    def lists(self) -> BenchFigure:
        """A page of the runs of all queues, the same runs being in few and in very many of them."""
        costs: dict[int, float] = {}
        few, many = self.scale.queues
        for queues in (few, many):
            with self.fresh():
                specs = (COMMAND_SPEC.model_copy(update={"queue": f"q{number % queues}"}) for number in range(many))
                for receipt in self.queue.submit_many(specs):
                    assert receipt.created
                records = RunQueries(self.queue.store)
                costs[queues] = median(time_call(records.page) for _ in range(self.scale.depth_rounds))
        found = f"{costs[few] * 1e3:.1f} ms with {few:,} queues, {costs[many] * 1e3:.1f} ms with {many:,}"
        return BenchFigure("list of 100 runs, by queues", found, costs[many] / costs[few], most=1.5)

    def reap(self) -> Iterator[BenchFigure]:
        """A reaper's tick while everyone is well, with and without runs in their hands."""
        workers, runs = self.scale.workers, self.scale.workers * self.scale.runs_each
        with self.fresh():
            leases = [self._lease(f"w{number}") for number in range(workers)]
            reaper = Reaper(self.queue.store, self.settings)
            empty = median(time_call(lambda: reaper.reap(0)) for _ in range(50)) * 1e3
            self._submit(runs)
            for lease in leases:
                assert len(lease.claim(self.scale.runs_each)) == self.scale.runs_each
            full = median(time_call(lambda: reaper.reap(0)) for _ in range(50)) * 1e3
        yield BenchFigure(f"reaper tick, {workers:,} healthy workers", f"{runs:,} runs in hand", full, "ms", most=20)
        found = f"{full:.2f} ms with {runs:,} runs in hand, {empty:.2f} ms with none"
        yield BenchFigure("reaper tick, by runs in hand", found, full / empty, most=1.2)

    def _raw_pipelined(self) -> None:
        stream = self.place.key("raw")
        for first in range(0, self.scale.bulk, 1000):
            pipe = self.raw.pipeline(transaction=False)
            for number in range(first, first + 1000):
                pipe.execute_command("XADD", stream, "*", "run", number)  # type: ignore[no-untyped-call]
            pipe.execute()

    def _submit(self, runs: int, **fields: Any) -> None:
        spec = COMMAND_SPEC.model_copy(update=fields)
        for _ in self.queue.submit_many(spec for _ in range(runs)):
            pass

    def _work_off(self, lease: WorkerLease, runs: int) -> None:
        done = Outcome(exit_code=0)
        while runs > 0:
            claims = lease.claim(BATCH_SIZE)
            assert claims
            assert not any(self.queue.finish([(claim, done) for claim in claims]))
            runs -= len(claims)

    def _lease(self, name: str = "bench") -> WorkerLease:
        lease = WorkerLease(self.queue.store, WorkerIdentity(id=name, queues=("default",)), self.settings)
        lease.register()
        return lease

    def _queue(self, clock: StoreClock | None = None) -> RunVerbs:
        scripts = ScriptSet(bounds={"QUEUES": self.scale.queues[1]})
        return RunVerbs(NamespaceStore(self.connection, Keyspace(self.place.namespace), scripts=scripts, clock=clock))

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """Nothing left behind for the next measure, nor known of what was there."""
        try:
            yield
        finally:
            self.place.clear()
            self.queue = self._queue()


def time_call(act: Callable[[], object]) -> float:
    """Seconds that something takes."""
    started = perf_counter()
    act()
    return perf_counter() - started


def median_ratio(ours: list[float], raw: list[float]) -> float:
    """The median of the rounds' own ratios: what disturbs a round disturbs both."""
    return median(a / b for a, b in zip(ours, raw, strict=True))
