"""What a job of RQ is, executed as a run of agentq: by RQ's rules, whichever way it ends."""

from __future__ import annotations

import gc
import warnings

from rq import Callback, Repeat, Retry
from rq.job import Dependency, JobStatus
from rq.results import Result
from rq_jobs import errands
from rq_jobs.adoption import Adoption


def test_a_job_is_performed_with_its_arguments_and_its_result_is_where_rq_looks(adoption: Adoption) -> None:
    job = adoption.queue().enqueue(errands.add, 2, right=3)

    (done,) = adoption.work()

    assert done.said == "finished"
    assert job.get_status() == JobStatus.FINISHED
    assert job.return_value(refresh=True) == 5
    assert [result.type for result in job.results()] == [Result.Type.SUCCESSFUL]
    assert adoption.queue().finished_job_registry.get_job_ids() == [job.id]
    assert adoption.started() == []
    assert adoption.records.get(done.claim.id).state == "completed"


def test_a_coroutine_is_awaited(adoption: Adoption) -> None:
    job = adoption.queue().enqueue(errands.add_slowly, 2, 3)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # RQ leaves its event loop to the collector
        adoption.work()
        gc.collect()

    assert job.return_value(refresh=True) == 5


def test_a_job_knows_itself_and_its_meta_are_kept(adoption: Adoption) -> None:
    job = adoption.queue().enqueue(errands.noted, "hello", meta={"before": 1})

    adoption.work()

    assert adoption.traces() == [f"hello {job.id} {job.id}"]
    assert adoption.fetch(job.id).meta == {"before": 1, "word": "hello"}


def test_callbacks_are_called_with_what_they_expect(adoption: Adoption) -> None:
    queue = adoption.queue()
    good = queue.enqueue(errands.add, 1, 1, on_success=Callback(errands.well))
    bad = queue.enqueue(errands.broken, on_failure=Callback(errands.ill))

    adoption.work()

    assert f"success {good.id} 2" in adoption.traces()
    assert f"failure {bad.id} ValueError broken" in adoption.traces()


def test_a_job_that_fails_has_failed_for_both_and_says_why(adoption: Adoption) -> None:
    job = adoption.queue().enqueue(errands.broken, "out of paper")

    (done,) = adoption.work()

    assert job.get_status() == JobStatus.FAILED
    assert adoption.queue().failed_job_registry.get_job_ids() == [job.id]
    latest = job.latest_result()
    assert latest is not None
    assert "ValueError: out of paper" in (latest.exc_string or "")
    run = adoption.records.get(done.claim.id)
    assert run.state == "failed"
    assert "out of paper" in str(run.outcome)


def test_rqs_own_timeout_ends_a_job(adoption: Adoption) -> None:
    job = adoption.queue().enqueue(errands.sleepy, 30, job_timeout=1)

    adoption.work()

    latest = job.latest_result()
    assert latest is not None
    assert "JobTimeoutException" in (latest.exc_string or "")


def test_a_failed_job_is_tried_again_as_often_as_rq_says(adoption: Adoption) -> None:
    job = adoption.queue().enqueue(errands.broken, retry=Retry(max=2))

    done = adoption.work()

    assert len(done) == 3
    assert len({each.claim.id for each in done}) == 3, "each execution is a run of its own"
    assert adoption.traces() == ["broken"] * 3
    assert job.get_status() == JobStatus.FAILED


def test_a_retry_with_an_interval_waits_in_rqs_registry(adoption: Adoption) -> None:
    job = adoption.queue().enqueue(errands.broken, retry=Retry(max=1, interval=600))

    adoption.work()

    assert job.get_status() == JobStatus.SCHEDULED
    assert adoption.queue().scheduled_job_registry.get_job_ids() == [job.id]


def test_a_job_may_ask_for_another_try_by_what_it_returns(adoption: Adoption) -> None:
    job = adoption.queue().enqueue(errands.unfinished, 5)

    adoption.work()

    assert adoption.traces() == ["try 1", "try 2", "try 3"]
    assert job.return_value(refresh=True) == "enough"


def test_a_job_is_repeated(adoption: Adoption) -> None:
    adoption.queue().enqueue(errands.add, 1, 1, repeat=Repeat(times=2))

    adoption.work()

    assert adoption.traces() == ["add 1 1"] * 3


def test_dependents_run_after_what_they_depend_on(adoption: Adoption) -> None:
    queue = adoption.queue()
    first = queue.enqueue(errands.add, 1, 1)
    other = adoption.queue("other").enqueue(errands.add, 2, 2, depends_on=first)
    assert other.get_status() == JobStatus.DEFERRED

    adoption.work(None, "default", "other")

    assert adoption.traces() == ["add 1 1", "add 2 2"]
    assert other.get_status() == JobStatus.FINISHED


def test_a_dependent_that_allows_failure_runs_and_one_that_does_not_stays(adoption: Adoption) -> None:
    queue = adoption.queue()
    bad = queue.enqueue(errands.broken)
    tolerant = queue.enqueue(errands.add, 1, 1, depends_on=Dependency(bad, allow_failure=True))
    strict = queue.enqueue(errands.add, 2, 2, depends_on=bad)

    adoption.work()

    assert tolerant.get_status() == JobStatus.FINISHED
    assert strict.get_status() == JobStatus.DEFERRED


def test_a_result_that_is_not_to_be_kept_leaves_nothing(adoption: Adoption) -> None:
    job = adoption.queue().enqueue(errands.add, 1, 1, result_ttl=0)

    adoption.work()

    assert not adoption.client.exists(job.key)
    assert adoption.lanes().jobs() == {}


def test_a_serializer_of_json_is_kept_to(adoption: Adoption) -> None:
    from rq.serializers import JSONSerializer

    job = adoption.queue(serializer=JSONSerializer).enqueue(errands.add, 1, 2)
    lanes = adoption.lanes()
    lanes.serializer = "rq.serializers.JSONSerializer"
    lanes.take_in(1)

    adoption.work()

    assert type(job).fetch(job.id, connection=adoption.client, serializer=JSONSerializer).return_value() == 3


def test_a_job_that_was_deleted_while_it_waited_is_passed_over(adoption: Adoption) -> None:
    job = adoption.queue().enqueue(errands.add, 1, 1)
    adoption.take_in()
    job.delete()

    (done,) = adoption.work()

    assert done.said == "gone"
    assert adoption.traces() == []
    assert adoption.lanes().jobs() == {}


def test_a_job_that_was_cancelled_while_it_waited_in_the_lane_does_not_run(adoption: Adoption) -> None:
    """`Job.cancel` removes it from RQ's list only, where it is no more."""
    job = adoption.queue().enqueue(errands.add, 1, 1)
    adoption.take_in()
    job.cancel()

    (done,) = adoption.work()

    assert done.said == "canceled"
    assert adoption.traces() == []
    assert job.get_status() == JobStatus.CANCELED


def test_no_record_of_a_failed_job_outlives_it(adoption: Adoption) -> None:
    adoption.queue().enqueue(errands.broken)

    adoption.work()

    assert adoption.lanes().jobs() == {}
    assert adoption.client.keys("rq:execution*") == []
