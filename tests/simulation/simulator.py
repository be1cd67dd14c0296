"""One seed: an interleaving of clients, workers, duties, clock and faults, judged by the model after every script.

Everything random comes from the seed, ids and nonces included, so the same seed does the same again. Every seed also
draws how likely each action is and how much is lost, so that seeds differ in kind and not only in detail.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from itertools import accumulate
from typing import Any

from simulation.clients import Clients
from simulation.families import Families
from simulation.heal import heal
from simulation.heard import Event, Heard, events_of
from simulation.model import UNHEARD, Model
from simulation.probes import Probes
from simulation.tapped import Tapped
from simulation.wire import Loss, Wire
from simulation.workers import Worker
from support.invariants import check, runs

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.duties.janitor import Janitor
from agentq.coordinator.duties.promoter import Promoter
from agentq.coordinator.duties.reaper import Reaper
from agentq.coordinator.duties.ticker import GAP_TICKS
from agentq.coordinator.errors import Unreachable
from agentq.coordinator.model.ids import run_id_prefix
from agentq.coordinator.queues.limits import Limits
from agentq.coordinator.queues.queues import Queues
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.coordinator.sessions.conversations import AgentConversations
from agentq.coordinator.sessions.verbs import Sessions
from agentq.coordinator.storage.connection import CommandArgument
from agentq.coordinator.storage.keys import Keyspace
from agentq.coordinator.storage.scripts import ScriptSet
from agentq.coordinator.storage.store import NamespaceStore
from agentq.coordinator.workers.lease import replace_worker

START_MS = 1_900_000_000_000
DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
INSPECT_EVERY = 20
TRACE_LENGTH = 80
WORKERS = 4
TRIES = 4
PACES = ((0.5, 50), (0.8, 2_000), (0.95, 9_000), (0.99, 50_000), (1, 700_000))
"""How likely the clock makes a step of how many milliseconds at the most."""
HOUSED = ("pending", "claimed", "running")

SETTINGS = Settings()


class Simulator:
    """The world of one seed."""

    def __init__(self, wire: Wire, seed: int, scripts: ScriptSet, inspect_every: int = INSPECT_EVERY) -> None:
        self.wire, self.seed = wire, seed
        self.inspect_every = inspect_every
        self.chance: random.Random = random.Random(seed)
        self.now_ms = START_MS
        self.settings = SETTINGS
        keyspace = Keyspace(f"seed-{seed}")
        self.store = NamespaceStore(wire, keyspace, scripts=scripts, clock=lambda: self.now_ms, dice=self.chance.random,
                           nonce=self.nonce)  # fmt: skip
        self.queue = RunVerbs(self.store)
        self.queues = Queues(self.store)
        self.limits = Limits(self.store)
        self.sessions, self.conversations = Sessions(self.store), AgentConversations(self.store)
        self.promoter = Promoter(self.store, self.settings.tick_ms)
        self.reaper = Reaper(self.store, self.settings, server="server-1")
        self.janitor = Janitor(self.store, idle_ms=60_000)
        self.base = keyspace.base(0)
        self.probes = Probes(wire.calm, self.base)
        self.model = Model(gap_ms=GAP_TICKS * SETTINGS.tick_ms, lease_ms=SETTINGS.lease_ms,
                           grace_ms=SETTINGS.reap_grace_ms, forget_ms=SETTINGS.forget_ms)  # fmt: skip
        self.kept: Model | None = None
        self.known: list[str] = []
        self.delivered: set[tuple[str, str]] = set()
        self.clients, self.families = Clients(self), Families(self)
        self.workers: list[Worker] = []
        self.born = 0
        self.step, self.said, self.doing = 0, 0, "begins"
        self.trace: deque[tuple[Any, ...]] = deque(maxlen=TRACE_LENGTH)
        self._odds: dict[int, list[float]] = {}
        self._draw_character()

    def _draw_character(self) -> None:
        """What kind of seed this is."""
        self.loss = self.chance.choice((0, 0.03, 0.1, 0.3))
        self.richness = self.chance.choice((0.3, 1, 1, 1.6))
        self.forgetful = self.chance.random() < 0.3
        self.crowd = self.chance.randint(WORKERS - 1, WORKERS)

    # ---- chance

    def nonce(self) -> str:
        return "".join(self.chance.choices(DIGITS, k=9))

    def run_id(self) -> str:
        run = f"{run_id_prefix(self.now_ms)}00{''.join(self.chance.choices(DIGITS, k=12))}"
        self.known.append(run)
        if len(self.known) > 40:
            self.known.pop(0)
        return run

    def pick(self, table: Sequence[tuple[float, Callable[..., Any]]]) -> Callable[..., Any]:
        """An action of a table, by weights that each seed bends in its own way."""
        odds = self._odds.get(id(table))
        if odds is None:
            odds = list(accumulate(weight * self.chance.choice((0.2, 1, 1, 4)) for weight, _ in table))
            self._odds[id(table)] = odds
        return table[bisect(odds, self.chance.random() * odds[-1])][1]

    def fate(self, script: str) -> Loss:
        """What becomes of a call."""
        self.said += 1
        if not self.loss or script == "namespace/bootstrap":
            return Loss.NOTHING
        roll = self.chance.random()
        return Loss.WORDS if roll < self.loss / 2 else Loss.ANSWER if roll < self.loss else Loss.NOTHING

    # ---- the run of a seed

    def run(self, steps: int) -> None:
        """Do it all, and say how to do it again if something is wrong."""
        self.wire.fate, self.wire.heard = self.fate, self.heard
        try:
            for self.step in range(1, steps + 1):
                self._do_something()
                if self.step % self.inspect_every == 0:
                    self.inspect()
            self.loss, self.doing = 0, "heals"
            heal(self)
        except Exception as fault:
            raise AssertionError(self.story(fault, steps)) from fault
        finally:
            self.wire.rest()
            self.probes.erase()

    def _do_something(self) -> None:
        """One action; where it finds nothing to do, another, a few times at the most."""
        if self.families.wants_to_act:
            self.doing = "families"
            self.families.act()
            return
        said = self.said
        for _ in range(TRIES):
            action = self.pick(STEPS)
            self.doing = action.__name__
            action(self)
            if self.said != said:
                return

    def heard(self, script: str, words: Sequence[CommandArgument], answer: Tapped) -> None:
        """The server has run a script: the model follows."""
        if script in UNHEARD:
            return
        heard = Heard(script, words, answer.reply)
        events = [event for _, flat in answer.events for event in events_of(flat[1::2])]
        self.trace.append((self.step, self.doing, script, words, answer.reply))
        self.trace.extend(events)
        self.model.follow(heard, events, answer.lines)

    def inspect(self, *, settled: bool = False) -> None:
        """Everything there is, against the invariants and the model. A delivered entry is in nobody's model."""
        snapshot = self.probes.snapshot()
        if not settled:
            homes = {
                (fields["lane"], fields["entry"]) for fields in runs(snapshot).values() if fields["state"] in HOUSED
            }
            for lane, entry in self.delivered - homes:
                snapshot.pending.get(lane, {}).pop(entry, None)
        check(snapshot)
        found = runs(snapshot)
        for run, fields in found.items():
            if fields["state"] in ("blocked", "scheduled", "waiting"):
                assert fields.get("reason"), f"{run} is {fields['state']} and does not say why"
            if fields["state"] in ("claimed", "running"):
                assert fields["worker"] in snapshot.one("workers"), f"{run} is held by {fields['worker']}, who is gone"
        assert found.keys() == self.model.runs.keys(), f"runs: {found.keys() ^ self.model.runs.keys()}"
        for run, fields in found.items():
            words = (
                run,
                fields["state"],
                fields.get("attempt", "0"),
                fields.get("fence", ""),
                fields.get("worker", ""),
            )
            assert " ".join(words) == self.model.runs[run].line

    def story(self, fault: Exception, steps: int) -> str:
        """What went wrong, what came before it, and how to see it again."""
        replay = f"uv run pytest tests/simulation -n 0 --seed {self.seed} --steps {steps}"
        what = f"{type(fault).__name__}: {fault}"
        told = [line[:400] for line in self.told()]
        return "\n".join([f"seed {self.seed}, step {self.step} ({self.doing}): {what}", *told, what, replay])

    def told(self) -> list[str]:
        """The last that happened."""
        return [_told(each) for each in self.trace]

    # ---- steps

    def worker(self) -> None:
        self.workers = [worker for worker in self.workers if not worker.dead]
        if len(self.workers) < self.crowd and (not self.workers or self.chance.random() < 0.2):
            self.born += 1
            self.workers.append(Worker(self, f"w{self.born}"))
        present = [worker for worker in self.workers if worker.away_until <= self.now_ms]
        if present:
            one = self.chance.choice(present)
            self.doing = one.name
            one.step()

    def clock(self) -> None:
        roll = self.chance.random()
        most = next(most for likely, most in PACES if roll < likely)
        self.now_ms += self.chance.randint(1, most)

    def crash(self) -> None:
        """A worker that holds something dies, and is noticed: by a reaper, or on its host."""
        holders = [worker for worker in self.workers if worker.held and not worker.dead]
        if holders:
            one = self.chance.choice(holders)
            one.die()
            if self.chance.random() < 0.5:
                self.oust(one)
            else:
                self.watch()

    def oust(self, one: Worker) -> None:
        """Another process on its host has seen that its process is dead; or it was an earlier one."""
        epoch = one.lease._partition_leases[0].epoch if one.dead else "1"
        with suppress(Unreachable):
            replace_worker(self.store, 0, one.name, epoch, "its process is dead")

    def oust_another(self) -> None:
        if self.workers:
            self.oust(self.chance.choice(self.workers))

    def ask_for_duties(self) -> None:
        """What every process does in each tick that could do the duties; 0 gives them up."""
        owner = self.chance.choice(["server", *(worker.name for worker in self.workers)])
        lasts_ms = self.chance.choice((0, 10_000, 10_000, 10_000))
        with suppress(Unreachable):
            self.store.call("duty/lock", 0, owner, lasts_ms, GAP_TICKS * self.settings.tick_ms)

    def watch(self) -> None:
        """A while in which most of those who can renew their leases, and a reaper looks on."""
        for _ in range(4):
            self.now_ms += 11_000
            for worker in self.workers:
                here = worker.registered and not worker.dead and worker.away_until <= self.now_ms
                if here and self.chance.random() < 0.6:
                    worker.say(worker.heartbeat)
            if self.chance.random() < 0.3:
                self.ask_for_duties()
            else:
                self.reap()

    def promote(self) -> None:
        try:
            done = self.promoter.run_once(0)
        except Unreachable:
            return
        late = self.model.overdue(self.now_ms)
        assert not late, f"the promoter left undone: {late}"
        next_at = self.model.next_at()
        assert next_at is None or done.next_ms <= next_at - self.now_ms, f"{done}, but there is more to do at {next_at}"

    def reap(self) -> None:
        try:
            self.reaper.reap(0)
        except Unreachable:
            return

    def tidy(self) -> None:
        try:
            self.janitor.run_once(0)
        except Unreachable:
            return

    def lapse(self) -> None:
        """The server deletes what has outlived its time to live."""
        for worker in self.probes.lapse(self.now_ms):
            self.model.workers.pop(worker, None)
        for seat in self.model.workers.values():
            if seat.lease_until <= self.now_ms:
                seat.lapsed = seat.lease_until

    def replace_server(self) -> None:
        self.reaper.server = f"server-{self.chance.random()}"

    def keep(self) -> None:
        """What is on disk by now."""
        if self.forgetful:
            self.probes.keep()
            self.kept = self.model.rewound()

    def rewind(self) -> None:
        """The server loses all that came after, and starts again; perhaps with another clock."""
        if self.kept is not None:
            self.probes.restore()
            self.replace_server()
            # Another machine may have taken over, whose clock is behind; or this one's was set.
            self.now_ms -= self.chance.choice((0, 0, 10, 5_000, 40_000))
            self.kept.fences, self.kept.orders = self.model.fences, self.model.orders
            self.model, self.kept = self.kept, None
            self.model.effects.clear()
            self.trace.append((self.step, "the server lost its last commands"))


def _told(entry: tuple[Any, ...]) -> str:
    if isinstance(entry, Event):
        return (
            f"         {entry.event} {entry.run[-6:]}: {entry.state} {entry.attempt} {entry.worker} {entry.detail[:80]}"
        )
    return "    ".join(str(part) for part in entry)


def by_clients(verb: Callable[[Clients], None]) -> Callable[[Simulator], None]:
    """A step of the clients."""

    @wraps(verb)
    def act(sim: Simulator) -> None:
        verb(sim.clients)

    return act


STEPS: tuple[tuple[float, Callable[[Simulator], None]], ...] = (
    (80, Simulator.worker),
    (26, by_clients(Clients.submit)),
    (4, by_clients(Clients.again)),
    (0.8, by_clients(Clients.open)),
    (1.6, by_clients(Clients.seal)),
    (3, by_clients(Clients.cancel)),
    (4, by_clients(Clients.wake)),
    (14, by_clients(Clients.signal)),
    (4, by_clients(Clients.requeue)),
    (3, by_clients(Clients.begin)),
    (3, by_clients(Clients.plan)),
    (8, by_clients(Clients.task)),
    (2, by_clients(Clients.seal_plan)),
    (0.7, by_clients(Clients.halt)),
    (1.5, by_clients(Clients.retry)),
    (0.3, by_clients(Clients.close)),
    (1.5, by_clients(Clients.limit)),
    (0.7, by_clients(Clients.unlimit)),
    (0.7, by_clients(Clients.shut)),
    (0.7, by_clients(Clients.pause)),
    (0.2, by_clients(Clients.weigh)),
    (2, by_clients(Clients.forget)),
    (9, Simulator.clock),
    (0.7, Simulator.watch),
    (0.7, Simulator.crash),
    (5, Simulator.promote),
    (4, Simulator.reap),
    (4, Simulator.ask_for_duties),
    (0.5, Simulator.oust_another),
    (0.3, Simulator.tidy),
    (0.5, Simulator.lapse),
    (0.3, Simulator.replace_server),
    (2, Simulator.keep),
    (0.7, Simulator.rewind),
)
