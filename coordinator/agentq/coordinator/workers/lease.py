"""The lease of a worker: registration, heartbeats, and claims of runs.

1. Register, and learn which runs are still held: all, or none if the worker was declared lost.
2. Send heartbeats with all held runs; carry out the orders in the reply, and kill the runs in `fenced_claims`.
3. Claim as many runs as there are free slots; after any fault of a blocking read, adopt what was delivered meanwhile.
4. Stop trusting the lease before it can have ended: `trusted` compares with the moment the last renewal was sent.

A namespace of several partitions is several leases that live and die together here, each with its own epoch: a worker
can be declared lost in one partition only, and then stops the runs of that one.
"""

# Over 400 lines: a worker's lease and all calls made under it.

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentq.coordinator import bounds
from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import AgentqError, Evicted, TryLater, Unreachable, refusal_error
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.spec import is_function_lane
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.storage.connection import CommandArgument, NoGroup
from agentq.coordinator.storage.store import NamespaceStore
from agentq.coordinator.workers.identity import WorkerIdentity as WorkerIdentity
from agentq.coordinator.workers.identity import select_served_lanes
from agentq.coordinator.workers.messages import FunctionOutcome as FunctionOutcome
from agentq.coordinator.workers.messages import HeartbeatReply as HeartbeatReply
from agentq.coordinator.workers.messages import WatchResult as WatchResult
from agentq.coordinator.workers.messages import WorkerOrder as WorkerOrder
from agentq.coordinator.workers.stream_read import (
    StreamReader,
    WatchedStreams,
    blocking_read_command,
    read_pending_entries,
)

RETIRE_CALLS_MAX = 10_000
EXCHANGES_IN_FLIGHT = 2
"""Concurrent calls of `worker/finish_and_claim`."""


@dataclass(slots=True)
class _PartitionLease:
    """The lease in one partition."""

    nonce: str
    """The name of the next claim."""
    exchanges: list[str]
    """The name of the next exchange, by each way."""
    operation: str
    epoch: str = "0"
    revision: str = ""
    lanes: list[str] = field(default_factory=list)
    former: list[str] = field(default_factory=list)
    """Lanes served before the worker's labels changed, which may have delivered entries still."""


class WorkerLease:
    """One worker's registration in all partitions of a namespace."""

    def __init__(self, store: NamespaceStore, identity: WorkerIdentity, settings: Settings) -> None:
        identity.check_size()
        self.store = store
        self.identity = identity
        self.settings = settings
        self._partition_leases = [
            _PartitionLease("", [store.nonce() for _ in range(EXCHANGES_IN_FLIGHT)], store.nonce())
            for _ in store.partitions()
        ]
        self._renewed_ms: int | None = None
        self._turn = 0

    @property
    def trusted_ms(self) -> int:
        """How long the lease is still valid, counted from when the last renewal was sent, not answered."""
        if self._renewed_ms is None:
            return 0
        return max(0, self._renewed_ms + self.settings.lease_ms - self.settings.heartbeat_ms - monotonic_ms())

    def register(self) -> list[tuple[str, str]]:
        """Register the worker, or return after a loss; returns the runs, with their fences, that it still holds.

        All other runs that it executes were lost meanwhile: it kills them and reports nothing more about them.
        """
        sent_ms = monotonic_ms()
        held = [hold for partition in self.store.partitions() for hold in self._register(partition)]
        self._renewed_ms = sent_ms
        return held

    def _register(self, partition: int) -> list[tuple[str, str]]:
        partition_lease, worker = self._partition_leases[partition], self.identity.id
        arguments = (
            partition_lease.epoch,
            partition_lease.operation,
            self.settings.lease_ms,
            self.store.dice(),
            self.identity.model_dump_json(),
        )
        for _ in range(RETIRE_CALLS_MAX):
            reply = self.store.call("worker/register", partition, worker, *arguments)
            if reply != "releasing_runs":
                break
        if isinstance(reply, str):
            raise refusal_error(reply, f"worker {worker}") or TryLater()
        _, partition_lease.epoch, _, revision, *held = reply
        partition_lease.operation, partition_lease.revision = self.store.nonce(), ""
        self._refresh(partition, revision)
        return list(zip(held[::2], held[1::2], strict=True))

    def go_on(self, epochs: Sequence[str]) -> None:
        """Use the registration that another process made, with its present epoch in each partition."""
        for partition_lease, epoch in zip(self._partition_leases, epochs, strict=True):
            partition_lease.epoch = epoch

    def heartbeat(self, held: Sequence[Claim] = (), applied: Iterable[WorkerOrder] = ()) -> HeartbeatReply:
        """Renew the lease and report the held runs; the server deletes the `applied` orders."""
        sent_ms = monotonic_ms()
        acknowledged: dict[int, list[str]] = {}
        for order in applied:
            acknowledged.setdefault(order.partition, []).append(order.id)
        beats = [self._beat(partition, held, acknowledged.get(partition, ())) for partition in self.store.partitions()]
        self._renewed_ms = sent_ms
        return HeartbeatReply(
            any(beat.draining for beat in beats),
            [claim for beat in beats for claim in beat.fenced_claims],
            [order for beat in beats for order in beat.orders],
        )

    def _beat(self, partition: int, held: Sequence[Claim], applied: Sequence[str]) -> HeartbeatReply:
        partition_lease, base = self._partition_leases[partition], self.store.keyspace.base(partition)
        mine = {(claim.id, claim.fence): claim for claim in held if self.store.base_of(claim.id) == base}
        rows = [word for hold in mine for word in hold]
        times = (self.settings.lease_ms, self.settings.forget_ms, self.store.dice())
        reply = self.store.call(
            "worker/heartbeat", partition, self.identity.id, partition_lease.epoch, *times, ",".join(applied), *rows
        )
        if isinstance(reply, str):
            raise refusal_error(reply, f"worker {self.identity.id}") or Evicted()
        _, state, revision, fenced_claims, *rest = reply
        self._refresh(partition, revision)
        gone = rest[: 2 * fenced_claims]
        orders = rest[2 * fenced_claims :]
        return HeartbeatReply(
            state == "draining",
            [mine[hold] for hold in zip(gone[::2], gone[1::2], strict=True)],
            [WorkerOrder(orders[at], partition, *orders[at + 1 : at + 5]) for at in range(0, len(orders), 5)],
        )

    def claim(self, count: int, calls: int = 0) -> list[Claim]:
        """Take up to `count` runs that need a slot each, and up to `calls` function runs, from all partitions."""
        claims: list[Claim] = []
        partitions = len(self._partition_leases)
        self._turn += 1
        try:
            for step in range(partitions):
                count, calls = self._claim((self._turn + step) % partitions, count, calls, claims)
                if count <= 0 and calls <= 0:
                    break
        except AgentqError:
            # Claims granted before must reach the caller; the next call is refused again.
            if not claims:
                raise
        return claims

    def _claim(self, partition: int, count: int, calls: int, claims: list[Claim]) -> tuple[int, int]:
        """Claim in one partition; returns how many are still wanted."""
        partition_lease = self._partition_leases[partition]
        while True:
            lanes = self.lanes(partition)
            more = self._granted(partition, self.store.call(*self._claim_arguments(partition, count, calls)))
            claims += more
            functions = sum(is_function_lane(claim.lane) for claim in more)
            count, calls = count - len(more) + functions, calls - functions
            # A lane that was opened since the last call is tried at once.
            if (count <= 0 and calls <= 0) or partition_lease.lanes == lanes:
                return count, calls

    def claiming(self, count: int) -> tuple[CommandArgument, ...]:
        """The arguments of a claim in the first partition, for a caller that sends claims of many workers together."""
        _, _, *arguments = self._claim_arguments(0, count, 0)
        return tuple(arguments)

    def claimed(self, reply: str | list[str]) -> list[Claim]:
        """The claims in the reply to such a call."""
        return self._granted(0, reply)

    def exchange(
        self, ended: Sequence[FunctionOutcome], calls: int = 0, *, way: int = 0
    ) -> tuple[list[AgentqError | None], list[Claim]]:
        """Report how function attempts ended, and claim up to `calls` more, in one round trip per partition.

        Returns the refusal of each: Unreachable or TryLater where a partition is away while others are not. A
        worker that may not claim gets none, and learns why from its next claim. Each thread that does this, up to WAYS,
        has a way of its own; beside them another one may claim.
        """
        refusals: list[AgentqError | None] = [None] * len(ended)
        claims: list[Claim] = []
        partitions = self.store.partitions()
        places, any_reply, away = [list[int]() for _ in partitions], False, None
        for place, end in enumerate(ended):
            places[partition_of(end.claim.id) if len(partitions) > 1 else 0].append(place)
        self._turn += 1
        for step in partitions:
            partition = (self._turn + step) % len(partitions)
            if places[partition] or calls > len(claims):
                mine = [ended[place] for place in places[partition]]
                try:
                    claims += self._exchange(partition, mine, calls - len(claims), places[partition], refusals, way)
                    any_reply = True
                except (Unreachable, TryLater) as error:
                    away = error
                    for place in places[partition]:
                        refusals[place] = error
        if away is None or any_reply:
            return refusals, claims
        raise away

    def _exchange(
        self,
        partition: int,
        ended: Sequence[FunctionOutcome],
        calls: int,
        places: Sequence[int],
        refusals: list[AgentqError | None],
        way: int,
    ) -> list[Claim]:
        partition_lease, wanted = self._partition_leases[partition], min(max(calls, 0), bounds.CLAIM_PER_CALL)
        lanes = "\n".join(filter(is_function_lane, self.lanes(partition))) if wanted else ""
        words: list[CommandArgument] = [
            self.identity.id,
            partition_lease.epoch,
            way,
            partition_lease.exchanges[way],
            wanted,
            self.store.dice(),
            lanes,
        ]
        for (run, fence, _, _), class_, outcome, delay_ms in ended:
            words += (run, fence, class_, outcome, "" if delay_ms is None else delay_ms)
        word, revision, answers, *rest = self.store.call("worker/finish_and_claim", partition, *words)
        for at in range(0, 2 * answers, 2):
            if not rest[at + 1].startswith("ok "):
                refusals[places[rest[at]]] = refusal_error(rest[at + 1], f"run {ended[rest[at]].claim.id}")
        del rest[: 2 * answers]
        if not wanted or word != "ok":
            return []
        partition_lease.exchanges[way] = self.store.nonce()
        return self._taken(partition, revision, rest)

    def adopt(
        self, partition: int, entries: Sequence[tuple[str, str]], count: int | None = None, calls: int | None = None
    ) -> list[Claim]:
        """Claim entries, as (lane, entry), that a blocking read delivered or the pending list still holds.

        A read over several lanes can deliver more than requested: entries beyond `count`, or `calls` of function
        runs, are given back.
        """
        partition_lease = self._partition_leases[partition]
        words: list[CommandArgument] = [
            bounds.CLAIM_PER_CALL if most is None else max(most, 0) for most in (count, calls)
        ]
        words += [word for entry in entries for word in entry]
        reply = self.store.call(
            "worker/claim_delivered",
            partition,
            self.identity.id,
            partition_lease.epoch,
            self._nonce(partition_lease),
            *words,
        )
        return self._granted(partition, reply)

    def _granted(self, partition: int, reply: str | list[str]) -> list[Claim]:
        if isinstance(reply, str):
            raise refusal_error(reply, f"worker {self.identity.id}") or Evicted()
        # The next call gets a new name; until here the old one gets these runs again.
        self._partition_leases[partition].nonce = ""
        return self._taken(partition, reply[1], reply[2:])

    def _taken(self, partition: int, revision: str, flat: list[str]) -> list[Claim]:
        self._refresh(partition, revision)
        return [Claim(*flat[at : at + 4]) for at in range(0, len(flat), 4)]

    def pending(self, partition: int) -> list[tuple[str, str]]:
        """The entries delivered to this worker, as (lane, entry), which it adopts after any fault of a read."""
        lanes = self.lanes(partition) + self._partition_leases[partition].former
        try:
            return self._delivered(partition, lanes)
        except NoGroup:
            # One of the streams or its group is gone, and with it the entries delivered from it.
            return [entry for lane in lanes for entry in self._delivered_from(partition, lane)]

    def _delivered_from(self, partition: int, lane: str) -> list[tuple[str, str]]:
        try:
            return self._delivered(partition, [lane])
        except NoGroup:
            return []

    def _delivered(self, partition: int, lanes: Sequence[str]) -> list[tuple[str, str]]:
        if not lanes:
            return []
        return read_pending_entries(self.store, partition, self.identity.id, lanes)

    def watch(
        self, reader: StreamReader, count: int, calls: int, block_ms: int, partitions: Sequence[int] | None = None
    ) -> WatchResult:
        """Wait for an order, or for runs if some are wanted, which are claimed at once.

        With one partition, the server claims as soon as the read ends. With several, the caller adopts the entries.
        """
        partitions = self.store.partitions() if partitions is None else partitions
        streams = self.streams(count, calls, partitions)
        wanted: tuple[Any, ...] | None = None
        if len(partitions) == 1 and (count > 0 or calls > 0):
            wanted = self._claim_arguments(partitions[0], count, calls, fresh="fresh")
        reply, granted = self._wait(reader, streams, block_ms, wanted)
        claims = self._granted(partitions[0], granted) if isinstance(granted, list) else []
        mine = {claim.id for claim in claims}
        watched = WatchResult(claims, {}, False)
        for key, delivered in reply or ():
            partition, lane = streams[key]
            if lane is None:
                watched = watched._replace(ordered=True)
            else:
                left = [(lane, entry) for entry, body in delivered if not body or body[1] not in mine]
                if left:
                    watched.delivered.setdefault(partition, []).extend(left)
        if isinstance(granted, str) and not watched.delivered:
            raise refusal_error(granted, f"worker {self.identity.id}") or Evicted()
        return watched

    def reader(self) -> StreamReader:
        """The waiter of a thread in `watch`."""
        return self.store.connection.another()

    def _wait(
        self, reader: Any, streams: WatchedStreams, block_ms: int, claim: tuple[Any, ...] | None
    ) -> tuple[Any, Any]:
        """Block on the streams, and claim when the block ends; returns both replies."""
        words = blocking_read_command(self.identity.id, streams, block_ms)
        if claim is None:
            return reader.block(*words, timeout_ms=block_ms), None
        return self.store.call_after(reader, words, block_ms, *claim)

    def _claim_arguments(self, partition: int, count: int, calls: int, *, fresh: str = "") -> tuple[Any, ...]:
        partition_lease = self._partition_leases[partition]
        wanted = (min(max(count, 0), bounds.CLAIM_PER_CALL), min(max(calls, 0), bounds.CLAIM_PER_CALL))
        words = (self.identity.id, partition_lease.epoch, self._nonce(partition_lease), *wanted, fresh)
        return "worker/claim", partition, *words, *self.lanes(partition)

    def _nonce(self, partition_lease: _PartitionLease) -> str:
        """The name of the next claim, made when it is needed, so that claimed runs start without waiting for it."""
        if not partition_lease.nonce:
            partition_lease.nonce = self.store.nonce()
        return partition_lease.nonce

    def streams(self, count: int, calls: int, partitions: Iterable[int]) -> WatchedStreams:
        """The streams to block on."""
        keys: WatchedStreams = {}
        for partition in partitions:
            keys[self.store.key(partition, "worker_inbox", self.identity.id)] = (partition, None)
            for lane in self.lanes(partition):
                if (calls if is_function_lane(lane) else count) > 0:
                    keys[self.store.key(partition, "lane", lane)] = (partition, lane)
        return keys

    def lanes(self, partition: int) -> list[str]:
        """The lanes that this worker may serve, the most urgent first."""
        partition_lease = self._partition_leases[partition]
        if not partition_lease.revision:
            self._refresh(partition, "?")
        return partition_lease.lanes

    def _refresh(self, partition: int, revision: str) -> None:
        partition_lease = self._partition_leases[partition]
        if partition_lease.revision == revision:
            return
        partition_lease.revision, running, *lanes = self.store.call("queue/list_lanes", partition)
        served = select_served_lanes(self.identity, lanes[:running])
        once = {*partition_lease.lanes, *partition_lease.former}.difference(served)
        partition_lease.former = [lane for lane in lanes if lane in once]
        partition_lease.lanes = served

    def forget_lanes(self) -> None:
        """Compute the served lanes again, after the worker's labels changed."""
        for partition_lease in self._partition_leases:
            partition_lease.revision = ""

    def drain(self) -> None:
        """Claim no more runs; the held ones continue."""
        for partition, partition_lease in enumerate(self._partition_leases):
            order_drain(self.store, partition, self.identity.id, "asked by the worker itself", partition_lease.epoch)

    def deregister(self) -> None:
        """Deregister. The runs still held, whose processes have ended, are released."""
        for partition, partition_lease in enumerate(self._partition_leases):
            _retire_worker(self.store, "worker/deregister", partition, self.identity.id, partition_lease.epoch)
        self._renewed_ms = None


def replace_worker(store: NamespaceStore, partition: int, worker: str, epoch: str, why: str) -> None:
    """End the lease of a worker in this epoch, and requeue its runs at the cost of a crash."""
    _retire_worker(store, "worker/evict", partition, worker, epoch, store.dice(), why)


def _retire_worker(store: NamespaceStore, script: str, partition: int, worker: str, *words: CommandArgument) -> None:
    """Take all runs from a worker, in as many calls as needed; none if its epoch has changed."""
    for _ in range(RETIRE_CALLS_MAX):
        reply = store.call(script, partition, worker, *words)
        if reply != "releasing_runs":
            break
    refused = refusal_error(reply, f"worker {worker}")
    if refused is not None and not isinstance(refused, Evicted):
        raise refused


def order_drain(
    store: NamespaceStore, partition: int, worker: str, detail: str, epoch: str = "", *, hurry: bool = False
) -> None:
    """Order a worker to drain, or to leave at once; with an epoch, only in that epoch."""
    words = (worker, epoch, detail, "hurry" if hurry else "drain")
    refused = refusal_error(store.call("worker/drain", partition, *words), f"worker {worker}")
    if refused is not None:
        raise refused
