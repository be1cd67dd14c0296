"""`/worker`: the transport of workers that do not reach Redis. Who it is, whether it may be that, and then its line."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends
from starlette.websockets import WebSocket, WebSocketDisconnect

from agentq.coordinator.errors import AgentqError, Invalid, NotAllowed, TryLater, Unreachable
from agentq.coordinator.server.access import Allowed, Principal
from agentq.coordinator.server.worker_line import REASON_BYTES, Connected, Lines, close, heard, welcome
from agentq.coordinator.tokens import Scope
from agentq.coordinator.transport.grants import Grants
from agentq.coordinator.transport.messages import (
    FORBIDDEN,
    MISUNDERSTOOD,
    OTHER_PROTOCOL,
    PATH,
    PROTOCOL,
    RESTARTS,
    TOO_SLOW,
    Init,
)

if TYPE_CHECKING:
    from agentq.coordinator.server.service import Service

INIT_S = 5.0

router = APIRouter()
may_work = Allowed(Scope.WORK, by_queue=True, bound=True)


@router.websocket(PATH)
async def worker(socket: WebSocket, principal: Annotated[Principal, Depends(may_work)]) -> None:
    """The connection of a worker that does not reach the store: `agentq worker --connect`"""
    await socket.accept()
    with suppress(WebSocketDisconnect):  # it has gone
        await _closed_well(socket, principal)


async def _closed_well(socket: WebSocket, principal: Principal) -> None:
    try:
        await _serve(socket, principal)
    except TimeoutError:
        await close(socket, TOO_SLOW, TryLater(f"A worker says who it is within {INIT_S:g} s."))
    except (Unreachable, TryLater) as error:
        await close(socket, RESTARTS, error)
    except NotAllowed as error:
        await close(socket, FORBIDDEN, error)
    except AgentqError as error:
        await close(socket, MISUNDERSTOOD, error)


async def _serve(socket: WebSocket, principal: Principal) -> None:
    service: Service = socket.app.state.service
    async with asyncio.timeout(INIT_S):
        init = await heard(socket)
    if not isinstance(init, Init):
        raise Invalid("A worker begins with who it is.")
    if init.protocol != PROTOCOL:
        sentence = f"It speaks version {PROTOCOL} of the protocol, not {init.protocol} as agentq {init.version}."
        await socket.close(OTHER_PROTOCOL, sentence[:REASON_BYTES])
        return
    grants = Grants(service.store, service.settings, init.worker, principal.bound, principal.queues)
    await service.ask(grants.admit)
    lines: Lines = socket.app.state.lines
    line = Connected(socket, service, init, grants, lambda: may_work(socket))
    lines.enter(line)
    try:
        await socket.send_text(welcome(service.settings).to_wire())
        await line.serve()
    finally:
        lines.leave(line)
