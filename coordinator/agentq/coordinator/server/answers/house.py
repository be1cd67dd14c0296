"""What is answered of queues, limits, workers and tokens, and of the server itself."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from agentq.coordinator.flow import Rate, WhenFull
from agentq.coordinator.server.answers.answer import Answer, At, Id, Queued
from agentq.coordinator.tokens import Kind, Scope


class Pause(Answer):
    """Since when, and why."""

    at: At
    why: str


class Queue(Answer):
    """A queue: its runs by state, since when the oldest waits, how many come and end in a minute."""

    queue: Queued
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
    oldest_at: At | None
    submitted_a_minute: Annotated[float, Field(examples=[12.0])]
    ended_a_minute: Annotated[float, Field(examples=[11.5])]
    paused: Pause | None
    drained: Pause | None


class Queues(Answer):
    """A page of queues. Without `next` it is the last."""

    queues: list[Queue]
    next: str | None


class Limit(Answer):
    """What there is of a key, how much is taken, and how many wait."""

    key: Annotated[str, Field(examples=["repo:acme"])]
    max: Annotated[int | None, Field(examples=[3])]
    rate: Rate | None
    when_full: WhenFull
    shut_until: At | None
    shut_why: str | None
    held: int
    waiting: int


class Limits(Answer):
    """All limits."""

    limits: list[Limit]


class Worker(Answer):
    """A worker: what it can do, what it holds, when it was last heard of."""

    id: Annotated[str, Field(examples=["build01-4711-x"])]
    state: Annotated[Literal["ready", "draining", "silent", "left", "lost"], Field(examples=["ready"])]
    slots: Annotated[int, Field(examples=[4])]
    queues: list[Queued]
    labels: Annotated[dict[str, str], Field(examples=[{"gpu": "a100"}])]
    only_matching: bool
    about: dict[str, JsonValue]
    seen_at: At
    lease_until: At | None
    runs: list[Id]
    registered_at: At | None
    runs_ended: Annotated[int, Field(examples=[17])]
    """The attempts whose end it has reported."""
    ended_at: At | None
    """When it left or was declared lost."""
    ended_why: str | None


class Workers(Answer):
    """All workers."""

    workers: list[Worker]


class TokenRate(Answer):
    """So many requests in a time."""

    units: Annotated[int, Field(examples=[100])]
    per_ms: Annotated[int, Field(examples=[1000])]
    burst: Annotated[int, Field(examples=[100])]


class Token(Answer):
    """A token, but for its secret."""

    id: Annotated[str, Field(examples=["3f09c2ab41d7"])]
    name: Annotated[str, Field(examples=["ci"])]
    kind: Kind
    scopes: list[Scope]
    queues: list[Queued]
    rate: TokenRate | None
    made_by: Annotated[str | None, Field(examples=["3f09c2ab41d7"])]
    """The token that made it, if one did."""
    created_at: At
    expires_at: At | None
    used_at: At | None


class MadeToken(Token):
    """A token, with its secret: the only time that it is shown."""

    token: Annotated[str, Field(examples=["aq_client_3f09c2ab41d7_…"])]


class Revoked(Answer):
    """What has ended with a token, by names and ids."""

    tokens: Annotated[list[str], Field(examples=[["3f09c2ab41d7"]])]
    """It, unless it was revoked before, and those that it made."""
    schedules: list[str]
    webhooks: list[str]
    sessions: list[str]
    runs: list[Id]


class Tokens(Answer):
    """All tokens, the oldest first."""

    tokens: list[Token]


class Paused(Answer):
    """Whether anything is claimed from a queue."""

    queue: Queued
    paused: bool


class Drained(Answer):
    """Whether a queue takes new runs."""

    queue: Queued
    drained: Annotated[bool, Field(examples=[True])]


class Purged(Answer):
    """How many runs were cancelled."""

    queue: Queued
    cancelled: Annotated[int, Field(examples=[12])]


class Emptied(Answer):
    """How many runs were moved to another queue."""

    queue: Queued
    moved: Annotated[int, Field(examples=[12])]


class Weighed(Answer):
    """How many turns a key gets where others get one."""

    queue: Queued
    fair_key: Annotated[str, Field(examples=["acme"])]
    weight: Annotated[float, Field(examples=[3.0])]


class SentAway(Answer):
    """A worker that finishes, and ends."""

    id: Annotated[str, Field(examples=["build01-4711-x"])]
    state: Literal["draining"]


class Health(Answer):
    """That the server lives."""

    status: Literal["healthy"]


class Ready(Answer):
    """Whether the server is of use, and what of it is not."""

    ready: Annotated[bool, Field(examples=[True])]
    schema_: Annotated[str, Field(alias="schema", examples=["agentq 1.0"])]
    checks: Annotated[dict[str, str], Field(examples=[{"store": "ok", "events": "ok", "duties": "ok", "server": "ok"}])]
