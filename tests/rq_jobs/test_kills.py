"""Workers and the server are killed again and again: each job ends once, and is begun no more often than it must be."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from rq.job import JobStatus
from rq_jobs import errands
from rq_jobs.fleet import Fleet
from support.servers import Server, free_port, until, valkey_binary

pytestmark = pytest.mark.full("kills workers")

JOBS = 150
KILLS = 4


@pytest.fixture
def rq_server(folder: Path) -> Iterator[Server]:
    """One that syncs every write."""
    options = ("--appendonly", "yes", "--appendfsync", "always")
    server = Server(valkey_binary(), folder / "server", *options, port=free_port()).start()
    yield server
    server.stop()


def test_no_job_is_lost_or_ends_twice_while_workers_are_killed(fleet: Fleet) -> None:
    dice = random.Random(11)
    workers = [fleet.worker_of_ours("--rq", "default", "--slots", "2") for _ in range(2)]
    jobs = []
    for number in range(JOBS):
        jobs.append(fleet.queue().enqueue(errands.add, number, 0))
        if number % (JOBS // KILLS) == JOBS // KILLS - 1:
            fleet.until_traced(f"add {max(0, number - dice.randrange(30))} 0", timeout_s=60)
            victim = workers.pop(0)
            os.kill(victim.pid, signal.SIGKILL)
            workers.append(fleet.worker_of_ours("--rq", "default", "--slots", "2"))

    assert set(fleet.ended(*jobs, timeout_s=90)) == {JobStatus.FINISHED}
    assert {len(job.results()) for job in jobs} == {1}
    begun = Counter(fleet.traces())
    assert sum(begun.values()) - JOBS <= 2 * 2 * KILLS, "only what a killed worker was at is begun again"
    until(lambda: fleet.lanes().jobs() == {}, "all to be told")
    assert fleet.started() == []


def test_jobs_go_on_after_the_server_was_killed(fleet: Fleet) -> None:
    fleet.worker_of_ours("--rq", "default", "--slots", "2")
    jobs = [fleet.queue().enqueue(errands.add, number, 0) for number in range(40)]
    fleet.until_traced("add 5 0")
    fleet.server.signal(signal.SIGKILL)
    fleet.server.start()
    jobs += [fleet.queue().enqueue(errands.add, number, 0) for number in range(40, 50)]

    ends = fleet.ended(*jobs, timeout_s=60)
    failures = [str(vars(job.latest_result() or job)) for job in jobs if job.get_status() == JobStatus.FAILED]
    assert failures == []
    assert set(ends) == {JobStatus.FINISHED}
    assert {len(job.results()) for job in jobs} == {1}
    until(lambda: len(fleet.info()["workers"]) == 1, "the worker to be known to RQ again")
