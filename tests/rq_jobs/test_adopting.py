"""`agentq worker --rq default`: producers, jobs and tools of RQ go on unchanged, with agentq's leases."""

from __future__ import annotations

from datetime import timedelta

from rq import Callback, Retry
from rq.job import JobStatus
from rq_jobs import errands
from rq_jobs.fleet import Fleet


def test_jobs_of_every_kind_of_producer_are_executed(fleet: Fleet) -> None:
    fleet.worker_of_ours("--rq", "high,default")
    queue = fleet.queue()

    plain = queue.enqueue(errands.add, 1, 2, on_success=Callback(errands.well))
    soon = queue.enqueue_in(timedelta(seconds=1), errands.add, 3, 4)
    unique = queue.enqueue(errands.noted, "unique", job_id="only", unique=True)
    high = fleet.queue("high").enqueue(errands.add_slowly, 5, 6)
    again = queue.enqueue(errands.broken, retry=Retry(max=1, interval=1))
    after = queue.enqueue(errands.add, 7, 8, depends_on=[plain, high])

    assert fleet.ended(plain, soon, unique, high, after) == [JobStatus.FINISHED] * 5
    assert fleet.ended(again) == [JobStatus.FAILED]
    assert [job.return_value(refresh=True) for job in (plain, soon, high, after)] == [3, 7, 11, 15]
    assert f"success {plain.id} 3" in fleet.traces()
    assert fleet.traces().count("broken") == 2
    assert fleet.fetch("only").meta == {"word": "unique"}
