"""Ways to reach the server: straight to Redis, or through a coordinator.

The worker is the same either way. Through a coordinator it runs no duties: they need all of the server, and the
coordinator runs them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.duties.janitor import Janitor
from agentq.coordinator.duties.promoter import Promoter
from agentq.coordinator.duties.reaper import Reaper
from agentq.coordinator.duties.scheduler import Scheduler
from agentq.coordinator.duties.ticker import Duty
from agentq.coordinator.errors import AgentqError, Invalid, TryLater, Unreachable, has_untrusted_certificate
from agentq.coordinator.runs.children import WorkerChildren
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.coordinator.security import local_token
from agentq.coordinator.storage.store import NamespaceStore
from agentq.coordinator.storage.url import is_loopback
from agentq.coordinator.workers.lease import WorkerIdentity, WorkerLease
from agentq.worker.cleanup.takeover import RemoteWorkerNote, RemoteWorkerNotes, SweepProcesses, take_over_runs
from agentq.worker.options import WorkerOptions

TOKEN_VARIABLE = "AGENTQ_WORKER_TOKEN"
"""The variable with the worker's token, if no file has it. Removed from the environment when read, so that no child has
it.
"""
SOCKET_SCHEMES = {"https": "wss", "wss": "wss", "http": "ws", "ws": "ws"}
log = logging.getLogger("agentq.worker")

OnServerWait = Callable[[AgentqError], None]
"""Called once, with the reason, when the worker waits for the server before it starts."""
OPEN_RETRY_MS = 1_000


class WorkerBackend(Protocol):
    """What a worker needs of a way to the server."""

    settings: Settings
    """The server's settings, once the backend is open."""

    def open(self, worker: str, on_wait: OnServerWait | None) -> RunVerbs:
        """Connect as the worker of that id. With `on_wait`, waits for an unreachable server and calls it once."""

    def lease(self, queue: RunVerbs, identity: WorkerIdentity) -> WorkerLease: ...

    def as_worker(self, queue: RunVerbs, worker: str) -> AbstractContextManager[RunVerbs]:
        """The verbs of another worker of this host, which is gone."""

    def children(self, queue: RunVerbs) -> WorkerChildren:
        """Access to the children of held runs."""

    async def take_over(self, queue: RunVerbs, end_processes: SweepProcesses) -> list[str]:
        """End the processes of dead workers of this host and requeue their runs; returns the workers' ids."""

    def duties(self, queue: RunVerbs, on_lost: Callable[[str], None]) -> list[Duty]:
        """The duties of the worker; `on_lost` is called with each worker found dead."""

    def close(self) -> None: ...


class RedisWorkerBackend:
    """Straight to Redis."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def open(self, worker: str, on_wait: OnServerWait | None) -> RunVerbs:
        queue = RunVerbs.open(self.settings, client_name=f"agentq:worker:{worker}")
        try:
            queue.store.guard()
        except (Unreachable, TryLater) as fault:
            if on_wait is None or has_untrusted_certificate(fault):
                raise
            on_wait(fault)
            _wait_for_server(queue.store)
        return queue

    def lease(self, queue: RunVerbs, identity: WorkerIdentity) -> WorkerLease:
        return WorkerLease(queue.store, identity, self.settings)

    def as_worker(self, queue: RunVerbs, worker: str) -> AbstractContextManager[RunVerbs]:  # noqa: ARG002 - the same
        return nullcontext(queue)

    def children(self, queue: RunVerbs) -> WorkerChildren:
        return WorkerChildren(queue)

    async def take_over(self, queue: RunVerbs, end_processes: SweepProcesses) -> list[str]:
        return list(dict.fromkeys(worker.id for worker in await take_over_runs(queue.store, end_processes)))

    def duties(self, queue: RunVerbs, on_lost: Callable[[str], None]) -> list[Duty]:
        store, tick_ms = queue.store, self.settings.tick_ms
        return [
            Promoter(store, tick_ms),
            Scheduler(store, tick_ms),
            Reaper(store, self.settings, lost=on_lost),
            Janitor(store),
        ]

    def close(self) -> None:
        """Does nothing: the connections end with the process."""


class RemoteWorkerBackend:
    """Through a coordinator, over WebSocket."""

    def __init__(
        self, options: WorkerOptions, environment: Mapping[str, str] = os.environ, *, home: Path | None = None
    ) -> None:
        """With a home, a coordinator on loopback is shown this machine's token unless another is given."""
        from agentq.remote_worker.websocket_client import CoordinatorAddress

        self._url = options.connect or ""
        address = build_socket_url(self._url, plain=options.plain_http)
        host, port = urlsplit(address).hostname or "", urlsplit(address).port or 0
        token = _read_token(options, environment) or (
            "" if home is None else local_token.token_for_address(home, host, port)
        )
        self._address = CoordinatorAddress(
            address,
            token=token,
            tls=_create_tls_context(self._url, options),
            direct=is_loopback(host),
        )
        self._notes = None if home is None else RemoteWorkerNotes(home, address)
        self.settings = Settings(url=self._url)

    def open(self, worker: str, on_wait: OnServerWait | None) -> RunVerbs:
        from agentq.remote_worker.children import RemoteRunVerbs
        from agentq.remote_worker.remote_store import RemoteStore

        self._store = RemoteStore(self._address, worker)
        self.settings = self._store.open(on_wait).model_copy(update={"url": self._url})
        return RemoteRunVerbs(self._store)

    def lease(self, queue: RunVerbs, identity: WorkerIdentity) -> WorkerLease:  # noqa: ARG002 - uses its own store
        from agentq.remote_worker.remote_store import RemoteLease

        notes = self._notes
        if notes is None:
            return RemoteLease(self._store, identity, self.settings)
        return RemoteLease(self._store, identity, self.settings, lambda epochs: notes.save(identity.id, epochs))

    @contextmanager
    def as_worker(self, queue: RunVerbs, worker: str) -> Iterator[RunVerbs]:  # noqa: ARG002 - a connection serves one worker
        from agentq.remote_worker.children import RemoteRunVerbs
        from agentq.remote_worker.remote_store import RemoteStore

        store = RemoteStore(self._address, worker)
        try:
            store.open()
            yield RemoteRunVerbs(store)
        finally:
            store.close()

    def children(self, queue: RunVerbs) -> WorkerChildren:  # noqa: ARG002 - the same
        from agentq.remote_worker.children import RemoteWorkerChildren

        return RemoteWorkerChildren(self._store)

    async def take_over(self, queue: RunVerbs, end_processes: SweepProcesses) -> list[str]:
        """Replaces each dead worker on a connection of its own, with this worker's token."""
        dead = [] if self._notes is None else await asyncio.to_thread(self._notes.dead)
        if dead:
            await end_processes()
        return [worker.id for worker in dead if await asyncio.to_thread(self._replace_dead, queue, worker)]

    def _replace_dead(self, queue: RunVerbs, worker: RemoteWorkerNote) -> bool:
        """Returns whether the coordinator accepted it. If the coordinator is away, this raises and the note stays."""
        assert self._notes is not None
        refused: AgentqError | None = None
        try:
            with self.as_worker(queue, worker.id) as worker_queue:
                worker.replace(worker_queue.store)
        except (TryLater, Unreachable):
            raise
        except AgentqError as error:
            refused = error  # for example another token: the coordinator's reaper waits for the lease
            log.warning("the runs of the dead worker %s continue when its lease has ended: %s", worker.id, error)
        self._notes.forget(worker.id)
        return refused is None

    def duties(self, queue: RunVerbs, on_lost: Callable[[str], None]) -> list[Duty]:  # noqa: ARG002 - the coordinator does them
        return []

    def close(self) -> None:
        self._store.close()


def _wait_for_server(store: NamespaceStore) -> None:
    """Wait until the server answers; raises any other answer than that it accepts this program."""
    while True:
        time.sleep(random.uniform(OPEN_RETRY_MS / 10, OPEN_RETRY_MS) / 1000)
        with suppress(Unreachable, TryLater):
            store.guard()
            return


def build_socket_url(url: str, *, plain: bool = False) -> str:
    """The WebSocket address for workers, of a coordinator at this URL."""
    from agentq.remote_worker.messages import WORKER_PATH

    parts = urlsplit(url)
    scheme = SOCKET_SCHEMES.get(parts.scheme)
    if scheme is None or not parts.hostname:
        raise Invalid(
            f"--connect takes the address of a coordinator, such as https://agentq.example, not {url[:80]!r}."
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise Invalid(f"--connect takes a plain address; a token is for {TOKEN_VARIABLE} or --token-file.")
    if scheme == "ws" and not plain and not is_loopback(parts.hostname):
        raise Invalid(
            f"{parts.hostname} would get the token unencrypted: use https://, or pass --plain-http if "
            "the network between is private."
        )
    return f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}{WORKER_PATH}"


def _read_token(options: WorkerOptions, environment: Mapping[str, str]) -> str:
    """Read the token from a file or the environment; never from the command line, which every user of the host sees."""
    if options.token_file is None:
        return environment.get(TOKEN_VARIABLE, "").strip()
    try:
        token = Path(options.token_file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise Invalid(f"The token in {options.token_file} cannot be read: {error}.") from error
    if not token or not token.isprintable() or " " in token:
        raise Invalid(f"{options.token_file} holds no token; `agentq token new` makes one.")
    return token


def _create_tls_context(url: str, options: WorkerOptions) -> ssl.SSLContext | None:
    """The TLS settings; None for the trust store of this machine."""
    if options.ca_file is None:
        return None
    if not url.startswith(("https:", "wss:")):
        raise Invalid("--ca-file means nothing without https.")
    try:
        return ssl.create_default_context(cafile=str(Path(options.ca_file).expanduser()))
    except (OSError, ssl.SSLError) as error:
        raise Invalid(f"The certificates in {options.ca_file} cannot be read: {error}.") from error
