"""The group of a backend for tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentq.coordinator.security.token_revocation import RevocationResult
    from agentq.coordinator.security.tokens import TokenRecord, TokenScope


class TokenVerbs(Protocol):
    """Who may use the HTTP server."""

    def new(
        self,
        name: str,
        scopes: Sequence[TokenScope | str],
        *,
        kind: str = "client",
        queues: Sequence[str] = (),
        expires_ms: int | None = None,
        rate: str | None = None,
    ) -> tuple[TokenRecord, str]: ...
    def all(self) -> list[TokenRecord]: ...
    def revoke(self, token: str) -> None: ...
    def revoke_tree(self, token: str) -> RevocationResult:
        """Revoke a token with all that it has made."""
