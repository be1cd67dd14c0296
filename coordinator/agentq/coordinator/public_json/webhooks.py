"""Webhooks, as the command line shows them. Over HTTP the records themselves are told, with times in milliseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentq.coordinator.public_json import format_time

if TYPE_CHECKING:
    from agentq.coordinator.webhooks.verbs import WebhookRecord


WEBHOOK_TIMES = {
    "created_at": "created_at_ms",
    "delivered_at": "delivered_at_ms",
    "failing_since": "failing_since_ms",
    "retry_at": "retry_at_ms",
}


def webhook_json(found: WebhookRecord) -> dict[str, Any]:
    """A webhook, as the command line shows it. Over HTTP it is the record itself, with its times in milliseconds."""
    plain = found.model_dump(mode="json", exclude=set(WEBHOOK_TIMES.values()))
    return plain | {name: format_time(getattr(found, field)) for name, field in WEBHOOK_TIMES.items()}
