"""Tells webhooks: a duty of the server. Its tasks:

1. Have a line for each webhook that is active; of all servers, the one that has it in hand tells it.
2. Tell each webhook what happens, in order, one message after the other, until it says yes; and note each attempt
   before the next.
3. Do so for all of them at the same time, within a bound.
4. Lay all down at the end, so that another server goes on at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from functools import partial

from agentq.coordinator.clock import monotonic_ms, wall_ms
from agentq.coordinator.errors import AgentqError, Fenced, NotFound
from agentq.coordinator.model.ids import new_nonce
from agentq.coordinator.webhooks.delivery import (
    DELIVERY_TIMEOUT_MS,
    LEASE_TIMEOUTS,
    DeliveryMessage,
    DeliveryResult,
    LeasedWebhook,
    WebhookLease,
)
from agentq.coordinator.webhooks.signature import sign_with_all
from agentq.coordinator.webhooks.verbs import Webhooks
from agentq.server.events.feed import EventFeed, FeedReader
from agentq.server.thread_pool import CallInThread
from agentq.server.webhooks.http_client import WebhookHttpClient

CONCURRENT_POSTS = 16
"""Messages on their way at the same time."""
CHECK_INTERVAL_MS = 2_000
"""How often is looked for webhooks that are new, and at each for what somebody asked."""
OUTAGE_PAUSE_MS = 1_000

log = logging.getLogger("agentq.server")


class WebhookDispatcher:
    """The webhooks that this process tells."""

    def __init__(
        self,
        owner: str,
        feed: EventFeed,
        call: CallInThread,
        poster: WebhookHttpClient,
        *,
        timeout_ms: int = DELIVERY_TIMEOUT_MS,
    ) -> None:
        self._feed = feed
        self._call = call
        self._poster = poster
        self._timeout_ms = timeout_ms
        self._owner = owner
        self._webhooks = Webhooks(feed.store)
        self._posts = asyncio.Semaphore(CONCURRENT_POSTS)
        self._lines: dict[str, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None
        self._bell: asyncio.Future[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name="agentq-webhooks")

    def rouse(self) -> None:
        """Look at once: something was changed here."""
        bell, self._bell = self._bell, None
        if bell is not None and not bell.done():
            bell.set_result(None)

    async def _nap(self, ms: int) -> None:
        if self._bell is None:
            self._bell = asyncio.get_running_loop().create_future()
        await asyncio.wait({self._bell}, timeout=ms / 1000)

    async def stop(self) -> None:
        """Lay all down; what is on its way is told again by whoever goes on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while True:
                try:
                    hooks = await self._call(self._webhooks.all)
                    self._compare({hook.name for hook in hooks if hook.state == "active"})
                except AgentqError as fault:
                    log.warning("webhooks cannot be looked for", extra={"fields": {"why": str(fault)}})
                except Exception:
                    log.exception("webhooks cannot be looked for")
                await self._nap(CHECK_INTERVAL_MS)
        finally:
            await self._end(list(self._lines.values()))

    def _compare(self, active: set[str]) -> None:
        for line in self._lines.values():
            if line.done() and not line.cancelled() and (fault := line.exception()) is not None:
                log.error("a webhook cannot be told", exc_info=fault, extra={"fields": {"line": line.get_name()}})
        self._lines = {name: line for name, line in self._lines.items() if not line.done()}
        for name in active - self._lines.keys():
            self._lines[name] = asyncio.create_task(self._line(name), name=f"agentq-webhook-{name}")

    async def _end(self, lines: list[asyncio.Task[None]]) -> None:
        for line in lines:
            line.cancel()
        await asyncio.gather(*lines, return_exceptions=True)

    async def _line(self, name: str) -> None:
        """One webhook, for as long as it is there and active."""
        telling = WebhookLease(self._feed.store, name, self._owner, self._timeout_ms)
        try:
            while not self._feed.tides.closing:
                try:
                    errand = await self._call(telling.undertake)
                    if errand is None:
                        return
                    if isinstance(errand, LeasedWebhook):
                        await self._tell(telling, errand)
                    else:
                        await asyncio.sleep(min(errand, CHECK_INTERVAL_MS) * random.uniform(0.5, 1) / 1000)
                except (Fenced, NotFound):
                    return
                except AgentqError as fault:
                    log.warning("a webhook waits for the store", extra={"fields": {"webhook": name, "why": str(fault)}})
                    await asyncio.sleep(OUTAGE_PAUSE_MS * random.uniform(0.5, 1) / 1000)
        finally:
            with suppress(AgentqError):
                await asyncio.shield(asyncio.ensure_future(self._call(telling.lay_down)))

    async def _tell(self, telling: WebhookLease, errand: LeasedWebhook) -> None:
        """Tell a webhook that is in hand, until a message fails, or it is to be looked at anew."""
        if errand.asked is not None:
            await self._attempt(telling, errand, errand.asked)
            return
        if errand.pause_ms:
            await self._nap(min(errand.pause_ms, CHECK_INTERVAL_MS))
            return
        going_on: LeasedWebhook | int | None = errand
        with self._feed.reader(errand.interest, await self._feed.places(errand.at)) as reader:
            while isinstance(going_on, LeasedWebhook) and going_on.asked is None and not going_on.pause_ms:
                if self._feed.tides.closing or not await self._tell_for_a_while(telling, going_on, reader):
                    return
                going_on = await self._call(partial(telling.undertake, reader.place))

    async def _tell_for_a_while(self, telling: WebhookLease, errand: LeasedWebhook, reader: FeedReader) -> bool:
        """Whether all of it was told, and taken."""
        until_ms = monotonic_ms() + CHECK_INTERVAL_MS
        while (left_ms := until_ms - monotonic_ms()) > 0 and not self._feed.tides.closing:
            batch = await reader.next(left_ms / 1000)
            messages = [errand.message(item.event, place) for place, item in batch.items]
            if batch.gap:
                messages.insert(0, errand.gap(batch.gap, wall_ms()))
            for message in messages:
                # In the middle of many, too, it is looked at anew: somebody may want it to rest.
                if monotonic_ms() >= until_ms or not await self._attempt(telling, errand, message):
                    return False
        return True

    async def _attempt(self, telling: WebhookLease, errand: LeasedWebhook, message: DeliveryMessage) -> bool:
        """Post a message, and note what became of it."""
        asked_ms = monotonic_ms()
        async with self._posts:
            # If it has waited for others for long, another server may have it in hand by now.
            late = monotonic_ms() - asked_ms > telling.held_ms / LEASE_TIMEOUTS
            if late and not isinstance(await self._call(telling.undertake), LeasedWebhook):
                raise Fenced(f"The webhook {telling.name} is told by another by now.")
            verdict = await self._post(errand, message)
        note = partial(telling.attempted, message, verdict, new_nonce())
        until_ms = monotonic_ms() + telling.held_ms
        while True:
            try:
                await self._call(note)
                break
            except (Fenced, NotFound):
                raise
            except AgentqError:
                if monotonic_ms() >= until_ms:
                    raise
                await asyncio.sleep(OUTAGE_PAUSE_MS / 1000)
        if not verdict.ok:
            fields = {"webhook": telling.name, "message": message.id, "why": verdict.error}
            log.warning("a webhook was not taken", extra={"fields": fields})
        return verdict.ok

    async def _post(self, errand: LeasedWebhook, message: DeliveryMessage) -> DeliveryResult:
        at_s, body = wall_ms() // 1000, message.body.encode()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "agentq",
            "webhook-id": message.id,
            "webhook-timestamp": str(at_s),
            "webhook-signature": sign_with_all(errand.secrets, message.id, at_s, body),
        }
        return await self._poster.post(errand.url, headers, body)
