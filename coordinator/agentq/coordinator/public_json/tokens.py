"""Tokens, in public JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentq.coordinator.model.durations import format_iso
from agentq.coordinator.public_json import format_time

if TYPE_CHECKING:
    from agentq.coordinator.security.tokens import TokenRecord


def token_json(token: TokenRecord) -> dict[str, Any]:
    """A token of the server, which nobody can be told again."""
    return {
        "id": token.id,
        "name": token.name,
        "kind": token.kind,
        "scopes": [scope.value for scope in token.scopes],
        "queues": list(token.queues),
        "rate": token.rate and token.rate._asdict(),
        "made_by": token.made_by or None,
        "created_at": format_iso(token.created_at_ms),
        "expires_at": format_time(token.expires_at_ms),
        "used_at": format_time(token.used_at_ms),
    }
