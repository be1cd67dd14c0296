"""How a worker reaches the server: straight, or through a coordinator, which is then all that it has to reach.

Whichever it is, the worker is the same. Through a coordinator it does no duties, which need all of the server; the
coordinator does them.
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
"""The variable that holds the token of a worker, where no file does. It is taken out of the environment when it is
read, so that no child has it."""
SOCKET_SCHEMES = {"https": "wss", "wss": "wss", "http": "ws", "ws": "ws"}
log = logging.getLogger("agentq.worker")

OnServerWait = Callable[[AgentqError], None]
"""Who hears, once, why a worker waits for the server before it begins."""
OPEN_RETRY_MS = 1_000


class WorkerBackend(Protocol):
    """See above."""

    settings: Settings
    """As they hold there, once it is open."""

    def open(self, worker: str, on_wait: OnServerWait | None) -> RunVerbs:
        """For a worker of that id. Where the server cannot be reached it `waits`, if it may, and is told so once."""

    def lease(self, queue: RunVerbs, identity: WorkerIdentity) -> WorkerLease: ...

    def as_worker(self, queue: RunVerbs, worker: str) -> AbstractContextManager[RunVerbs]:
        """What another worker would ask with, of this host and gone."""

    def children(self, queue: RunVerbs) -> WorkerChildren:
        """The children of what it holds."""

    async def take_over(self, queue: RunVerbs, end_processes: SweepProcesses) -> list[str]:
        """Requeue what dead workers of this host held, after what still runs of it was ended; their ids."""

    def duties(self, queue: RunVerbs, on_lost: Callable[[str], None]) -> list[Duty]:
        """What the worker does beside runs; `lost` hears which workers were found dead."""

    def close(self) -> None: ...


class RedisWorkerBackend:
    """To Redis itself."""

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
        """Its links end with the process."""


class RemoteWorkerBackend:
    """To a coordinator."""

    def __init__(
        self, options: WorkerOptions, environment: Mapping[str, str] = os.environ, *, home: Path | None = None
    ) -> None:
        """With a home, the token of this machine is shown to a coordinator on loopback, where no other is given."""
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

    def lease(self, queue: RunVerbs, identity: WorkerIdentity) -> WorkerLease:  # noqa: ARG002 - it is of our own making
        from agentq.remote_worker.remote_store import RemoteLease

        notes = self._notes
        if notes is None:
            return RemoteLease(self._store, identity, self.settings)
        return RemoteLease(self._store, identity, self.settings, lambda epochs: notes.save(identity.id, epochs))

    @contextmanager
    def as_worker(self, queue: RunVerbs, worker: str) -> Iterator[RunVerbs]:  # noqa: ARG002 - a connection is of one worker
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
        """Each speaks for itself, on a connection of its own, with the token that this one has."""
        dead = [] if self._notes is None else await asyncio.to_thread(self._notes.dead)
        if dead:
            await end_processes()
        return [worker.id for worker in dead if await asyncio.to_thread(self._replace_dead, queue, worker)]

    def _replace_dead(self, queue: RunVerbs, worker: RemoteWorkerNote) -> bool:
        """Whether it could be: a coordinator that is away is asked again, and its note stays."""
        assert self._notes is not None
        refused: AgentqError | None = None
        try:
            with self.as_worker(queue, worker.id) as worker_queue:
                worker.replace(worker_queue.store)
        except (TryLater, Unreachable):
            raise
        except AgentqError as error:
            refused = error  # it came with another token, say: the coordinator's reaper goes by the lease
            log.warning("what the dead worker %s held goes on when its lease has ended: %s", worker.id, error)
        self._notes.forget(worker.id)
        return refused is None

    def duties(self, queue: RunVerbs, on_lost: Callable[[str], None]) -> list[Duty]:  # noqa: ARG002 - the coordinator does them
        return []

    def close(self) -> None:
        self._store.close()


def _wait_for_server(store: NamespaceStore) -> None:
    """Until the server answers; what else it answers than that it takes this program is raised."""
    while True:
        time.sleep(random.uniform(OPEN_RETRY_MS / 10, OPEN_RETRY_MS) / 1000)
        with suppress(Unreachable, TryLater):
            store.guard()
            return


def build_socket_url(url: str, *, plain: bool = False) -> str:
    """Where workers connect, at a coordinator of this address."""
    from agentq.remote_worker.messages import WORKER_PATH

    parts = urlsplit(url)
    scheme = SOCKET_SCHEMES.get(parts.scheme)
    if scheme is None or not parts.hostname:
        raise Invalid(
            f"--connect takes the address of a coordinator, such as https://agentq.example, not {url[:80]!r}."
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise Invalid(
            f"--connect takes a plain address; a token is for {TOKEN_VARIABLE} or --token-file, where nobody sees it."
        )
    if scheme == "ws" and not plain and not is_loopback(parts.hostname):
        raise Invalid(
            f"{parts.hostname} would be talked to unencrypted, token and all: write https://, or say --plain-http if "
            "the network between is private."
        )
    return f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}{WORKER_PATH}"


def _read_token(options: WorkerOptions, environment: Mapping[str, str]) -> str:
    """From a file, or from the environment; never from the command line, which everybody sees."""
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
    """How it is made sure of who is there; as everywhere on this machine, if nothing is said."""
    if options.ca_file is None:
        return None
    if not url.startswith(("https:", "wss:")):
        raise Invalid("--ca-file means nothing without https.")
    try:
        return ssl.create_default_context(cafile=str(Path(options.ca_file).expanduser()))
    except (OSError, ssl.SSLError) as error:
        raise Invalid(f"The certificates in {options.ca_file} cannot be read: {error}.") from error
