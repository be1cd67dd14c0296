"""Liveness for supervisors, and readiness for load balancers."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from agentq.coordinator.errors import AgentqError
from agentq.coordinator.storage.store import SCHEMA_MARKER
from agentq.server.auth.access_control import require_scope
from agentq.server.events.hub import BLOCK_MS, OUTAGE_PAUSE_MS
from agentq.server.http import responses
from agentq.server.service import ServerService, get_service

log = logging.getLogger("agentq.server")
router = APIRouter(tags=["health"])

METRICS_RESPONSES: dict[int | str, dict[str, Any]] = {200: {"content": {CONTENT_TYPE_LATEST: {}}}}
STORE_TIMEOUT_S = 2
"""How long the store may take to answer a readiness check."""
READER_SILENCE_MS_MAX = 3 * (BLOCK_MS + OUTAGE_PAUSE_MS)
"""A reader of events that is silent for longer does not work."""


@router.head("/health", include_in_schema=False)
@router.get("/health", summary="Check that the server is alive")
async def check_health() -> Response:
    """The server is alive. Whether it can serve requests is at `/ready`."""
    return responses.json_response({"status": "healthy"})


@router.get(
    "/metrics",
    summary="Export metrics for Prometheus",
    dependencies=[require_scope("read")],
    responses=METRICS_RESPONSES,
)
async def export_metrics(request: Request) -> Response:
    """Queue depths, throughput, and the state of the server."""
    service = get_service(request)
    return Response(await service.call_in_thread(service.read_metrics), media_type=CONTENT_TYPE_LATEST)


@router.head("/ready", include_in_schema=False)
@router.get("/ready", summary="Check that the server is ready")
async def check_readiness(request: Request) -> Response:
    """Whether the store answers and has the right version, events are followed, and duties are done. 503 if not."""
    service = get_service(request)
    found = {"store": await _check_store(service)}
    quiet_ms = service.event_hub.longest_silence_ms()
    found["events"] = "ok" if quiet_ms <= READER_SILENCE_MS_MAX else f"not heard of for {quiet_ms} ms"
    undone = service.ticker.fault if service.server_settings.duties else None
    found["duties"] = "off" if not service.server_settings.duties else "ok"
    if undone is not None:
        found["duties"] = _log_fault("a duty failed", undone)
    found["server"] = "ok" if not service.event_hub.closing else "it is to end"
    good = all(word in ("ok", "off") for word in found.values())
    return responses.json_response({"ready": good, "schema": SCHEMA_MARKER, "checks": found}, 200 if good else 503)


async def _check_store(service: ServerService) -> str:
    try:
        async with asyncio.timeout(STORE_TIMEOUT_S):
            await service.call_in_thread(service.store.guard)
            await service.call_in_thread(service.store.connection.command, "PING")
    except TimeoutError:
        return f"it has not answered within {STORE_TIMEOUT_S} s"
    except AgentqError as fault:
        return _log_fault("the store cannot be used", fault)
    return "ok"


def _log_fault(what: str, fault: AgentqError) -> str:
    """The reason is only logged, since any client may check readiness."""
    log.warning(what, extra={"fields": {"error": str(fault)}})
    return f"{what}; the server logs the reason"
