"""RQ's own tools, as they come: `rq info`, the dashboard, `rq cron`, `rq suspend` see the truth and do no harm."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from rq.job import JobStatus
from rq.registry import clean_registries
from rq_jobs import errands
from rq_jobs.fleet import Fleet
from support.generated_docs import ROOT
from support.servers import free_port, until

from agentq.worker.rq.queue import RqQueue

pytestmark = pytest.mark.full("starts RQ's own programs")


def test_rq_info_shows_the_backlog_the_worker_and_what_it_does(fleet: Fleet) -> None:
    fleet.worker_of_ours()
    busy = fleet.queue().enqueue(errands.held_up)
    fleet.until_traced("begun 1")
    for number in range(20):
        fleet.queue().enqueue(errands.add, number, 0)
    fleet.until_full()

    (worker,) = fleet.rq_workers()
    assert fleet.info()["workers"] == {worker.removeprefix("rq:worker:"): "busy"}
    shown, (in_list, _) = fleet.unmoved(fleet.info)
    assert shown["queues"] == {"default": len(in_list)}
    ours, (in_list, in_lane) = fleet.unmoved(lambda: fleet.info(RQ_QUEUE_CLASS="agentq.worker.rq.Queue"))
    assert ours["queues"]["default"] == len(in_list) + in_lane, "and with our class, those in the lane"
    fleet.client.rpush("gate", "open")
    fleet.ended(busy)
    until(lambda: list(fleet.info()["workers"].values()) == ["idle"], "the worker to be idle")


def test_no_tool_that_cleans_rqs_registries_takes_a_live_job_for_abandoned(fleet: Fleet) -> None:
    """`rq info` is a reaper: it fails, or runs a second time, what it takes for abandoned."""
    fleet.worker_of_ours()
    job = fleet.queue().enqueue(errands.held_up)
    fleet.until_traced("begun 1")
    (execution,) = fleet.started()

    assert fleet.client.zscore("rq:wip:default", execution) == float("inf")
    fleet.rq("info")
    clean_registries(fleet.queue())
    later = 10**12
    fleet.queue().started_job_registry.cleanup(later)

    assert fleet.started() == [execution]
    assert job.get_status() == JobStatus.STARTED
    fleet.client.rpush("gate", "open")
    assert fleet.ended(job) == [JobStatus.FINISHED]
    assert fleet.traces() == ["begun 1", "done 1"]


def test_the_worker_counts_what_it_did_and_a_killed_one_vanishes(fleet: Fleet) -> None:
    worker = fleet.worker_of_ours()
    fleet.ended(fleet.queue().enqueue(errands.add, 1, 1), fleet.queue().enqueue(errands.broken))
    (key,) = fleet.rq_workers()

    counts = ("successful_job_count", "failed_job_count", "current_job")
    until(lambda: fleet.client.hmget(key, *counts) == [b"1", b"1", None], "both to be counted")
    os.kill(worker.pid, signal.SIGKILL)
    fleet.client.pexpire(key, 1)  # which comes within a minute by itself
    until(lambda: not fleet.client.exists(key), "its record to expire")

    assert fleet.info()["workers"] == {}


class Dashboard:
    """rq-dashboard, as it comes, in a process of its own."""

    def __init__(self, fleet: Fleet) -> None:
        self.address = f"http://127.0.0.1:{free_port()}"
        port = self.address.rpartition(":")[2]
        fleet.start(sys.executable, "-m", "rq_dashboard", "-b", "127.0.0.1", "-p", port, "-u", fleet.server.url)
        until(self.answers, "the dashboard to answer", 60)

    def answers(self) -> bool:
        try:
            return bool(self.get("/0/data/queues.json"))
        except OSError:
            return False

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.address + path, timeout=20) as reply:
            return json.loads(reply.read())

    def post(self, path: str) -> Any:
        with urllib.request.urlopen(self.address + path, data=b"", timeout=20) as reply:
            return json.loads(reply.read())

    def ids(self, registry: str) -> list[str]:
        jobs = self.get(f"/0/data/jobs/default/{registry}/50/asc/1.json")["jobs"]
        return [job["id"] for job in jobs]


def test_the_dashboard_shows_what_is_so_and_its_button_queues_a_job_again(fleet: Fleet) -> None:
    dashboard = Dashboard(fleet)
    fleet.worker_of_ours()
    good, bad = fleet.queue().enqueue(errands.add, 1, 1), fleet.queue().enqueue(errands.broken)
    fleet.ended(good, bad)
    busy = fleet.queue().enqueue(errands.held_up)
    fleet.until_traced("begun 1")
    waiting = [fleet.queue().enqueue(errands.add, number, 2) for number in range(20)]
    fleet.until_full()

    (queue,), (in_list, _) = fleet.unmoved(lambda: dashboard.get("/0/data/queues.json")["queues"])
    assert queue["count"] == len(in_list)
    queued, (in_list, _) = fleet.unmoved(lambda: dashboard.ids("queued"))
    assert queued == in_list == [job.id for job in waiting[-len(in_list) :]]
    (worker,) = dashboard.get("/0/data/workers.json")["workers"]
    assert dashboard.ids("finished") == [good.id]
    assert dashboard.ids("failed") == [bad.id]
    assert dashboard.ids("started") == [busy.id]
    assert worker["state"].endswith(("busy", "BUSY"))
    assert worker["queues"] == ["default"]
    assert (worker["successful_job_count"], worker["failed_job_count"]) == (1, 1)
    assert "ValueError: broken" in dashboard.get(f"/0/data/job/{bad.id}.json")["exc_info"]

    fleet.client.rpush("gate", "open")
    fleet.ended(*waiting)
    dashboard.post(f"/job/{bad.id}/requeue")
    until(lambda: fleet.traces().count("broken") == 2, "the job to run again")


def test_the_page_of_a_job_with_dependencies_is_broken_in_the_dashboard_itself(fleet: Fleet) -> None:
    """With RQ 2.12 and dashboard 0.8, whoever executed the job; noted here so that it is not taken for ours."""
    dashboard = Dashboard(fleet)
    first = fleet.queue().enqueue(errands.add, 1, 1)
    then = fleet.queue().enqueue(errands.add, 2, 2, depends_on=first)

    with pytest.raises(urllib.error.HTTPError, match="500"):
        dashboard.get(f"/0/data/job/{then.id}.json")


def test_rq_suspend_keeps_our_workers_from_taking_jobs(fleet: Fleet) -> None:
    fleet.worker_of_ours()
    fleet.rq("suspend")
    job = fleet.queue().enqueue(errands.add, 1, 1)
    other = fleet.queue().enqueue(errands.add, 2, 2)
    until(lambda: fleet.lanes().left() == 2, "both to wait")
    assert job.get_status() == JobStatus.QUEUED

    fleet.rq("resume")

    assert fleet.ended(job, other) == [JobStatus.FINISHED] * 2


# ---- cron

CRON = """
from rq import cron
from rq_jobs import errands
cron.register(errands.add, "default", args=(1, 1), interval=1)
"""


def test_the_jobs_of_rq_cron_are_executed(fleet: Fleet, tmp_path: Path) -> None:
    config = tmp_path / "ticks.py"
    config.write_text(CRON)
    fleet.worker_of_ours()

    fleet.begin_rq("cron", str(config))

    until(lambda: fleet.traces().count("add 1 1") >= 2, "two ticks")


def test_the_reaper_runs_by_rq_cron_and_two_crons_do_no_harm(fleet: Fleet) -> None:
    """deploy/rq_cron.py, as it is; its jobs are executed by workers of RQ's own, so no worker of ours need live."""
    victim = fleet.worker_of_ours()
    job = fleet.queue().enqueue(errands.held_up)
    fleet.until_traced("begun 1")
    for _ in range(2):
        fleet.begin_rq("cron", str(ROOT / "deploy/rq_cron.py"), AGENTQ_RQ_CRON_S="1")
    fleet.begin_rq("worker", "agentq-maintenance")
    fleet.begin_rq("worker", "agentq-maintenance")
    os.kill(victim.pid, signal.SIGKILL)

    until(lambda: fleet.lanes().held() == 0, "the run to be requeued", 60)

    assert fleet.lanes().waiting() == 1
    fleet.worker_of_ours()
    assert fleet.ended(job) == [JobStatus.FINISHED]
    assert fleet.queue("agentq-maintenance").failed_job_registry.get_job_ids() == []


def test_a_backlog_of_ticks_does_the_work_once(fleet: Fleet) -> None:
    from agentq.worker.rq import cron

    assert fleet.settings.tick_ms > 0
    said = [cron.reap() for _ in range(5)]

    assert [words == cron.SKIPPED_MESSAGE for words in said] == [False, True, True, True, True]


def test_a_schedule_ticks_by_rq_cron(fleet: Fleet) -> None:
    from agentq.coordinator.model.spec import RunSpec
    from agentq.coordinator.schedules.verbs import Schedules, make_schedule_rule
    from agentq.worker.rq import cron

    Schedules(fleet.store).add("often", make_schedule_rule(every_ms=1000), RunSpec(kind="command", argv=["true"]))

    until(lambda: "made 1" in cron.tick(), "a tick")


def test_with_our_queue_class_the_dashboard_sees_what_rqs_list_holds_and_rq_info_all(fleet: Fleet) -> None:
    """What is pushed straight into a lane is not in RQ's list, which is all that the dashboard knows."""
    for number in range(3):
        fleet.queue(kind=RqQueue).enqueue(errands.add, number, 0)

    assert fleet.info()["queues"] == {"default": 0}
    assert fleet.info(RQ_QUEUE_CLASS="agentq.worker.rq.Queue")["queues"] == {"default": 3}
