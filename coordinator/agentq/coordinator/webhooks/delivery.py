"""Delivers to a webhook: who holds its lease, its positions in the events, and the outcome of each attempt.

Whoever tells has the webhook in hand for a short time and keeps it there by coming back; what somebody says who has
lost it is refused. So two may deliver the same message in the worst case, under the same id, and none is left out: the
place moves in the script that notes that the message was taken.
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
"""How many times that a webhook stays in the hands of somebody who is not heard of."""
GAP_EVENT = "agentq.gap"


@dataclass(frozen=True, slots=True)
class DeliveryMessage:
    """What a receiver gets."""

    id: str
    type: str
    body: str
    at: str
    """The places after it; empty for one that somebody asked for."""


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """What became of an attempt."""

    ok: bool
    status: int | None
    error: str
    took_ms: int
    gone: bool = False
    wait_ms: int = 0
    """How long the receiver asks to be left alone."""


@dataclass(frozen=True, slots=True)
class LeasedWebhook:
    """A webhook in hand."""

    url: str
    interest: EventFilter
    secrets: tuple[str, ...]
    at: str
    failures: int
    pause_ms: int
    """Until the next try."""
    born: str
    asked: DeliveryMessage | None
    """One that somebody asked for."""

    def message(self, event: LocatedEvent, at: str) -> DeliveryMessage:
        """What it is told of an event. Its id follows from the event: told again, it is the same."""
        kind = f"{'run' if event.run else 'agentq'}.{event.event}"
        return DeliveryMessage(
            self._id(f"{event.partition} {event.id}"), kind, format_body(kind, event.at_ms, event.public_json()), at
        )

    def gap(self, after: str, at_ms: int) -> DeliveryMessage:
        """That events are gone which it was not told of. It comes before those that are left."""
        return DeliveryMessage(
            self._id(f"gap {after}"), GAP_EVENT, format_body(GAP_EVENT, at_ms, {"after": after}), after
        )

    def _id(self, what: str) -> str:
        return "msg_" + blake2b(f"{self.born} {what}".encode(), digest_size=16).hexdigest()


class WebhookLease:
    """What one deliverer says of one webhook."""

    def __init__(self, store: NamespaceStore, name: str, owner: str, timeout_ms: int = DELIVERY_TIMEOUT_MS) -> None:
        self.store = store
        self.name = name
        self.owner = owner
        self.held_ms = LEASE_TIMEOUTS * timeout_ms

    def undertake(self, at: str = "") -> LeasedWebhook | int | None:
        """Take it in hand, or keep it, having come up to a place. If another has it, for how many milliseconds; None
        if there is nothing to do: it rests, or is gone."""
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

    def lay_down(self) -> None:
        """Let others take it at once."""
        self.store.call("webhook/lease", HOME_PARTITION, self.name, self.owner, "", "")

    def attempted(self, message: DeliveryMessage, verdict: DeliveryResult, operation: str) -> None:
        """Note what became of an attempt."""
        told = (message.id, message.type, message.body, message.at)
        status = "" if verdict.status is None else verdict.status
        flags = (int(verdict.ok), status, verdict.error, verdict.took_ms, int(verdict.gone), verdict.wait_ms)
        reply = self.store.call(
            "webhook/record_delivery",
            HOME_PARTITION,
            self.name,
            self.owner,
            self.held_ms,
            operation,
            *told,
            *flags,
            self.store.dice(),
        )
        if reply == "fenced":
            raise Fenced(f"The webhook {self.name} is now held by another server.")
        if reply == "not_found":
            raise NotFound(f"The webhook {self.name} was removed.")
