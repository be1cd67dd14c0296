"""Submitting: what arrives at the server, and what is refused before."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import Any

import pytest
from sdk import works
from sdk.conftest import executing
from sdk.ways import beside
from sdk.works import Point
from support.servers import Server

from agentq.coordinator.errors import Invalid, TryLater
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.queues.queues import Queues
from agentq.coordinator.runs.queries import RunFilter
from agentq.sdk import Client, PartlyRefused, Run, RunFailed, connect, gather

pytestmark = pytest.mark.usefixtures("client")


def test_a_submit_carries_the_call_and_nothing_else() -> None:
    run = works.double.submit(4)

    spec = run.record().spec
    assert (spec.kind, spec.function, spec.args) == ("function", "sdk.works:double", (4,))
    assert run.state() == "pending"


def test_the_options_of_a_submit_stand_above_those_of_the_task() -> None:
    mail = works.double.options(queue="mail", retries=3, timeout="30s", limits={"smtp": 1}, result_ttl="1h")

    run = mail.options(queue="post", delay=timedelta(minutes=5), priority=7).submit(4)

    spec = run.record().spec
    assert (spec.queue, spec.priority, spec.delay_ms, spec.timeout_ms) == ("post", 7, 300_000, 30_000)
    assert (spec.keep_ms, dict(spec.limits)) == (3_600_000, {"smtp": 1})
    assert spec.retry is not None
    assert spec.retry.failures == 3
    assert run.state() == "scheduled"


def test_a_plain_function_and_a_path_can_be_submitted(client: Client) -> None:
    runs = [client.submit(works.plain, "a", 2), client.submit("elsewhere.mod:func", 1, two=2)]

    assert [run.record().spec.function for run in runs] == ["sdk.works:plain", "elsewhere.mod:func"]
    assert (runs[1].record().spec.args, runs[1].record().spec.kwargs) == ((1,), {"two": 2})
    with pytest.raises(Invalid, match="not the path of a function"):
        client.submit("no path", 1)


def test_a_key_makes_two_submits_one_run() -> None:
    task = works.double.options(dedupe_key="once")

    assert task.submit(1) == task.submit(1)


@pytest.mark.full("takes 1 s")
@pytest.mark.parametrize("number", [0, 1, 600, 2500])
def test_many_are_submitted_in_order(number: int) -> None:
    runs = works.double.map(range(number))

    assert len(set(runs)) == number
    assert all(run.record().spec.args == (at,) for at, run in list(enumerate(runs))[::97])


def test_many_calls_may_have_keywords_and_models(client: Client) -> None:
    runs = client.submit_many(works.move, [(Point(1),), {"point": Point(2), "by": 3}])

    assert runs[0].record().spec.args == ({"x": 1, "y": 0.5},)
    assert runs[1].record().spec.kwargs == {"point": {"x": 2, "y": 0.5}, "by": 3}


def test_nothing_is_sent_if_one_of_many_is_wrong(client: Client) -> None:
    task = works.double.options(queue="none")
    with pytest.raises(Invalid, match=r"'number'.*not 'x'"):
        client.submit_many(task, [(1,), ("x",)])
    with pytest.raises(Invalid, match=r"5 is no call; write .* \(5,\)"):
        client.submit_many(task, [5])

    assert list(beside(client).records.page(RunFilter(queue="none")).runs) == []


@pytest.mark.parametrize("calls", [None, 5, "ab", {"number": 1}])
def test_calls_that_are_no_list_are_refused(client: Client, calls: Any) -> None:
    with pytest.raises(Invalid, match=r"submit_many takes a list of calls, such as .*, not"):
        client.submit_many(works.double, calls)


@pytest.mark.parametrize("func", [None, 5, [], {}])
def test_what_is_no_function_is_refused(client: Client, func: Any) -> None:
    with pytest.raises(Invalid, match="is not a function that a worker could import"):
        client.submit(func)


@pytest.mark.parametrize("run_id", [None, 5, b"run", "run_1"])
def test_what_is_no_id_of_a_run_is_refused(client: Client, run_id: Any) -> None:
    with pytest.raises(Invalid, match="is not the id of a run; one looks like run_"):
        client.run(run_id)
    with pytest.raises(Invalid, match="is not the id of a run; one looks like run_"):
        client.result_value(run_id)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": 5}, "labels: "),
        ({"limits": ["repo"]}, "limits: "),
        ({"after": 5}, "'after' takes runs or their ids, not 5"),
        ({"after": [None]}, "'after' takes runs or their ids, not None"),
        ({"due_at": "tomorrow"}, "due_at: 'tomorrow' is no time; give a datetime"),
    ],
)
def test_an_option_of_another_type_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        works.double.options(**options)


def test_a_refusal_of_the_server_is_raised(client: Client) -> None:
    Queues(beside(client).queue.store).drain("shut")
    task = works.double.options(queue="shut")

    with pytest.raises(TryLater):
        task.submit(1)
    with pytest.raises(PartlyRefused, match="2 of 2") as refused:
        client.submit_many(task, [(1,), (2,)])
    assert [run.id for run in refused.value.runs] == list(refused.value.refused)


@pytest.mark.usefixtures("worker")
def test_a_run_waits_for_those_that_it_is_after() -> None:
    first = works.double.submit(1)
    second = works.double.options(after=first).submit(2)
    third = works.double.options(after=[first, second.id]).submit(3)

    assert [run.result(20) for run in (third, second, first)] == [6, 4, 2]
    assert third.record().spec.after == (first.id, second.id)


@pytest.mark.usefixtures("worker")
def test_runs_fan_in_through_their_results(client: Client) -> None:
    parts = works.double.map([1, 2, 3])

    run = client.submit(works.total, [part.later for part in parts])
    sums = client.submit_many(works.add, [(parts[0], 1), (parts[1], parts[2])])

    assert run.result(20) == 12
    assert gather(*sums, timeout=20) == [3, 10]


@pytest.mark.usefixtures("worker")
def test_a_result_of_a_wrong_type_is_refused_at_the_start_of_whoever_has_it_as_an_argument(client: Client) -> None:
    text = works.grow.submit(1)

    run: Run[int] = client.submit("sdk.works:double", text)

    with pytest.raises(RunFailed, match=r"rejected.*'number'"):
        run.result(20)


def test_a_client_without_an_address_uses_the_server_that_agentq_brings(
    fresh_home: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentq.coordinator.storage.embedded import EmbeddedServer

    for name in ("HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, fresh_home[name])
    monkeypatch.delenv("AGENTQ_URL", raising=False)
    try:
        with connect() as client:
            run = client.submit(works.double, 1)
            assert run.state() == "pending"
    finally:
        assert EmbeddedServer().stop()


def test_a_client_of_nobody_connects_when_it_is_used_and_not_before() -> None:
    client = connect("redis://127.0.0.1:1")

    with pytest.raises(Invalid):
        client.submit(works.double, "x")  # type: ignore[call-overload]
    client.close()


@pytest.mark.full("takes 1 s")
def test_a_namespace_of_several_partitions_is_used_as_a_whole(valkey_url: str) -> None:
    with connect(valkey_url, namespace="spread", partitions=3) as client, executing(client):
        runs = client.submit_many(works.double, [(number,) for number in range(600)])
        runs += [client.submit(works.double, number) for number in range(600, 620)]
        assert gather(*runs, timeout=60) == [2 * number for number in range(620)]
        assert len({partition_of(run.id) for run in runs}) == 3
        follower = client.submit(works.double, runs[-1].later)
        assert follower.result(timeout=20) == 2 * 2 * 619
        (event,) = islice(client.events(after="0-0"), 1)
        rest = list(client.events(after=event.place, follow=False))
    assert len({each.run for each in [event, *rest] if each.run}) == 621


def test_a_durable_submit_is_on_disk_when_it_returns(durable: Server) -> None:
    with connect(durable.url) as client:
        run = client.submit(works.double.options(durable=True), 1)
        durable.stop()
        durable.start()
        assert run.state() == "pending"
        with pytest.raises(Invalid, match="one by one"):
            client.submit_many(works.double.options(durable=True), [(1,)])
