"""RQ and agentq on one server of the test's own, with workers that execute jobs in the test's process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import rq
from redis import Redis
from rq.job import Job
from support.servers import Server

from agentq.coordinator.errors import AgentqError
from agentq.coordinator.lease import Identity, Lease
from agentq.coordinator.lifecycle import OutcomeClass
from agentq.coordinator.queue import Claim, Queue
from agentq.coordinator.records import Records
from agentq.coordinator.run import Outcome, spec_from_wire
from agentq.coordinator.settings import Settings
from agentq.worker.rq import closing, job
from agentq.worker.rq.clients import client_of
from agentq.worker.rq.lanes import RqLanes
from agentq.worker.rq.names import served

FUNCTIONS: dict[str, Callable[..., str]] = {job.__name__ + ":perform": job.execute, closing.SETTLE: job.conclude}


@dataclass
class Done:
    """How an attempt went."""

    claim: Claim
    said: str | None
    error: BaseException | None


class Adoption:
    """See above."""

    def __init__(self, server: Server, settings: Settings) -> None:
        self.server = server
        self.settings = settings
        self.client: Redis = client_of(settings.url)
        self.runs = Queue.open(settings)
        self.store = self.runs.store
        self.records = Records(self.store)

    def queue(self, name: str = "default", kind: type[rq.Queue] = rq.Queue, **options: Any) -> rq.Queue:
        return kind(name, connection=self.client, **options)

    def lanes(self, name: str = "default") -> RqLanes:
        return RqLanes(self.store, name)

    def take_in(self, name: str = "default", room: int = 100) -> int:
        return self.lanes(name).take_in(room).taken

    def worker(self, name: str = "w1", *queues: str) -> Lease:
        mine = served(queues or ("default",))
        lease = Lease(self.store, Identity(id=name, queues=mine), self.settings)
        lease.register()
        return lease

    def claim(self, lease: Lease) -> Claim:
        """The one run that waits, started."""
        (claim,) = lease.claim(0, calls=1)
        assert self.runs.start([claim]) == [None]
        return claim

    def call(self, claim: Claim, worker: str) -> str:
        """What a worker's child does with a claim."""
        spec = spec_from_wire(claim.spec, claim.lane)
        attempt = job.Attempt(self.settings, claim.id, claim.fence, worker)
        assert spec.function is not None
        return FUNCTIONS[spec.function](attempt, *spec.args)

    def perform(self, lease: Lease, claim: Claim) -> Done:
        """Execute an attempt and say how it ended."""
        try:
            said = self.call(claim, lease.identity.id)
        except (Exception, job.JobFailed) as error:  # noqa: BLE001 - that is what is looked at
            outcome = Outcome(class_=OutcomeClass.EXIT, error=f"{type(error).__name__}: {error}"[:1000])
            try:
                self.runs.fail(claim, outcome)
            except AgentqError:
                return Done(claim, None, error)
            return Done(claim, None, error)
        self.runs.finish([(claim, Outcome(result=said))])
        return Done(claim, said, None)

    def work(self, lease: Lease | None = None, *queues: str) -> list[Done]:
        """Take in and execute until nothing is left."""
        lease = lease or self.worker("w1", *queues)
        done: list[Done] = []
        while True:
            for name in queues or ("default",):
                self.take_in(name)
            claims = lease.claim(0, calls=1)
            if not claims:
                return done
            self.runs.start(claims)
            done += [self.perform(lease, claim) for claim in claims]

    def close_jobs(self, name: str = "default") -> int:
        return closing.close_all(self.lanes(name))

    def fetch(self, job_id: str) -> Job:
        return Job.fetch(job_id, connection=self.client)

    def traces(self) -> list[str]:
        found: Any = self.client.lrange("traces", 0, -1)
        return [trace.decode() for trace in found]

    def started(self, name: str = "default") -> list[str]:
        """The executions that RQ takes to be under way."""
        found: Any = self.client.zrange(f"rq:wip:{name}", 0, -1)
        return [entry.decode() for entry in found]
