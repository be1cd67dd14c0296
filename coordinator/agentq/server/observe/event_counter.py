"""Counts events for the metrics.

The only state is the time when each run became pending, until it is claimed, for a bounded number of runs. Other values
are read from the store when runs have ended, many runs at once.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import groupby
from typing import Any

from agentq.coordinator.events.stream import Event
from agentq.coordinator.model.agent_options import AGENT_LABEL
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.lifecycle import TERMINAL_STATES, State
from agentq.coordinator.model.spec import parse_lane
from agentq.coordinator.runs.run_record import parse_spending
from agentq.coordinator.storage.store import NamespaceStore
from agentq.server.observe.metrics import ServerMetrics

PENDING_RUNS_MAX = 50_000
"""The newest pending runs whose pending time is remembered."""
RUNS_PER_CALL = 500
FIELDS_PER_RUN = 6
RETRY_PREFIX = "retry after "


class EventCounter:
    """Counts batches of events; call it from one thread at a time."""

    def __init__(self, store: NamespaceStore, metrics: ServerMetrics) -> None:
        self._store = store
        self._metrics = metrics
        self._pending: OrderedDict[str, int] = OrderedDict()

    def count(self, events: list[Event], *, missed: bool = False) -> None:
        """Count these events."""
        if missed:
            self._metrics.missed_events.inc()
        ended: list[str] = []
        for event in events:
            self._metrics.events.labels(event.event).inc()
            self._track_pending(event)
            if event.event == "retried":
                self._metrics.retries.labels(event.detail.removeprefix(RETRY_PREFIX) or "unknown").inc()
            elif event.event == "lost":
                self._metrics.lost.inc()
            if event.run and event.state in TERMINAL_STATES:
                ended.append(event.run)
        for partition, runs in groupby(sorted(ended, key=partition_of), partition_of):
            self._count_ended(partition, list(runs), {event.run: event.state for event in events})

    def _track_pending(self, event: Event) -> None:
        """Remember when a run became pending; observe its wait when it is claimed."""
        if event.state == State.PENDING and event.event != "signalled":
            self._pending[event.run] = event.at_ms
            if len(self._pending) > PENDING_RUNS_MAX:
                self._pending.popitem(last=False)
            return
        since_ms = self._pending.pop(event.run, None)
        if since_ms is not None and event.event == "claimed":
            self._metrics.dispatch.observe(max(0, event.at_ms - since_ms) / 1000)

    def _count_ended(self, partition: int, runs: list[str], states: dict[str, Any]) -> None:
        for first in range(0, len(runs), RUNS_PER_CALL):
            some = runs[first : first + RUNS_PER_CALL]
            flat = self._store.call("run/get_metrics", partition, *some)
            for index, run in enumerate(some):
                self._count_ended_run(str(states[run]), *flat[index * FIELDS_PER_RUN : (index + 1) * FIELDS_PER_RUN])

    def _count_ended_run(
        self, state: str, lane: str, started: str, finished: str, class_: str, model: str, spent: str
    ) -> None:
        if not lane:
            return
        parts = parse_lane(lane)
        agents = [name.removeprefix(AGENT_LABEL) for name in parts["demands"] if name.startswith(AGENT_LABEL)]
        named = self._metrics.limit_label
        agent, queue = named("agent", "".join(agents[:1])), named("queue", parts["queue"])
        outcome = class_ if state in (State.COMPLETED, State.FAILED) and class_ else state
        self._metrics.runs.labels(queue, agent, outcome).inc()
        if started and finished:
            self._metrics.duration.labels(queue).observe(max(0, int(finished) - int(started)) / 1000)
        if spent and agent:
            spending, model = parse_spending(spent), named("model", model)
            self._metrics.cost.labels(agent, model).inc(spending.cost_usd or spending.known_usd or 0)
            for kind in ("input", "cached", "output"):
                self._metrics.tokens.labels(agent, model, kind).inc(getattr(spending, f"{kind}_tokens"))
