"""`from agentq.worker.rq import RqQueue`: RQ's queue, whose jobs go straight into a lane of agentq.

Everything that a producer of RQ does with a queue works as before. Overridden is where the ids of waiting jobs are
stored: how one is pushed, counted, listed, removed, and how a worker takes the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import rq
from redis import Redis
from redis.client import Pipeline
from rq.exceptions import DequeueTimeout
from rq.job import Job
from rq.serializers import DefaultSerializer

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import refusal_error
from agentq.coordinator.storage.scripts import SCRIPTS, ScriptSet
from agentq.worker.rq.redis_client import RQ_PARTITION, open_store_beside
from agentq.worker.rq.rq_lanes import RqLanes

_SCRIPTS = ScriptSet()


class RqQueue(rq.Queue):
    """A queue of RQ in a lane of agentq. The namespace is that of agentq's settings; the server is that of the
    connection.
    """

    slot: Any = None
    """Where a worker of agentq claims; see worker.py."""

    @cached_property
    def lanes(self) -> RqLanes:
        """The lanes of this queue."""
        lanes = RqLanes(
            open_store_beside(self.connection, Settings.from_environment()),
            self.name,
            get_serializer_path(self.serializer),
        )
        lanes.store.guard()
        return lanes

    def push_job_id(self, job_id: str, pipeline: Pipeline | None = None, at_front: bool = False) -> None:
        """Add a job to its lane; the front is a lane of its own, with a higher priority."""
        client: Any = self.connection if pipeline is None else pipeline
        deliver = self.connection.register_script(_SCRIPTS.source(SCRIPTS["rq/push_job"]).text)
        words = (self.lanes.store.now(), *self.lanes.delivery(job_id, at_front=at_front))
        reply = deliver(keys=[self.lanes.store.keyspace.base(RQ_PARTITION)], args=list(words), client=client)
        if pipeline is None:
            refused = refusal_error(reply.decode() if isinstance(reply, bytes) else str(reply), f"job {job_id}")
            if refused is not None:
                raise refused

    @property
    def count(self) -> int:
        """How many jobs wait, in the lane and in RQ's list."""
        return self.lanes.waiting() + int(super().count)

    def get_job_ids(self, offset: int = 0, length: int = -1) -> list[str]:
        """The ids of waiting jobs, the next one first."""
        if offset < 0 or length < -1:
            return super().get_job_ids(offset, length)
        ids = self.lanes.waiting_ids() + super().get_job_ids()
        return ids[offset:] if length < 0 else ids[offset : offset + length]

    def get_job_position(self, job_or_id: Job | str) -> int | None:
        """How many jobs are before it."""
        job_id = job_or_id if isinstance(job_or_id, str) else job_or_id.id
        ids = self.get_job_ids()
        return ids.index(job_id) if job_id in ids else None

    def remove(self, job_or_id: Job | str, pipeline: Pipeline | None = None) -> Any:
        """Remove a job, wherever it waits."""
        job_id = job_or_id if isinstance(job_or_id, str) else job_or_id.id
        if pipeline is None:
            return self.lanes.withdraw(job_id)
        withdraw = self.connection.register_script(_SCRIPTS.source(SCRIPTS["rq/remove_job"]).text)
        words = [self.lanes.store.now(), self.lanes.queue, self.key, job_id]
        return withdraw(keys=[self.lanes.store.keyspace.base(RQ_PARTITION)], args=words, client=pipeline)

    def empty(self) -> int:
        """Delete all waiting jobs."""
        return self.lanes.drop_all() + int(super().empty())  # type: ignore[no-untyped-call]

    @classmethod
    def dequeue_any(
        cls,
        queues: Iterable[rq.Queue],
        timeout: int | None,
        connection: Redis,
        job_class: type[Job] | None = None,
        serializer: Any = None,
        death_penalty_class: Any = None,
    ) -> tuple[Job, rq.Queue] | None:
        """The next job, as an attempt with a lease; only a worker of agentq can claim it."""
        mine = list(queues)
        slots = [queue.slot for queue in mine if isinstance(queue, RqQueue) and queue.slot is not None]
        if not slots:
            return super().dequeue_any(mine, timeout, connection, job_class, serializer, death_penalty_class)
        found: tuple[Job, rq.Queue] | None = slots[0].next(mine, timeout)
        if found is None and timeout is not None:
            raise DequeueTimeout(timeout, [queue.key for queue in mine])
        return found


def get_serializer_path(serializer: Any) -> str:
    """The dotted path of a serializer; empty for RQ's default."""
    if serializer is None or serializer is DefaultSerializer:
        return ""
    if isinstance(serializer, str):
        return serializer
    if not hasattr(serializer, "__qualname__"):
        return str(getattr(serializer, "__name__", type(serializer).__module__ + "." + type(serializer).__qualname__))
    return f"{serializer.__module__}.{serializer.__qualname__}"
