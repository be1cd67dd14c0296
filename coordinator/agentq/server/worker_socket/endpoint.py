"""The route `/worker` for workers that do not reach Redis: authentication, handshake, then the connection."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends
from starlette.websockets import WebSocket, WebSocketDisconnect

from agentq.coordinator.errors import AgentqError, Invalid, NotAllowed, TryLater, Unreachable
from agentq.coordinator.security.tokens import TokenScope
from agentq.remote_worker.messages import (
    BAD_MESSAGE,
    FORBIDDEN,
    PROTOCOL_VERSION,
    RESTARTING,
    TOO_SLOW,
    WORKER_PATH,
    WRONG_PROTOCOL,
    InitMessage,
)
from agentq.remote_worker.permissions import WorkerPermissions
from agentq.server.auth.access_control import Principal, RequiredScope
from agentq.server.worker_socket.connection import (
    CLOSE_REASON_BYTES,
    WorkerConnection,
    WorkerConnections,
    build_welcome,
    close_socket,
    receive_message,
)

if TYPE_CHECKING:
    from agentq.server.service import ServerService

INIT_TIMEOUT_S = 5.0

router = APIRouter()
require_work = RequiredScope(TokenScope.WORK, by_queue=True, bound=True)


@router.websocket(WORKER_PATH)
async def connect_worker(socket: WebSocket, principal: Annotated[Principal, Depends(require_work)]) -> None:
    """The connection of a worker that does not reach the store: `agentq worker --connect`"""
    await socket.accept()
    with suppress(WebSocketDisconnect):  # the worker has disconnected
        await _serve_and_close(socket, principal)


async def _serve_and_close(socket: WebSocket, principal: Principal) -> None:
    try:
        await _serve_connection(socket, principal)
    except TimeoutError:
        await close_socket(socket, TOO_SLOW, TryLater(f"A worker sends its init message within {INIT_TIMEOUT_S:g} s."))
    except (Unreachable, TryLater) as error:
        await close_socket(socket, RESTARTING, error)
    except NotAllowed as error:
        await close_socket(socket, FORBIDDEN, error)
    except AgentqError as error:
        await close_socket(socket, BAD_MESSAGE, error)


async def _serve_connection(socket: WebSocket, principal: Principal) -> None:
    service: ServerService = socket.app.state.service
    async with asyncio.timeout(INIT_TIMEOUT_S):
        init = await receive_message(socket)
    if not isinstance(init, InitMessage):
        raise Invalid("A worker starts with an init message.")
    if init.protocol != PROTOCOL_VERSION:
        sentence = (
            f"It speaks version {PROTOCOL_VERSION} of the protocol, not {init.protocol} as agentq {init.version}."
        )
        await socket.close(WRONG_PROTOCOL, sentence[:CLOSE_REASON_BYTES])
        return
    permissions = WorkerPermissions(service.store, service.settings, init.worker, principal.bound, principal.queues)
    await service.call_in_thread(permissions.admit)
    connections: WorkerConnections = socket.app.state.worker_connections
    connection = WorkerConnection(socket, service, init, permissions, lambda: require_work(socket))
    connections.add(connection)
    try:
        await socket.send_text(build_welcome(service.settings).to_wire())
        await connection.serve()
    finally:
        connections.remove(connection)
