"""An RQ job as a function of agentq: what a run of an RQ queue calls, in a child of a worker or wherever runs execute.

The run has a lease, a fence and a budget for crashes as any run; whether the job is tried again when it fails is RQ's
business. A run is one execution of a job: RQ's own retry makes another one.
"""

from __future__ import annotations

import os
from typing import Any

import redis
from rq.exceptions import NoSuchJobError
from rq.job import Job, JobStatus
from rq.serializers import resolve_serializer
from rq.utils import as_text

from agentq.coordinator.errors import Fenced
from agentq.coordinator.keys import Keyspace, key
from agentq.coordinator.lifecycle import OutcomeClass
from agentq.coordinator.settings import Settings
from agentq.sdk.errors import Fail
from agentq.worker.rq.clients import PARTITION, client_of, pool_of
from agentq.worker.rq.fence import Fence, FencedRedis, Told
from agentq.worker.rq.names import queue_name
from agentq.worker.rq.runner import Runner

ENDED = (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.STOPPED, JobStatus.CANCELED)


class JobFailed(Exception):
    """An RQ job has failed, by RQ's rules."""


class Attempt:
    """Who executes a job: an attempt at a run, by a worker."""

    def __init__(self, settings: Settings, run: str, fence: str, worker: str) -> None:
        self.settings = settings
        self.run = run
        self.fence = fence
        self.worker = worker

    @classmethod
    def current(cls) -> Attempt:
        """The attempt that this process executes."""
        from agentq.sdk.context import current_run

        settings, run = Settings.from_environment(), current_run()
        base = Keyspace(settings.namespace, settings.partitions).base(PARTITION)
        found: Any = client_of(settings.url).hmget(key(base, "run", run.id), "fence", "worker")
        fence, worker = found
        if not fence or not as_text(fence).startswith(f"{run.attempt}-"):
            raise Fenced()
        return cls(settings, run.id, as_text(fence), as_text(worker))

    def client(self, queue: str, closes: str = "") -> FencedRedis:
        """A client that writes for this attempt only, and closes the place of its own run, or of another."""
        base = Keyspace(self.settings.namespace, self.settings.partitions).base(PARTITION)
        fence = Fence(key(base, "run", self.run), self.fence, key(base, "rq_jobs", queue), closes or self.run)
        return FencedRedis(pool_of(self.settings.url, os.getpid()), fence)


def perform(job_id: str, rq_queue: str, serializer: str = "") -> str:
    """Execute an RQ job; what became of it, in RQ's word."""
    return execute(Attempt.current(), job_id, rq_queue, serializer)


def execute(attempt: Attempt, job_id: str, rq_queue: str, serializer: str) -> str:
    """The same, for an attempt that is known."""
    client = attempt.client(queue_name(rq_queue))
    if client.is_told():
        return _already_told(client, job_id, rq_queue, serializer)
    runner = Runner(rq_queue, serializer, client, attempt.worker)
    try:
        job = Job.fetch(job_id, connection=client, serializer=resolve_serializer(serializer or None))
        if not runner.begin(job):
            return _close(client, "canceled")
    except NoSuchJobError:
        return _close(client, "gone")
    try:
        told = runner.run(job)
    except Told:
        return _already_told(attempt.client(queue_name(rq_queue)), job_id, rq_queue, serializer)
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise _untold(job_id, error) from error
    if not told:
        client.look()
        raise _untold(job_id, runner.error)
    if runner.error is not None:
        raise JobFailed(_last_line(runner.error))
    return "finished"


def settle(job_id: str, rq_queue: str, serializer: str, run: str, state: str, attempts: int, error: str) -> str:
    """Tell RQ how a job ended whose run ended without it: its worker was lost too often, or somebody cancelled it."""
    return conclude(Attempt.current(), job_id, rq_queue, serializer, run, state, attempts, error)


def conclude(
    attempt: Attempt, job_id: str, rq_queue: str, serializer: str, run: str, state: str, attempts: int, error: str
) -> str:
    """The same, for an attempt that is known."""
    client = attempt.client(queue_name(rq_queue), closes=run)
    if client.is_told():
        return "told"
    runner = Runner(rq_queue, serializer, client, attempt.worker)
    try:
        job = Job.fetch(job_id, connection=client, serializer=resolve_serializer(serializer or None))
    except NoSuchJobError:
        return _close(client, "gone")
    if _lives_again(client, attempt, job_id) or job.get_status() in ENDED:
        return _close(client, str(job.get_status().value))
    if state == "cancelled" and attempts == 0:
        client.fence.closing = True
        job.cancel()
    elif state == "cancelled":
        runner.stop(job)
    else:
        runner.fail(job, f"Work-horse terminated unexpectedly; {error or 'its run was lost'}")
    return str(job.get_status().value)


def tidy(rq_queue: str, serializer: str = "") -> str:
    """Clean RQ's registries of a queue, under RQ's own lock: results and failures that have had their time, deferred
    jobs that expired, and what workers of RQ have left. No job of ours is among those that RQ takes for abandoned."""
    attempt = Attempt.current()
    cleaner = Runner(rq_queue, serializer, client_of(attempt.settings.url), attempt.worker)
    cleaner.clean_registries()  # type: ignore[no-untyped-call]
    return "tidied"


def _lives_again(client: FencedRedis, attempt: Attempt, job_id: str) -> bool:
    """Whether somebody has queued the job once more, which is then another run."""
    base = Keyspace(attempt.settings.namespace, attempt.settings.partitions).base(PARTITION)
    return bool(client.exists(key(base, "dedupe", f"rq:{job_id}")))


def _already_told(client: FencedRedis, job_id: str, rq_queue: str, serializer: str) -> str:
    """An earlier attempt wrote the outcome and died before it could say so; perhaps before it called the dependents."""
    client.look()
    try:
        job = Job.fetch(job_id, connection=client, serializer=resolve_serializer(serializer or None))
    except NoSuchJobError:
        return "told"
    if job.get_status(refresh=False) in ENDED:
        Runner(rq_queue, serializer, client, "").queue.enqueue_dependents(job)
    return "told"


def _close(client: FencedRedis, word: str) -> str:
    """There is nothing to tell RQ: the job was cancelled or deleted while it waited."""
    client.fence.closing = True
    with client.pipeline() as pipeline:
        pipeline.hdel(client.fence.jobs_key, client.fence.run)
        pipeline.execute()
    return word


def _untold(job_id: str, why: object) -> Fail:
    """Not the job's fault: it is paid from the budget for crashes, and executed again."""
    return Fail(f"RQ could not be told how the job {job_id} ended: {why}", class_=OutcomeClass.INTERNAL)


def _last_line(error: str) -> str:
    lines = error.strip().splitlines()
    return lines[-1] if lines else "the job asked for another try too often"
