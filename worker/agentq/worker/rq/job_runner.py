"""Executes one attempt at one job by RQ's own rules, on a fenced client. Its tasks:

1. Begin: check whether the job was cancelled meanwhile, remove what a dead attempt left, and enter the job among the
   started ones, in one transaction. The entry has no expiry: agentq's lease decides whether it is alive, and no cleaner
   of RQ's registries may take it for abandoned.
2. Perform it by RQ's code: timeout, callbacks, results, retries, repeats, dependents and webhooks are RQ's.
3. Report: the transaction in which RQ writes the outcome also closes the job's entry in agentq's record.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import redis
from redis import Redis, WatchError
from rq import Queue
from rq.command import handle_command
from rq.executions import Execution
from rq.job import Job, JobStatus
from rq.timeouts import TimerDeathPenalty, UnixSignalDeathPenalty
from rq.utils import as_text
from rq.worker import BaseWorker, WorkerStatus

from agentq.sdk.errors import Cancelled
from agentq.worker.rq.fence import FencedRedis, RqFence

EXECUTION_TTL_S = 365 * 86_400
"""How long the record of an execution may stay if it is never removed: longer than any job runs."""
WORKER_TTL_S = 30
RETRY_PAUSES_S = (0.5, 1, 2, 4, 8)
"""Pauses between retries of writing an outcome."""
STOPPED_MESSAGE = "Job stopped by user, work-horse terminated."


class FencedOutcomeWorker(BaseWorker):
    """A worker of RQ that writes an outcome only for an attempt that holds its run, and closes the job with it."""

    error: str | None = None
    """Why the job failed, if it did."""

    def cleanup_execution(self, job: Job, pipeline: Any) -> None:
        """RQ forgets the execution on the first try of a transaction; a retry has to remove it too."""
        execution = self.execution
        super().cleanup_execution(job, pipeline=pipeline)
        self.execution = execution

    def handle_job_success(self, *args: Any, **kwargs: Any) -> None:
        self._write_outcome(
            kwargs.get("job") or args[0], lambda: super(FencedOutcomeWorker, self).handle_job_success(*args, **kwargs)
        )

    def handle_job_retry(self, *args: Any, **kwargs: Any) -> None:
        self._write_outcome(
            kwargs.get("job") or args[0], lambda: super(FencedOutcomeWorker, self).handle_job_retry(*args, **kwargs)
        )

    def handle_job_failure(self, *args: Any, **kwargs: Any) -> None:
        self.error = str(kwargs.get("exc_string", ""))
        if isinstance(self.connection, FencedRedis):
            self._write_outcome(
                kwargs.get("job") or args[0],
                lambda: super(FencedOutcomeWorker, self).handle_job_failure(*args, **kwargs),
            )
        else:  # it cleans up after a worker of RQ's own
            super().handle_job_failure(*args, **kwargs)

    @property
    def fence(self) -> RqFence:
        assert isinstance(self.connection, FencedRedis)
        return self.connection.fence

    def _write_outcome(self, job: Job, act: Callable[[], None]) -> None:
        """Let RQ write the outcome; its next transaction closes the job. Retried while the server cannot be reached,
        since the job is done; the outcome is written once, whichever try arrives.
        """
        before = (job.retries_left, job.number_of_retries, job.repeats_left)
        for pause_s in (*RETRY_PAUSES_S, None):
            self.fence.closing, self.fence.broken = True, False
            try:
                act()
            except (redis.ConnectionError, redis.TimeoutError):
                self.fence.broken = True
            except BaseException:
                # It fails for a reason of the job's own, such as its result.
                self.fence.closing = False
                raise
            if not self.fence.broken:
                return
            job.retries_left, job.number_of_retries, job.repeats_left = before
            if pause_s is not None:
                threading.Event().wait(pause_s)
        raise redis.ConnectionError(f"RQ cannot be told how the job {job.id} ended.")


class JobRunner(FencedOutcomeWorker):
    """An RQ worker that performs single jobs."""

    def __init__(self, rq_queue: str, serializer: str, connection: Redis, name: str) -> None:
        super().__init__(
            [rq_queue], name=name, connection=connection, prepare_for_work=False, serializer=serializer or None
        )
        in_main_thread = threading.current_thread() is threading.main_thread()
        self.death_penalty_class = UnixSignalDeathPenalty if in_main_thread else TimerDeathPenalty
        self._job_id = ""

    @property
    def queue(self) -> Queue:
        return self.queues[0]

    def run(self, job: Job) -> bool:
        """Perform a job that was begun; returns whether its outcome was written."""
        self._job_id = job.id
        os.environ["RQ_WORKER_ID"], os.environ["RQ_JOB_ID"] = self.name, job.id
        self.perform_job(job, self.queue)
        return not (self.fence.closing or self.fence.broken)

    def fail(self, job: Job, why: str) -> None:
        """Fail a job that is not being performed any more."""
        self._job_id = job.id
        self._recall_execution(job)
        self.handle_job_failure(job, self.queue, exc_string=why)

    def stop(self, job: Job) -> None:
        """Mark a job as stopped, by RQ's command or agentq's, after its process has ended."""
        self._job_id = job.id
        self._recall_execution(job)
        handle_command(self, {"command": "stop-job", "job_id": job.id})
        if job.stopped_callback:
            job.execute_stopped_callback(self.death_penalty_class)
        self.handle_job_failure(job, self.queue, exc_string=STOPPED_MESSAGE)

    def begin(self, job: Job) -> bool:
        """Enter the job among the started ones; False if it was cancelled."""
        self.execution = begin_execution(self, job, self.connection)
        return self.execution is not None

    def _recall_execution(self, job: Job) -> None:
        """Remove what the ended attempt left along with the outcome."""
        left: Any = self.connection.zrange(job.execution_registry.key, 0, -1)
        for execution_id in left:
            self.execution = Execution(as_text(execution_id), job.id, self.connection, self.name)

    # ---- what RQ calls

    def prepare_job_execution(self, *_: Any, **__: Any) -> None:
        """The execution has begun already."""

    def get_current_job_id(self, *_: Any, **__: Any) -> str | None:
        return self._job_id

    def heartbeat(self, timeout: int | None = None, pipeline: Any = None) -> None:
        """Does nothing: the worker's own process renews its heartbeat."""

    def handle_execution_ended(self, *args: Any, **kwargs: Any) -> None:
        """A stopped job stays as it is: its outcome is written once the process has ended, as by RQ's own workers."""
        if isinstance(sys.exc_info()[1], Cancelled):
            raise
        super().handle_execution_ended(*args, **kwargs)


def begin_execution(worker: BaseWorker, job: Job, connection: Redis) -> Execution | None:
    """Enter a job among the started ones, without an expiry; None if it was cancelled meanwhile."""
    with connection.pipeline() as pipeline:
        while True:
            try:
                pipeline.watch(job.key)  # type: ignore[no-untyped-call]
                status: Any = pipeline.hget(job.key, "status")
                dead: Any = pipeline.zrange(job.execution_registry.key, 0, -1)
                if status is None or as_text(status) == JobStatus.CANCELED:
                    return None
                pipeline.multi()
                for execution_id in dead:
                    Execution(as_text(execution_id), job.id, connection).delete(job, pipeline)
                execution = Execution.create(job, EXECUTION_TTL_S, pipeline, worker_name=worker.name)
                job.started_job_registry.add_execution(execution, pipeline, ttl=-1)
                worker.set_state(WorkerStatus.BUSY, pipeline=pipeline)
                worker.set_current_job_id(job.id, pipeline=pipeline)
                job.prepare_for_execution(worker.name, pipeline=pipeline)
                pipeline.lrem(worker.queues[0].intermediate_queue_key, 1, job.id)
                pipeline.execute()
            except WatchError:
                continue
            return execution
