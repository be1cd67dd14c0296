"""A namespace that is reached through a coordinator: the store and lease of a worker without Redis.

Each script is called through the coordinator, so that users of the store notice no difference. State is only in the
lease and in Redis: the connection may break at any message, and the next one may go to another coordinator.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import AgentqError, Incompatible, NotAllowed
from agentq.coordinator.package_version import installed_version
from agentq.coordinator.storage.connection import CommandArgument
from agentq.coordinator.storage.keys import Keyspace
from agentq.coordinator.storage.store import NamespaceStore
from agentq.coordinator.workers.lease import WorkerIdentity, WorkerLease
from agentq.coordinator.workers.stream_read import WatchedStreams
from agentq.remote_worker.messages import (
    BLOCK_MS_MAX,
    PROTOCOL_VERSION,
    InitMessage,
    PendingEntriesMessage,
    ScriptCallMessage,
    WatchMessage,
    WelcomeMessage,
)
from agentq.remote_worker.websocket_client import CoordinatorAddress, CoordinatorConnection

OPEN_TIMEOUT_S = 15.0
ANSWER_TIMEOUT_S = 10.0
LARGE_ANSWER_TIMEOUT_S = 60.0
"""How long a large message may take."""
HEARTBEAT_SCRIPTS = frozenset(("worker/register", "worker/heartbeat", "worker/drain", "worker/deregister"))
"""Scripts that use the heartbeat connection."""
TIME_SETTINGS = ("heartbeat_ms", "lease_ms", "reap_grace_ms", "forget_ms", "tick_ms")


class RemoteStore(NamespaceStore):
    """The store of a remote worker. Calls that are not a worker's are refused."""

    def __init__(self, address: CoordinatorAddress, worker: str) -> None:
        self._on_times: Callable[[Settings], None] = lambda _: None
        self._lock = threading.Lock()
        self.settings: Settings | None = None
        """The coordinator's settings, once connected."""
        identity = {"version": installed_version(), "worker": worker}
        self._work_connection = CoordinatorConnection(
            address, InitMessage.model_validate({**identity, "purpose": "work"}), self._accept_welcome
        )
        # Its pings are answered at once, so it detects a dead coordinator first.
        heartbeat_init = InitMessage.model_validate({**identity, "purpose": "heartbeat"})
        self._heartbeat_connection = CoordinatorConnection(
            address, heartbeat_init, self._accept_welcome, broken=self._work_connection.abort
        )
        # No command is sent to Redis; any attempt is refused below.
        super().__init__(_NoConnection(), Keyspace())  # type: ignore[arg-type]

    def open(self, on_wait: Callable[[AgentqError], None] | None = None) -> Settings:
        """Connect; with `on_wait`, without a time limit. Returns the coordinator's settings."""
        self._heartbeat_connection.open(OPEN_TIMEOUT_S, on_wait)
        self._work_connection.open(OPEN_TIMEOUT_S, on_wait)
        assert self.settings is not None
        return self.settings

    def on_times(self, callback: Callable[[Settings], None]) -> None:
        """Set a callback for changed settings; it is called in a thread of the connection."""
        self._on_times = callback

    def close(self) -> None:
        """Close both connections."""
        self._work_connection.close()
        self._heartbeat_connection.close()

    def _accept_welcome(self, welcome: WelcomeMessage) -> None:
        if welcome.protocol != PROTOCOL_VERSION:
            raise Incompatible(
                f"The coordinator is agentq {welcome.version} and speaks version {welcome.protocol} of the protocol, "
                f"this worker version {PROTOCOL_VERSION}; upgrade the older one."
            )
        with self._lock:
            before = self.settings
            if before is None:
                self.keyspace = Keyspace(welcome.namespace, welcome.partitions)
            elif (self.keyspace.namespace, self.keyspace.partitions) != (welcome.namespace, welcome.partitions):
                raise Incompatible(
                    f"The coordinator is now of the namespace {welcome.namespace!r} in {welcome.partitions} "
                    f"partitions, where this worker has begun in {self.keyspace.namespace!r}; start it again."
                )
            fields = {name: getattr(welcome, name) for name in (*TIME_SETTINGS, "namespace", "partitions")}
            self.settings = Settings.checked(**fields)
        if before is not None and before != self.settings:
            self._on_times(self.settings)

    # ---- what a store does

    def guard(self, *, anew: bool = False) -> None:
        """The coordinator has checked this."""

    def call(self, script: str, partition: int, *arguments: CommandArgument) -> Any:
        connection, timeout_s = (
            (self._heartbeat_connection, ANSWER_TIMEOUT_S)
            if script in HEARTBEAT_SCRIPTS
            else (self._work_connection, LARGE_ANSWER_TIMEOUT_S)
        )
        number = connection.next_number()
        call = ScriptCallMessage(id=number, script=script, partition=partition, words=_encode_arguments(arguments))
        return connection.ask(number, call.to_wire(), timeout_s)

    def call_many(self, script: str, calls: Iterable[tuple[int, Sequence[CommandArgument]]]) -> Iterator[Any]:
        return (self.call(script, partition, *arguments) for partition, arguments in calls)

    # ---- what a lease does

    def pending(self, partition: int, lanes: Sequence[str]) -> list[tuple[str, str]]:
        """The delivered entries of these lanes, as (lane, entry)."""
        number = self._work_connection.next_number()
        question = PendingEntriesMessage(id=number, partition=partition, lanes=list(lanes))
        return [
            (lane, entry) for lane, entry in self._work_connection.ask(number, question.to_wire(), ANSWER_TIMEOUT_S)
        ]

    def reader(self) -> RemoteReader:
        return RemoteReader(self._work_connection)

    # ---- what is asked beside that

    def next_number(self) -> int:
        """The number of the next request."""
        return self._work_connection.next_number()

    def ask(self, number: int, text: str) -> Any:
        """Send a request, and return its answer."""
        return self._work_connection.ask(number, text, LARGE_ANSWER_TIMEOUT_S)

    def begin(self, number: int, text: str) -> Future[Any]:
        """Send a request; the future gets its answer in a thread of the connection."""
        return self._work_connection.begin(number, text)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call a function later, in a thread of the connection."""
        self._work_connection.call_later(delay_s, callback)


class RemoteReader:
    """A wait of one thread, which others can wake."""

    is_spread = False
    """The coordinator waits on all partitions at once."""

    def __init__(self, connection: CoordinatorConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._active_wait: int | None = None
        self._wake_requested = self._closed = False

    def wait(
        self, lanes: dict[int, list[str]], block_ms: int, claim: Sequence[CommandArgument] | None
    ) -> tuple[Any, Any]:
        """Wait for entries, and claim then; returns both replies. Returns at once if it was woken before."""
        number = self._connection.next_number()
        with self._lock:
            if self._wake_requested or self._closed:
                self._wake_requested = False
                return None, None
            self._active_wait = number
        block_ms = min(block_ms, BLOCK_MS_MAX)
        arguments = None if claim is None else _encode_arguments(claim)
        try:
            watch = WatchMessage(id=number, lanes=lanes, block_ms=block_ms, claim=arguments)
            reply, granted = self._connection.ask(number, watch.to_wire(), block_ms / 1000 + ANSWER_TIMEOUT_S)
        finally:
            with self._lock:
                # A wake since then meant this wait, which has ended.
                self._active_wait, self._wake_requested = None, False
        return reply, granted

    def unblock(self) -> None:
        with self._lock:
            self._wake_requested, number = True, self._active_wait
        if number is not None:
            self._connection.wake(number)

    def close(self) -> None:
        self._closed = True
        self.unblock()


class RemoteLease(WorkerLease):
    """A lease that is kept through a coordinator, with its settings."""

    store: RemoteStore

    def __init__(
        self,
        store: RemoteStore,
        identity: WorkerIdentity,
        settings: Settings,
        on_registered: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> None:
        """`on_registered` gets the epochs of each registration, by partition; none after the worker has left."""
        super().__init__(store, identity, settings)
        self._on_registered = on_registered
        store.on_times(self._set_settings)

    def register(self) -> list[tuple[str, str]]:
        held = super().register()
        self._on_registered([partition_lease.epoch for partition_lease in self._partition_leases])
        return held

    def deregister(self) -> None:
        super().deregister()
        self._on_registered([])

    def reader(self) -> RemoteReader:
        return self.store.reader()

    def _set_settings(self, settings: Settings) -> None:
        self.settings = settings

    def _delivered(self, partition: int, lanes: Sequence[str]) -> list[tuple[str, str]]:
        return self.store.pending(partition, lanes) if lanes else []

    def _wait(
        self, reader: RemoteReader, streams: WatchedStreams, block_ms: int, claim: tuple[Any, ...] | None
    ) -> tuple[Any, Any]:
        lanes: dict[int, list[str]] = {}
        for partition, lane in streams.values():
            lanes.setdefault(partition, []).extend([lane] if lane is not None else [])
        reply, granted = reader.wait(lanes, block_ms, None if claim is None else claim[2:])
        return [(self._key(partition, lane), entries) for partition, lane, entries in reply or ()], granted

    def _key(self, partition: int, lane: str | None) -> str:
        return self.store.key(partition, *(("worker_inbox", self.identity.id) if lane is None else ("lane", lane)))


def _encode_arguments(arguments: Iterable[CommandArgument]) -> list[str | int]:
    """Arguments as JSON values; the server takes all of them as text."""
    return [
        word.decode() if isinstance(word, bytes) else word if isinstance(word, int) else str(word) for word in arguments
    ]


class _NoConnection:
    """Refuses every use of a Redis connection."""

    def __getattr__(self, name: str) -> Any:
        raise NotAllowed(f"A worker that is connected to a coordinator cannot ask the server itself ({name}).")
