"""Webhooks: addresses that the server tells what happens. See `coordinator/webhooks.py` and `server/deliveries.py`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from agentq.coordinator.interest import Interest
from agentq.coordinator.limits import DELIVERIES_KEPT, FAULTS, SECRET_OVERLAP_MS, URL_CHARACTERS
from agentq.coordinator.server import bodies
from agentq.coordinator.server.access import Principal, allowed
from agentq.coordinator.server.parameters import KNOWN
from agentq.coordinator.server.service import Service, service_of
from agentq.coordinator.webhooks import Delivery, Webhook, Webhooks, check_url

router = APIRouter(tags=["webhooks"], prefix="/webhooks", dependencies=[KNOWN])

Admin = Annotated[Principal, allowed("admin")]
Name = Annotated[str, Path(description="the name of a webhook")]


class NewWebhook(bodies.Body):
    """What a new webhook is to be."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"url": "https://example.com/agentq", "filter": {"event": ["failed"], "queue": ["builds"]}}
        },
    )

    url: Annotated[str, Field(max_length=URL_CHARACTERS)]
    name: str | None = None
    """Made up, if it is not given."""
    filter: Annotated[dict[str, Annotated[list[str], Field(fail_fast=True)]], Field(max_length=FAULTS)] = Field(
        default_factory=dict
    )
    """As the parameters of `/events`; without one it is told everything."""
    secret: str | None = None
    """`whsec_` and the base64 of 24 to 64 bytes; made, if it is not given."""


class MadeWebhook(BaseModel):
    """A new webhook, with its secret: the only time that it is shown."""

    webhook: Webhook
    secret: str


class Listed(BaseModel):
    """All webhooks, the oldest first."""

    webhooks: list[Webhook]


class Log(BaseModel):
    """The last attempts, the newest first."""

    deliveries: list[Delivery]


class Change(BaseModel):
    """What is to become of a webhook."""

    model_config = ConfigDict(extra="forbid")

    why: Annotated[str, Field(max_length=1000)] = ""


class Rotation(BaseModel):
    """Another secret; without one it is made."""

    model_config = ConfigDict(extra="forbid")

    secret: str | None = None
    overlap_ms: Annotated[int, Field(ge=0, le=30 * 86_400_000)] = SECRET_OVERLAP_MS
    """For how long the secret before signs, too."""


class Secret(BaseModel):
    """The new secret: the only time that it is shown."""

    secret: str


class Sent(BaseModel):
    """The message that is on its way; `deliveries` will tell what became of it."""

    message: str


@router.post("", status_code=201, summary="Make a webhook")
async def make(request: Request, _: Admin, new: NewWebhook) -> MadeWebhook:
    """Tell an address what happens from now on, signed as Standard Webhooks has it."""
    service = service_of(request)
    check_url(new.url)
    interest = Interest.asked(new.filter)
    await service.poster.checked(new.url)
    add = partial(_all(service).add, new.name, new.url, interest, secret=new.secret)
    webhook, secret = await service.ask(add)
    service.deliveries.rouse()
    return MadeWebhook(webhook=webhook, secret=secret)


@router.get("", summary="List webhooks")
async def listed(request: Request, _: Admin) -> Listed:
    """Every webhook, with its state and how far it has been told."""
    service = service_of(request)
    return Listed(webhooks=await service.ask(_all(service).all))


@router.get("/{name}", summary="Show a webhook")
async def show(request: Request, _: Admin, name: Name) -> Webhook:
    """One webhook."""
    service = service_of(request)
    return await service.ask(_all(service).get, name)


@router.delete("/{name}", status_code=204, summary="Remove a webhook")
async def remove(request: Request, _: Admin, name: Name) -> Response:
    """Tell nobody through it any more."""
    service = service_of(request)
    await service.ask(_all(service).remove, name)
    return Response(status_code=204)


@router.post("/{name}/pause", summary="Let a webhook rest")
async def pause(request: Request, _: Admin, name: Name, change: Change = Change()) -> Webhook:  # noqa: B008
    """What happens meanwhile is told when it is resumed, as far as the events are kept."""
    service = service_of(request)
    return await service.ask(_all(service).pause, name, change.why)


@router.post("/{name}/resume", summary="Let a webhook go on")
async def resume(request: Request, _: Admin, name: Name) -> Webhook:
    """Go on from where it was, also after it was disabled."""
    service = service_of(request)
    webhook = await service.ask(_all(service).resume, name)
    service.deliveries.rouse()
    return webhook


@router.post("/{name}/rotate", summary="Give a webhook another secret")
async def rotate(request: Request, _: Admin, name: Name, rotation: Rotation = Rotation()) -> Secret:  # noqa: B008
    """For a while messages are signed with both."""
    service = service_of(request)
    call = partial(_all(service).rotate, name, secret=rotation.secret, overlap_ms=rotation.overlap_ms)
    return Secret(secret=await service.ask(call))


@router.get("/{name}/deliveries", summary="Show what became of deliveries")
async def deliveries(
    request: Request, _: Admin, name: Name, limit: Annotated[int, Query(ge=1, le=DELIVERIES_KEPT)] = 50
) -> Log:
    """The last attempts, each with the status that the receiver answered."""
    service = service_of(request)
    return Log(deliveries=await service.ask(partial(_all(service).deliveries, name, limit=limit)))


@router.post("/{name}/deliveries/{message}/redeliver", status_code=202, summary="Deliver a message again")
async def redeliver(request: Request, _: Admin, name: Name, message: Annotated[str, Path(max_length=200)]) -> Sent:
    """Once more, as it was, under the same id."""
    service = service_of(request)
    await service.ask(_all(service).redeliver, name, message)
    return Sent(message=message)


@router.post("/{name}/test", status_code=202, summary="Deliver a test message")
async def test(request: Request, _: Admin, name: Name) -> Sent:
    """A message that says nothing."""
    service = service_of(request)
    return Sent(message=await service.ask(_all(service).test, name))


def _all(service: Service) -> Webhooks:
    return Webhooks(service.store)
