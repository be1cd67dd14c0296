"""Webhooks: addresses to which the server sends events. See `coordinator/webhooks/` and `server/webhooks/`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from agentq.coordinator.bounds import (
    DELIVERIES_KEPT,
    INPUT_ERRORS,
    SECRET_OVERLAP_MS,
    SECRET_OVERLAP_MS_MAX,
    URL_CHARACTERS,
)
from agentq.coordinator.events.event_filter import EventFilter
from agentq.coordinator.webhooks.verbs import WebhookDelivery, WebhookRecord, Webhooks, check_webhook_url
from agentq.server.auth.access_control import Principal, require_scope
from agentq.server.http.parameters import ONLY_KNOWN_PARAMETERS, IdempotencyKeyHeader, derive_operation
from agentq.server.schema import requests
from agentq.server.service import ServerService, get_service

router = APIRouter(tags=["webhooks"], prefix="/webhooks", dependencies=[ONLY_KNOWN_PARAMETERS])

AdminPrincipal = Annotated[Principal, require_scope("admin")]
WebhookNamePath = Annotated[str, Path(description="the name of a webhook")]


class CreateWebhookRequest(requests.RequestModel):
    """A new webhook."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"url": "https://example.com/agentq", "filter": {"event": ["failed"], "queue": ["builds"]}}
        },
    )

    url: Annotated[str, Field(max_length=URL_CHARACTERS)]
    name: str | None = None
    """Generated if it is not given."""
    filter: Annotated[dict[str, Annotated[list[str], Field(fail_fast=True)]], Field(max_length=INPUT_ERRORS)] = Field(
        default_factory=dict
    )
    """As the parameters of `/events`; without a filter it gets all events."""
    secret: str | None = None
    """`whsec_` and the base64 of 24 to 64 bytes; generated if it is not given."""


class CreatedWebhookView(BaseModel):
    """A new webhook with its secret, which is shown only once."""

    webhook: WebhookRecord
    secret: str


class WebhookList(BaseModel):
    """All webhooks, the oldest first."""

    webhooks: list[WebhookRecord]


class DeliveryList(BaseModel):
    """The last attempts, the newest first."""

    deliveries: list[WebhookDelivery]


class PauseWebhookRequest(BaseModel):
    """The reason of a pause."""

    model_config = ConfigDict(extra="forbid")

    why: Annotated[str, Field(max_length=1000)] = ""


class RotateSecretRequest(BaseModel):
    """The new secret; generated if it is not given."""

    model_config = ConfigDict(extra="forbid")

    secret: str | None = None
    overlap_ms: Annotated[int, Field(ge=0, le=SECRET_OVERLAP_MS_MAX)] = SECRET_OVERLAP_MS
    """How long messages are also signed with the old secret."""


class WebhookSecretView(BaseModel):
    """The new secret, which is shown only once."""

    secret: str


class SentMessageView(BaseModel):
    """The message that will be sent; `deliveries` shows the result."""

    message: str


@router.post("", status_code=201, summary="Create a webhook")
async def create_webhook(
    request: Request, caller: AdminPrincipal, new: CreateWebhookRequest, key: IdempotencyKeyHeader = None
) -> CreatedWebhookView:
    """Send events from now on to an address, signed as Standard Webhooks specifies."""
    service = get_service(request)
    check_webhook_url(new.url)
    interest = EventFilter.asked(new.filter)
    await service.webhook_http.check_url(new.url)
    operation = derive_operation(caller.token, key, new.model_dump_json().encode())
    add = partial(_open_webhooks(service).add, new.name, new.url, interest, secret=new.secret, operation=operation)
    webhook, secret = await service.call_in_thread(add)
    service.webhook_dispatcher.wake()
    return CreatedWebhookView(webhook=webhook, secret=secret)


@router.get("", summary="List webhooks")
async def list_webhooks(request: Request, _: AdminPrincipal) -> WebhookList:
    """All webhooks, with their state and position."""
    service = get_service(request)
    return WebhookList(webhooks=await service.call_in_thread(_open_webhooks(service).all))


@router.get("/{name}", summary="Get a webhook")
async def get_webhook(request: Request, _: AdminPrincipal, name: WebhookNamePath) -> WebhookRecord:
    """One webhook."""
    service = get_service(request)
    return await service.call_in_thread(_open_webhooks(service).get, name)


@router.delete("/{name}", status_code=204, summary="Remove a webhook")
async def remove_webhook(request: Request, _: AdminPrincipal, name: WebhookNamePath) -> Response:
    """No further messages are sent."""
    service = get_service(request)
    await service.call_in_thread(_open_webhooks(service).remove, name)
    return Response(status_code=204)


@router.post("/{name}/pause", summary="Pause a webhook")
async def pause_webhook(
    request: Request,
    _: AdminPrincipal,
    name: WebhookNamePath,
    change: PauseWebhookRequest = PauseWebhookRequest(),  # noqa: B008
) -> WebhookRecord:
    """Events meanwhile are sent when it is resumed, as far as they are still stored."""
    service = get_service(request)
    return await service.call_in_thread(_open_webhooks(service).pause, name, change.why)


@router.post("/{name}/resume", summary="Resume a webhook")
async def resume_webhook(request: Request, _: AdminPrincipal, name: WebhookNamePath) -> WebhookRecord:
    """Continue from its position, also after it was disabled."""
    service = get_service(request)
    webhook = await service.call_in_thread(_open_webhooks(service).resume, name)
    service.webhook_dispatcher.wake()
    return webhook


@router.post("/{name}/rotate", summary="Rotate the secret of a webhook")
async def rotate_secret(
    request: Request,
    _: AdminPrincipal,
    name: WebhookNamePath,
    rotation: RotateSecretRequest = RotateSecretRequest(),  # noqa: B008
) -> WebhookSecretView:
    """For a while messages are signed with both."""
    service = get_service(request)
    call = partial(_open_webhooks(service).rotate, name, secret=rotation.secret, overlap_ms=rotation.overlap_ms)
    return WebhookSecretView(secret=await service.call_in_thread(call))


@router.get("/{name}/deliveries", summary="List delivery attempts")
async def list_deliveries(
    request: Request,
    _: AdminPrincipal,
    name: WebhookNamePath,
    limit: Annotated[int, Query(ge=1, le=DELIVERIES_KEPT)] = 50,
) -> DeliveryList:
    """The last attempts, each with the status of the receiver's answer."""
    service = get_service(request)
    return DeliveryList(
        deliveries=await service.call_in_thread(partial(_open_webhooks(service).deliveries, name, limit=limit))
    )


@router.post("/{name}/deliveries/{message:path}/redeliver", status_code=202, summary="Deliver a message again")
async def redeliver_message(
    request: Request,
    caller: AdminPrincipal,
    name: WebhookNamePath,
    message: Annotated[str, Path(max_length=200)],
    key: IdempotencyKeyHeader = None,
) -> SentMessageView:
    """The same message again, under the same id."""
    service = get_service(request)
    operation = derive_operation(caller.token, key, f"{name} {message}".encode())
    await service.call_in_thread(_open_webhooks(service).redeliver, name, message, operation=operation)
    return SentMessageView(message=message)


@router.post("/{name}/test", status_code=202, summary="Deliver a test message")
async def send_test_message(
    request: Request, caller: AdminPrincipal, name: WebhookNamePath, key: IdempotencyKeyHeader = None
) -> SentMessageView:
    """A message without an event."""
    service = get_service(request)
    operation = derive_operation(caller.token, key, name.encode())
    return SentMessageView(
        message=await service.call_in_thread(_open_webhooks(service).test, name, operation=operation)
    )


def _open_webhooks(service: ServerService) -> Webhooks:
    return Webhooks(service.store)
