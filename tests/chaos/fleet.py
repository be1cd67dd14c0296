"""Clients and workers that go on whatever happens to the server: each says again what was not answered."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from support.servers import until
from support.world import World

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.duties.reaper import Reaper
from agentq.coordinator.errors import AgentqError, Evicted, TryLater, Unreachable
from agentq.coordinator.model.ids import new_run_id
from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.workers.lease import WorkerIdentity, WorkerLease

T = TypeVar("T")

PATIENCE_MS = 30_000
SETTINGS = Settings(heartbeat_ms=300, lease_ms=3000, reap_grace_ms=300, forget_ms=3000, tick_ms=400)
SPEC = RunSpec(kind="command", argv=["true"])
HANDS = 4


def insist(act: Callable[[], T]) -> T:
    """Say the same thing until it is answered."""
    deadline = monotonic_ms() + PATIENCE_MS
    while True:
        try:
            return act()
        except (Unreachable, TryLater):
            if monotonic_ms() > deadline:
                raise


class Fleet:
    """Submitters, workers and reapers, in threads; what was answered to each is kept."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.submitted: set[str] = set()
        self.clients: set[int] = set()
        self.finished: Counter[str] = Counter()
        self.refused: list[AgentqError] = []
        self.lost: list[str] = []
        self.enough = threading.Event()
        """Nothing more is submitted; what is there is worked off."""

    def submit(self, stop: threading.Event) -> None:
        """A client that submits one run after the other, and writes down what was acknowledged."""
        self.clients.add(threading.get_ident())
        while not stop.is_set() and not self.enough.is_set():
            run_id = new_run_id()
            insist(partial(self.world.queue.submit, SPEC, run_id=run_id))
            self.submitted.add(run_id)
        self.clients.remove(threading.get_ident())

    def work(self, name: str, stop: threading.Event) -> None:
        """A worker: one thread claims, starts and finishes, another keeps the lease."""
        lease, held = self.lease(name), dict[str, Claim]()
        beating = threading.Thread(target=self.beat, args=(lease, held, stop))
        beating.start()
        while not stop.is_set():
            claims = self.claim(lease, held)
            held |= {claim.id: claim for claim in claims}
            self.say(insist(partial(self.world.queue.start, claims)))
            outcomes = [(claim, Outcome(exit_code=0)) for claim in claims]
            refused = insist(partial(self.world.queue.finish, outcomes))
            self.finished.update(claim.id for claim, word in zip(claims, refused, strict=True) if word is None)
            self.say(refused)
            for claim in claims:
                del held[claim.id]
        beating.join()

    def lease(self, name: str) -> WorkerLease:
        """A worker that has just registered."""
        lease = WorkerLease(self.world.store, WorkerIdentity(id=name, queues=("default",)), SETTINGS)
        insist(lease.register)
        return lease

    def claim(self, lease: WorkerLease, held: dict[str, Claim]) -> list[Claim]:
        """Claim; whose lease ran out while the server was away sends a heartbeat first."""
        try:
            return insist(partial(lease.claim, HANDS))
        except Evicted:
            insist(partial(lease.heartbeat, list(held.values())))
            return []

    def beat(self, lease: WorkerLease, held: dict[str, Claim], stop: threading.Event) -> None:
        """Heartbeats; a worker that is told that it was lost says so to the test."""
        while not stop.wait(SETTINGS.heartbeat_ms / 1000):
            try:
                insist(partial(lease.heartbeat, list(held.values())))
            except AgentqError as refused:
                self.refused.append(refused)
                return

    def reap(self, stop: threading.Event) -> None:
        """A reaper with a connection of its own, which asks the server who it is."""
        reaper = Reaper(self.world.store, SETTINGS)
        while not stop.wait(SETTINGS.tick_ms / 1000):
            self.lost += insist(partial(reaper.reap, 0)).lost

    def say(self, refused: list[AgentqError | None]) -> None:
        self.refused += [word for word in refused if word is not None]

    def wait_for(self, more: int) -> None:
        """Until so many more runs have been acknowledged."""
        aim = len(self.submitted) + more
        until(lambda: len(self.submitted) >= aim, f"{more} more runs to be submitted")

    def drain(self) -> None:
        """Submit nothing more, and wait until everything is finished."""
        self.enough.set()
        until(lambda: not self.clients, "the clients to end")
        until(lambda: len(self.finished) >= len(self.submitted), "all runs to be finished")


def passed(milliseconds: int) -> Callable[[], bool]:
    """A condition that holds so much later."""
    then = monotonic_ms() + milliseconds
    return lambda: monotonic_ms() >= then
