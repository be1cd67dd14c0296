"""Where a plan is carried out: the backend, and how a worker of this machine gets to the same server."""

from __future__ import annotations

import os
from dataclasses import dataclass

import typer

from agentq.cli.connect import ServerConnection, connect_backend, connect_server, read_settings
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.storage.url import is_coordinator_url
from agentq.sdk.backend import Backend

TOKEN_VARIABLES = ("AGENTQ_TOKEN", "AGENTQ_TOKEN_FILE")
"""The variables that name the token of a client."""


@dataclass(frozen=True)
class PlanHost:
    """A server that holds plans, and this machine, which can work on them."""

    backend: Backend
    settings: Settings
    """With the address of the server filled in."""
    server: ServerConnection | None
    """The server itself; None where a coordinator stands before it."""

    @property
    def worker_options(self) -> list[str]:
        """The options by which `agentq worker` reaches the server."""
        if self.server is not None:
            return []
        url = self.settings.url.strip()
        return ["--connect", url, *(["--plain-http"] if url.startswith("http:") else [])]

    def worker_environment(self) -> dict[str, str]:
        """The environment by which it does. At a coordinator, the client's token is the worker's, if it has no own."""
        variables = {**os.environ, **self.settings.to_environment()}
        if self.server is not None:
            return variables
        from agentq.sdk.http_backend.http_client import read_token
        from agentq.worker.server_backends import TOKEN_VARIABLE

        own = variables.get(TOKEN_VARIABLE) or read_token(None)
        variables = {name: value for name, value in variables.items() if name not in TOKEN_VARIABLES}
        return {**variables, TOKEN_VARIABLE: own} if own else variables

    def take_over(self) -> None:
        """Requeue what dead workers of this host held. At a coordinator, the next worker of this host does it."""
        if self.server is not None:
            from agentq.worker.cleanup.takeover import take_over_locally

            take_over_locally(self.server.store, self.settings.namespace)


def connect_plan_host(ctx: typer.Context) -> PlanHost:
    """The server that the settings name, or the one that agentq brings, which is started."""
    settings = read_settings(ctx).settings
    if is_coordinator_url(settings.url):
        return PlanHost(connect_backend(ctx, start=True), settings, None)
    server = connect_server(ctx, start=True)
    ctx.call_on_close(server.backend.close)
    return PlanHost(server.backend, server.settings, server)
