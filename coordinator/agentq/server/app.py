"""Builds the app: routers, middleware, dialects and the API document."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from agentq.coordinator.config.server_settings import ServerSettings
from agentq.coordinator.config.settings import Settings
from agentq.server.auth.access_control import RequiredScope
from agentq.server.auth.before_body import add_auth_before_body
from agentq.server.dialect import ServerDialect, load_dialects
from agentq.server.http import problems
from agentq.server.http.compression import CompressionMiddleware
from agentq.server.http.fast_routes import FastPath
from agentq.server.http.middleware import RequestMiddleware
from agentq.server.http.parameters import order_auth_first
from agentq.server.openapi import docs_page
from agentq.server.openapi.document import build_document
from agentq.server.routes import (
    events,
    health,
    limits,
    plans,
    queues,
    records,
    run_actions,
    run_details,
    runs,
    schedules,
    sessions,
    tokens,
    webhooks,
    workers,
)
from agentq.server.service import ServerService
from agentq.server.worker_socket import endpoint
from agentq.server.worker_socket.connection import WorkerConnections

ROUTERS: tuple[APIRouter, ...] = (
    runs.router,
    run_actions.router,
    run_details.router,
    sessions.router,
    plans.router,
    schedules.router,
    limits.router,
    queues.router,
    workers.router,
    records.router,
    tokens.router,
    events.router,
    webhooks.router,
    endpoint.router,
    health.router,
)
"""In the order of the API documents, the most used first; dialects follow. The first route that matches a path
answers."""


class ServerApp(FastAPI):
    """FastAPI with the request middleware and the fast path around everything, including its own error handler."""

    service: ServerService

    def build_middleware_stack(self) -> ASGIApp:
        service = self.service
        fast_path = FastPath(self, super().build_middleware_stack())
        return RequestMiddleware(fast_path, settings=service.server_settings, observe=service.metrics.observe)

    def openapi(self) -> dict[str, Any]:
        """The API document, built once on first use."""
        if self.openapi_schema is None:
            routes = ((route, find_required_scope(route)) for route in self.routes if isinstance(route, APIRoute))
            self.openapi_schema = build_document(self, routes, self.service.dialects)
        return self.openapi_schema


def list_routes(dialects: Sequence[type[ServerDialect]] | None = None) -> Iterator[APIRoute | APIWebSocketRoute]:
    """All routes of the API with these dialects, or with all installed ones; without the document routes."""
    added = load_dialects() if dialects is None else dialects
    for router in (*ROUTERS, *(router for dialect in added for router in dialect.routers)):
        yield from (route for route in router.routes if isinstance(route, APIRoute | APIWebSocketRoute))


def find_required_scope(route: APIRoute | APIWebSocketRoute) -> RequiredScope | None:
    """The scope that a route requires; None if it requires none."""
    calls = (dependency.call for dependency in route.dependant.dependencies)
    return next((call for call in calls if isinstance(call, RequiredScope)), None)


def create_app(
    settings: Settings,
    server: ServerSettings | None = None,
    dialects: Sequence[type[ServerDialect]] | None = None,
    *,
    open_to_all: bool = False,
    local: str = "",
) -> ServerApp:
    """Build the app of one server, with these dialects, or with all installed ones.

    With `open_to_all` no client needs a token, from any address; `local` is the token of this machine, which has every
    scope.
    """
    server = server or ServerSettings()
    dialects_used = load_dialects() if dialects is None else dialects
    service = ServerService(settings, server, dialects_used, open_to_all=open_to_all, local=local)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await service.stop()

    app = ServerApp(
        title="agentq",
        summary=SUMMARY,
        version=API_VERSION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # the envelope's spans have no queries in them
    )
    app.service = app.state.service = service
    app.state.worker_connections = WorkerConnections()
    problems.install_handlers(app)
    for dialect in service.dialects:
        dialect.install(app)
    docs_page.install_docs(
        app, [str(tag) for each in service.dialects for router in each.routers for tag in router.tags]
    )
    app.add_middleware(CompressionMiddleware)
    if server.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(server.cors_origins),
            allow_methods=["*"],
            allow_headers=["authorization", "content-type", "idempotency-key", "if-none-match", "last-event-id"],
            expose_headers=["etag", "x-request-id", "location", "retry-after"],
        )
    # Not `include_router`, which would search one router after the other for each request.
    for route in list_routes(dialects_used):
        order_auth_first(route)
        if isinstance(route, APIRoute):
            add_auth_before_body(route, find_required_scope(route))
        app.router.routes.append(route)
    return app


API_VERSION = "1"
SUMMARY = "Runs coding agents, shell commands and Python functions on any number of machines, and loses none of them."
