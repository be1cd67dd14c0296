"""A namespace to play with: every verb at hand, a clock that the test moves, workers by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from support.invariants import Snapshot, check, take_snapshot

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.duties.janitor import Janitor
from agentq.coordinator.duties.promoter import Promoter
from agentq.coordinator.duties.reaper import Reaper
from agentq.coordinator.duties.scheduler import Scheduler
from agentq.coordinator.events.stream import Event, PartitionEvents
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.queues.limits import Limits
from agentq.coordinator.queues.queues import Queues
from agentq.coordinator.runs.end_waiter import RunEndWaiter
from agentq.coordinator.runs.queries import RunQueries
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import Claim, RunVerbs
from agentq.coordinator.schedules.verbs import Schedules
from agentq.coordinator.storage.connection import Connection
from agentq.coordinator.storage.keys import Keyspace
from agentq.coordinator.storage.scripts import ScriptSet
from agentq.coordinator.storage.store import NamespaceStore
from agentq.coordinator.workers.lease import WorkerIdentity, WorkerLease

START_MS = 1_900_000_000_000
_numbers = count()


class World:
    """One namespace with a clock of its own."""

    def __init__(
        self,
        connection: Connection,
        *,
        partitions: int = 1,
        scripts: ScriptSet | None = None,
        real_time: bool = False,
        dice: Callable[[], float] = lambda: 0.5,
    ) -> None:
        self.now_ms = START_MS
        self.settings = Settings(partitions=partitions)
        clock = None if real_time else lambda: self.now_ms
        keyspace = Keyspace(f"test-{next(_numbers)}", partitions)
        self.store = NamespaceStore(connection, keyspace, scripts=scripts, clock=clock, dice=dice)
        self.queue = RunVerbs(self.store)
        self.records = RunQueries(self.store)
        self.outcomes = RunEndWaiter(self.store)
        self.queues = Queues(self.store)
        self.limits = Limits(self.store)
        self.schedules = Schedules(self.store)
        self.promoter = Promoter(self.store, self.settings.tick_ms)
        self.reaper = Reaper(self.store, self.settings, server="server-1")
        self.janitor = Janitor(self.store)
        self.scheduler = Scheduler(self.store, self.settings.tick_ms)

    # ---- time

    def pass_ms(self, milliseconds: int) -> None:
        """Let time pass; nothing happens by itself."""
        self.now_ms += milliseconds

    def tick(self) -> None:
        """One round of the promoter everywhere."""
        for partition in self.store.partitions():
            self.promoter.run_once(partition)

    def fire(self) -> dict[str, int]:
        """One round of the scheduler everywhere; what it did."""
        rounds = [self.scheduler.run_once(partition).done for partition in self.store.partitions()]
        return {what: sum(done[what] for done in rounds) for what in rounds[0] if any(done[what] for done in rounds)}

    def reap(self) -> list[str]:
        """One pass of the reaper everywhere; returns the workers that were declared lost."""
        return [worker for partition in self.store.partitions() for worker in self.reaper.reap(partition).lost]

    def watch_ms(self, milliseconds: int) -> list[str]:
        """Let time pass under the eyes of a reaper that ticks; returns the workers that were declared lost."""
        lost = self.reap()
        end = self.now_ms + milliseconds
        while self.now_ms < end:
            self.pass_ms(min(self.settings.tick_ms // 2, end - self.now_ms))
            lost += self.reap()
        return lost

    def lost_after_ms(self) -> int:
        """The time after which a worker that died is declared lost by a reaper that watches."""
        return self.settings.lease_ms + self.settings.tick_ms

    def tidy(self) -> int:
        """Rounds of the janitor until a full walk finds nothing to repair; returns how much was repaired."""
        repaired = 0
        while True:
            rounds = [self.janitor.run_once(partition) for partition in self.store.partitions()]
            found = sum(each.done["repaired"] + each.done["given_back"] for each in rounds)
            repaired += found
            if not found:
                return repaired

    # ---- short ways to say things

    def submit(self, **fields: object) -> str:
        """Submit a run, by default a command that does nothing; returns its id."""
        return self.queue.submit(RunSpec.checked(**({"kind": "command", "argv": ["true"]} | fields))).id

    def worker(self, name: str, *queues: str, **fields: object) -> WorkerLease:
        """A registered worker of the default queue, or of those named."""
        identity = WorkerIdentity.model_validate({"id": name, "queues": queues or ("default",), **fields})
        lease = WorkerLease(self.store, identity, self.settings)
        lease.register()
        return lease

    def held(self, worker: str = "w1", *, started: bool = False, **fields: object) -> Claim:
        """A new run in the hands of a (new) worker."""
        run = self.submit(**fields)
        (claim,) = [claim for claim in self.worker(worker).claim(100) if claim.id == run]
        if started:
            assert self.queue.start([claim]) == [None]
        return claim

    def state(self, run: str) -> str:
        return self.records.get(run).state.value

    def states(self, ids: Sequence[str]) -> list[str]:
        return [self.state(run) for run in ids]

    def get(self, run: str) -> RunRecord:
        return self.records.get(run)

    def events(self, run: str | None = None) -> list[Event]:
        """All events so far but those of workers, or those of one run."""
        return [event for event in self.all_events() if (run is None and not event.of_worker) or event.run == run]

    def all_events(self) -> list[Event]:
        """All events so far."""
        return [
            each for partition in self.store.partitions() for each in PartitionEvents(self.store, partition).replay()
        ]

    def event_names(self, run: str) -> list[str]:
        return [event.event for event in self.events(run)]

    # ---- what must be true

    def snapshots(self) -> list[Snapshot]:
        return [take_snapshot(self.store.connection, base) for base in self.store.keyspace.bases()]

    def check(self) -> None:
        """Every invariant, in every partition."""
        for snapshot in self.snapshots():
            check(snapshot)

    def dump(self) -> dict[str, object]:
        """Everything that is stored, to prove that nothing changed; but for leases' times to live, and for what a
        coordinator remembers of requests that may be sent again."""
        found: dict[str, object] = {}
        for snapshot in self.snapshots():
            for kind, values in snapshot.values.items():
                if kind == "idempotency_key":
                    continue
                found |= {f"{snapshot.base} {kind} {parts}": value for parts, value in values.items()}
            found[f"{snapshot.base} pending"] = snapshot.pending
        return found

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Nothing at all may change in here."""
        before = self.dump()
        yield
        after = self.dump()
        changes = {key: (before.get(key), after.get(key)) for key in before | after}
        assert {key: change for key, change in changes.items() if change[0] != change[1]} == {}


@contextmanager
def checked(connection: Connection, **options: Any) -> Iterator[World]:
    """A world in which all invariants hold in the end."""
    world = World(connection, **options)
    yield world
    world.outcomes.close()
    world.check()
