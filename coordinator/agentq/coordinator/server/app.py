"""The app: every router, what stands around them, and the document that describes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from agentq.coordinator.server import page, problems
from agentq.coordinator.server.access import Allowed
from agentq.coordinator.server.documents import document
from agentq.coordinator.server.door import fit
from agentq.coordinator.server.envelope import Envelope
from agentq.coordinator.server.foreign import refusing, routes_events, routes_runner, routes_session, routes_shelf
from agentq.coordinator.server.foreign.embassy import Embassy
from agentq.coordinator.server.parameters import after_the_door
from agentq.coordinator.server.quick import Lane
from agentq.coordinator.server.routers import (
    events,
    health,
    limits,
    plans,
    queues,
    records,
    run_details,
    run_verbs,
    runs,
    schedules,
    sessions,
    tokens,
    webhooks,
    worker,
    workers,
)
from agentq.coordinator.server.service import Service
from agentq.coordinator.server.worker_line import Lines
from agentq.coordinator.server.zipping import Zipping
from agentq.coordinator.server_settings import ServerSettings
from agentq.coordinator.settings import Settings

ROUTERS: tuple[APIRouter, ...] = (
    runs.router,
    routes_runner.router,
    routes_session.router,
    run_verbs.router,
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
    worker.router,
    routes_shelf.router,
    routes_events.router,
    health.router,
)
"""Those of the API, in the order in which the documents show them: what is asked most often stands first. The first
route that matches a path answers."""


class App(FastAPI):
    """FastAPI, with the envelope around everything, its own fault handler included."""

    service: Service

    def build_middleware_stack(self) -> ASGIApp:
        service = self.service
        lane = Lane(self, super().build_middleware_stack())
        return Envelope(lane, settings=service.server, observe=service.metrics.observe)

    def openapi(self) -> dict[str, Any]:
        """Made when it is asked for, once."""
        if self.openapi_schema is None:
            routes = ((route, needed(route)) for route in every_route() if isinstance(route, APIRoute))
            self.openapi_schema = document(self, routes)
        return self.openapi_schema


def every_route() -> Iterator[APIRoute | APIWebSocketRoute]:
    """All that the API has, but for its documents."""
    for router in ROUTERS:
        yield from (route for route in router.routes if isinstance(route, APIRoute | APIWebSocketRoute))


def needed(route: APIRoute | APIWebSocketRoute) -> Allowed | None:
    """What a route takes; None if anybody may have it."""
    calls = (dependency.call for dependency in route.dependant.dependencies)
    return next((call for call in calls if isinstance(call, Allowed)), None)


def create_app(
    settings: Settings, server: ServerSettings | None = None, *, open_to_all: bool = False, local: str = ""
) -> App:
    """Make the app of one server. With `open_to_all` nobody needs a token, wherever they are; `local` is the token of
    this machine, which may do everything."""
    server = server or ServerSettings()
    service = Service(settings, server, open_to_all=open_to_all, local=local)
    embassy = Embassy(service.store, settings, service.tides, service.ask, server)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        embassy.start()
        yield
        await embassy.stop()
        await service.stop()

    app = App(
        title="agentq",
        summary=SUMMARY,
        version=API_VERSION,
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # the envelope's spans have no queries in them
    )
    app.service = app.state.service = service
    app.state.embassy = embassy
    app.state.lines = Lines()
    problems.install(app)
    refusing.install(app)
    page.install(app)
    app.add_middleware(Zipping)
    if server.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(server.cors_origins),
            allow_methods=["*"],
            allow_headers=["authorization", "content-type", "idempotency-key", "if-none-match", "last-event-id"],
            expose_headers=["etag", "x-request-id", "location", "retry-after"],
        )
    # Not by `include_router`, which would look for each request through one router after the other.
    for route in every_route():
        after_the_door(route)
        if isinstance(route, APIRoute):
            fit(route, needed(route))
        app.router.routes.append(route)
    return app


API_VERSION = "1"
SUMMARY = "Runs coding agents, shell commands and Python functions on any number of machines, and loses none of them."
