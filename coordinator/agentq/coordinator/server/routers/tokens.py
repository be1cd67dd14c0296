"""Tokens: who may use the server."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from agentq.coordinator.revocation import revoke_with_what_it_made
from agentq.coordinator.server import bodies, views
from agentq.coordinator.server.access import allowed
from agentq.coordinator.server.parameters import KNOWN
from agentq.coordinator.server.service import service_of
from agentq.coordinator.shapes import token_record
from agentq.coordinator.tokens import Tokens

router = APIRouter(prefix="/tokens", tags=["tokens"], dependencies=[KNOWN])

ADMIN = allowed("admin")


@router.get("", summary="List tokens, the oldest first", dependencies=[ADMIN])
async def ls(request: Request) -> Response:
    """What each may do, until when, and when it was last used; never the secret."""
    service = service_of(request)
    return views.told({"tokens": [token_record(each) for each in await service.ask(Tokens(service.store).all)]})


@router.post("", status_code=201, summary="Make a token", dependencies=[ADMIN])
async def new(request: Request, body: bodies.NewToken) -> Response:
    """`token` is told this once, for only its digest is kept."""
    service = service_of(request)
    made, text = await service.ask(
        Tokens(service.store).new,
        body.name,
        body.scopes,
        kind=body.kind,
        queues=body.queues,
        expires_ms=body.expires_ms,
        rate=body.rate,
    )
    return views.told(token_record(made) | {"token": text}, 201)


@router.delete(
    "/{token}",
    status_code=204,
    summary="Make a token good for nothing",
    dependencies=[ADMIN],
    responses={200: {"description": "With what it made: what has ended."}},
)
async def revoke(
    request: Request,
    token: Annotated[str, Path(description="Its id, or its name.")],
    with_what_it_made: Annotated[
        bool, Query(description="End what it has made, too: tokens, schedules, webhooks, sessions, runs.")
    ] = False,
) -> Response:
    """At once, at every server. With what it made, the answer is 200 and says what has ended."""
    service = service_of(request)
    if with_what_it_made:
        return views.told(asdict(await service.ask(revoke_with_what_it_made, service.store, token)))
    await service.ask(Tokens(service.store).revoke, token)
    return Response(status_code=204)
