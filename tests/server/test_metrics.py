"""Metrics for Prometheus, and readiness."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable

import pytest
from support.generated_docs import ROOT
from support.http_servers import Serving
from support.servers import Server, until
from support.world import World

from agentq.coordinator.events.stream import Event
from agentq.coordinator.model.ids import new_run_id
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.workers.lease import WorkerIdentity, WorkerLease
from agentq.server.observe.event_counter import PENDING_RUNS_MAX, EventCounter
from agentq.server.observe.metrics import NAMES_MAX, ServerMetrics, StoreCollector, list_metrics


def value(text: str, name: str, **labels: str) -> float:
    """A sample; 0 if there is none."""
    told = ",".join(f'{label}="{each}"' for label, each in sorted(labels.items()))
    found = re.search(rf"^{name}{re.escape('{' + told + '}') if told else ''} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0


@pytest.mark.full("takes 1 s")
def test_what_happens_is_counted_and_what_stands_somewhere_is_told(serving: Serving) -> None:
    with serving.client() as client:
        done, failed, _ = (serving.submit(queue=queue) for queue in ("m", "m", "m"))
        worker = WorkerLease(serving.store, WorkerIdentity(id="w-1", queues=("m",), slots=5), serving.settings)
        worker.register()
        one, two = worker.claim(2)
        serving.queue.start([one, two])
        assert [one.id, two.id] == [done, failed]
        assert serving.queue.finish([(one, Outcome(exit_code=0))]) == [None]
        serving.queue.fail(two, Outcome(class_=OutcomeClass.EXIT, exit_code=3))

        texts: list[str] = []

        def counted() -> bool:
            """The last of the runs, and a round of the duties."""
            texts.append(client.get("/metrics").text)
            ended = value(texts[-1], "agentq_runs_total", agent="", outcome="exit", queue="m")
            return bool(ended and value(texts[-1], "agentq_duty_last_success_timestamp_seconds", duty="promoter"))

        until(counted, "the runs to be counted")
        told = client.get("/metrics").text
        worker.deregister()

    assert value(told, "agentq_runs_total", agent="", outcome="ok", queue="m") == 1
    assert value(told, "agentq_queue_depth", queue="m", state="pending") == 1
    assert 'agentq_queue_depth{queue="m",state="running"} 0.0' in told, "no run of a state that is not an end is 0 runs"
    assert value(told, "agentq_queue_latency_seconds", queue="m") > 0
    assert value(told, "agentq_run_duration_seconds_count", queue="m") == 2
    assert value(told, "agentq_dispatch_latency_seconds_count") >= 2
    assert (value(told, "agentq_slots", state="free"), value(told, "agentq_workers", state="ready")) == (5, 1)
    assert value(told, "agentq_store_up") == 1
    assert value(told, "agentq_http_requests_total", method="GET", route="/metrics", status="200") > 0
    assert value(told, "agentq_duty_last_success_timestamp_seconds", duty="promoter") > 1.7e9
    assert not re.search(r"run_[0-9a-z]{23}", told), "no label holds the id of a run"


def test_a_report_of_a_superseded_attempt_is_counted(world: World) -> None:
    metrics = ServerMetrics(StoreCollector(world.store))
    claim = world.held()
    metrics.count_fenced(world.queue.finish([(claim._replace(fence="1-other"), Outcome())]))

    assert value(metrics.render().decode(), "agentq_fenced_total") == 1


def test_counting_keeps_nothing_of_runs_that_come_and_never_go(world: World) -> None:
    """Of runs without number, only the newest are remembered, and of those only when they became pending."""
    counting = EventCounter(world.store, ServerMetrics(StoreCollector(world.store)))
    submitted = [
        Event(id=f"{number}-0", partition=0, event="submitted", run=new_run_id(), state=State.PENDING, attempt=0,
              worker="", detail="")
        for number in range(PENDING_RUNS_MAX + 1000)
    ]  # fmt: skip
    counting.count(submitted)

    assert len(counting._pending) == PENDING_RUNS_MAX


def test_every_metric_is_documented(world: World) -> None:
    page = (ROOT / "coordinator/agentq/server/README.md").read_text(encoding="utf-8")
    told = ServerMetrics(StoreCollector(world.store)).render().decode()
    families = set(re.findall(r"^# TYPE (\S+) ", told, re.MULTILINE))

    for name in families | list_metrics(world.store).keys():
        if not name.endswith("_created"):
            assert f"`{name}`" in page, name


def test_names_that_submitters_make_up_do_not_grow_without_end(world: World) -> None:
    metrics = ServerMetrics(StoreCollector(world.store))

    told = [metrics.limit_label("queue", f"q-{number}") for number in range(NAMES_MAX + 5)]

    assert told[NAMES_MAX:] == ["other"] * 5
    assert (told[NAMES_MAX - 1], metrics.limit_label("queue", "q-0"), metrics.limit_label("agent", "new")) == (
        "q-999",
        "q-0",
        "new",
    )


def test_methods_that_clients_make_up_are_counted_as_one(world: World) -> None:
    metrics = ServerMetrics(StoreCollector(world.store))

    for method in ("GET", "BREW", "WHEN"):
        metrics.observe("", method, 405, 0.1)

    counted = re.findall(r'agentq_http_requests_total\{method="(\w+)".*\} (\S+)', metrics.render().decode())
    assert counted == [("GET", "1.0"), ("other", "2.0")]


@pytest.mark.full("takes 5 s")
def test_a_server_without_its_store_lives_and_says_that_it_is_of_no_use(
    make_serving: Callable[..., Serving], durable: Server
) -> None:
    serving = make_serving(durable)
    with serving.client() as client:
        durable.signal(signal.SIGSTOP)
        frozen = client.get("/ready", timeout=10)
        durable.signal(signal.SIGCONT)
        durable.signal(signal.SIGKILL)
        dead = client.get("/ready")
        refused = client.get("/runs")
        assert client.get("/health").status_code == 200
        assert "agentq_store_up 0.0" in client.get("/metrics").text
        durable.start()
        until(lambda: client.get("/ready").status_code == 200, "the server to be of use again")

    assert (frozen.status_code, frozen.json()["checks"]["store"]) == (503, "it has not answered within 2 s")
    assert (dead.status_code, dead.json()["ready"]) == (503, False)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
    assert [str(durable.socket) in each.text for each in (dead, refused)] == [False, False]
    assert str(durable.socket) in serving.said(), "which tells where the store was to be"
