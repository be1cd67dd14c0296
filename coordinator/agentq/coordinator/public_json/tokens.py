"""Tokens, in public JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentq.coordinator.model.durations import format_iso, parse_iso_ms
from agentq.coordinator.public_json import format_time, read_time

if TYPE_CHECKING:
    from agentq.coordinator.security.tokens import TokenRecord


def token_json(token: TokenRecord) -> dict[str, Any]:
    """A token of the server, without its secret."""
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


def read_token(told: dict[str, Any]) -> TokenRecord:
    """The token that JSON tells of."""
    from agentq.coordinator.security.tokens import RequestRate, TokenRecord

    return TokenRecord(
        **{name: told[name] for name in ("id", "name", "kind", "scopes", "queues")},
        rate=told["rate"] and RequestRate(**told["rate"]),
        made_by=told["made_by"] or "",
        created_at_ms=parse_iso_ms(told["created_at"]),
        expires_at_ms=read_time(told["expires_at"]),
        used_at_ms=read_time(told["used_at"]),
    )
