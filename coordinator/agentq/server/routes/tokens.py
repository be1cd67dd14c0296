"""Tokens for clients, runners and workers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from agentq.coordinator.public_json.tokens import token_json
from agentq.coordinator.security.token_revocation import RevocableTokens
from agentq.coordinator.security.tokens import Tokens
from agentq.server.auth.access_control import require_scope
from agentq.server.http import responses
from agentq.server.http.parameters import ONLY_KNOWN_PARAMETERS
from agentq.server.schema import requests
from agentq.server.service import get_service

router = APIRouter(prefix="/tokens", tags=["tokens"], dependencies=[ONLY_KNOWN_PARAMETERS])

ADMIN = require_scope("admin")


@router.get("", summary="List tokens, the oldest first", dependencies=[ADMIN])
async def list_tokens(request: Request) -> Response:
    """The scopes of each, its expiry, and its last use; never the secret."""
    service = get_service(request)
    return responses.json_response(
        {"tokens": [token_json(each) for each in await service.call_in_thread(Tokens(service.store).all)]}
    )


@router.post("", status_code=201, summary="Create a token", dependencies=[ADMIN])
async def create_token(request: Request, body: requests.CreateTokenRequest) -> Response:
    """`token` is shown only once, since only its digest is stored."""
    service = get_service(request)
    token, text = await service.call_in_thread(
        Tokens(service.store).new,
        body.name,
        body.scopes,
        kind=body.kind,
        queues=body.queues,
        expires_ms=body.expires_ms,
        rate=body.rate,
    )
    return responses.json_response(token_json(token) | {"token": text}, 201)


@router.delete(
    "/{token:path}",
    status_code=204,
    summary="Revoke a token",
    dependencies=[ADMIN],
    responses={200: {"description": "With what it made: what has ended."}},
)
async def revoke_token(
    request: Request,
    token: Annotated[str, Path(description="Its id, or its name.")],
    with_what_it_made: Annotated[
        bool, Query(description="End what it has made, too: tokens, schedules, webhooks, sessions, runs.")
    ] = False,
) -> Response:
    """Takes effect at once, at every server. With `with_what_it_made` the answer is 200, with a list of what has
    ended."""
    service = get_service(request)
    if with_what_it_made:
        return responses.json_response(
            asdict(await service.call_in_thread(RevocableTokens(service.store).revoke_tree, token))
        )
    await service.call_in_thread(Tokens(service.store).revoke, token)
    return Response(status_code=204)
