"""Prometheus metrics: queue depths, throughput, and the state of the server.

Gauges are read from the store on each scrape. Counters count the events that this server receives, so several servers
count the same runs: take one of them or the largest, not the sum. No label holds the id of a run, a session or a
client.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import AgentqError, Fenced
from agentq.coordinator.model.lifecycle import TERMINAL_STATES, State
from agentq.coordinator.queues.limits import Limits
from agentq.coordinator.queues.queues import Queues
from agentq.coordinator.queues.stats import QueueStats
from agentq.coordinator.storage.socket_link import pairs_to_dict
from agentq.coordinator.storage.store import NamespaceStore
from agentq.coordinator.workers.registry import Workers

DISPATCH_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
DURATION_BUCKETS_S = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 1800, 3600, 10_800, 43_200)
REQUEST_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 60)
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WS"))
CALL_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5)


NAMES_MAX = 1000
"""Queues, agents and models with labels of their own. Clients choose these names, and each costs memory for good."""
OTHER_NAME = "other"
ZERO_LIVE_COUNTS = {state: 0 for state in State if state not in TERMINAL_STATES}


class ServerMetrics:
    """The metrics of one server."""

    def __init__(self, stock: StoreCollector) -> None:
        self._names: dict[str, set[str]] = {}
        self.registry = CollectorRegistry()
        self.registry.register(stock)
        self.runs = self._counter("agentq_runs_total", "Runs that ended, by how.", "queue", "agent", "outcome")
        self.events = self._counter("agentq_events_total", "What happened to runs, by its name.", "event")
        self.retries = self._counter("agentq_retries_total", "Attempts that are tried again, by why.", "reason")
        self.lost = self._counter("agentq_leases_expired_total", "Attempts whose worker was declared lost.")
        self.fenced = self._counter("agentq_fenced_total", "Reports of superseded attempts that this server refused.")
        self.missed_events = self._counter("agentq_events_missed_total", "Times that events went by uncounted.")
        self.cost = self._counter(
            "agentq_cost_usd_total", "What agents have spent, as far as it is reported.", "agent", "model"
        )
        self.tokens = self._counter("agentq_tokens_total", "Tokens of agents.", "agent", "model", "type")
        self.dispatch = self._histogram(
            "agentq_dispatch_latency_seconds", "From pending to claimed.", DISPATCH_BUCKETS_S
        )
        self.duration = self._histogram(
            "agentq_run_duration_seconds",
            "From the start of a run's last attempt to its end.",
            DURATION_BUCKETS_S,
            "queue",
        )
        self.requests = self._counter("agentq_http_requests_total", "Requests.", "method", "route", "status")
        self.request_seconds = self._histogram(
            "agentq_http_request_duration_seconds", "How long requests took.", REQUEST_BUCKETS_S, "route"
        )
        self._observed: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        """Counters for each kind of request, cached because looking them up costs more than counting."""
        self.store_call_seconds = self._histogram(
            "agentq_redis_call_seconds", "Round trips to the store.", CALL_BUCKETS_S
        )
        self.waiting_requests = self._gauge("agentq_waiters", "Requests that wait for something to happen.")
        self.duty_partitions = self._gauge(
            "agentq_duties_kept", "Partitions whose duties this server does at the moment."
        )
        self.duty_done_at = self._gauge(
            "agentq_duty_last_success_timestamp_seconds", "When it last did a duty.", "duty"
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, text, labels, registry=self.registry, buckets=buckets)

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request."""
        method = method if method in METHODS else OTHER_NAME
        known = self._observed.get((route, method, status))
        if known is None:
            child = (
                self.requests.labels(method, route or "none", str(status)),
                self.request_seconds.labels(route or "none"),
            )
            known = self._observed[route, method, status] = child
        known[0].inc()
        known[1].observe(seconds)

    def limit_label(self, label: str, name: str) -> str:
        """A name chosen by a client as a label value; `other` beyond the limit."""
        known = self._names.setdefault(label, set())
        if name not in known and len(known) >= NAMES_MAX:
            return OTHER_NAME
        known.add(name)
        return name

    def count_fenced(self, reply: object) -> None:
        """Count the attempts that a call refused as superseded."""
        several = reply if isinstance(reply, list | tuple) else (reply,)
        number = sum(isinstance(each, Fenced) for each in several)
        if number:
            self.fenced.inc(number)

    def render(self) -> bytes:
        """All metrics in the Prometheus format. Reads the store."""
        return generate_latest(self.registry)


class StoreCollector:
    """Gauges that are read from the store on each scrape."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store

    def describe(self) -> list[Metric]:
        """The metric families, so that registering reads nothing."""
        return [_make_family(name) for name in STORE_GAUGES]

    def collect(self) -> Iterator[Metric]:
        up = _make_family("agentq_store_up")
        try:
            yield from self._queues()
            yield from self._workers()
            yield from self._gates()
            yield from self._redis()
            up.add_metric([], 1)
        except AgentqError:
            up.add_metric([], 0)
        yield up

    def _queues(self) -> Iterator[Metric]:
        depth, age = _make_family("agentq_queue_depth"), _make_family("agentq_queue_latency_seconds")
        now_ms = wall_ms()
        for record in _limit_queues(Queues(self.store).all()):
            # A rule on the runs that are pending needs a number while there are none.
            for state, number in {**ZERO_LIVE_COUNTS, **record.counts}.items():
                depth.add_metric([record.queue, state.value], number)
            waited_ms = 0 if record.oldest_ms is None else max(0, now_ms - record.oldest_ms)
            age.add_metric([record.queue], waited_ms / 1000)
        yield from (depth, age)

    def _workers(self) -> Iterator[Metric]:
        workers, slots = _make_family("agentq_workers"), _make_family("agentq_slots")
        states: dict[str, int] = {"ready": 0, "draining": 0, "silent": 0}
        there = taken = 0
        for worker in Workers(self.store, 0).all():
            states[worker.state] = states.get(worker.state, 0) + 1
            if worker.state != "silent":
                there += worker.slots
                taken += len(worker.runs)
        for state, number in states.items():
            workers.add_metric([state], number)
        slots.add_metric(["taken"], taken)
        slots.add_metric(["free"], max(0, there - taken))
        yield from (workers, slots)

    def _gates(self) -> Iterator[Metric]:
        gates = _make_family("agentq_parked_until_timestamp")
        for limit in Limits(self.store).all():
            if limit.shut_until_ms is not None:
                gates.add_metric([limit.key], limit.shut_until_ms / 1000)
        yield gates

    def _redis(self) -> Iterator[Metric]:
        info = self.store.connection.command("INFO")
        found = pairs_to_dict([part for line in str(info).splitlines() if ":" in line for part in line.split(":", 1)])
        for name, field in REDIS_GAUGES.items():
            family = _make_family(name)
            if str(found.get(field, "")).isdecimal():
                family.add_metric([], int(found[field]))
            yield family


def _limit_queues(records: Sequence[QueueStats]) -> list[QueueStats]:
    """The queues with the most live runs, and all others together."""
    if len(records) <= NAMES_MAX:
        return list(records)
    ordered = sorted(records, key=lambda each: -sum(each.counts.get(state, 0) for state in ZERO_LIVE_COUNTS))
    rest = QueueStats(OTHER_NAME)
    for record in ordered[NAMES_MAX - 1 :]:
        rest.add(record)
    return [*(each for each in ordered[: NAMES_MAX - 1] if each.queue != OTHER_NAME), rest]


REDIS_GAUGES = {
    "agentq_redis_used_memory_bytes": "used_memory",
    "agentq_redis_max_memory_bytes": "maxmemory",
    "agentq_redis_connected_clients": "connected_clients",
    "agentq_redis_aof_delayed_fsync_total": "aof_delayed_fsync",
}
STORE_GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "agentq_store_up": ("Whether the store answered just now.", ()),
    "agentq_queue_depth": ("Runs of a queue in a state.", ("queue", "state")),
    "agentq_queue_latency_seconds": ("For how long the oldest run that is pending has waited.", ("queue",)),
    "agentq_workers": ("Workers that are registered.", ("state",)),
    "agentq_slots": ("Slots of workers that are there.", ("state",)),
    "agentq_parked_until_timestamp": ("Until when a limit is shut.", ("pool",)),
    "agentq_redis_used_memory_bytes": ("Memory that the store uses.", ()),
    "agentq_redis_max_memory_bytes": ("Memory that it may use; 0 is any.", ()),
    "agentq_redis_connected_clients": ("Connections of the store.", ()),
    "agentq_redis_aof_delayed_fsync_total": ("Times that its disk was too slow for its append-only file.", ()),
}


def _make_family(name: str) -> GaugeMetricFamily:
    text, labels = STORE_GAUGES[name]
    return GaugeMetricFamily(name, text, labels=labels)


def list_metrics(store: NamespaceStore) -> dict[str, tuple[str, tuple[str, ...]]]:
    """All metrics with their descriptions and labels."""
    metrics = ServerMetrics(StoreCollector(store))
    own = (each for each in vars(metrics).values() if isinstance(each, Counter | Gauge | Histogram))
    counted = {_get_metric_name(each): (each._documentation, each._labelnames) for each in own}
    return dict(sorted({**STORE_GAUGES, **counted}.items()))


def _get_metric_name(metric: Counter | Gauge | Histogram) -> str:
    """The name as Prometheus shows it, with the suffix of a counter."""
    return f"{metric._name}_total" if isinstance(metric, Counter) else metric._name
