"""Delivers to a webhook: its lease, its positions in the events, and the outcome of each attempt.

A deliverer holds the lease of a webhook for a short time and renews it; the reports of one that lost the lease are
refused. In the worst case two deliverers send the same message, with the same id, and none is skipped: the position
moves in the script that records that the receiver accepted the message.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import blake2b

from agentq.coordinator.errors import Fenced, NotFound
from agentq.coordinator.events.event_filter import EventFilter, LocatedEvent
from agentq.coordinator.storage.store import NamespaceStore
from agentq.coordinator.webhooks.verbs import HOME_PARTITION, format_body

DELIVERY_TIMEOUT_MS = 10_000
"""How long a receiver may take, unless a setting says otherwise."""
LEASE_TIMEOUTS = 3
"""The lease of a deliverer, in delivery timeouts."""
GAP_EVENT = "agentq.gap"


@dataclass(frozen=True, slots=True)
class DeliveryMessage:
    """A message to the receiver."""

    id: str
    type: str
    body: str
    at: str
    """The positions after it; empty for a message that a client requested."""


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The result of one attempt to deliver a message."""

    ok: bool
    status: int | None
    error: str
    took_ms: int
    gone: bool = False
    wait_ms: int = 0
    """How long the receiver asks to wait, as in Retry-After."""


@dataclass(frozen=True, slots=True)
class LeasedWebhook:
    """A webhook whose lease is held."""

    url: str
    interest: EventFilter
    secrets: tuple[str, ...]
    at: str
    failures: int
    pause_ms: int
    """The time until the next attempt."""
    born: str
    asked: DeliveryMessage | None
    """A message that a client requested: a test, or one to deliver again."""

    def message(self, event: LocatedEvent, at: str) -> DeliveryMessage:
        """The message about an event. Its id follows from the event, so a repeated message has the same id."""
        kind = f"{'run' if event.run else 'agentq'}.{event.event}"
        return DeliveryMessage(
            self._id(f"{event.partition} {event.id}"), kind, format_body(kind, event.at_ms, event.public_json()), at
        )

    def gap(self, after: str, at_ms: int) -> DeliveryMessage:
        """The message that events were trimmed before they were delivered. It is sent before the remaining events."""
        return DeliveryMessage(
            self._id(f"gap {after}"), GAP_EVENT, format_body(GAP_EVENT, at_ms, {"after": after}), after
        )

    def _id(self, what: str) -> str:
        return "msg_" + blake2b(f"{self.born} {what}".encode(), digest_size=16).hexdigest()


class WebhookLease:
    """The lease that one deliverer has, or wants, of one webhook."""

    def __init__(self, store: NamespaceStore, name: str, owner: str, timeout_ms: int = DELIVERY_TIMEOUT_MS) -> None:
        self.store = store
        self.name = name
        self.owner = owner
        self.held_ms = LEASE_TIMEOUTS * timeout_ms

    def acquire(self, at: str = "") -> LeasedWebhook | int | None:
        """Acquire or renew the lease, having delivered up to a position. Returns the milliseconds that another
        deliverer's lease lasts if it has one; None if there is nothing to deliver: it is paused, or was removed."""
        word, *rest = self.store.call("webhook/lease", HOME_PARTITION, self.name, self.owner, self.held_ms, at)
        if word == "busy":
            return int(rest[0])
        if word == "idle":
            return None
        url, which, secret, before, place, failures, pause_ms, born, asked = rest
        secrets = (secret, before) if before else (secret,)
        message = DeliveryMessage(**json.loads(asked), at="") if asked else None
        interest = EventFilter.model_validate_json(which)
        return LeasedWebhook(url, interest, secrets, place, int(failures), int(float(pause_ms)), born, message)

    def release(self) -> None:
        """Release the lease, so that another deliverer can acquire it at once."""
        self.store.call("webhook/lease", HOME_PARTITION, self.name, self.owner, "", "")

    def record(self, message: DeliveryMessage, result: DeliveryResult, operation: str) -> None:
        """Record the result of an attempt."""
        message_fields = (message.id, message.type, message.body, message.at)
        status = "" if result.status is None else result.status
        result_fields = (int(result.ok), status, result.error, result.took_ms, int(result.gone), result.wait_ms)
        reply = self.store.call(
            "webhook/record_delivery",
            HOME_PARTITION,
            self.name,
            self.owner,
            self.held_ms,
            operation,
            *message_fields,
            *result_fields,
            self.store.dice(),
        )
        if reply == "fenced":
            raise Fenced(f"The webhook {self.name} is now held by another server.")
        if reply == "not_found":
            raise NotFound(f"The webhook {self.name} was removed.")
