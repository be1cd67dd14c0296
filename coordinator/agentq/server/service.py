"""The objects that all requests of one server share. Its tasks:

1. Call the store in a bounded number of threads, and refuse calls when too many wait.
2. Send concurrent submits in one call.
3. Wait for events on behalf of requests.
4. Do the duties, in turn with workers and other servers.
5. Stop in an order that answers all waiting requests first.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, ParamSpec, TypeVar

from starlette.requests import HTTPConnection

from agentq.coordinator.bounds import SUBMIT_PER_CALL
from agentq.coordinator.clock import monotonic_ms, monotonic_ns
from agentq.coordinator.config.server_settings import ServerSettings
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.duties.janitor import Janitor
from agentq.coordinator.duties.promoter import Promoter
from agentq.coordinator.duties.reaper import Reaper
from agentq.coordinator.duties.scheduler import Scheduler
from agentq.coordinator.duties.ticker import Duty, Ticker
from agentq.coordinator.errors import AgentqError, Fenced, TryLater, Unreachable
from agentq.coordinator.model.ids import new_nonce
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.queues.limits import Limits
from agentq.coordinator.queues.queues import Queues
from agentq.coordinator.runs.queries import RunQueries
from agentq.coordinator.runs.verbs import RunVerbs, SubmitReceipt
from agentq.coordinator.schedules.verbs import Schedules
from agentq.coordinator.sessions.verbs import Sessions
from agentq.coordinator.token_context import current_token, set_current_token, use_token
from agentq.coordinator.workers.registry import Workers
from agentq.server.auth.access_control import AccessControl
from agentq.server.batching import Batcher
from agentq.server.dialect import ServerDialect
from agentq.server.events.feed import EventFeed
from agentq.server.events.hub import EventHub, EventWatch
from agentq.server.events.log_hub import LogHub
from agentq.server.observe.event_counter import EventCounter
from agentq.server.observe.metrics import ServerMetrics, StoreCollector
from agentq.server.record_views import RecordViews
from agentq.server.thread_pool import ThreadPool
from agentq.server.webhooks.allowed_addresses import AllowedAddresses
from agentq.server.webhooks.dispatcher import WebhookDispatcher
from agentq.server.webhooks.http_client import WebhookHttpClient

log = logging.getLogger("agentq.server")

P = ParamSpec("P")
T = TypeVar("T")

WAITING_CALLS_MAX = 2000
"""The most calls that wait for a thread; further ones are refused with "try again"."""
BATCH_BYTES_MAX = 4 << 20
UNCOUNTED_EVENTS_MAX = 50_000
"""The most events that wait to be counted."""
COUNT_WAIT_S = 5.0
COUNT_WINDOW_S = 0.1
"""Events within this time are counted together."""
OUTAGE_PAUSE_S = 0.5
"""The pause of a wait before it reads again a store that was out of reach."""


def get_service(connection: HTTPConnection) -> ServerService:
    """The service of the server that received a request."""
    service: ServerService = connection.app.state.service
    return service


class RunSubmission(NamedTuple):
    """A run to submit, with its reserved id and the size of its request."""

    spec: RunSpec
    id: str
    bytes: int
    made_by: str = ""
    """The token that submits it, and the token's queues."""


class ServerService:
    """One server. It may be built on any thread; start it on the loop, and use it there."""

    def __init__(
        self,
        settings: Settings,
        server: ServerSettings,
        dialects: Sequence[type[ServerDialect]] = (),
        *,
        open_to_all: bool = False,
        local: str = "",
    ) -> None:
        self.settings = settings
        self.server_settings = server
        self.id = f"server-{socket.gethostname()}-{os.getpid()}-{new_nonce()}"
        self.run_verbs = RunVerbs.open(settings, client_name=self.id)
        self.store = self.run_verbs.store
        self.run_queries = RunQueries(self.store)
        self.sessions = Sessions(self.store)
        self.schedules = Schedules(self.store)
        self.queues = Queues(self.store)
        self.limits = Limits(self.store)
        self.workers = Workers(self.store, settings.reap_grace_ms)
        self.metrics = ServerMetrics(StoreCollector(self.store))
        self.event_hub = EventHub(self.store)
        self.feed = EventFeed(self.event_hub, self.call_in_thread)
        self.log_hub = LogHub(self.store)
        self.webhook_http = WebhookHttpClient(
            AllowedAddresses(server.webhook_networks),
            plain_http=server.webhook_http,
            timeout_ms=server.webhook_timeout_ms,
        )
        self.webhook_dispatcher = WebhookDispatcher(
            self.id, self.feed, self.call_in_thread, self.webhook_http, timeout_ms=server.webhook_timeout_ms
        )
        self.access = AccessControl(self.store, self.call_in_thread, server, open_to_all=open_to_all, local=local)
        self.submit_batched: Batcher[RunSubmission, SubmitReceipt] = Batcher(
            self._submit_batch, items_max=SUBMIT_PER_CALL, weight_max=BATCH_BYTES_MAX, weigh=lambda each: each.bytes
        )
        self.ticker = Ticker(self.store, self._build_duties(), settings.tick_ms, owner=self.id)
        self._thread_pool = ThreadPool(server.threads, "agentq-store")
        self._calls_waiting = 0
        self.dialects = tuple(dialect(self) for dialect in dialects)
        self.views = RecordViews(self.dialects)
        self._counting_task: asyncio.Task[None] | None = None

    def _build_duties(self) -> list[Duty]:
        tick_ms, store = self.settings.tick_ms, self.store
        return [Promoter(store, tick_ms), Scheduler(store, tick_ms), Reaper(store, self.settings), Janitor(store)]

    def start(self) -> None:
        """Start all tasks, on the loop."""
        self._thread_pool.start()
        self.event_hub.start()
        self._counting_task = asyncio.create_task(self._count_events())
        if self.server_settings.duties:
            self.event_hub.on_duty_wakeup = self.ticker.wake
            self.ticker.start()
            self.webhook_dispatcher.start()
        for dialect in self.dialects:
            dialect.start()

    def close(self) -> None:
        """Answer all waiting requests, and let none wait any more; other requests are still served."""
        self.event_hub.close()

    async def stop(self) -> None:
        """Stop all tasks, after the last request was answered."""
        for dialect in self.dialects:
            await dialect.stop()
        self.close()
        if self._counting_task is not None:
            await self._counting_task
        if self.server_settings.duties:
            await self.webhook_dispatcher.stop()
            await asyncio.to_thread(self.ticker.stop)
        await asyncio.to_thread(self.log_hub.stop)
        await asyncio.to_thread(self.event_hub.stop)
        self._thread_pool.stop()
        self.store.connection.close()

    async def call_in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking function in a thread."""
        if self._calls_waiting >= WAITING_CALLS_MAX:
            raise TryLater("This server has more to do than it can; try again in a moment.")
        self._calls_waiting += 1
        try:
            reply = await self._thread_pool.call(partial(self._call_timed, current_token(), function, *args, **kwargs))
        except Fenced as fenced:
            self.metrics.count_fenced(fenced)
            raise
        finally:
            self._calls_waiting -= 1
        self.metrics.count_fenced(reply)
        return reply

    def _call_timed(self, made_by: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        began_ns = monotonic_ns()
        set_current_token(made_by)
        try:
            return function(*args, **kwargs)
        finally:
            self.metrics.store_call_seconds.observe((monotonic_ns() - began_ns) / 1e9)

    async def _count_events(self) -> None:
        """Count events for the metrics while the server runs."""
        counter = EventCounter(self.store, self.metrics)
        with self.event_hub.watch_all(UNCOUNTED_EVENTS_MAX) as watch:
            while not self.event_hub.closing:
                batch = await watch.next(COUNT_WAIT_S)
                try:
                    await self.call_in_thread(counter.count, batch.events, missed=batch.missed)
                except AgentqError as fault:
                    log.warning("events were not counted", extra={"fields": {"error": str(fault)}})
                    self.metrics.missed_events.inc()
                except Exception:  # the next ones are counted
                    log.exception("events were not counted")
                    self.metrics.missed_events.inc()
                await asyncio.sleep(COUNT_WINDOW_S)

    def read_metrics(self) -> bytes:
        """The metrics in the Prometheus format. Blocks; call it in a thread."""
        self.metrics.waiting_requests.set(self.event_hub.watch_count)
        self.metrics.duty_partitions.set(self.ticker.keeps)
        for duty, at_ms in self.ticker.done_at_ms.items():
            self.metrics.duty_done_at.labels(duty).set(at_ms / 1000)
        return self.metrics.render()

    async def wait_until(
        self,
        watch: EventWatch,
        read: Callable[[], Awaitable[T | None]],
        timeout_s: float,
        *others: asyncio.Future[Any],
    ) -> T | None:
        """Call `read` after each event of the watch, until it returns a value.

        Returns None when the time is over, the server stops, or one of `others` is done. While the store cannot be
        reached the wait continues.
        """
        deadline = monotonic_ms() + round(timeout_s * 1000)
        while True:
            pause_s = float("inf")
            try:
                found = await read()
            except (Unreachable, TryLater):
                found, pause_s = None, OUTAGE_PAUSE_S
            left = (deadline - monotonic_ms()) / 1000
            if found is not None or left <= 0 or self.event_hub.closing or any(other.done() for other in others):
                return found
            await watch.next(min(left, pause_s), *others)

    async def _submit_batch(self, submits: list[RunSubmission]) -> list[SubmitReceipt]:
        return await self.call_in_thread(self.submit_batch, submits)

    def submit_batch(self, submits: list[RunSubmission]) -> list[SubmitReceipt]:
        """Submit many runs; a refusal is in the receipt."""
        receipts: dict[str, SubmitReceipt] = {}
        for by in dict.fromkeys(each.made_by for each in submits):
            own = [each for each in submits if each.made_by == by]
            ids = [each.id for each in own]
            with use_token(by):
                receipts |= zip(ids, self.run_verbs.submit_many([each.spec for each in own], run_ids=ids), strict=True)
        return [receipts[each.id] for each in submits]
