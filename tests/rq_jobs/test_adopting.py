"""`agentq worker --rq default`: producers, jobs and tools of RQ go on unchanged, with agentq's leases."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from rq import Callback, Retry
from rq.command import PUBSUB_CHANNEL_TEMPLATE, send_shutdown_command, send_stop_job_command
from rq.job import JobStatus
from rq_jobs import errands
from rq_jobs.fleet import Fleet
from support.processes import alive, send
from support.servers import until

from agentq.worker.rq.adopt.inbox import BLOCK_S


@pytest.mark.full("takes 3 s")
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


@pytest.mark.full("takes 2 s")
def test_an_idle_worker_is_woken_by_a_job(fleet: Fleet) -> None:
    """It looks by itself once in `BLOCK_S` only, so that most of those who are not woken wait for longer than this."""
    fleet.worker_of_ours()
    fleet.ended(fleet.queue().enqueue(errands.add, 0, 0))
    waits = []
    for number in range(10):
        until(lambda: fleet.client.info("clients")["blocked_clients"] >= 2, "the worker to wait")
        begun = time.monotonic()
        fleet.queue().enqueue(errands.add, number, 1)
        fleet.until_traced(f"add {number} 1")
        waits.append(time.monotonic() - begun)

    assert sorted(waits)[5] < BLOCK_S / 4


@pytest.mark.full("takes 4 s")
def test_the_job_of_a_killed_worker_runs_again_within_its_lease(fleet: Fleet) -> None:
    """RQ's own workers leave it for up to eleven minutes."""
    first = fleet.worker_of_ours()
    job = fleet.queue().enqueue(errands.held_up)
    fleet.until_traced("begun 1")
    fleet.worker_of_ours()
    os.kill(first.pid, signal.SIGKILL)

    assert fleet.ended(job) == [JobStatus.FINISHED]

    assert fleet.traces() == ["begun 1", "begun 2", "done 2"]
    assert job.return_value(refresh=True) == "attempt 2"
    assert len(job.results()) == 1
    assert fleet.started() == []
    assert fleet.client.keys("rq:execution*") == []


@pytest.mark.full("takes 4 s")
def test_a_worker_that_was_frozen_and_wakes_writes_nothing(fleet: Fleet) -> None:
    first = fleet.worker_of_ours()
    job = fleet.queue().enqueue(errands.held_up)
    fleet.until_traced("begun 1")
    started = fleet.fetch(job.id).started_at
    group = [first.pid, *children_of(first.pid)]
    send(signal.SIGSTOP, group)
    fleet.worker_of_ours()
    assert fleet.ended(job) == [JobStatus.FINISHED]

    fleet.client.rpush("gate", "open")  # the frozen attempt may go on at once, when it wakes
    send(signal.SIGCONT, group)
    until(
        lambda: fleet.client.llen("gate") == 0 or not any(map(alive, group[1:])), "the old attempt to go on or to end"
    )
    until(lambda: not any(map(alive, group[1:2])), "the old attempt to end")

    assert fleet.fetch(job.id).started_at != started
    assert job.return_value(refresh=True) == "attempt 2"
    assert len(job.results()) == 1


@pytest.mark.full("takes 2 s")
def test_a_job_is_stopped_by_rqs_command(fleet: Fleet) -> None:
    fleet.worker_of_ours()
    job = fleet.queue().enqueue(errands.sleepy, on_stopped=Callback(errands.halted))
    fleet.until_traced("begun")

    send_stop_job_command(fleet.client, job.id)

    assert fleet.ended(job) == [JobStatus.STOPPED]
    fleet.until_traced(f"stopped {job.id}")
    assert fleet.queue().failed_job_registry.get_job_ids() == [job.id]
    assert fleet.started() == []
    assert "slept" not in fleet.traces()
    assert fleet.ended(fleet.queue().enqueue(errands.add, 1, 1)) == [JobStatus.FINISHED]


@pytest.mark.full("takes 2 s")
def test_a_job_that_kills_its_process_has_failed_and_the_worker_goes_on(fleet: Fleet) -> None:
    fleet.worker_of_ours()
    job = fleet.queue().enqueue(errands.deadly)
    other = fleet.queue().enqueue(errands.add, 1, 1)

    assert fleet.ended(job, other) == [JobStatus.FAILED, JobStatus.FINISHED]

    latest = job.latest_result()
    assert latest is not None
    assert "Work-horse terminated unexpectedly" in (latest.exc_string or "")


@pytest.mark.full("takes 2 s")
def test_rqs_timeout_holds_in_a_worker_of_ours(fleet: Fleet) -> None:
    fleet.worker_of_ours()
    job = fleet.queue().enqueue(errands.sleepy, 30, job_timeout=1)

    assert fleet.ended(job) == [JobStatus.FAILED]

    assert "JobTimeoutException" in str(job.latest_result().exc_string)  # type: ignore[union-attr]


@pytest.mark.full("takes 4 s")
def test_a_worker_leaves_by_rqs_command_and_tells_rq(fleet: Fleet) -> None:
    worker = fleet.worker_of_ours()
    (key,) = fleet.rq_workers()

    send_shutdown_command(fleet.client, key.removeprefix("rq:worker:"))

    assert worker.wait(timeout=60) == 0
    assert fleet.rq_workers() == set()
    assert not fleet.client.keys("rq:scheduler*")


@pytest.mark.full("takes 1 s")
def test_a_command_of_rq_that_cannot_be_read_is_passed_over(fleet: Fleet) -> None:
    worker = fleet.worker_of_ours()
    (key,) = fleet.rq_workers()
    name = key.removeprefix("rq:worker:")

    fleet.client.publish(PUBSUB_CHANNEL_TEMPLATE % name, "no JSON")
    send_shutdown_command(fleet.client, name)

    assert worker.wait(timeout=20) == 0


@pytest.mark.full("takes 3 s")
def test_a_worker_that_leaves_hands_its_job_back_and_the_next_one_runs_it(fleet: Fleet) -> None:
    first = fleet.worker_of_ours("--rq", "default", "--drain-grace", "0s")
    job = fleet.queue().enqueue(errands.held_up)
    fleet.until_traced("begun 1")

    first.terminate()
    assert first.wait(timeout=60) == 0
    fleet.worker_of_ours()

    assert fleet.ended(job) == [JobStatus.FINISHED]
    assert len(job.results()) == 1
    assert fleet.started() == []


@pytest.mark.full("takes 2 s")
def test_a_burst_ends_when_the_list_is_empty(fleet: Fleet) -> None:
    jobs = [fleet.queue().enqueue(errands.add, number, 0) for number in range(30)]

    worker = fleet.start(sys.executable, "-m", "agentq.cli.main", "worker", "--rq", "default", "--burst")

    assert worker.wait(timeout=60) == 0
    assert {job.get_status() for job in jobs} == {JobStatus.FINISHED}


@pytest.mark.full("takes 2 s")
def test_queues_that_are_named_first_go_first(fleet: Fleet) -> None:
    low = [fleet.queue("low").enqueue(errands.add, 1, number) for number in range(3)]
    high = [fleet.queue("high").enqueue(errands.add, 0, number) for number in range(3)]
    fleet.start(sys.executable, "-m", "agentq.cli.main", "worker", "--rq", "high,low", "--burst").wait(timeout=60)

    assert {job.get_status() for job in low + high} == {JobStatus.FINISHED}


def test_our_times_are_not_rqs_a_result_and_a_worker_expire_as_before(fleet: Fleet) -> None:
    worker = fleet.worker_of_ours()
    job = fleet.queue().enqueue(errands.add, 1, 1, result_ttl=100)
    fleet.ended(job)
    (key,) = fleet.rq_workers()

    assert 0 < fleet.client.ttl(job.key) <= 100
    assert 0 < fleet.client.ttl(key) <= 30
    os.kill(worker.pid, signal.SIGKILL)


def children_of(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found if alive(int(child))]
