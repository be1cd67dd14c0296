"""What all requests to one server share: the store and its verbs, the threads that call it, the tides, who may come in.

Its tasks:

1. Call the store in a bounded number of threads, and refuse what would wait too long for one.
2. Make one call of many submits that come at the same time.
3. Wait, with the tides, for what a request asks for.
4. Do the duties, in turn with workers and other servers.
5. End in an order in which nobody is dropped: first those who wait are answered.
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

from agentq.coordinator.bounds import SUBMIT_A_CALL
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
from agentq.coordinator.queues.controls import QueueControls
from agentq.coordinator.runs.queries import RunQueries
from agentq.coordinator.runs.verbs import RunVerbs, SubmitReceipt
from agentq.coordinator.schedules.verbs import Schedules
from agentq.coordinator.sessions.verbs import Sessions
from agentq.coordinator.token_context import current_token, set_current_token, use_token
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
"""Calls that may wait for a thread; more are refused, to be tried again."""
BATCH_BYTES_MAX = 4 << 20
UNCOUNTED_EVENTS_MAX = 50_000
"""Events that may wait to be counted."""
COUNT_WAIT_S = 5.0
COUNT_WINDOW_S = 0.1
"""Nobody waits for a metric: what happens in so short a time is counted at once."""
OUTAGE_PAUSE_S = 0.5
"""How long a wait lets pass before it looks again at a store that was out of reach."""


def get_service(connection: HTTPConnection) -> ServerService:
    """What a request is served by."""
    service: ServerService = connection.app.state.service
    return service


class RunSubmission(NamedTuple):
    """A run to be put into the world, its id made, with the size that it came in."""

    spec: RunSpec
    id: str
    bytes: int
    made_by: str = ""
    """The token that asks for it, and its queues."""


class ServerService:
    """One server, from its start to its end. Made on any thread; used on the loop that started it."""

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
        self.server = server
        self.id = f"server-{socket.gethostname()}-{os.getpid()}-{new_nonce()}"
        self.queue = RunVerbs.open(settings, client_name=self.id)
        self.store = self.queue.store
        self.records = RunQueries(self.store)
        self.sessions = Sessions(self.store)
        self.schedules = Schedules(self.store)
        self.flow = QueueControls(self.store)
        self.metrics = ServerMetrics(StoreCollector(self.store))
        self.tides = EventHub(self.store)
        self.feed = EventFeed(self.tides, self.ask)
        self.currents = LogHub(self.store)
        self.poster = WebhookHttpClient(
            AllowedAddresses(server.webhook_networks),
            plain_http=server.webhook_http,
            timeout_ms=server.webhook_timeout_ms,
        )
        self.deliveries = WebhookDispatcher(
            self.id, self.feed, self.ask, self.poster, timeout_ms=server.webhook_timeout_ms
        )
        self.access = AccessControl(self.store, self.ask, server, open_to_all=open_to_all, local=local)
        self.submit: Batcher[RunSubmission, SubmitReceipt] = Batcher(
            self._submit, most=SUBMIT_A_CALL, heaviest=BATCH_BYTES_MAX, weigh=lambda each: each.bytes
        )
        self.ticker = Ticker(self.store, self._duties(), settings.tick_ms, owner=self.id)
        self._hands = ThreadPool(server.threads, "agentq-store")
        self._asked = 0
        self.dialects = tuple(dialect(self) for dialect in dialects)
        self.views = RecordViews(self.dialects)
        self._counting: asyncio.Task[None] | None = None

    def _duties(self) -> list[Duty]:
        tick_ms, store = self.settings.tick_ms, self.store
        return [Promoter(store, tick_ms), Scheduler(store, tick_ms), Reaper(store, self.settings), Janitor(store)]

    def start(self) -> None:
        """Begin: on the loop."""
        self._hands.begin()
        self.tides.start()
        self._counting = asyncio.create_task(self._count())
        if self.server.duties:
            self.tides.belled = self.ticker.wake
            self.ticker.start()
            self.deliveries.start()
        for dialect in self.dialects:
            dialect.start()

    def close(self) -> None:
        """Answer whoever waits, and let nobody wait any more; requests that come still are served."""
        self.tides.close()

    async def stop(self) -> None:
        """End, when the last request was answered."""
        for dialect in self.dialects:
            await dialect.stop()
        self.close()
        if self._counting is not None:
            await self._counting
        if self.server.duties:
            await self.deliveries.stop()
            await asyncio.to_thread(self.ticker.stop)
        await asyncio.to_thread(self.currents.stop)
        await asyncio.to_thread(self.tides.stop)
        self._hands.end()
        self.store.connection.close()

    async def ask(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call something that blocks, in a thread."""
        if self._asked >= WAITING_CALLS_MAX:
            raise TryLater("This server has more to do than it can; try again in a moment.")
        self._asked += 1
        try:
            reply = await self._hands.call(partial(self._timed, current_token(), function, *args, **kwargs))
        except Fenced as fenced:
            self.metrics.refused(fenced)
            raise
        finally:
            self._asked -= 1
        self.metrics.refused(reply)
        return reply

    def _timed(self, made_by: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        began_ns = monotonic_ns()
        set_current_token(made_by)
        try:
            return function(*args, **kwargs)
        finally:
            self.metrics.call.observe((monotonic_ns() - began_ns) / 1e9)

    async def _count(self) -> None:
        """Count what happens, for the metrics, as long as the server lives."""
        counting = EventCounter(self.store, self.metrics)
        with self.tides.of_everything(UNCOUNTED_EVENTS_MAX) as watch:
            while not self.tides.closing:
                news = await watch.next(COUNT_WAIT_S)
                try:
                    await self.ask(counting.take, news.events, missed=news.missed)
                except AgentqError as fault:
                    log.warning("events were not counted", extra={"fields": {"error": str(fault)}})
                    self.metrics.missed.inc()
                except Exception:  # the next ones are counted
                    log.exception("events were not counted")
                    self.metrics.missed.inc()
                await asyncio.sleep(COUNT_WINDOW_S)

    def read_metrics(self) -> bytes:
        """The metrics as Prometheus reads them; to be called in a thread."""
        self.metrics.waiters.set(self.tides.waiting)
        self.metrics.keeper.set(self.ticker.keeps)
        for duty, at_ms in self.ticker.done_at_ms.items():
            self.metrics.done.labels(duty).set(at_ms / 1000)
        return self.metrics.text()

    async def until(
        self,
        watch: EventWatch,
        look: Callable[[], Awaitable[T | None]],
        timeout_s: float,
        *others: asyncio.Future[Any],
    ) -> T | None:
        """What `look` finds, looked for again whenever the watch is rung.

        None when the time is over, the server is to end, or one of the `others` is done. While the store cannot be
        reached there is nothing to be found, which is no error: whoever waits waits on.
        """
        deadline = monotonic_ms() + round(timeout_s * 1000)
        while True:
            patience = float("inf")
            try:
                found = await look()
            except (Unreachable, TryLater):
                found, patience = None, OUTAGE_PAUSE_S
            left = (deadline - monotonic_ms()) / 1000
            if found is not None or left <= 0 or self.tides.closing or any(other.done() for other in others):
                return found
            await watch.next(min(left, patience), *others)

    async def _submit(self, submits: list[RunSubmission]) -> list[SubmitReceipt]:
        return await self.ask(self.submit_now, submits)

    def submit_now(self, submits: list[RunSubmission]) -> list[SubmitReceipt]:
        """Submit many; what is refused of them is told in its receipt."""
        receipts: dict[str, SubmitReceipt] = {}
        for by in dict.fromkeys(each.made_by for each in submits):
            own = [each for each in submits if each.made_by == by]
            ids = [each.id for each in own]
            with use_token(by):
                receipts |= zip(ids, self.queue.submit_many([each.spec for each in own], run_ids=ids), strict=True)
        return [receipts[each.id] for each in submits]
