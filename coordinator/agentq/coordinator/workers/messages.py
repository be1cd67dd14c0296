"""The messages between a worker and the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from agentq.coordinator.runs.verbs import Claim


@dataclass(frozen=True, slots=True)
class WorkerOrder:
    """An order to a worker, repeated until it is acknowledged."""

    id: str
    partition: int
    order: str
    run: str
    fence: str
    detail: str


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The reply to a heartbeat."""

    draining: bool
    fenced_claims: list[Claim]
    orders: list[WorkerOrder]


class FunctionOutcome(NamedTuple):
    """How a function attempt ended: its class, its outcome as JSON, and the delay before another attempt."""

    claim: Claim
    class_: str
    outcome: str
    delay_ms: int | None = None


class WatchResult(NamedTuple):
    """What a worker received while it waited."""

    claims: list[Claim]
    delivered: dict[int, list[tuple[str, str]]]
    """Entries, as (lane, entry), that were delivered and not claimed, by partition; the worker adopts them."""
    ordered: bool
    """Whether the inbox has an order."""
