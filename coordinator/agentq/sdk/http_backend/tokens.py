"""Tokens of the server, through it."""

from __future__ import annotations

from collections.abc import Sequence

from agentq.coordinator.public_json.tokens import read_token
from agentq.coordinator.security.token_revocation import RevocationResult
from agentq.coordinator.security.tokens import TokenRecord, TokenScope, check_token
from agentq.sdk.http_backend.http_client import HttpClient


class HttpTokens:
    """Who may use the HTTP server."""

    def __init__(self, wire: HttpClient) -> None:
        self._wire = wire

    def new(
        self,
        name: str,
        scopes: Sequence[TokenScope | str],
        *,
        kind: str = "client",
        queues: Sequence[str] = (),
        expires_ms: int | None = None,
        rate: str | None = None,
    ) -> tuple[TokenRecord, str]:
        spec = check_token(name, scopes, kind=kind, queues=queues, expires_ms=expires_ms, rate=rate)
        made = self._wire.post("/tokens", spec.model_dump(mode="json"))
        return read_token(made), made["token"]

    def all(self) -> list[TokenRecord]:
        return list(map(read_token, self._wire.get("/tokens")["tokens"]))

    def revoke(self, token: str) -> None:
        self._wire.delete(f"/tokens/{token}")

    def revoke_tree(self, token: str) -> RevocationResult:
        """Revoke a token with all that it has made."""
        return RevocationResult(**self._wire.delete(f"/tokens/{token}", {"with_what_it_made": "true"}))
