"""A run on a stage: those it waits for, those that wait for it, the workers around it, and the steps of its life."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count

from support.world import World

from agentq.coordinator.events.stream import Event
from agentq.coordinator.model.ids import new_run_id
from agentq.coordinator.model.lifecycle import HELD_STATES, OutcomeClass, State
from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.runs.wait import Resumption, RunWait
from agentq.coordinator.sessions.verbs import Sessions
from agentq.coordinator.workers.lease import WorkerLease

COMMAND = {"kind": "command", "argv": ["true"]}
TURN = {"kind": "agent", "agent": "claude", "prompt": "go on", "argv": ()}
ABOUT_WORKERS = ("worker", "worker_lease", "workers", "departed_workers", "worker_inbox", "worker_runs", "reaper_watch")
"""What a change of workers, and not of runs, may change."""

MakeStage = Callable[..., "Stage"]


class Stage:
    """One run in a namespace. The steps are the builders' words; how each verb is said stands in `ways`."""

    def __init__(self, world: World, *, children: int = 0, **fields: object) -> None:
        self.world = world
        self.queue = world.queue
        # The last partition, so that with several of them nothing here works only in the first.
        self.partition = world.store.keyspace.partitions - 1
        self.run = new_run_id(self.partition)
        self.fields = fields
        self.spec = RunSpec.checked(**COMMAND, **fields)
        self.claim = Claim(self.run, "1-nobody", self.spec.lane, "")
        """The present attempt, or else the last one; before the first, one that never was."""
        self.parents: list[Claim] = []
        self.child_count = children
        self.children: list[str] = []
        """Runs that wait for it."""
        self.own_children: list[str] = []
        """Runs that it submitted."""
        self.rivals: list[str] = []
        """Other turns of its session."""
        self.leases: dict[str, WorkerLease] = {}
        self.neighbours: dict[str, str] = {}

    # ---- steps of a life, all by legal verbs

    def imagine(self, **fields: object) -> None:
        """Say what the run is to be."""
        self.spec = RunSpec.checked(**COMMAND | self.fields | fields)

    def submit(self, **fields: object) -> None:
        """The run is born, and those that wait for it."""
        self.imagine(**fields)
        self.queue.submit(self.spec, run_id=self.run)
        for _ in range(self.child_count):
            self.children.append(self.submit_other(queue="children", after=[self.run]))

    def submit_other(self, **fields: object) -> str:
        """Another run in the same partition."""
        return self.queue.submit(RunSpec.checked(**COMMAND | fields), run_id=new_run_id(self.partition)).id

    def add_parents(self, count: int = 1) -> list[str]:
        """Runs to depend on, in the hands of a worker of their own."""
        ids = [self.submit_other(queue="parents") for _ in range(count)]
        claims = self.lease("parents", "parents").claim(count)
        self.parents += sorted(claims, key=lambda claim: ids.index(claim.id))
        return [claim.id for claim in self.parents]

    def begin_session(self) -> str:
        """A session that lives in the stage's partition; the same one each time."""
        sessions = Sessions(self.world.store)
        session = next(f"chat-{number}" for number in count() if sessions.partition(f"chat-{number}") == self.partition)
        sessions.new(session, "claude", operation="begun-once")
        return session

    def as_turn(self) -> dict[str, object]:
        """What makes the run a turn of that session."""
        return {**TURN, "session": self.begin_session()}

    def add_rival(self) -> None:
        """Another turn comes, and is in nobody's hands."""
        self.rivals.append(self.submit_other(**self.as_turn(), queue="rivals"))

    def end_parent(self, class_: OutcomeClass = OutcomeClass.OK) -> None:
        """The first of the parents ends."""
        parent = self.parents.pop(0)
        if class_ is OutcomeClass.OK:
            assert self.queue.finish([(parent, Outcome())]) == [None]
        else:
            self.queue.fail(parent, Outcome(class_=class_))

    def add_neighbours(self) -> None:
        """A completed and a failed run in its lane that it has nothing to do with, and one in the lane of turns."""
        for ending in ("completed", "failed"):
            self.neighbours[ending] = self.submit_other()
        lease = self.lease("neighbours")
        completed, failed = sorted(lease.claim(2), key=lambda claim: claim.id == self.neighbours["failed"])
        self.queue.finish([(completed, Outcome())])
        self.queue.fail(failed, Outcome(class_=OutcomeClass.REJECTED))
        self.submit_other(**TURN)
        self.queue.finish([(claim, Outcome()) for claim in lease.claim(1)])
        self.leases.pop("neighbours").deregister()

    def take(self, worker: str = "w1", *, start: bool = False) -> Claim:
        """A worker claims the run."""
        lease = self.lease(worker)
        self.beat(worker)
        (self.claim,) = lease.claim(1)
        assert self.claim.id == self.run
        if start:
            self.start()
        return self.claim

    def take_from(self, queue: str) -> None:
        """A worker of another queue than the default claims the run."""
        (self.claim,) = self.lease("w1", queue).claim(1)

    def start(self) -> None:
        assert self.queue.start([self.claim]) == [None]

    def fail(self, class_: OutcomeClass = OutcomeClass.EXIT) -> State:
        return self.queue.fail(self.claim, Outcome(class_=class_, error="it went wrong"))

    def defer(self) -> State:
        return self.queue.defer(self.claim, self.world.now_ms + 60_000, Outcome(class_=OutcomeClass.LIMIT))

    def finish(self) -> None:
        assert self.queue.finish([(self.claim, Outcome(exit_code=0))]) == [None]

    def park(self, alarm_ms: int | None = None) -> State:
        """Fall asleep; `alarm_ms` from now the alarm rings."""
        alarm_at_ms = None if alarm_ms is None else self.world.now_ms + alarm_ms
        return self.queue.park(self.claim, "asleep", alarm_at_ms=alarm_at_ms)

    def park_for(self, **wait: object) -> State:
        """Fall asleep until what it waits for is there."""
        return self.queue.park(self.claim, wait=RunWait.checked(**wait))

    def resume(self) -> Resumption:
        """The next attempt begins, and receives."""
        self.take(start=True)
        found = self.queue.receive(self.claim)
        assert found is not None
        return found

    def add_own_children(self, count: int = 1, **fields: object) -> list[str]:
        """Children of the run, in nobody's hands."""
        self.own_children += [self.submit_other(queue="own", parent=self.run, **fields) for _ in range(count)]
        return self.own_children

    def lose(self, worker: str = "w1") -> None:
        """The worker dies, and the reaper comes for its runs; everybody else lives on."""
        for pause_ms in (0, 15_000, 15_000, self.world.settings.reap_grace_ms):
            self.world.pass_ms(pause_ms)
            for name in self.leases.keys() - {worker}:
                self.beat(name)
            self.world.reap()
        assert self.about(worker, "state") == "lost"
        del self.leases[worker]

    def forget(self, worker: str = "w1") -> None:
        """The worker lives, and does not know of what it holds."""
        self.lease(worker).heartbeat([])
        self.world.pass_ms(self.world.settings.forget_ms)
        self.lease(worker).heartbeat([])

    def come(self) -> None:
        """What time next does to the run happens."""
        due_at_ms = self.timer()
        assert due_at_ms is not None
        self.world.now_ms = max(self.world.now_ms, due_at_ms)
        self.tick()

    def tick(self) -> None:
        self.world.tick()

    # ---- workers

    def lease(self, worker: str, *queues: str) -> WorkerLease:
        """A registered worker."""
        if worker not in self.leases:
            self.leases[worker] = self.world.worker(worker, *queues, labels={"agent.claude": "ready"})
        return self.leases[worker]

    def beat(self, worker: str) -> None:
        """A heartbeat that names all that the worker holds."""
        holds = self.command("HGETALL", "worker_runs", worker)
        held = [Claim(run, hold.partition(" ")[0], "", "") for run, hold in zip(holds[::2], holds[1::2], strict=True)]
        self.leases[worker].heartbeat(held)

    def epoch(self, worker: str) -> str:
        """What the worker's own calls of scripts show."""
        self.lease(worker)
        return self.about(worker, "epoch")

    def about(self, worker: str, field: str) -> str:
        return str(self.world.store.connection.command("HGET", self.key("worker", worker), field))

    # ---- what is there

    def key(self, name: str, *parts: str) -> str:
        return self.world.store.key(self.partition, name, *parts)

    def command(self, word: str, name: str, *words: str) -> list[str]:
        """A command on one key: `command("HGETALL", "worker_runs", "w1")`."""
        return list(self.world.store.connection.command(word, self.key(name, *words)))

    def size(self, word: str, name: str, *parts: str) -> int:
        """How much a key holds: `size("SCARD", "dependencies", run)`."""
        return int(self.world.store.connection.command(word, self.key(name, *parts)))

    def value(self, name: str, *parts: str) -> str:
        """What a plain key holds."""
        return str(self.world.store.connection.command("GET", self.key(name, *parts)))

    def key_at_home(self, name: str) -> str:
        """A dedupe key of this name whose users live in the stage's partition."""
        names = (f"{name}-{number}" for number in count())
        homes = (None, self.partition)
        return next(key for key in names if self.queue.home(RunSpec.checked(**COMMAND, dedupe_key=key)) in homes)

    def plant(self, word: str, key: str, *words: str | int) -> None:
        """Put something into the store that no verb of this run put there: what a crash, or a stranger, left."""
        self.world.store.connection.command(word, key, *words)

    def timer(self) -> int | None:
        """When time next does something to the run."""
        score = self.world.store.connection.command("ZSCORE", self.key("timers"), self.run)
        return None if score is None else int(float(score))

    def lane(self) -> str:
        """The lane that the run is in, or would be."""
        return str(self.world.store.connection.command("HGET", self.key("run", self.run), "lane") or self.spec.lane)

    def present(self) -> str:
        """The state that the run is in, or none."""
        return str(self.world.store.connection.command("HGET", self.key("run", self.run), "state") or "none")

    def claim_of(self, run: str) -> Claim:
        """A run as its worker knows it; of one that there is not, what a confused worker might say."""
        fence = self.world.store.connection.command("HGET", self.key("run", run), "fence")
        return Claim(run, str(fence or "1-nobody"), self.spec.lane, "")

    def attempt(self) -> int:
        """The number of the present attempt."""
        return int(self.world.store.connection.command("HGET", self.key("run", self.run), "attempt") or 0)

    def events(self, since: int = 0) -> list[Event]:
        """The events after the first so many."""
        return self.world.events()[since:]

    def dump(self, *, runs_only: bool = False, standing: bool = False) -> dict[str, object]:
        """Everything stored; `runs_only` without what is about workers, `standing` without entries that stand for
        nothing, which any claim may throw away."""
        about = tuple(f" {kind} (" for kind in (*ABOUT_WORKERS * runs_only, *("kept_entries",) * standing))
        dump = {name: value for name, value in self.world.dump().items() if not any(kind in name for kind in about)}
        if runs_only:
            dump |= {name: _of_runs(dump[name]) for name in dump if " events (" in name}
        return {name: _standing(dump, name) for name in dump} if standing else dump

    @contextmanager
    def unchanged(self, *, runs_only: bool = False, standing: bool = False) -> Iterator[None]:
        """Not one byte may change in here; the clock goes back to where it was."""
        dump = partial(self.dump, runs_only=runs_only, standing=standing)
        before, now_ms = dump(), self.world.now_ms
        yield
        self.world.now_ms = now_ms
        after = dump()
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        assert not changed, {name: (before.get(name), after.get(name)) for name in changed}


def _of_runs(events: object) -> object:
    """A stream of events without those of workers."""
    assert isinstance(events, dict)
    return {place: entry for place, entry in events.items() if not entry["event"].startswith("worker_")}


def _standing(dump: dict[str, object], name: str) -> object:
    """A value of a dump; of a lane, only the entries that are the home of a run."""
    entries = dump[name]
    if " lane (" not in name or not isinstance(entries, dict):
        return entries
    runs = [value for key, value in dump.items() if " run (" in key and isinstance(value, dict)]
    here = [fields for fields in runs if f"({fields['lane']!r},)" in name]
    homes = {fields["entry"] for fields in here if fields["state"] in (State.PENDING, *HELD_STATES)}
    return {entry: body for entry, body in entries.items() if entry in homes}
