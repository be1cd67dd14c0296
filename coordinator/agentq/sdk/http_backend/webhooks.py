"""Webhooks, through a coordinator. Names are checked here as they are on Redis.

The name and the secret of a new webhook are made here, so that a request that is sent again makes no other one.
"""

from __future__ import annotations

from time import sleep

from agentq.coordinator.bounds import DELIVERIES_KEPT, ERROR_CHARACTERS, SECRET_OVERLAP_MS
from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.events.event_filter import EventFilter
from agentq.coordinator.events.stream import STREAM_START, event_sort_key
from agentq.coordinator.webhooks.signature import make_secret
from agentq.coordinator.webhooks.verbs import (
    WebhookDelivery,
    WebhookRecord,
    check_secret_overlap,
    check_webhook_name,
    check_webhook_url,
    make_webhook_name,
)
from agentq.sdk.http_backend.http_client import HttpClient, new_request_key

POLL_MS = 250
"""How often the log of deliveries is looked at for one that is awaited."""


class HttpWebhooks:
    """Addresses that are told what happens."""

    def __init__(self, wire: HttpClient) -> None:
        self._wire = wire

    def add(self, name: str | None, url: str, which: EventFilter) -> tuple[WebhookRecord, str]:
        name = make_webhook_name() if name is None else check_webhook_name(name)
        check_webhook_url(url)
        parts = {part.removesuffix("s"): list(values) for part, values in which if values}
        secret = make_secret()
        body = {"name": name, "url": url, "filter": parts, "secret": secret}
        made = self._wire.post("/webhooks", body, key=new_request_key())
        return WebhookRecord.model_validate(made["webhook"]), secret

    def all(self) -> list[WebhookRecord]:
        return list(map(WebhookRecord.model_validate, self._wire.get("/webhooks")["webhooks"]))

    def remove(self, name: str) -> None:
        self._wire.delete(_path(name))

    def pause(self, name: str, why: str = "") -> WebhookRecord:
        return WebhookRecord.model_validate(self._wire.post(f"{_path(name)}/pause", {"why": why[:ERROR_CHARACTERS]}))

    def resume(self, name: str) -> WebhookRecord:
        return WebhookRecord.model_validate(self._wire.post(f"{_path(name)}/resume"))

    def rotate(self, name: str, *, overlap_ms: int = SECRET_OVERLAP_MS) -> str:
        check_secret_overlap(overlap_ms)
        secret = make_secret()
        self._wire.post(f"{_path(name)}/rotate", {"secret": secret, "overlap_ms": overlap_ms})
        return secret

    def deliveries(self, name: str, *, limit: int = DELIVERIES_KEPT) -> list[WebhookDelivery]:
        found = self._wire.get(f"{_path(name)}/deliveries", {"limit": limit})
        return list(map(WebhookDelivery.model_validate, found["deliveries"]))

    def newest(self, name: str) -> str:
        """The id of the last attempt that was noted."""
        return next((each.id for each in self.deliveries(name, limit=1)), STREAM_START)

    def redeliver(self, name: str, message: str) -> None:
        self._wire.post(f"{_path(name)}/deliveries/{message}/redeliver", key=new_request_key())

    def test(self, name: str) -> str:
        return str(self._wire.post(f"{_path(name)}/test", key=new_request_key())["message"])

    def awaited(self, name: str, message: str, after: str, within_ms: int) -> WebhookDelivery | None:
        """The first attempt at a message after another attempt, as soon as there is one."""
        deadline_ms = monotonic_ms() + within_ms
        while True:
            for found in reversed(self.deliveries(name)):
                if found.message == message and event_sort_key(found.id) > event_sort_key(after):
                    return found
            if monotonic_ms() >= deadline_ms:
                return None
            sleep(POLL_MS / 1000)


def _path(name: str) -> str:
    return f"/webhooks/{check_webhook_name(name)}"
