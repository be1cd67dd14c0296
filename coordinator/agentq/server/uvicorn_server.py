"""Runs one server process: address, certificate, signals, shutdown.

It refuses to listen on an address that others can reach unless tokens are required. On shutdown it accepts no new
connections, answers all waiting requests at once, and completes those under way.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import uvicorn

from agentq.coordinator import log_setup
from agentq.coordinator.config.server_settings import ServerSettings
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import AgentqError, Invalid, NotAllowed, Unreachable
from agentq.coordinator.security import local_token
from agentq.coordinator.security.environment_memory import hide_memory
from agentq.coordinator.security.tokens import Tokens, parse_rate
from agentq.coordinator.storage import embedded
from agentq.coordinator.storage.url import is_loopback
from agentq.remote_worker.messages import MESSAGE_BYTES
from agentq.server.app import ServerApp, create_app
from agentq.server.auth.access_control import read_token_file
from agentq.server.http.protocol import make_protocol

KEEP_ALIVE_S = 75
"""How long a connection may be idle: longer than in most proxies, so that these close it first."""
BACKLOG = 4096
GC_THRESHOLDS = (20_000, 20, 100)
"""New objects until a collection of the youngest generation, and collections until one of the next generation."""

log = logging.getLogger("agentq.server")


class UvicornServer(uvicorn.Server):
    """uvicorn, which answers waiting requests before it waits for connections to end."""

    def __init__(self, config: uvicorn.Config, app: ServerApp) -> None:
        super().__init__(config)
        self._app = app

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The first signal stops the server in order, the second at once; neither is reported as a failure."""
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, self.handle_exit, each, None)
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as uvicorn calls it
        log.info("ending", extra={"fields": {"signal": signal.Signals(sig).name}})
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        self._app.service.close()
        await super().shutdown(sockets)


def serve(
    settings: Settings, server: ServerSettings, *, insecure: bool = False, ready: Callable[[str], None] = lambda _: None
) -> None:
    """Listen until a signal; `ready` is called with the address once the server listens."""
    check_settings(server, insecure=insecure)
    log_setup.log_server(server.log_level)
    hide_memory()
    home = embedded.data_folder(settings.home)
    local = "" if insecure or not is_loopback(server.host) else _make_local_token(home)
    app = create_app(settings, server, open_to_all=insecure, local=local)
    _check_store_and_tokens(app, server, is_open=insecure or bool(local))
    _raise_file_limit(server.connections)
    listener = _open_tcp_socket(server)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    with _open_unix_socket(local_token.socket_path(home, port) if local else None) as more:
        ready(f"http{'s' if server.tls_cert else ''}://{shown}:{port}")
        _tune_garbage_collector()
        UvicornServer(_build_config(app, server), app).run([listener, *more])


def _make_local_token(home: Path) -> str:
    """The token of this machine; empty where it cannot be stored, as in a container."""
    try:
        return local_token.ensure_local_token(home)
    except NotAllowed as error:
        log.warning(
            "cannot keep a token of this machine; clients need another token", extra={"fields": {"error": str(error)}}
        )
        return ""


@contextmanager
def _open_unix_socket(path: Path | None) -> Iterator[list[socket.socket]]:
    """The unix socket beside the port, in a folder that only this user can enter."""
    if path is None:
        yield []
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            path.parent.mkdir(mode=local_token.PRIVATE_MODE, exist_ok=True)
            path.parent.chmod(local_token.PRIVATE_MODE)
            if _is_socket_served(path):
                raise OSError("a server at the same port of another address has it")
            path.unlink(missing_ok=True)  # left by a server that was killed
            listener.bind(str(path))
            path.chmod(local_token.PRIVATE_MODE)
            listener.listen(BACKLOG)
        except OSError as error:
            fields = {"socket": str(path), "error": error.strerror or str(error)}
            log.warning("cannot open the unix socket; listening on the port only", extra={"fields": fields})
            yield []
            return
        try:
            yield [listener]
        finally:
            path.unlink(missing_ok=True)


def _is_socket_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        return asking.connect_ex(str(path)) == 0


def check_settings(server: ServerSettings, *, insecure: bool = False) -> None:
    """Refuse contradictory settings before anything is opened."""
    if not is_loopback(server.host) and (server.open_runners or not server.require_tokens):
        word = "--open-runners" if server.open_runners else "--no-token"
        raise Invalid(f"{word} is for a server on loopback, and others could reach one at {server.host}.")
    if not (server.tls_cert or server.plain_http or insecure or is_loopback(server.host)):
        raise Invalid(
            f"At {server.host} without TLS, tokens and prompts could be read on their way: give --tls-cert and "
            "--tls-key, or say --plain-http if the network is private or a proxy has TLS."
        )
    if bool(server.tls_cert) != bool(server.tls_key):
        raise Invalid("A certificate and its key go together: give --tls-cert and --tls-key, or neither.")
    for path in filter(None, (server.tls_cert, server.tls_key)):
        if not Path(path).is_file():
            raise Invalid(f"There is no file {path}.")
    read_token_file(server.token_file)
    if server.rate:
        parse_rate(server.rate)


def _check_store_and_tokens(app: ServerApp, server: ServerSettings, *, is_open: bool) -> None:
    """Refuse an incompatible namespace, and an address that others reach while there is no token."""
    try:
        app.service.store.guard()
        tokens = len(Tokens(app.service.store).all())
    except Unreachable as fault:
        # It serves all the same: requests get an error, and the server works again once the store is back.
        log.warning("the store cannot be reached", extra={"fields": {"error": str(fault)}})
        tokens = 1
    if is_open or server.token_file or tokens or (is_loopback(server.host) and not server.require_tokens):
        return
    if is_loopback(server.host):
        raise NotAllowed(
            "No client could use this server: it cannot keep a token of this machine, and there is no other yet. Set "
            "AGENTQ_HOME to a folder that it may write to, or make a token with `agentq token new NAME --scope admin`."
        )
    raise NotAllowed(
        f"Others could reach a server at {server.host}, and there is no token yet to identify them by. Make one "
        "with `agentq token new NAME --scope admin`, or give --token-file; --insecure-no-tokens accepts all clients."
    )


def _open_tcp_socket(server: ServerSettings) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)[0]
        # asyncio disables Nagle's algorithm only on sockets with this protocol number.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        raise AgentqError(
            f"It cannot listen at {server.host} port {server.port}: {error.strerror or error}. --port takes another."
        ) from error
    return listener


def _build_config(app: ServerApp, server: ServerSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=make_protocol(server.head_timeout_ms),
        ws="websockets-sansio",
        ws_max_size=MESSAGE_BYTES,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=server.connections,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, server.drain_ms // 1000),
        ssl_certfile=server.tls_cert or None,
        ssl_keyfile=server.tls_key or None,
    )


def _tune_garbage_collector() -> None:
    """Collect less often: a full collection stops the server for 350 ms with 2,500 connections. Objects loaded so
    far are frozen."""
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _raise_file_limit(connections: int) -> None:
    """Raise the limit of open files to the number of connections, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + 500
    if soft != resource.RLIM_INFINITY and soft < needed:
        allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
