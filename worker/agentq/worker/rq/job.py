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

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import Fenced
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.storage.keys import Keyspace, build_key
from agentq.sdk.errors import Fail
from agentq.worker.rq.fence import FencedRedis, OutcomeAlreadyWritten, RqFence
from agentq.worker.rq.job_runner import JobRunner
from agentq.worker.rq.queue_names import to_queue_name
from agentq.worker.rq.redis_client import RQ_PARTITION, create_client, get_connection_pool

ENDED_STATUSES = (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.STOPPED, JobStatus.CANCELED)


class JobFailed(Exception):
    """An RQ job has failed, by RQ's rules."""


class RqAttempt:
    """An attempt at a run, which executes a job."""

    def __init__(self, settings: Settings, run: str, fence: str, worker: str) -> None:
        self.settings = settings
        self.run = run
        self.fence = fence
        self.worker = worker

    @classmethod
    def current(cls) -> RqAttempt:
        """The attempt that this process executes."""
        from agentq.sdk.run_context import current_run

        settings, run = Settings.from_environment(), current_run()
        base = Keyspace(settings.namespace, settings.partitions).base(RQ_PARTITION)
        found: Any = create_client(settings.url).hmget(build_key(base, "run", run.id), "fence", "worker")
        fence, worker = found
        if not fence or not as_text(fence).startswith(f"{run.attempt}-"):
            raise Fenced()
        return cls(settings, run.id, as_text(fence), as_text(worker))

    def client(self, queue: str, closes: str = "") -> FencedRedis:
        """A client that writes for this attempt only, and closes the entry of its own run, or of another."""
        base = Keyspace(self.settings.namespace, self.settings.partitions).base(RQ_PARTITION)
        fence = RqFence(
            build_key(base, "run", self.run), self.fence, build_key(base, "rq_jobs", queue), closes or self.run
        )
        return FencedRedis(get_connection_pool(self.settings.url, os.getpid()), fence)


def perform(job_id: str, rq_queue: str, serializer: str = "") -> str:
    """Execute an RQ job; returns its status in RQ's terms."""
    return execute_job(RqAttempt.current(), job_id, rq_queue, serializer)


def execute_job(attempt: RqAttempt, job_id: str, rq_queue: str, serializer: str) -> str:
    """Execute a job for a given attempt."""
    client = attempt.client(to_queue_name(rq_queue))
    if client.is_outcome_written():
        return _finish_written_outcome(client, job_id, rq_queue, serializer)
    runner = JobRunner(rq_queue, serializer, client, attempt.worker)
    try:
        job = Job.fetch(job_id, connection=client, serializer=resolve_serializer(serializer or None))
        if not runner.begin(job):
            return _close_job(client, "canceled")
    except NoSuchJobError:
        return _close_job(client, "gone")
    try:
        outcome_written = runner.run(job)
    except OutcomeAlreadyWritten:
        return _finish_written_outcome(attempt.client(to_queue_name(rq_queue)), job_id, rq_queue, serializer)
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise _build_unwritten_failure(job_id, error) from error
    if not outcome_written:
        client.check()
        raise _build_unwritten_failure(job_id, runner.error)
    if runner.error is not None:
        raise JobFailed(_last_line(runner.error))
    return "finished"


def settle(job_id: str, rq_queue: str, serializer: str, run: str, state: str, attempts: int, error: str) -> str:
    """Tell RQ how a job ended whose run ended without it: its worker was lost too often, or it was cancelled."""
    return settle_job(RqAttempt.current(), job_id, rq_queue, serializer, run, state, attempts, error)


def settle_job(
    attempt: RqAttempt, job_id: str, rq_queue: str, serializer: str, run: str, state: str, attempts: int, error: str
) -> str:
    """Settle a job for a given attempt."""
    client = attempt.client(to_queue_name(rq_queue), closes=run)
    if client.is_outcome_written():
        return "told"
    runner = JobRunner(rq_queue, serializer, client, attempt.worker)
    try:
        job = Job.fetch(job_id, connection=client, serializer=resolve_serializer(serializer or None))
    except NoSuchJobError:
        return _close_job(client, "gone")
    if _is_requeued(client, attempt, job_id) or job.get_status() in ENDED_STATUSES:
        return _close_job(client, str(job.get_status().value))
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
    attempt = RqAttempt.current()
    cleaner = JobRunner(rq_queue, serializer, create_client(attempt.settings.url), attempt.worker)
    cleaner.clean_registries()  # type: ignore[no-untyped-call]
    return "tidied"


def _is_requeued(client: FencedRedis, attempt: RqAttempt, job_id: str) -> bool:
    """Whether the job was queued again, which is another run."""
    base = Keyspace(attempt.settings.namespace, attempt.settings.partitions).base(RQ_PARTITION)
    return bool(client.exists(build_key(base, "dedupe", f"rq:{job_id}")))


def _finish_written_outcome(client: FencedRedis, job_id: str, rq_queue: str, serializer: str) -> str:
    """An earlier attempt wrote the outcome and died before it could report; perhaps before it called the dependents."""
    client.check()
    try:
        job = Job.fetch(job_id, connection=client, serializer=resolve_serializer(serializer or None))
    except NoSuchJobError:
        return "told"
    if job.get_status(refresh=False) in ENDED_STATUSES:
        JobRunner(rq_queue, serializer, client, "").queue.enqueue_dependents(job)
    return "told"


def _close_job(client: FencedRedis, word: str) -> str:
    """Close a job that was cancelled or deleted while it waited."""
    client.fence.closing = True
    with client.pipeline() as pipeline:
        pipeline.hdel(client.fence.jobs_key, client.fence.run)
        pipeline.execute()
    return word


def _build_unwritten_failure(job_id: str, why: object) -> Fail:
    """A failure without the job's fault: it spends the crash budget, and the job is executed again."""
    return Fail(f"RQ could not be told how the job {job_id} ended: {why}", class_=OutcomeClass.INTERNAL)


def _last_line(error: str) -> str:
    lines = error.strip().splitlines()
    return lines[-1] if lines else "the job asked for another try too often"
