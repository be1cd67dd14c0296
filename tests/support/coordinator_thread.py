"""A coordinator of a test's own, in a thread of this process: quick to start, and of any namespace."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import ClassVar, Self

import uvicorn

from agentq.coordinator.config.server_settings import ServerSettings
from agentq.coordinator.config.settings import Settings
from agentq.server.app import ServerApp, create_app
from agentq.server.uvicorn_server import UvicornServer


class CoordinatorThread:
    """Serves a namespace at a free port of this machine as long as it is entered, to clients that show `token`.

    It does no duties and speaks no dialect: what changes in the namespace is what was asked for.
    """

    running: ClassVar[list[CoordinatorThread]] = []
    """Those that serve at the moment."""

    def __init__(self, settings: Settings, token: str) -> None:
        # As on Redis itself, what time imposes is done by workers, if there are any.
        self.app = app = create_app(settings, ServerSettings(duties=False), (), local=token)
        self._listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            app, ws="websockets-sansio", lifespan="on", log_config=None, timeout_graceful_shutdown=1
        )
        self._server = _ThreadedServer(config, app)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._server.ready.wait(60), "the coordinator did not start"
        self.running.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.running.remove(self)
        self._server.should_exit = True
        self._thread.join(60)
        self._listener.close()
        assert not self._thread.is_alive(), "the coordinator did not end"

    @property
    def waits(self) -> int:
        """How many requests wait for something to happen: for events, or for runs or plans to end."""
        service = self.app.state.service
        return int(service.feed._readers) + sum(map(len, service.event_hub._runs.values()))

    def _run(self) -> None:
        asyncio.run(self._server.serve([self._listener]))


class _ThreadedServer(UvicornServer):
    """The server without signal handlers, which only a main thread may have, and with a flag for its start."""

    def __init__(self, config: uvicorn.Config, app: ServerApp) -> None:
        super().__init__(config, app)
        self.ready = threading.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()
