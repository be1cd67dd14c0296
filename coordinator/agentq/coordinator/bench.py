"""What the core costs, as ratios to bare redis-py in the same run: `python -m agentq.coordinator.bench [URL]`.

Without an address it measures on an embedded server of its own, as users get it: Valkey on a unix socket, every write
synced. Each figure is the median of some rounds, with raw and ours in turn. It writes only to a namespace of its own,
and removes it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

import redis

from agentq.coordinator.connection import Connection
from agentq.coordinator.duties.reaper import Reaper
from agentq.coordinator.embedded import Embedded
from agentq.coordinator.identity import new_nonce
from agentq.coordinator.keys import Keyspace
from agentq.coordinator.lease import Identity, Lease
from agentq.coordinator.queue import Queue
from agentq.coordinator.run import Outcome, RunSpec
from agentq.coordinator.settings import Settings
from agentq.coordinator.store import Store

ROUNDS = 5
BULK = 50_000
SINGLES = 2_000
BATCH = 100
DEPTHS = (1_000, 1_000_000)
WORKERS = 1_000
RUNS_EACH = 10
SPEC = RunSpec(kind="command", argv=["true"])

Row = tuple[str, str, str, str]
"""A measure, what was found, its ratio to raw or its limit, and what was aimed at."""


class Bench:
    """One server, bare and with agentq on it."""

    def __init__(self, url: str) -> None:
        self.settings = Settings(url=url, lease_ms=3_600_000, namespace=f"bench-{new_nonce()}")
        self.raw = redis.Redis.from_url(url)
        self.connection = Connection(url, timeout_ms=60_000)
        self.queue = Queue(Store(self.connection, Keyspace(self.settings.namespace)))

    def rows(self) -> Iterator[Row]:
        """Every measure, one after the other."""
        yield from self.bulk()
        yield self.single()
        yield self.memory()
        yield from self.depth()
        yield self.reap()

    def bulk(self) -> Iterator[Row]:
        raw, submit, work = [], [], []
        for _ in range(ROUNDS):
            with self.fresh():
                raw.append(BULK / timed(self._raw_pipelined))
                submit.append(BULK / timed(lambda: sum(1 for _ in self.queue.submit_many(SPEC for _ in range(BULK)))))
                lease = self._lease()
                work.append(BULK / timed(lambda: self._work_off(lease, BULK)))  # noqa: B023 - run at once
        yield "raw pipelined XADD", f"{median(raw):,.0f} /s", "1.00", ""
        yield "bulk submit", f"{median(submit):,.0f} runs/s", ratio(submit, raw), "≥ 0.5 of raw"
        yield f"claim + finish, {BATCH} at a time", f"{median(work):,.0f} runs/s", ratio(work, raw), "≥ 0.2 of raw"

    def single(self) -> Row:
        raw, submit = [], []
        stream = f"agentq:{{{self.settings.namespace}}}:raw"
        with self.fresh():
            self.queue.submit(SPEC)
            for _ in range(SINGLES):
                raw.append(timed(lambda: self.raw.xadd(stream, {"run": "run_01k9zq3c5007m2x4c8r1tnq"})))
                submit.append(timed(lambda: self.queue.submit(SPEC)))
        found = f"{median(submit) * 1e6:.0f} µs, bare XADD {median(raw) * 1e6:.0f} µs"
        return "single submit", found, f"{median(submit) / median(raw):.2f}", "≤ 2.5 × a bare XADD"

    def memory(self) -> Row:
        with self.fresh():
            self.queue.submit(SPEC)
            before = self._used_memory()
            sum(1 for _ in self.queue.submit_many(SPEC for _ in range(BULK * 4)))
            each = (self._used_memory() - before) / (BULK * 4)
        return "server memory per pending run", f"{each:.0f} bytes", "", "≤ 600"

    def depth(self) -> Iterator[Row]:
        """Claim and finish with few and with very many runs pending."""
        costs: dict[int, float] = {}
        for depth in DEPTHS:
            with self.fresh():
                sum(1 for _ in self.queue.submit_many(SPEC for _ in range(depth)))
                lease, rounds = self._lease(), []
                for _ in range(100):
                    rounds.append(timed(lambda: self._work_off(lease, BATCH)) / BATCH)  # noqa: B023 - run at once
                    sum(1 for _ in self.queue.submit_many(SPEC for _ in range(BATCH)))
                costs[depth] = median(rounds)
        few, many = (costs[depth] * 1e6 for depth in DEPTHS)
        found = f"{few:.1f} µs at {DEPTHS[0]:,}, {many:.1f} µs at {DEPTHS[1]:,}"
        yield "claim + finish of a run, by runs pending", found, f"{many / few:.2f}", "0.8 to 1.2"

    def reap(self) -> Row:
        """A reaper's tick while everyone is well, with and without runs in their hands."""
        with self.fresh():
            leases = [self._lease(f"w{number}") for number in range(WORKERS)]
            reaper = Reaper(self.queue.store, self.settings)
            empty = median(timed(lambda: reaper.reap(0)) for _ in range(50))
            sum(1 for _ in self.queue.submit_many(SPEC for _ in range(WORKERS * RUNS_EACH)))
            for lease in leases:
                assert len(lease.claim(RUNS_EACH)) == RUNS_EACH
            full = median(timed(lambda: reaper.reap(0)) for _ in range(50))
        found = f"{full * 1e3:.2f} ms with {WORKERS * RUNS_EACH:,} runs, {empty * 1e3:.2f} ms with none"
        return f"reaper tick, {WORKERS:,} healthy workers", found, f"{full / empty:.2f}", "< 20 ms, flat"

    def _raw_pipelined(self) -> None:
        stream = f"agentq:{{{self.settings.namespace}}}:raw"
        for first in range(0, BULK, 1000):
            pipe = self.raw.pipeline(transaction=False)
            for number in range(first, first + 1000):
                pipe.execute_command("XADD", stream, "*", "run", number)  # type: ignore[no-untyped-call]
            pipe.execute()

    def _work_off(self, lease: Lease, runs: int) -> None:
        done = Outcome(exit_code=0)
        while runs > 0:
            claims = lease.claim(BATCH)
            assert claims
            assert not any(self.queue.finish([(claim, done) for claim in claims]))
            runs -= len(claims)

    def _lease(self, name: str = "bench") -> Lease:
        lease = Lease(self.queue.store, Identity(id=name, queues=("default",)), self.settings)
        lease.register()
        return lease

    def _used_memory(self) -> int:
        return int(self.connection.command("INFO", "memory").partition("used_memory:")[2].split()[0])

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """Nothing there before, nothing left behind."""
        try:
            yield
        finally:
            names = list(self.raw.scan_iter(match=f"agentq:{{{self.settings.namespace}}}:*", count=10_000))
            for first in range(0, len(names), 10_000):
                self.raw.unlink(*names[first : first + 10_000])
            self.queue = Queue(Store(self.connection, Keyspace(self.settings.namespace)))


def timed(act: Callable[[], object]) -> float:
    """Seconds that something takes."""
    started = perf_counter()
    act()
    return perf_counter() - started


def ratio(ours: list[float], raw: list[float]) -> str:
    """The median of the rounds' own ratios: what disturbs a round disturbs both."""
    return f"{median(a / b for a, b in zip(ours, raw, strict=True)):.2f}"


def main(url: str | None) -> None:
    """Measure, and print a table in Markdown."""
    folder = None if url else Path(tempfile.mkdtemp(prefix="aq"))
    embedded = Embedded(folder) if folder else None
    try:
        write = sys.stdout.write
        write("| measure | found | ratio | aim |\n| --- | --- | --- | --- |\n")
        for row in Bench(url or (embedded.start() if embedded else "")).rows():
            write(f"| {' | '.join(row)} |\n")
            sys.stdout.flush()
    finally:
        if embedded and folder:
            embedded.stop()
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
