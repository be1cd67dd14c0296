"""What only a client of a coordinator meets: replies that are lost, and a coordinator that dies."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from sdk import works
from sdk.conftest import executing
from support.http_servers import Serving
from support.lossy_proxy import Proxy
from support.servers import Server, until

from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.runs.logs import LogChunk
from agentq.coordinator.runs.queries import RunFilter
from agentq.sdk import Client, Run, StillGoing, connect, gather, gather_async, http_backend
from agentq.sdk.http_backend import http_client

MakeServing = Callable[..., Serving]


def direct_to(serving: Serving) -> Client:
    return connect(serving.settings.url, namespace=serving.settings.namespace)


@pytest.mark.parametrize("how", ["one", "many", "child"])
def test_a_submit_whose_reply_is_lost_is_done_once(coordinator: Serving, how: str) -> None:
    parent = coordinator.submit(queue=f"parent-{how}")
    task = works.double.options(queue=f"lost-{how}")
    with Proxy(coordinator.port, b"POST /runs") as proxy, connect(proxy.url) as client:
        if how == "one":
            runs = [client.submit(task, 1)]
        elif how == "many":
            runs = client.submit_many(task, [(number,) for number in range(1500)])
        else:
            runs = [client.submit_child(parent, Counter(), task, (1,), {}) for _ in range(2)][:1]

        assert proxy.lost == 1
    found = {run.id for run in coordinator.records.all(RunFilter(queue=f"lost-{how}"))}
    assert found == {run.id for run in runs}


@pytest.mark.full("takes 2 s")
def test_a_verb_whose_reply_is_lost_is_said_once(coordinator: Serving) -> None:
    run = coordinator.submit(queue="verbs")
    said: dict[bytes, Callable[[Run[object]], object]] = {
        b"/signal": lambda run: run.signal("go", 1),
        b"/cancel": lambda run: run.cancel("enough"),
        b"/retry": lambda run: run.requeue(),
    }
    for word, say in said.items():
        with Proxy(coordinator.port, word) as proxy, connect(proxy.url) as client:
            say(client.run(run))
            assert proxy.lost == 1
    with connect(coordinator.url) as client:
        told = [event.event for event in client.run(run).events(follow=False)]
    assert told == ["submitted", "signalled", "cancelled", "requeued"]


@pytest.mark.full("takes 3 s")
def test_a_client_outlives_the_coordinator_and_the_store(
    durable: Server, make_serving: MakeServing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits waits on, and what is asked while it is started again is done when it is there."""
    serving = make_serving(durable)

    async def main(client: Client) -> list[int]:
        runs = await client.aio.submit_many(works.double, [(number,) for number in range(300)])
        waits = asyncio.ensure_future(gather_async(*runs, timeout=60))
        with pytest.raises(StillGoing):
            await runs[0].wait(0.05)
        await asyncio.to_thread(serving.signal, signal.SIGKILL)
        waited: list[float] = []

        def wait(seconds: float) -> None:
            waited.append(seconds)
            if len(waited) == http_client.ATTEMPTS_MAX + 3:
                serving.start()

        monkeypatch.setattr(http_client, "time", SimpleNamespace(sleep=wait))
        meanwhile = await client.aio.submit(works.double, 300)
        monkeypatch.undo()
        assert serving.records.get(meanwhile.id).state == "pending"
        durable.signal(signal.SIGKILL)
        durable.start()
        with direct_to(serving) as direct, executing(direct):
            return await waits

    with connect(serving.url) as client:
        assert asyncio.run(main(client)) == [2 * number for number in range(300)]


def test_a_log_is_followed_while_it_grows(coordinator: Serving) -> None:
    from agentq.coordinator.workers.lease import WorkerIdentity, WorkerLease

    run = coordinator.submit(queue="logs")
    worker = WorkerLease(coordinator.store, WorkerIdentity(id="logger", queues=("logs",)), coordinator.settings)
    worker.register()
    (claim,) = worker.claim(1)
    coordinator.queue.start([claim])
    coordinator.queue.log(claim, 1, [LogChunk("out", "one\n")])
    with connect(coordinator.url) as client:
        entries = client.run(run).logs(follow=True)
        assert next(entries).text == "one\n"
        coordinator.queue.log(claim, 2, [LogChunk("err", "two\n"), LogChunk("out", "three\n")])
        assert [next(entries).text for _ in range(2)] == ["two\n", "three\n"]
        coordinator.queue.finish([(claim, Outcome(exit_code=0))])
        assert list(entries) == []
        assert [(each.stream, each.from_byte) for each in client.run(run).logs()] == [
            ("out", 0),
            ("err", 4),
            ("out", 8),
        ]
        assert [each.text for each in client.run(run).logs(follow=True)] == ["one\n", "two\n", "three\n"]
    worker.deregister()


def test_a_conversation_is_held_over_http(coordinator: Serving) -> None:
    with connect(coordinator.url) as client:
        session = client.session("parser", agent="claude", max_cost=2.5)
        turns = [session.send(prompt) for prompt in ("one", "two")]

        assert client.session("parser").turns() == turns
        assert (session.record().turns, session.record().budgets.cost_usd) == (2, 2.5)  # type: ignore[union-attr]
        assert turns[1].state() == "blocked"
        other = session.fork()
        assert other.record().forked_from == "parser"
        session.close(cancel=True)
        assert session.record().state == "closed"
        until(lambda: turns[1].state() == "cancelled", "its turns to be cancelled")


@pytest.mark.full("takes 2 s")
def test_one_stream_serves_all_who_wait(coordinator: Serving) -> None:
    """Seen from the coordinator: however many wait, it has few connections."""
    task = works.double.options(queue="default")
    before = connections_of(coordinator)
    with connect(coordinator.url) as client, direct_to(coordinator) as direct:
        runs = client.submit_many(task, [(number,) for number in range(500)])
        for run in runs:
            client.endings.on_end(run.id, lambda _: None)
        assert connections_of(coordinator) <= before + 3
        with executing(direct):
            assert gather(*runs, timeout=60) == [2 * number for number in range(500)]
        assert connections_of(coordinator) <= before + 3


def connections_of(serving: Serving) -> int:
    """Connections to its port that stand, other than of other tests: counted in the kernel's table."""
    end = f":{serving.port:04X}"
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    return sum(row[1].endswith(end) and row[3] == "01" for row in rows)


def test_a_spec_survives_the_way(coordinator: Serving) -> None:
    spec = RunSpec.checked(
        kind="command",
        argv=["make", "ü"],
        env={"A": "1"},
        queue="specs",
        priority=7,
        labels={"a": "b"},
        retry={"failures": 2, "classes": {"timeout": {"retries": 5}}},
        workspace={"repository": "/r", "base": "main", "check": ["make", "test"]},
        limits={"repo:acme": 1},
        dedupe_key="x",
        keep_ms=60_000,
    )
    with connect(coordinator.url) as client:
        receipt = client.backend.submit(spec)
        assert client.run(receipt.id).record().spec == spec == coordinator.records.get(receipt.id).spec
        assert client.backend.submit(spec) == receipt._replace(created=False)
        assert "There is no limit repo:acme" in client.backend.check([spec]).unset_limits["repo:acme"]


def test_many_runs_with_many_arguments_come_in_by_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server takes a bounded number of items in one; see `ITEMS`."""
    monkeypatch.setattr(http_backend, "JSON_ITEMS_MAX", 100)
    texts = [json.dumps({"args": [1] * 60}), json.dumps({"args": [1] * 200}), *[json.dumps({"a": 1, "b": 2})] * 20]

    found = list(http_backend._split_messages(texts))

    assert [len(message) for message in found] == [1, 1, 16, 4]
    assert [text for message in found for text in message] == texts
