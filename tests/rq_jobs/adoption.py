"""RQ and agentq on one server of the test's own, with workers that execute jobs in the test's process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import rq
from redis import Redis
from rq.job import Job
from support.servers import Server

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome, parse_spec
from agentq.coordinator.runs.queries import RunQueries
from agentq.coordinator.runs.verbs import Claim, RunVerbs
from agentq.coordinator.workers.lease import WorkerIdentity, WorkerLease
from agentq.worker.rq import job
from agentq.worker.rq.adopt import job_outcomes
from agentq.worker.rq.queue_names import list_served_queues
from agentq.worker.rq.redis_client import create_client
from agentq.worker.rq.rq_lanes import RqLanes

FUNCTIONS: dict[str, Callable[..., str]] = {
    job.__name__ + ":perform": job.execute_job,
    job_outcomes.SETTLE_FUNCTION: job.settle_job,
}


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
        self.client: Redis = create_client(settings.url)
        self.runs = RunVerbs.open(settings)
        self.store = self.runs.store
        self.records = RunQueries(self.store)

    def queue(self, name: str = "default", kind: type[rq.Queue] = rq.Queue, **options: Any) -> rq.Queue:
        return kind(name, connection=self.client, **options)

    def lanes(self, name: str = "default") -> RqLanes:
        return RqLanes(self.store, name)

    def take_in(self, name: str = "default", room: int = 100) -> int:
        return self.lanes(name).take_in(room).taken

    def worker(self, name: str = "w1", *queues: str) -> WorkerLease:
        mine = list_served_queues(queues or ("default",))
        lease = WorkerLease(self.store, WorkerIdentity(id=name, queues=mine), self.settings)
        lease.register()
        return lease

    def claim(self, lease: WorkerLease) -> Claim:
        """The one run that waits, started."""
        (claim,) = lease.claim(0, calls=1)
        assert self.runs.start([claim]) == [None]
        return claim

    def call(self, claim: Claim, worker: str) -> str:
        """What a worker's child does with a claim."""
        spec = parse_spec(claim.spec, claim.lane)
        attempt = job.RqAttempt(self.settings, claim.id, claim.fence, worker)
        assert spec.function is not None
        return FUNCTIONS[spec.function](attempt, *spec.args)

    def perform(self, lease: WorkerLease, claim: Claim) -> Done:
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

    def work(self, lease: WorkerLease | None = None, *queues: str) -> list[Done]:
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
        return job_outcomes.submit_settlements(self.lanes(name))

    def fetch(self, job_id: str) -> Job:
        return Job.fetch(job_id, connection=self.client)

    def traces(self) -> list[str]:
        found: Any = self.client.lrange("traces", 0, -1)
        return [trace.decode() for trace in found]

    def started(self, name: str = "default") -> list[str]:
        """The executions that RQ takes to be under way."""
        found: Any = self.client.zrange(f"rq:wip:{name}", 0, -1)
        return [entry.decode() for entry in found]
