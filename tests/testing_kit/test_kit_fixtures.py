"""The fixtures of the plugin, as a user's tests use them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from testing_kit import shop

from agentq.coordinator.queues.limits import LimitRate, Limits
from agentq.sdk import Invalid, Run, RunFailed, State, StillGoing, default_client, gather
from agentq.testing import Clock, MemoryClient, Worker, assert_nothing_submitted, assert_submitted, submitted

Order = shop.Order


def test_a_submit_executes_nothing_and_can_be_asserted(agentq_client: MemoryClient) -> None:
    run = shop.send.submit("ann", text="hello")

    assert run.state() == "pending"
    assert_submitted(shop.send, ("ann", "hello"), queue="mail", timeout="30s", retries=3)
    assert_submitted(shop.send, kwargs={"to": "ann", "text": "hello"})
    assert_nothing_submitted(shop.ship)
    assert [each.id for each in submitted()] == [run.id]
    assert agentq_client.run(run.id) == run


@pytest.mark.usefixtures("agentq_client")
def test_an_assertion_that_fails_says_what_was_submitted_instead() -> None:
    shop.send.submit("ann")

    with pytest.raises(AssertionError, match=r"shop:send was submitted 0 times with \('bob'\).*shop:send\('ann'\)"):
        assert_submitted(shop.send, ("bob",))
    with pytest.raises(AssertionError, match=r"testing_kit.shop:send\('ann'\)"):
        assert_nothing_submitted()
    with pytest.raises(AssertionError, match="priority"):
        assert_submitted(shop.send, priority=9)


@pytest.mark.usefixtures("agentq_client")
def test_a_default_that_was_left_out_is_the_same_call() -> None:
    shop.send.submit("ann")

    assert_submitted(shop.send, ("ann", "thanks"))


def test_the_worker_executes_what_is_pending(agentq_worker: Worker) -> None:
    runs = [shop.send.submit("ann"), shop.ship.submit(Order(1, ["tea"])), shop.fetch.submit(21)]

    assert agentq_worker.run_all() == 3
    assert gather(*runs) == ["ann: thanks", Order(1, ["TEA"]), 42]


@pytest.mark.usefixtures("agentq_client")
def test_nobody_waits_for_a_run_that_nothing_executes() -> None:
    run = shop.send.submit("ann")

    with pytest.raises(StillGoing, match="run_all"):
        run.result()


def test_a_failure_is_tried_again_after_its_backoff(agentq_worker: Worker, agentq_clock: Clock) -> None:
    run = shop.flaky.submit(3)
    before = agentq_clock.now()

    agentq_worker.run_all()
    assert run.state() == State.SCHEDULED
    assert isinstance(agentq_worker.raised[run.id], ConnectionError)
    agentq_worker.run_until_idle()

    assert run.result() == 3
    assert agentq_clock.now() > before


def test_a_failure_that_is_final_tells_its_class_and_its_traceback(agentq_worker: Worker) -> None:
    run = shop.refuses.submit()

    agentq_worker.run_until_idle()

    with pytest.raises(RunFailed, match="there is no such customer") as failed:
        run.result()
    assert failed.value.class_ == "rejected"
    assert "shop.py" in failed.value.tail
    assert run.record().attempt == 1


def test_a_function_says_itself_when_it_is_tried_again(agentq_worker: Worker, agentq_clock: Clock) -> None:
    run = shop.patient.submit()

    agentq_worker.run_all()
    agentq_clock.advance("119m")
    assert agentq_worker.run_all() == 0
    agentq_clock.advance("1m")

    assert agentq_worker.run_all() == 1
    assert run.result() == 2


def test_a_delay_passes_when_the_clock_is_moved(agentq_worker: Worker, agentq_clock: Clock) -> None:
    run = shop.send.options(delay="1h").submit("ann")

    assert agentq_worker.run_all() == 0
    assert agentq_worker.run_until_idle(at_most="59m") == 0
    agentq_clock.advance("1h")
    assert agentq_worker.run_all() == 1

    assert run.result() == "ann: thanks"
    assert_submitted(shop.send, delay="1h")


def test_a_run_that_parks_goes_on_where_its_waits_were_over(agentq_worker: Worker) -> None:
    run = shop.asks.submit()

    agentq_worker.run_all()
    assert run.state() == "waiting"
    run.approve("just so")
    agentq_worker.run_all()
    assert run.state() == "waiting"
    run.signal("address", {"street": "High"})
    agentq_worker.run_all()

    assert run.result() == "True just so {'street': 'High'}"


def test_a_signal_that_does_not_come_in_time_has_a_default(agentq_worker: Worker) -> None:
    run = shop.naps.submit()

    agentq_worker.run_until_idle()

    assert run.result() == "overslept"


def test_children_are_submitted_once_though_the_function_is_called_again(agentq_worker: Worker) -> None:
    run = shop.total.submit([1, 2, 2])

    agentq_worker.run_until_idle()

    assert run.result() == 10
    assert_submitted(shop.fetch, times=3)
    assert run.record().progress == {"done": 0, "total": 3}
    assert "".join(entry.text for entry in run.logs()) == "all 3 are there\n"


def test_a_run_as_an_argument_is_its_result(agentq_worker: Worker) -> None:
    first = shop.fetch.submit(4)
    second = agentq_worker.client.submit(shop.fetch, first.later)

    assert second.state() == "blocked"
    agentq_worker.run_all()

    assert second.result() == 16


def test_a_run_whose_argument_failed_is_skipped(agentq_worker: Worker) -> None:
    first: Run[int] = default_client().run(shop.refuses.submit().id)
    second = agentq_worker.client.submit(shop.fetch, first.later)
    third = agentq_worker.client.submit(shop.fetch.options(on_failed="run"), first.later)

    agentq_worker.run_until_idle()

    with pytest.raises(RunFailed, match="was skipped"):
        second.result()
    with pytest.raises(RunFailed, match=r"rejected.*result of a run as an argument, which has none"):
        third.result()


@pytest.mark.usefixtures("agentq_client")
def test_a_wrong_type_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(Invalid, match=r"argument 'to'.*a text, not 5"):
        shop.send.submit(5)  # type: ignore[arg-type]

    assert_nothing_submitted()


def test_a_rate_passes_when_the_clock_is_moved(agentq_client: MemoryClient, agentq_worker: Worker) -> None:
    Limits(agentq_client.queue.store).set("smtp", rate=LimitRate(units=1, per_ms=60_000, burst=1))
    runs = [shop.send.options(limits={"smtp": 1}).submit("ann") for _ in range(3)]
    before = agentq_client.clock.now()

    assert agentq_worker.run_all() == 1
    agentq_worker.run_until_idle()

    assert gather(*runs) == ["ann: thanks"] * 3
    assert agentq_client.clock.now() - before >= timedelta(minutes=2)
