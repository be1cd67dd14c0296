"""Responses about queues, limits, workers, tokens, and the server."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from agentq.coordinator.queues.limits import LimitFullPolicy, LimitRate
from agentq.coordinator.security.tokens import TokenKind, TokenScope
from agentq.server.schema.view_model import QueueField, ResponseModel, RunIdField, TimeField


class QueuePauseView(ResponseModel):
    """The time and reason of a pause, and the queue that it is of: `*` is all."""

    queue: QueueField
    at: TimeField
    why: str


class QueueView(ResponseModel):
    """A queue: its runs by state, the age of the oldest, submitted and ended runs per minute."""

    queue: QueueField
    blocked: int
    scheduled: int
    pending: Annotated[int, Field(examples=[7])]
    claimed: int
    running: Annotated[int, Field(examples=[2])]
    waiting: int
    completed: int
    failed: int
    cancelled: int
    skipped: int
    oldest_at: TimeField | None
    submitted_a_minute: Annotated[float, Field(examples=[12.0])]
    ended_a_minute: Annotated[float, Field(examples=[11.5])]
    paused: QueuePauseView | None
    drained: QueuePauseView | None


class QueueViewPage(ResponseModel):
    """A page of queues. The last has no `next`."""

    queues: list[QueueView]
    next: str | None


class LimitView(ResponseModel):
    """The size of a limit, how much of it is held, and how many runs wait for it."""

    key: Annotated[str, Field(examples=["repo:acme"])]
    max: Annotated[int | None, Field(examples=[3])]
    rate: LimitRate | None
    when_full: LimitFullPolicy
    shut_until: TimeField | None
    shut_why: str | None
    held: int
    waiting: int


class LimitDetailView(LimitView):
    """A limit, with some of the runs that have room under it."""

    holders: list[RunIdField]


class LimitViewList(ResponseModel):
    """All limits."""

    limits: list[LimitView]


class WorkerView(ResponseModel):
    """A worker: its labels and slots, its runs, and its last heartbeat."""

    id: Annotated[str, Field(examples=["build01-4711-x"])]
    state: Annotated[Literal["ready", "draining", "silent", "left", "lost"], Field(examples=["ready"])]
    slots: Annotated[int, Field(examples=[4])]
    queues: list[QueueField]
    labels: Annotated[dict[str, str], Field(examples=[{"gpu": "a100"}])]
    only_matching: bool
    about: dict[str, JsonValue]
    seen_at: TimeField
    lease_until: TimeField | None
    runs: list[RunIdField]
    registered_at: TimeField | None
    runs_ended: Annotated[int, Field(examples=[17])]
    """The attempts whose end it has reported."""
    ended_at: TimeField | None
    """When it left or was declared lost."""
    ended_why: str | None
    silent_ms: int | None
    """How long it has not been heard, when heartbeats are missing."""
    lost_in_ms: int | None
    """Of one that is silent: after how long it is declared lost."""


class WorkerViewList(ResponseModel):
    """All workers."""

    workers: list[WorkerView]


class TokenRateView(ResponseModel):
    """A number of requests in a time."""

    units: Annotated[int, Field(examples=[100])]
    per_ms: Annotated[int, Field(examples=[1000])]
    burst: Annotated[int, Field(examples=[100])]


class TokenView(ResponseModel):
    """A token, without its secret."""

    id: Annotated[str, Field(examples=["3f09c2ab41d7"])]
    name: Annotated[str, Field(examples=["ci"])]
    kind: TokenKind
    scopes: list[TokenScope]
    queues: list[QueueField]
    rate: TokenRateView | None
    made_by: Annotated[str | None, Field(examples=["3f09c2ab41d7"])]
    """The token that created it, if one did."""
    created_at: TimeField
    expires_at: TimeField | None
    used_at: TimeField | None


class CreatedTokenView(TokenView):
    """A token with its secret, which is shown only once."""

    token: Annotated[str, Field(examples=["aq_client_3f09c2ab41d7_…"])]


class RevocationView(ResponseModel):
    """The names and ids of what has ended with a token."""

    tokens: Annotated[list[str], Field(examples=[["3f09c2ab41d7"]])]
    """The token, unless it was revoked before, and the tokens that it created."""
    schedules: list[str]
    webhooks: list[str]
    sessions: list[str]
    runs: list[RunIdField]


class TokenViewList(ResponseModel):
    """All tokens, the oldest first."""

    tokens: list[TokenView]


class PauseQueueResult(ResponseModel):
    """Whether claims from a queue are paused."""

    queue: QueueField
    paused: bool


class DrainQueueResult(ResponseModel):
    """Whether a queue refuses new runs."""

    queue: QueueField
    drained: Annotated[bool, Field(examples=[True])]


class PurgeQueueResult(ResponseModel):
    """The number of cancelled runs."""

    queue: QueueField
    cancelled: Annotated[int, Field(examples=[12])]


class MoveRunsResult(ResponseModel):
    """The number of runs moved to another queue."""

    queue: QueueField
    moved: Annotated[int, Field(examples=[12])]


class FairWeightResult(ResponseModel):
    """The share of a key, where other keys have 1."""

    queue: QueueField
    fair_key: Annotated[str, Field(examples=["acme"])]
    weight: Annotated[float, Field(examples=[3.0])]


class DrainWorkerResult(ResponseModel):
    """A worker that is draining."""

    id: Annotated[str, Field(examples=["build01-4711-x"])]
    state: Literal["draining"]


class HealthView(ResponseModel):
    """The server is alive."""

    status: Literal["healthy"]


class ReadinessView(ResponseModel):
    """Whether the server is ready, and the result of each check."""

    ready: Annotated[bool, Field(examples=[True])]
    schema_: Annotated[str, Field(alias="schema", examples=["agentq 2.0"])]
    checks: Annotated[dict[str, str], Field(examples=[{"store": "ok", "events": "ok", "duties": "ok", "server": "ok"}])]
