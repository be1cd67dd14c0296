"""`RQ_WORKER_CLASS=agentq.worker.rq.Worker rq worker default`: RQ's own command, with agentq's leases."""

from __future__ import annotations

import os
import signal
import time

import pytest
from rq import Callback, Retry
from rq.command import send_stop_job_command
from rq.job import JobStatus
from rq_jobs import errands
from rq_jobs.fleet import Fleet, Process
from support.servers import until

from agentq.worker.rq import Queue as RqQueue

pytestmark = pytest.mark.full("starts workers of both kinds")

CLASS = "agentq.worker.rq.Worker"


def begin(fleet: Fleet, *options: str, **environment: str) -> Process:
    """`rq worker default` with our class; it is there once RQ knows it."""
    before = fleet.rq_workers()
    process = fleet.begin_rq("worker", *(options or ("default",)), **({"RQ_WORKER_CLASS": CLASS} | environment))
    until(lambda: fleet.rq_workers() - before, "the worker to be known", 30)
    return process


@pytest.mark.parametrize("environment", [{}, {"RQ_QUEUE_CLASS": "agentq.worker.rq.Queue"}], ids=["one", "both"])
def test_jobs_of_both_queue_classes_are_executed_by_rqs_rules(fleet: Fleet, environment: dict[str, str]) -> None:
    begin(fleet, **environment)
    plain, ours = fleet.queue(), fleet.queue(kind=RqQueue)

    first = plain.enqueue(errands.add, 1, 2, on_success=Callback(errands.well))
    then = ours.enqueue(errands.add, 3, 4, depends_on=first)
    again = ours.enqueue(errands.broken, retry=Retry(max=2))
    noted = plain.enqueue(errands.noted, "hello")

    assert fleet.ended(first, then, again, noted) == [JobStatus.FINISHED] * 2 + [JobStatus.FAILED, JobStatus.FINISHED]
    assert (first.return_value(refresh=True), then.return_value(refresh=True)) == (3, 7)
    assert f"success {first.id} 3" in fleet.traces()
    assert fleet.traces().count("broken") == 3
    until(lambda: fleet.lanes().held() == 0, "all to be over")
    assert fleet.started() == []
    assert fleet.lanes().jobs() == {}


def test_a_burst_ends_when_nothing_is_left_in_list_and_lane(fleet: Fleet) -> None:
    jobs = [fleet.queue(kind=kind).enqueue(errands.add, 1, 1) for kind in (RqQueue, type(fleet.queue())) for _ in "123"]

    fleet.rq("worker", "--burst", "default", RQ_WORKER_CLASS=CLASS)

    assert {job.get_status() for job in jobs} == {JobStatus.FINISHED}
    assert fleet.rq_workers() == set()


def test_the_job_of_a_killed_worker_runs_again_within_its_lease_and_the_old_horse_writes_nothing(fleet: Fleet) -> None:
    first = begin(fleet)
    job = fleet.queue().enqueue(errands.held_up)
    fleet.until_traced("begun 1")
    begin(fleet)
    os.kill(first.pid, signal.SIGKILL)  # its horse lives on, as RQ's do

    assert fleet.ended(job) == [JobStatus.FINISHED]
    fleet.client.rpush("gate", "open")
    fleet.until_traced("done 1")

    assert job.return_value(refresh=True) == "attempt 2"
    assert len(job.results()) == 1
    assert fleet.started() == []


def test_a_long_job_is_not_taken_from_a_worker_that_lives(fleet: Fleet) -> None:
    begin(fleet, "--job-monitoring-interval", "1", "default")
    job = fleet.queue().enqueue(errands.held_up)
    fleet.until_traced("begun 1")
    begun = time.monotonic()
    lease_s = fleet.settings.lease_ms / 1000
    until(lambda: time.monotonic() - begun > 2 * lease_s, "two leases to pass")
    (execution,) = fleet.started()
    assert fleet.client.zscore("rq:wip:default", execution) == float("inf")

    fleet.client.rpush("gate", "open")

    assert fleet.ended(job) == [JobStatus.FINISHED]
    assert fleet.traces() == ["begun 1", "done 1"]


def test_rqs_command_stops_a_job_and_a_dead_horse_fails_one(fleet: Fleet) -> None:
    begin(fleet)
    stopped = fleet.queue().enqueue(errands.sleepy, on_stopped=Callback(errands.halted))
    fleet.until_traced("begun")
    send_stop_job_command(fleet.client, stopped.id)
    assert fleet.ended(stopped) == [JobStatus.STOPPED]

    killed = fleet.queue().enqueue(errands.deadly)

    assert fleet.ended(killed) == [JobStatus.FAILED]
    assert f"stopped {stopped.id}" in fleet.traces()


def test_agentq_cancels_a_job_that_such_a_worker_executes(fleet: Fleet) -> None:
    begin(fleet)
    job = fleet.queue().enqueue(errands.sleepy, on_stopped=Callback(errands.halted))
    fleet.until_traced("begun")
    run = fleet.lanes().run_of(job.id)
    assert run is not None

    assert fleet.agentq("cancel", run).returncode == 0

    assert fleet.ended(job) == [JobStatus.STOPPED]
    fleet.until_traced(f"stopped {job.id}")


def test_a_cancelled_job_in_the_lane_is_passed_over(fleet: Fleet) -> None:
    job = fleet.queue(kind=RqQueue).enqueue(errands.add, 1, 1)
    job.cancel()

    fleet.rq("worker", "--burst", "default", RQ_WORKER_CLASS=CLASS)

    assert fleet.traces() == []
    assert job.get_status() == JobStatus.CANCELED
    assert fleet.lanes().jobs() == {}
