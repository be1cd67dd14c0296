"""`RQ_WORKER_CLASS=agentq.worker.rq.Worker rq worker default`: RQ's own worker, with agentq's leases.

RQ's loop, its forked horses, its logs, signals and commands stay unchanged. Overridden are: where the next job comes
from, which attempt may write its outcome, and that only agentq's reaper decides that a job is abandoned. A horse whose
worker was killed with SIGKILL lives on, as in RQ, and its writes are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rq
from redis.exceptions import RedisError
from rq.exceptions import NoSuchJobError
from rq.executions import Execution
from rq.job import Job, JobStatus
from rq.utils import now, utcformat
from rq.worker import WorkerStatus

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import Fenced, Refused
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.rq_titles import PERFORM_FUNCTION
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.storage.keys import build_key
from agentq.worker.rq.adopt.job_outcomes import SETTLE_FUNCTION, TIDY_FUNCTION
from agentq.worker.rq.fence import FencedRedis, RqFence
from agentq.worker.rq.job import RqAttempt, settle_job
from agentq.worker.rq.job_runner import FencedOutcomeWorker, begin_execution
from agentq.worker.rq.queue import RqQueue
from agentq.worker.rq.redis_client import RQ_PARTITION, build_client_url, open_store_beside
from agentq.worker.rq.slot import RqSlot


class RqWorker(FencedOutcomeWorker, rq.Worker):
    """RQ's worker, taking jobs from lanes of agentq."""

    queue_class = RqQueue

    def __init__(self, queues: Any, *args: Any, **kwargs: Any) -> None:
        kwargs["queue_class"] = RqQueue
        super().__init__(_adopt_queues(queues), *args, **kwargs)
        self.slot: RqSlot | None = None
        self._claim: Claim | None = None
        self._stop_reason: str | None = None

    # ---- its life

    def register_birth(self) -> None:
        super().register_birth()  # type: ignore[no-untyped-call]
        settings = Settings.from_environment()
        lanes = [queue.lanes for queue in self.queues if isinstance(queue, RqQueue)]
        self.slot = RqSlot(open_store_beside(self.connection, settings), settings, lanes, self._stop_job)
        self.slot.open()
        for queue in self.queues:
            if isinstance(queue, RqQueue):
                queue.slot = _WorkerSlot(self)

    def register_death(self) -> None:
        if self.slot is not None:
            self.slot.close()
        super().register_death()  # type: ignore[no-untyped-call]

    def _stop_job(self, why: str) -> None:
        """Stop the current job, in the thread that keeps the lease: the run was taken away or cancelled."""
        if self._claim is not None:
            self._stop_reason = why
            if self.horse_pid:
                self.kill_horse()

    # ---- the next job

    def take_job(self, queues: list[rq.Queue], timeout: int | None) -> tuple[Job, rq.Queue] | None:
        """The next job to execute."""
        assert self.slot is not None
        while True:
            found = self.slot.next(None if timeout is None else timeout * 1000)
            if found is None:
                return None
            claim, spec = found
            job = self._fetch_job(claim, spec)
            if job is not None:
                self._claim = claim
                name = str(spec.args[1])
                return job, next(queue for queue in queues if queue.name == name)

    def _fetch_job(self, claim: Claim, spec: RunSpec) -> Job | None:
        """The job of a run; None, and the run has ended, if there is nothing to execute."""
        assert self.slot is not None
        if spec.function in (SETTLE_FUNCTION, TIDY_FUNCTION):
            self._run_upkeep(claim, spec)
            return None
        if spec.function != PERFORM_FUNCTION:
            why = f"This worker executes RQ jobs only, not {spec.function}; start `agentq worker` for its queue."
            self.slot.report_end(claim, OutcomeClass.REJECTED, why)
            return None
        client = self._fenced_client(claim, claim.id)
        try:
            if not client.is_outcome_written():
                job: Job = self.job_class.fetch(str(spec.args[0]), connection=client, serializer=self.serializer)
                if job.get_status(refresh=False) != JobStatus.CANCELED:
                    return job
        except NoSuchJobError:
            pass  # it was deleted while it waited
        self._close_job(claim, client)
        return None

    def _close_job(self, claim: Claim, client: FencedRedis) -> None:
        assert self.slot is not None
        client.hdel(client.fence.jobs_key, client.fence.run)
        self.slot.report_end(claim, OutcomeClass.OK)

    def _run_upkeep(self, claim: Claim, spec: RunSpec) -> None:
        assert self.slot is not None
        settings = self.slot.settings.model_copy(update={"url": build_client_url(self.connection)})
        words: list[Any] = list(spec.args)
        try:
            if spec.function == SETTLE_FUNCTION:
                settle_job(RqAttempt(settings, claim.id, claim.fence, self.name), *words)
            else:
                self.clean_registries()  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001 - any error of the owner's callback is the outcome
            self.slot.report_end(claim, OutcomeClass.EXIT, f"{type(error).__name__}: {error}")
        else:
            self.slot.report_end(claim, OutcomeClass.OK)

    def _fenced_client(self, claim: Claim, closes: str) -> FencedRedis:
        base = self.slot.store.keyspace.base(RQ_PARTITION) if self.slot else ""
        queue = claim.lane.partition(":")[0]
        fence = RqFence(build_key(base, "run", claim.id), claim.fence, build_key(base, "rq_jobs", queue), closes)
        return FencedRedis(self.connection.connection_pool, fence)

    # ---- executing it

    def execute_job(self, job: Job, queue: rq.Queue) -> None:
        """Execute as RQ does, on a client that writes only while this attempt holds the run."""
        assert self.slot is not None
        assert self._claim is not None
        claim, plain, self.error = self._claim, self.connection, None
        client = self.connection = self._fenced_client(claim, claim.id)
        try:
            self.execution = begin_execution(self, job, client)
            if self.execution is None:
                self._close_job(claim, client)
                return
            super().execute_job(job, queue)
            self._report_end(claim, client, job)
        except Fenced:
            self.log.warning("Worker %s: the job %s was taken over by another attempt", self.name, job.id)
            self.slot.release(claim, self._stop_reason or "superseded")
        finally:
            self.connection, self.execution = plain, None
            self._claim = self._stop_reason = None
            self.set_current_job_id(None)
            self.set_state(WorkerStatus.IDLE)

    def _report_end(self, claim: Claim, client: FencedRedis, job: Job) -> None:
        assert self.slot is not None
        if not client.is_outcome_written():
            self.slot.report_end(claim, OutcomeClass.INTERNAL, self.error or "RQ wrote no outcome")
            return
        failed = job.exists(job.id, client) and job.get_status() in (JobStatus.FAILED, JobStatus.STOPPED)
        self.slot.report_end(
            claim, OutcomeClass.EXIT if failed else OutcomeClass.OK, "the job failed" if failed else None
        )

    def prepare_execution(self, job: Job) -> Execution:  # noqa: ARG002 - as RQ calls it
        """The execution has begun already."""
        assert self.execution is not None
        return self.execution

    def handle_job_failure(self, *args: Any, **kwargs: Any) -> None:
        if self._stop_reason is not None:
            raise Fenced(self._stop_reason)
        super().handle_job_failure(*args, **kwargs)

    def maintain_heartbeats(self, job: Job) -> None:
        """Renew the worker's and the job's heartbeat. Only agentq's lease decides when the execution expires."""
        self.heartbeat(self.job_monitoring_interval + 60)
        try:
            if self.connection.hset(job.key, "last_heartbeat", utcformat(now())):
                self.connection.delete(job.key)  # the job has ended and was deleted: do not create it again
        except Refused:
            self.kill_horse()
        except RedisError as error:
            self.log.warning("Worker %s: no heartbeat of the job %s: %s", self.name, job.id, error)


class _WorkerSlot:
    """The worker, as its queues know it."""

    def __init__(self, worker: RqWorker) -> None:
        self._worker = worker

    def next(self, queues: list[rq.Queue], timeout: int | None) -> tuple[Job, rq.Queue] | None:
        return self._worker.take_job(queues, timeout)


def _adopt_queues(queues: Any) -> list[Any]:
    """RQ's queues as `RqQueue`, whichever class RQ was told to use."""
    listed: Iterable[Any] = [queues] if isinstance(queues, str | rq.Queue) else queues
    return [queue if isinstance(queue, str | RqQueue) else _to_own_queue(queue) for queue in listed]


def _to_own_queue(queue: rq.Queue) -> RqQueue:
    return RqQueue(
        queue.name,
        connection=queue.connection,
        job_class=queue.job_class,
        serializer=queue.serializer,
        death_penalty_class=queue.death_penalty_class,
    )
