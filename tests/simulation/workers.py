"""A worker: it acts on what it believes, which is what it was last told, however long ago that was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from simulation.wire import Loss

from agentq.coordinator.errors import AgentqError, Duplicate, Evicted, Stopping, TryLater, Unreachable
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import AgentSpending, Outcome
from agentq.coordinator.runs.merge_progress import MergeProgress
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.runs.wait import RunWait
from agentq.coordinator.storage.connection import NoGroup
from agentq.coordinator.storage.keys import CONSUMER_GROUP
from agentq.coordinator.workers.lease import (
    EXCHANGES_IN_FLIGHT,
    FunctionOutcome,
    WorkerIdentity,
    WorkerLease,
    WorkerOrder,
)

if TYPE_CHECKING:
    from simulation.simulator import Simulator

HOSTS = ("h1", "h2")
USUAL = (OutcomeClass.EXIT, OutcomeClass.EXIT, OutcomeClass.SPAWN)
CLASSES = (*(class_ for class_ in OutcomeClass if class_ is not OutcomeClass.OK), *USUAL * 4)


@dataclass(slots=True)
class Hold:
    """A run that the worker believes to hold."""

    claim: Claim
    running: bool = False
    reports: int = 0
    stopping: bool = False


class Worker:
    """One process. It is alive until `dead`; while it is away it does nothing, and knows nothing of that."""

    def __init__(self, sim: Simulator, name: str) -> None:
        chance = sim.chance
        self.sim = sim
        self.name = name
        self.slots = chance.choice((1, 2, 3))
        self.host = chance.choice(HOSTS)
        labels = {"host": self.host} | ({"gpu": "1"} if chance.random() < 0.5 else {})
        labels |= {"agent.claude": "ready", "agent.codex": "ready"} if chance.random() < 0.9 else {}
        queues = ("default", "slow") if chance.random() < 0.8 else ("default",)
        identity = WorkerIdentity(id=name, queues=queues, labels=labels, slots=self.slots)
        self.lease = WorkerLease(sim.store, identity, sim.settings)
        self.held: dict[str, Hold] = {}
        self.registered = False
        self.draining = False
        self.dead = False
        self.away_until = 0
        self.applied: list[WorkerOrder] = []
        self.delivered: list[tuple[str, str]] = []
        self.unanswered: Callable[[], object] | None = None

    # ---- what it does in one step

    def step(self) -> None:
        """One thing, whatever it believes to be next."""
        chance = self.sim.chance
        if self.unanswered is not None and chance.random() < 0.6:
            self.say(self.unanswered)
        elif not self.registered:
            self.say(self.register)
        elif self.delivered and chance.random() < 0.4:
            self.say(self.adopt)
        elif self.draining and not self.held and chance.random() < 0.5:
            self.say(self.deregister)
        elif self.held and chance.random() < 0.7:
            self.work(self.held[chance.choice(list(self.held))])
        else:
            self.say(partial(self.sim.pick(IDLE), self))

    def say(self, what: Callable[[], object]) -> None:
        """Say something, and again some time if there was no answer."""
        self.unanswered = None
        try:
            what()
        except Unreachable:
            if self.sim.chance.random() < 0.8:
                self.unanswered = what
        except Evicted:
            self.held.clear()
            self.registered = False
        except Duplicate:
            self.away_until = self.sim.now_ms + 10_000
        except AgentqError:
            pass

    def register(self) -> None:
        held = self.lease.register()
        self.registered, self.draining = True, False
        self.held = {run: hold for run, hold in self.held.items() if (run, hold.claim.fence) in held}

    def heartbeat(self) -> None:
        named = [hold.claim for hold in self.held.values()]
        if named and self.sim.chance.random() < 0.05:
            named.pop()
        beat = self.lease.heartbeat(named, self.applied)
        self.applied.clear()
        self.draining = beat.draining
        for claim in beat.fenced_claims:
            self.held.pop(claim.id, None)
        for order in beat.orders:
            hold = self.held.get(order.run)
            if order.order == "stop" and hold is not None and hold.claim.fence == order.fence:
                hold.stopping = True
        if self.sim.chance.random() < 0.7:
            self.applied.extend(beat.orders)

    def claim(self) -> None:
        free = self.slots - len(self.held)
        if free > 0:
            self.take(self.lease.claim(free, free))

    def exchange(self) -> None:
        """Tell how some of what it holds ended, and ask for as many functions as there is room for then."""
        chance = self.sim.chance
        claims = [hold.claim for hold in self.held.values() if chance.random() < 0.6]
        ended = [self._ended(claim) for claim in claims]
        calls = chance.choice((0, max(0, self.slots - len(self.held) + len(ended))))
        way = chance.randrange(EXCHANGES_IN_FLIGHT)

        def said() -> None:
            _, more = self.lease.exchange(ended, calls, way=way)
            for claim in claims:
                self.drop(claim)
            self.take(more)

        self.say(said)

    def _ended(self, claim: Claim) -> FunctionOutcome:
        class_ = self.sim.chance.choice((OutcomeClass.OK, OutcomeClass.OK, *CLASSES))
        return FunctionOutcome(
            claim, class_.value, Outcome(class_=class_).to_wire(), self.sim.chance.choice((None, 0, 1_500))
        )

    def take(self, claims: list[Claim]) -> None:
        for claim in claims:
            self.held[claim.id] = Hold(claim)

    def read(self) -> None:
        """The blocking read: an entry is delivered, and adopted later, or never."""
        lanes = self.lease.lanes(0)
        names = [self.sim.probes.key("lane", lane) for lane in lanes]
        if not lanes:
            return
        tail = (*names, *(">" for _ in names))
        try:
            reply = (
                self.sim.wire.command("XREADGROUP", "GROUP", CONSUMER_GROUP, self.name, "COUNT", 1, "STREAMS", *tail)
                or []
            )
        except NoGroup:
            return
        found = [(lanes[names.index(name)], entry) for name, entries in reply for entry, _ in entries]
        self.sim.delivered.update(found)
        if self.sim.fate("read") is Loss.NOTHING:
            self.delivered += found

    def adopt(self) -> None:
        """Take what a read has delivered; from the pending list, if the read's answer may have been lost."""
        try:
            entries = self.delivered or self.lease.pending(0)
        except NoGroup:
            return
        self.take(self.lease.adopt(0, entries))
        self.delivered = []

    def drain(self) -> None:
        self.lease.drain()
        self.draining = True

    def deregister(self) -> None:
        self.lease.deregister()
        self.held.clear()
        self.dead = True

    def stall(self) -> None:
        """It stops, as a process does that is swapped out; when it comes back it knows of nothing."""
        self.away_until = self.sim.now_ms + self.sim.chance.choice((1_000, 10_000, 40_000, 90_000))

    def die(self) -> None:
        self.dead = True

    def be_reborn(self) -> None:
        """It starts again under the same name, and has forgotten everything."""
        self.lease = WorkerLease(self.sim.store, self.lease.identity, self.sim.settings)
        self.held.clear()
        self.delivered.clear()
        self.registered = False

    # ---- work on a run

    def work(self, hold: Hold) -> None:
        chance, claim, queue = self.sim.chance, hold.claim, self.sim.queue
        if hold.stopping and chance.random() < 0.8:
            self.end(claim, lambda: queue.fail(claim, Outcome(class_=OutcomeClass.CANCELLED)))
        elif not hold.running and chance.random() < 0.8:
            self.say(lambda: self.start(hold))
        else:
            self.sim.pick(WORK if hold.running else UNSTARTED)(self, hold)

    def start(self, hold: Hold) -> None:
        (refused,) = self.sim.queue.start([hold.claim])
        if isinstance(refused, Stopping):
            hold.stopping = True
        elif refused is not None:
            self.held.pop(hold.claim.id, None)
        else:
            hold.running = True

    def report(self, hold: Hold) -> None:
        hold.reports += 1
        number = hold.reports if self.sim.chance.random() < 0.9 else 1
        self.say(lambda: self.sim.queue.report(hold.claim, number, {"at": number}))

    def finish(self, hold: Hold) -> None:
        """Finish it, and at times everything else in the same call."""
        every = self.sim.chance.random() < 0.3
        claims = [each.claim for each in self.held.values()] if every else [hold.claim]

        def said() -> None:
            self.sim.queue.finish([(claim, Outcome()) for claim in claims])
            for claim in claims:
                self.drop(claim)

        self.say(said)

    def fail(self, hold: Hold) -> None:
        class_, delay = self.sim.chance.choice(CLASSES), self.sim.chance.choice((None, None, 0, 1_500))
        outcome = Outcome(class_=class_)
        self.end(hold.claim, lambda: self.sim.queue.fail(hold.claim, outcome, delay_ms=delay))

    def defer(self, hold: Hold) -> None:
        chance, outcome = self.sim.chance, Outcome(class_=OutcomeClass.LIMIT)
        due, delay = self.sim.now_ms + chance.choice((0, 500, 9_000)), chance.choice((0, 700))
        due_at, delay_ms = chance.choice(((due, None), (due, None), (None, delay), (None, None)))
        self.end(hold.claim, lambda: self.sim.queue.defer(hold.claim, due_at, outcome, delay_ms=delay_ms))

    def release(self, hold: Hold) -> None:
        self.end(hold.claim, lambda: self.sim.queue.release(hold.claim))

    def park(self, hold: Hold) -> None:
        chance = self.sim.chance
        if chance.random() < 0.3:
            self.say(partial(self.sim.queue.receive, hold.claim))
        wait = RunWait(
            signals=chance.choice(((), ("a",), ("a", "b"))),
            approval=chance.random() < 0.3,
            children=chance.choice((None, "all", "any")),
            until_ms=chance.choice((None, None, self.sim.now_ms, self.sim.now_ms + 4_000)),
            state=chance.random(),
        )
        self.end(hold.claim, lambda: self.sim.queue.park(hold.claim, "", wait))

    def receive(self, hold: Hold) -> None:
        self.say(partial(self.sim.queue.receive, hold.claim))

    def talk(self, hold: Hold) -> None:
        """What an agent's attempt tells of its conversation, a few words at a time."""
        claim, talk = hold.claim, self.sim.conversations
        for _ in range(3 if "agent.claude" in claim.lane else 0):
            chance = self.sim.chance
            spent = AgentSpending(
                cost_usd=chance.choice((None, 0.5, 2)), input_tokens=chance.choice((0, 7, 70)), turns=3
            )
            session, movable = chance.choice((None, "one", "one", "two")), chance.random() < 0.5
            words = (
                partial(talk.bind, claim, session, host=self.host, movable=movable),
                partial(talk.spend, claim, spent),
                partial(talk.spend, claim, spent),
                partial(talk.carry, claim, str(chance.random()).encode()),
                partial(talk.carried, claim),
                partial(talk.open, claim),
            )
            self.say(chance.choice(words))

    def merge(self, hold: Hold) -> None:
        """Stand in a line of those who move a branch, or leave it; and note how far it has come."""
        claim, queue, chance = hold.claim, self.sim.queue, self.sim.chance
        line, intent = chance.choice(("l1", "l1", "l2")), MergeProgress(step="committed", commit=self.sim.nonce())
        words = (
            partial(queue.line_up, claim, line, "c0ffee"),
            partial(queue.line_up, claim, line, "c0ffee"),
            partial(queue.step_aside, claim, line),
            partial(queue.intend, claim, intent),
            partial(queue.intent, claim),
        )
        self.say(chance.choice(words))

    def end(self, claim: Claim, word: Callable[[], object]) -> None:
        """Say the last word on an attempt; whatever the answer, it is over, unless there was none."""

        def said() -> None:
            try:
                word()
            except (Unreachable, TryLater):
                raise
            except AgentqError:
                pass
            self.drop(claim)

        self.say(said)

    def drop(self, claim: Claim) -> None:
        """It is over, unless the worker has claimed the run anew since."""
        hold = self.held.get(claim.id)
        if hold is not None and hold.claim.fence == claim.fence:
            del self.held[claim.id]


IDLE = (
    (15, Worker.heartbeat),
    (35, Worker.claim),
    (12, Worker.exchange),
    (6, Worker.read),
    (8, Worker.adopt),
    (0.6, Worker.drain),
    (0.4, Worker.deregister),
    (4, Worker.stall),
    (1.2, Worker.die),
    (0.6, Worker.be_reborn),
)
UNSTARTED = (
    (4, Worker.fail),
    (3, Worker.finish),
    (2, Worker.release),
    (1, Worker.defer),
    (1, Worker.report),
    (2, Worker.park),
)
WORK = (
    (35, Worker.finish),
    (35, Worker.fail),
    (15, Worker.report),
    (8, Worker.defer),
    (8, Worker.release),
    (20, Worker.park),
    (20, Worker.receive),
    (30, Worker.talk),
    (12, Worker.merge),
)
