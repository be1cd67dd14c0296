"""The messages between a worker and the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from agentq.coordinator.runs.verbs import Claim


@dataclass(frozen=True, slots=True)
class WorkerOrder:
    """What a worker is told to do. It is told again until the order is acknowledged."""

    id: str
    partition: int
    order: str
    run: str
    fence: str
    detail: str


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """What a heartbeat answers."""

    draining: bool
    fenced_claims: list[Claim]
    orders: list[WorkerOrder]


class FunctionOutcome(NamedTuple):
    """How a function attempt ended: its class, its outcome as JSON, and the wait it asks for before another try."""

    claim: Claim
    class_: str
    outcome: str
    delay_ms: int | None = None


class WatchResult(NamedTuple):
    """What came while a worker waited."""

    claims: list[Claim]
    delivered: dict[int, list[tuple[str, str]]]
    """Entries, as (lane, entry), that were delivered and not claimed: to be adopted, by partition."""
    ordered: bool
    """Whether something is in the inbox."""
