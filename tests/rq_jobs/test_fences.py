"""An attempt that was superseded writes nothing of its job, and one whose worker died leaves nothing behind."""

from __future__ import annotations

import pytest
import redis
from redis import ResponseError, WatchError
from rq import Callback, Retry
from rq.job import JobStatus
from rq_jobs import errands
from rq_jobs.adoption import Adoption

from agentq.coordinator.errors import Fenced
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome
from agentq.worker.rq.job import RqAttempt, execute_job


def test_a_superseded_attempt_cannot_finish_its_job(adoption: Adoption) -> None:
    job = adoption.queue().enqueue(errands.add, 1, 1, on_success=Callback(errands.well))
    adoption.take_in()
    lease = adoption.worker("w1")
    claim = adoption.claim(lease)
    adoption.runs.release(claim, "taken away")

    with pytest.raises(Fenced):
        adoption.call(claim, "w1")

    assert job.get_status() == JobStatus.QUEUED
    assert job.results() == []
    assert adoption.started() == []


def test_an_attempt_that_is_superseded_while_its_function_runs_writes_no_outcome_and_calls_no_callback(
    adoption: Adoption, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = adoption.queue().enqueue(
        errands.add, 1, 1, on_success=Callback(errands.well), on_failure=Callback(errands.ill)
    )
    adoption.take_in()
    claim = adoption.claim(adoption.worker("w1"))
    before = errands.trace

    def taken_meanwhile(what: str) -> None:
        before(what)
        adoption.runs.release(claim, "taken away")

    monkeypatch.setattr(errands, "trace", taken_meanwhile)
    with pytest.raises(Fenced):
        adoption.call(claim, "w1")
    monkeypatch.setattr(errands, "trace", before)

    assert adoption.traces() == ["add 1 1"]
    assert job.results() == []
    (done,) = adoption.work(adoption.worker("w2"))
    assert done.said == "finished"
    assert adoption.traces() == ["add 1 1", "add 1 1", f"success {job.id} 2"]
    assert len(job.results()) == 1


def test_a_run_that_is_taken_between_the_look_and_the_write_ends_the_transaction(adoption: Adoption) -> None:
    adoption.queue().enqueue(errands.add, 1, 1)
    adoption.take_in()
    claim = adoption.claim(adoption.worker("w1"))
    client = RqAttempt(adoption.settings, claim.id, claim.fence, "w1").client(adoption.lanes().queue)

    with client.pipeline() as pipeline:
        pipeline.watch("rq:anything")  # type: ignore[no-untyped-call]
        adoption.runs.release(claim, "taken away")
        pipeline.multi()
        pipeline.set("rq:outcome", "written")
        with pytest.raises(Fenced):
            pipeline.execute()
    with client.pipeline() as pipeline:
        pipeline.set("rq:outcome", "written")
        with pytest.raises(Fenced):
            pipeline.execute()

    assert not adoption.client.exists("rq:outcome")


def test_a_word_of_its_own_worker_does_not_end_the_transaction_of_an_attempt(adoption: Adoption) -> None:
    adoption.queue().enqueue(errands.add, 1, 1)
    adoption.take_in()
    claim = adoption.claim(adoption.worker("w1"))
    client = RqAttempt(adoption.settings, claim.id, claim.fence, "w1").client(adoption.lanes().queue)
    words = iter(range(1, 4))

    class Disturbed(type(client.pipeline())):  # type: ignore[misc]
        def _once(self, raise_on_error: bool) -> list[object]:
            number = next(words, None)
            if number is not None:
                adoption.runs.report(claim, number, {"done": number})
            return super()._once(raise_on_error)  # type: ignore[no-any-return]

    pipeline = Disturbed(client.connection_pool, client.response_callbacks, client.fence, closes=True)
    pipeline.set("rq:outcome", "written")

    assert pipeline.execute() == [True]


def test_the_executions_of_a_dead_attempt_are_removed_when_the_job_is_taken_over(adoption: Adoption) -> None:
    """Left alone, such an execution would fail the job while the new attempt runs."""
    job = adoption.queue().enqueue(errands.add, 1, 1)
    adoption.take_in()
    claim = adoption.claim(adoption.worker("w1"))
    attempt = RqAttempt(adoption.settings, claim.id, claim.fence, "w1")
    client = attempt.client(adoption.lanes().queue)
    from agentq.worker.rq.job_runner import JobRunner

    assert JobRunner("default", "", client, "w1").begin(adoption.fetch(job.id))
    (dead,) = adoption.started()

    adoption.runs.release(claim, "its worker died")
    (done,) = adoption.work(adoption.worker("w2"))

    assert done.said == "finished"
    assert adoption.started() == []
    assert not adoption.client.exists(f"rq:execution:{dead}")


def test_an_outcome_that_was_written_before_the_worker_died_is_not_written_twice(adoption: Adoption) -> None:
    job = adoption.queue().enqueue(errands.broken, retry=Retry(max=1, interval=600))
    adoption.take_in()
    lease = adoption.worker("w1")
    claim = adoption.claim(lease)
    with pytest.raises(Exception, match="broken"):
        adoption.call(claim, "w1")
    adoption.runs.release(claim, "its worker died before it could say so")

    (done,) = adoption.work(adoption.worker("w2"))

    assert done.said == "told"
    assert adoption.traces() == ["broken"]
    assert job.get_status() == JobStatus.SCHEDULED


def test_dependents_that_a_dead_worker_had_yet_to_call_are_called(adoption: Adoption) -> None:
    from rq.job import Dependency

    queue = adoption.queue()
    bad = queue.enqueue(errands.broken)
    then = queue.enqueue(errands.add, 1, 1, depends_on=Dependency(bad, allow_failure=True))
    adoption.take_in()
    claim = adoption.claim(adoption.worker("w1"))
    attempt = RqAttempt(adoption.settings, claim.id, claim.fence, "w1")
    client = attempt.client(adoption.lanes().queue)
    with client.pipeline() as pipeline:  # what RQ writes first of a failure, and then its worker dies
        client.fence.closing = True
        bad.set_status(JobStatus.FAILED, pipeline=pipeline)
        pipeline.execute()

    assert execute_job(attempt, bad.id, "default", "") == "told"

    assert then.get_status() == JobStatus.QUEUED


def test_a_job_that_killed_its_process_has_failed_in_rq_too(adoption: Adoption) -> None:
    job = adoption.queue().enqueue(errands.add, 1, 1, on_failure=Callback(errands.ill))
    adoption.take_in()
    claim = adoption.claim(adoption.worker("w1"))
    adoption.runs.fail(claim, Outcome(class_=OutcomeClass.SIGNAL, signal=9, error="killed by SIGKILL"))

    assert adoption.close_jobs() == 1
    assert adoption.close_jobs() == 1, "until that was executed"
    (done,) = adoption.work(adoption.worker("w2"))

    assert done.said == "failed"
    assert job.get_status() == JobStatus.FAILED
    assert adoption.queue().failed_job_registry.get_job_ids() == [job.id]
    latest = job.latest_result()
    assert latest is not None
    assert "Work-horse terminated unexpectedly; killed by SIGKILL" in (latest.exc_string or "")
    assert adoption.close_jobs() == 0


def test_a_job_that_killed_its_process_is_tried_again_as_rq_says(adoption: Adoption) -> None:
    job = adoption.queue().enqueue(errands.add, 1, 1, retry=Retry(max=1))
    adoption.take_in()
    claim = adoption.claim(adoption.worker("w1"))
    adoption.runs.fail(claim, Outcome(class_=OutcomeClass.SIGNAL, signal=9, error="killed by SIGKILL"))
    adoption.close_jobs()

    adoption.work(adoption.worker("w2"))

    assert job.get_status() == JobStatus.FINISHED
    assert adoption.traces() == ["add 1 1"]


def test_what_agentq_cancels_is_cancelled_in_rq(adoption: Adoption) -> None:
    job = adoption.queue().enqueue(errands.add, 1, 1)
    adoption.take_in()
    run = adoption.lanes().run_of(job.id)
    assert run is not None
    adoption.runs.cancel(run)

    assert adoption.close_jobs() == 1
    adoption.work()

    assert job.get_status() == JobStatus.CANCELED
    assert adoption.queue().canceled_job_registry.get_job_ids() == [job.id]


def test_a_job_whose_process_was_stopped_is_stopped_in_rq_and_its_callback_called(adoption: Adoption) -> None:
    job = adoption.queue().enqueue(errands.sleepy, on_stopped=Callback(errands.halted))
    adoption.take_in()
    claim = adoption.claim(adoption.worker("w1"))
    attempt = RqAttempt(adoption.settings, claim.id, claim.fence, "w1")
    from agentq.worker.rq.job_runner import JobRunner

    JobRunner("default", "", attempt.client(adoption.lanes().queue), "w1").begin(adoption.fetch(job.id))
    adoption.runs.cancel(claim.id)
    adoption.runs.release(claim, "its process has ended")

    assert adoption.close_jobs() == 1
    adoption.work(adoption.worker("w2"))

    assert job.get_status() == JobStatus.STOPPED
    assert adoption.traces() == [f"stopped {job.id}"]
    assert adoption.started() == []
    assert adoption.queue().failed_job_registry.get_job_ids() == [job.id]


def test_what_the_caller_watches_is_theirs_to_try_again_when_it_changes(adoption: Adoption) -> None:
    """As RQ does it with the dependents of a job."""
    adoption.queue().enqueue(errands.add, 1, 1)
    adoption.take_in()
    claim = adoption.claim(adoption.worker("w1"))
    client = RqAttempt(adoption.settings, claim.id, claim.fence, "w1").client(adoption.lanes().queue)

    with client.pipeline() as pipeline:
        pipeline.watch("rq:anything")  # type: ignore[no-untyped-call]
        adoption.client.set("rq:anything", "changed")
        pipeline.multi()
        pipeline.set("rq:outcome", "written")
        with pytest.raises(WatchError):
            pipeline.execute()
    with client.pipeline() as pipeline:
        pipeline.watch("rq:anything")  # type: ignore[no-untyped-call]
        adoption.runs.report(claim, 1, {"done": 1})
        pipeline.multi()
        pipeline.set("rq:outcome", "written")
        assert pipeline.execute() == [True]


def test_after_an_outcome_that_could_not_be_written_nothing_else_is_taken_for_it(adoption: Adoption) -> None:
    adoption.queue().enqueue(errands.add, 1, 1)
    adoption.take_in()
    claim = adoption.claim(adoption.worker("w1"))
    client = RqAttempt(adoption.settings, claim.id, claim.fence, "w1").client(adoption.lanes().queue)
    client.fence.closing = True

    with client.pipeline() as pipeline:
        pipeline.execute_command("INCR", "traces", "too many words")  # type: ignore[no-untyped-call]
        with pytest.raises(ResponseError):
            pipeline.execute()
    with client.pipeline() as pipeline:
        pipeline.set("rq:counts", 1)
        with pytest.raises(redis.ConnectionError, match="could not be written"):
            pipeline.execute()

    assert not client.is_outcome_written()
