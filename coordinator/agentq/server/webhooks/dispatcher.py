"""Delivers events to webhooks; a duty of the server. Its tasks:

1. Run one task for each active webhook; of all servers, the one with the webhook's lease delivers.
2. Send the events in order, one message after the other, until the receiver accepts each; record each attempt before
   the next.
3. Send to different webhooks concurrently, up to a limit.
4. Release the leases on shutdown, so that another server continues at once.
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
"""Messages sent at the same time."""
CHECK_INTERVAL_MS = 2_000
"""How often new webhooks, and requests to a webhook, are checked."""
OUTAGE_PAUSE_MS = 1_000

log = logging.getLogger("agentq.server")


class WebhookDispatcher:
    """Delivers to the webhooks whose leases this process holds."""

    def __init__(
        self,
        owner: str,
        feed: EventFeed,
        call_in_thread: CallInThread,
        http: WebhookHttpClient,
        *,
        timeout_ms: int = DELIVERY_TIMEOUT_MS,
    ) -> None:
        self._feed = feed
        self._call_in_thread = call_in_thread
        self._http = http
        self._timeout_ms = timeout_ms
        self._owner = owner
        self._webhooks = Webhooks(feed.store)
        self._post_slots = asyncio.Semaphore(CONCURRENT_POSTS)
        self._deliveries: dict[str, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None
        self._wakeup: asyncio.Future[None] | None = None

    def start(self) -> None:
        """Start the task."""
        self._task = asyncio.create_task(self._run(), name="agentq-webhooks")

    def wake(self) -> None:
        """Check at once: a webhook was changed here."""
        wakeup, self._wakeup = self._wakeup, None
        if wakeup is not None and not wakeup.done():
            wakeup.set_result(None)

    async def _sleep(self, ms: int) -> None:
        if self._wakeup is None:
            self._wakeup = asyncio.get_running_loop().create_future()
        await asyncio.wait({self._wakeup}, timeout=ms / 1000)

    async def stop(self) -> None:
        """Cancel all tasks; a message under way is sent again by the next server."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while True:
                try:
                    hooks = await self._call_in_thread(self._webhooks.all)
                    self._sync_deliveries({hook.name for hook in hooks if hook.state == "active"})
                except AgentqError as fault:
                    log.warning("listing webhooks failed; will retry", extra={"fields": {"why": str(fault)}})
                except Exception:
                    log.exception("listing webhooks failed; will retry")
                await self._sleep(CHECK_INTERVAL_MS)
        finally:
            await self._cancel(list(self._deliveries.values()))

    def _sync_deliveries(self, active: set[str]) -> None:
        for task in self._deliveries.values():
            if task.done() and not task.cancelled() and (fault := task.exception()) is not None:
                log.error(
                    "delivery to a webhook failed; will restart",
                    exc_info=fault,
                    extra={"fields": {"task": task.get_name()}},
                )
        self._deliveries = {name: task for name, task in self._deliveries.items() if not task.done()}
        for name in active - self._deliveries.keys():
            self._deliveries[name] = asyncio.create_task(self._deliver(name), name=f"agentq-webhook-{name}")

    async def _cancel(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _deliver(self, name: str) -> None:
        """Deliver to one webhook while it exists and is active."""
        lease = WebhookLease(self._feed.store, name, self._owner, self._timeout_ms)
        try:
            while not self._feed.event_hub.closing:
                try:
                    leased = await self._call_in_thread(lease.acquire)
                    if leased is None:
                        return
                    if isinstance(leased, LeasedWebhook):
                        await self._send_messages(lease, leased)
                    else:
                        await asyncio.sleep(min(leased, CHECK_INTERVAL_MS) * random.uniform(0.5, 1) / 1000)
                except (Fenced, NotFound):
                    return
                except AgentqError as fault:
                    log.warning(
                        "delivery to a webhook failed; will retry",
                        extra={"fields": {"webhook": name, "why": str(fault)}},
                    )
                    await asyncio.sleep(OUTAGE_PAUSE_MS * random.uniform(0.5, 1) / 1000)
        finally:
            with suppress(AgentqError):
                await asyncio.shield(asyncio.ensure_future(self._call_in_thread(lease.release)))

    async def _send_messages(self, lease: WebhookLease, webhook: LeasedWebhook) -> None:
        """Send messages to a leased webhook until one fails or the lease must be checked."""
        if webhook.asked is not None:
            await self._attempt(lease, webhook, webhook.asked)
            return
        if webhook.pause_ms:
            await self._sleep(min(webhook.pause_ms, CHECK_INTERVAL_MS))
            return
        current: LeasedWebhook | int | None = webhook
        with self._feed.reader(webhook.interest, await self._feed.positions(webhook.at)) as reader:
            while isinstance(current, LeasedWebhook) and current.asked is None and not current.pause_ms:
                if self._feed.event_hub.closing or not await self._send_until_check(lease, current, reader):
                    return
                current = await self._call_in_thread(partial(lease.acquire, reader.position))

    async def _send_until_check(self, lease: WebhookLease, webhook: LeasedWebhook, reader: FeedReader) -> bool:
        """Send messages until the next check; whether all were accepted."""
        until_ms = monotonic_ms() + CHECK_INTERVAL_MS
        while (left_ms := until_ms - monotonic_ms()) > 0 and not self._feed.event_hub.closing:
            batch = await reader.next(left_ms / 1000)
            messages = [webhook.message(item.event, position) for position, item in batch.items]
            if batch.gap:
                messages.insert(0, webhook.gap(batch.gap, wall_ms()))
            for message in messages:
                # Check also between messages: the webhook may have been paused.
                if monotonic_ms() >= until_ms or not await self._attempt(lease, webhook, message):
                    return False
        return True

    async def _attempt(self, lease: WebhookLease, webhook: LeasedWebhook, message: DeliveryMessage) -> bool:
        """Send a message, and record the result."""
        began_ms = monotonic_ms()
        async with self._post_slots:
            # After a long wait for a slot, another server may hold the lease.
            late = monotonic_ms() - began_ms > lease.held_ms / LEASE_TIMEOUTS
            if late and not isinstance(await self._call_in_thread(lease.acquire), LeasedWebhook):
                raise Fenced(f"The webhook {lease.name} is now held by another server.")
            result = await self._post(webhook, message)
        record = partial(lease.record, message, result, new_nonce())
        until_ms = monotonic_ms() + lease.held_ms
        while True:
            try:
                await self._call_in_thread(record)
                break
            except (Fenced, NotFound):
                raise
            except AgentqError:
                if monotonic_ms() >= until_ms:
                    raise
                await asyncio.sleep(OUTAGE_PAUSE_MS / 1000)
        if not result.ok:
            fields = {"webhook": lease.name, "message": message.id, "why": result.error}
            log.warning("a webhook refused a message; will retry", extra={"fields": fields})
        return result.ok

    async def _post(self, webhook: LeasedWebhook, message: DeliveryMessage) -> DeliveryResult:
        at_s, body = wall_ms() // 1000, message.body.encode()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "agentq",
            "webhook-id": message.id,
            "webhook-timestamp": str(at_s),
            "webhook-signature": sign_with_all(webhook.secrets, message.id, at_s, body),
        }
        return await self._http.post(webhook.url, headers, body)
