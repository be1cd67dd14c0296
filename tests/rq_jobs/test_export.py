"""`agentq rq export`: the way back, on the command line."""

from __future__ import annotations

import json
import os
import signal

import pytest
from rq.job import JobStatus
from rq_jobs import errands
from rq_jobs.fleet import Fleet
from support.servers import until

from agentq.worker.rq import Queue as RqQueue

pytestmark = pytest.mark.full("starts RQ's own programs")


def test_jobs_that_wait_go_back_and_rqs_own_worker_goes_on(fleet: Fleet) -> None:
    queues = [fleet.queue(name, kind=RqQueue) for name in ("default", "high and low")]
    jobs = [queue.enqueue(errands.add, number, 0) for queue in queues for number in range(3)]

    done = fleet.agentq("rq", "export", "--json")

    assert (done.returncode, json.loads(done.stdout)) == (0, {"default": 3, "high and low": 3})
    fleet.rq("worker", "--burst", "default", "high and low")
    assert {job.get_status() for job in jobs} == {JobStatus.FINISHED}
    assert fleet.traces() == [f"add {number} 0" for _ in queues for number in range(3)]
    again = fleet.agentq("rq", "export", "--queue", "default")
    assert again.stdout == "default\t0 jobs back in RQ's list\n"


def test_while_a_worker_adopts_the_queue_nothing_goes_back(fleet: Fleet) -> None:
    worker = fleet.worker_of_ours()
    until(lambda: any(str(worker.pid) in each.id for each in fleet.records.workers()), "the worker to register")

    done = fleet.agentq("rq", "export", "--queue", "default")

    assert done.returncode == 5
    assert "would take its jobs in again; end it first, with `agentq worker drain" in done.stderr


def test_what_a_dead_worker_holds_goes_back_once_it_is_lost(fleet: Fleet) -> None:
    worker = fleet.worker_of_ours()
    job = fleet.queue().enqueue(errands.held_up)
    fleet.until_traced("begun 1")
    os.kill(worker.pid, signal.SIGKILL)
    until(lambda: fleet.agentq("rq", "export", "--queue", "default").returncode != 5, "its lease to end")

    held = fleet.agentq("rq", "export", "--queue", "default")
    assert held.returncode == 75
    assert "still holds 1 job" in held.stderr
    until(lambda: fleet.agentq("reap").returncode in (0, 10) and fleet.lanes().held() == 0, "the reaper", 60)
    done = fleet.agentq("rq", "export", "--queue", "default")

    assert done.stdout == "default\t1 job back in RQ's list\n"
    assert job.get_status() == JobStatus.QUEUED
    assert fleet.started() == []
    fleet.rq("worker", "--burst", "default")
    assert job.get_status() == JobStatus.FINISHED


def test_a_cluster_and_a_wrong_name_are_refused_in_a_sentence(fleet: Fleet) -> None:
    cluster = fleet.agentq("--url", "redis+cluster://127.0.0.1:1", "worker", "--rq", "default")
    unnamed = fleet.agentq("worker", "--rq", "a,,b")
    alone = fleet.agentq("worker", "--rq-serializer", "json")
    long = fleet.agentq("worker", "--rq", "x" * 200)

    assert (cluster.returncode, unnamed.returncode, alone.returncode, long.returncode) == (2, 2, 2, 2)
    assert "cannot be adopted on a Redis Cluster" in cluster.stderr
    assert "An RQ queue has a name" in unnamed.stderr
    assert "--rq-serializer means nothing without --rq" in alone.stderr
    assert "cannot be adopted" in long.stderr
