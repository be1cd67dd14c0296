"""RQ's list as an inbox, the queue class of ours, and the way back: nothing is lost, doubled or put out of order."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
import rq
from rq.job import JobStatus
from rq_jobs import errands
from rq_jobs.adoption import Adoption
from support.servers import until

from agentq.coordinator.errors import Invalid, TryLater
from agentq.coordinator.queues.limits import Limits
from agentq.coordinator.queues.queues import Queues
from agentq.worker.rq.adopt import inbox as inbox_module
from agentq.worker.rq.adopt.inbox import RqInbox
from agentq.worker.rq.adopt.queue_bridge import RqJobScheduler
from agentq.worker.rq.queue import RqQueue
from agentq.worker.rq.queue_names import to_queue_name, to_rq_name
from agentq.worker.rq.redis_client import check_address


@pytest.mark.parametrize("name", ["default", "high priority", "a:b/c", "größe", "x+y", "_", "mail.out@eu-1"])
def test_any_name_of_rq_has_one_in_agentq_and_the_way_back_is_exact(name: str) -> None:
    from agentq.coordinator.model.spec import RunSpec

    spelled = to_queue_name(name)

    assert to_rq_name(spelled) == name
    RunSpec.checked(kind="command", argv=["true"], queue=spelled)


@pytest.mark.parametrize("name", ["", "x" * 200, "ß" * 60])
def test_a_name_that_has_no_room_is_refused_in_a_sentence(name: str) -> None:
    with pytest.raises(Invalid, match="cannot be adopted"):
        to_queue_name(name)


def test_a_cluster_is_refused_in_a_sentence() -> None:
    with pytest.raises(Invalid, match="cannot be adopted on a Redis Cluster"):
        check_address("redis+cluster://localhost:7000")


def test_jobs_are_taken_in_in_order_and_only_as_many_as_there_is_room_for(adoption: Adoption) -> None:
    jobs = [adoption.queue().enqueue(errands.add, number, 0) for number in range(5)]

    taken, more = adoption.lanes().take_in(3)
    again = adoption.lanes().take_in(3)

    assert (taken, more) == (3, True)
    assert again == (0, True)
    assert adoption.lanes().waiting_ids() == [job.id for job in jobs[:3]]
    assert adoption.queue().job_ids == [job.id for job in jobs[3:]], "the rest is where RQ's tools see it"


def test_a_job_that_is_pushed_to_the_front_of_rqs_list_overtakes_what_waits_there(adoption: Adoption) -> None:
    adoption.queue().enqueue(errands.add, 1, 0)
    adoption.queue().enqueue(errands.add, 2, 0, at_front=True)

    adoption.work()

    assert adoption.traces() == ["add 2 0", "add 1 0"]


def test_a_job_that_is_pushed_twice_while_it_waits_is_one_run(adoption: Adoption) -> None:
    job = adoption.queue().enqueue(errands.add, 1, 1)
    adoption.take_in()
    adoption.client.rpush("rq:queue:default", job.id)

    assert adoption.take_in() == 0
    adoption.work()

    assert adoption.traces() == ["add 1 1"]


def test_a_job_that_is_pushed_while_it_runs_runs_once_more_and_not_beside_itself(adoption: Adoption) -> None:
    job = adoption.queue().enqueue(errands.add, 1, 1)
    adoption.take_in()
    lease = adoption.worker("w1")
    claim = adoption.claim(lease)
    adoption.client.rpush("rq:queue:default", job.id)

    assert adoption.take_in() == 1
    assert lease.claim(0, calls=1) == []
    adoption.perform(lease, claim)
    adoption.work(lease)

    assert adoption.traces() == ["add 1 1"] * 2


def test_a_job_that_ended_can_be_queued_again_by_hand(adoption: Adoption) -> None:
    """As the dashboard's button does it."""
    job = adoption.queue().enqueue(errands.broken)
    lease = adoption.worker("w1")
    adoption.work(lease)

    adoption.queue().failed_job_registry.requeue(job.id)
    adoption.work(lease)

    assert adoption.traces() == ["broken"] * 2


def test_a_job_that_died_on_its_way_is_taken_in_by_the_next_who_looks(adoption: Adoption) -> None:
    """A worker was killed after its blocking read had moved the job, and before the script."""
    job = adoption.queue().enqueue(errands.add, 1, 1)
    lanes = adoption.lanes()
    assert adoption.client.blmove(lanes.source, lanes.arrived, 1, "LEFT", "RIGHT") == job.id.encode()

    adoption.work()

    assert job.get_status() == JobStatus.FINISHED


def test_unique_jobs_arrive_and_a_second_of_them_is_refused_by_rq(adoption: Adoption) -> None:
    adoption.queue().enqueue(errands.add, 1, 1, job_id="only", unique=True)
    with pytest.raises(rq.exceptions.DuplicateJobError):
        adoption.queue().enqueue(errands.add, 1, 1, job_id="only", unique=True)

    adoption.work()

    assert adoption.traces() == ["add 1 1"]


def test_many_at_once_arrive_in_their_order(adoption: Adoption) -> None:
    queue = adoption.queue()
    queue.enqueue_many([rq.Queue.prepare_data(errands.add, (number, 0)) for number in range(50)])

    adoption.work()

    assert adoption.traces() == [f"add {number} 0" for number in range(50)]


def test_while_rq_is_suspended_nothing_is_taken_in(adoption: Adoption) -> None:
    from rq.suspension import resume, suspend

    adoption.queue().enqueue(errands.add, 1, 1)
    suspend(adoption.client)
    assert adoption.take_in() == 0

    resume(adoption.client)

    assert adoption.take_in() == 1


def test_a_queue_that_is_paused_or_drained_takes_nothing_in_and_loses_nothing(adoption: Adoption) -> None:
    adoption.queue().enqueue(errands.add, 1, 1)
    queues = Queues(adoption.store)
    for shut in (queues.pause, queues.drain):
        shut(adoption.lanes().queue)
        assert adoption.take_in() == 0
        queues.resume(adoption.lanes().queue)

    assert adoption.queue().count == 1
    assert adoption.take_in() == 1


def test_an_idle_inbox_hears_of_a_job_when_it_comes(adoption: Adoption, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not when it looks again by itself, which is in an hour."""
    for name, pause in (("BLOCK_S", 3_600), ("ROOM_WAIT_MS", 3_600_000), ("FULL_WAIT_MS", 3_600_000)):
        monkeypatch.setattr(inbox_module, name, pause)
    lanes = adoption.lanes()
    inbox = RqInbox(lanes, lambda: 1)
    inbox.start()
    until(lambda: adoption.client.info("clients")["blocked_clients"] == 1, "the inbox to block")
    job = adoption.queue().enqueue(errands.add, 1, 1)
    until(lambda: lanes.run_of(job.id) is not None, "the job to arrive")
    inbox.close()


def test_two_inboxes_take_each_job_once(adoption: Adoption) -> None:
    lanes = adoption.lanes()
    inboxes = [RqInbox(lanes, lambda: 1000) for _ in range(2)]
    for inbox in inboxes:
        inbox.start()
    queue = adoption.queue()
    jobs = [queue.enqueue(errands.add, number, 0) for number in range(100)]

    # What a blocking read has moved, and no script has taken in yet, waits and is no run.
    until(lambda: len(lanes.jobs()) >= 100 and lanes.left() == 0, "all to be taken in")
    for inbox in inboxes:
        inbox.close()

    assert sorted(lanes.jobs().values()) == sorted(job.id for job in jobs)


def test_jobs_that_rq_has_scheduled_are_enqueued_by_us_under_rqs_own_lock(adoption: Adoption) -> None:
    job = adoption.queue().enqueue_in(timedelta(seconds=-1), errands.add, 1, 1)
    mine, other = (RqJobScheduler(adoption.client, ["default"]) for _ in range(2))

    mine.look()
    other.look()
    scheduler = adoption.queue().scheduler_pid
    adoption.work()
    mine.close()
    other.close()

    assert scheduler is not None
    assert job.get_status() == JobStatus.FINISHED
    assert adoption.traces() == ["add 1 1"]
    assert not adoption.client.keys("rq:scheduler*")


# ---- the queue class


def test_our_queue_puts_jobs_straight_into_the_lane_and_knows_what_waits(adoption: Adoption) -> None:
    queue = adoption.queue(kind=RqQueue)
    jobs = [queue.enqueue(errands.add, number, 0) for number in range(3)]

    assert adoption.client.llen("rq:queue:default") == 0
    assert adoption.lanes().waiting() == 3
    assert queue.count == len(queue) == 3
    assert queue.job_ids == [job.id for job in jobs]
    assert queue.get_job_ids(1, 1) == [jobs[1].id]
    assert queue.get_job_position(jobs[2]) == 2
    assert [job.id for job in queue.jobs] == queue.job_ids


def test_our_queue_goes_first_with_what_is_at_the_front(adoption: Adoption) -> None:
    queue = adoption.queue(kind=RqQueue)
    queue.enqueue(errands.add, 1, 0)
    first = queue.enqueue(errands.add, 2, 0, at_front=True)
    assert queue.job_ids[0] == first.id

    adoption.work()

    assert adoption.traces() == ["add 2 0", "add 1 0"]


def test_our_queue_works_in_pipelines_many_at_once_and_with_dependencies(adoption: Adoption) -> None:
    queue = adoption.queue(kind=RqQueue)
    jobs = queue.enqueue_many([rq.Queue.prepare_data(errands.add, (number, 0)) for number in range(3)])
    with adoption.client.pipeline() as pipeline:
        queue.enqueue(errands.add, 3, 0, pipeline=pipeline)
        pipeline.execute()
    queue.enqueue(errands.add, 4, 0, depends_on=jobs)

    adoption.work()

    assert adoption.traces() == [f"add {number} 0" for number in range(5)]


def test_our_queue_is_pushed_to_after_the_server_forgot_its_scripts(adoption: Adoption) -> None:
    queue = adoption.queue(kind=RqQueue)
    queue.enqueue(errands.add, 1, 0)
    adoption.client.script_flush()
    queue.enqueue(errands.add, 2, 0)

    assert queue.count == 2


def test_our_queue_removes_and_empties_what_waits_in_the_lane(adoption: Adoption) -> None:
    queue = adoption.queue(kind=RqQueue)
    jobs = [queue.enqueue(errands.add, number, 0) for number in range(4)]

    queue.remove(jobs[1])
    with adoption.client.pipeline() as pipeline:
        queue.remove(jobs[2].id, pipeline=pipeline)
        pipeline.execute()
    assert queue.job_ids == [jobs[0].id, jobs[3].id]
    assert queue.empty() == 2

    assert queue.count == 0
    assert not adoption.client.exists(jobs[0].key, jobs[3].key)
    assert adoption.client.exists(jobs[1].key)
    assert adoption.close_jobs() == 0


def test_our_queue_refuses_when_agentq_takes_no_new_runs(adoption: Adoption) -> None:
    queue = adoption.queue(kind=RqQueue)
    Queues(adoption.store).drain(adoption.lanes().queue)

    with pytest.raises(TryLater, match="is closed"):
        queue.push_job_id("job")


def test_jobs_in_rqs_list_keep_their_place_though_producers_push_into_the_lane(adoption: Adoption) -> None:
    for number in range(20):
        adoption.queue(kind=RqQueue).enqueue(errands.add, number, 0)
    adoption.queue().enqueue(errands.add, 20, 0)

    adoption.lanes().take_in(1)

    assert adoption.queue().count == 0
    assert adoption.lanes().waiting() == 21


# ---- the way back


def test_what_waits_goes_back_to_rqs_list_in_its_order(adoption: Adoption) -> None:
    ours = adoption.queue(kind=RqQueue)
    ids = [ours.enqueue(errands.add, number, 0).id for number in range(1200)]
    front = ours.enqueue(errands.add, 0, 0, at_front=True).id
    adoption.client.rpush("rq:queue:default", "later")

    assert adoption.lanes().give_back() == 1201

    assert adoption.queue().job_ids == [front, *ids, "later"]
    assert adoption.lanes().waiting() == 0
    assert adoption.close_jobs() == 0


def test_a_way_back_that_was_broken_off_loses_nothing_and_keeps_the_order(adoption: Adoption) -> None:
    ours = adoption.queue(kind=RqQueue)
    ids = [ours.enqueue(errands.add, number, 0).id for number in range(30)]
    lanes = adoption.lanes()
    (lane,) = lanes._lanes()
    adoption.store.call("rq/return_jobs", 0, lanes.queue, lane, lanes.source, "+", 7, 0, "killed after this call")
    assert ours.job_ids == ids, "some in the lane, some in the list, in order"

    lanes.give_back()

    assert adoption.queue().job_ids == ids


def test_what_a_dead_worker_had_begun_goes_back_as_queued(adoption: Adoption) -> None:
    from agentq.worker.rq.job import RqAttempt
    from agentq.worker.rq.job_runner import JobRunner

    job = adoption.queue().enqueue(errands.add, 1, 1)
    adoption.take_in()
    claim = adoption.claim(adoption.worker("w1"))
    attempt = RqAttempt(adoption.settings, claim.id, claim.fence, "w1")
    JobRunner("default", "", attempt.client(adoption.lanes().queue), "w1").begin(adoption.fetch(job.id))
    adoption.runs.release(claim, "its worker left")

    assert adoption.lanes().give_back() == 1

    assert adoption.started() == []
    assert job.get_status() == JobStatus.QUEUED
    assert not adoption.client.keys("rq:execution*")


def test_jobs_that_wait_for_room_under_a_limit_go_back_too(adoption: Adoption) -> None:
    Limits(adoption.store).set(f"queue:{adoption.lanes().queue}", most=1)
    jobs = [adoption.queue().enqueue(errands.add, number, 0) for number in range(3)]
    adoption.take_in()
    assert adoption.lanes().waiting() == 3
    lease = adoption.worker("w1")
    assert len(lease.claim(0, calls=3)) == 1

    adoption.lanes().give_back()

    assert sorted(adoption.queue().job_ids) == sorted(job.id for job in jobs[1:])


def test_giving_back_and_taking_in_at_the_same_time_doubles_nothing(adoption: Adoption) -> None:
    ours = adoption.queue(kind=RqQueue)
    ids = {ours.enqueue(errands.add, number, 0).id for number in range(100)}
    thread = threading.Thread(target=adoption.lanes().give_back)
    thread.start()
    adoption.take_in()
    thread.join()
    adoption.lanes().give_back()

    assert sorted(adoption.queue().job_ids) == sorted(ids)


def test_a_job_has_a_hard_limit_a_minute_after_rqs_own_timeout(adoption: Adoption) -> None:
    """As RQ's workers kill a horse that did not hear its alarm."""
    timed = adoption.queue().enqueue(errands.add, 1, 1, job_timeout=10)
    endless = adoption.queue(kind=RqQueue).enqueue(errands.add, 1, 1, job_timeout=-1)
    adoption.take_in()

    limits = [adoption.records.get(adoption.lanes().run_of(job.id) or "").spec.timeout_ms for job in (timed, endless)]

    assert limits == [70_000, None]
