"""What a request may bring: the models of bodies that are not runs, each strict about what it takes."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    model_validator,
)

from agentq.coordinator import limits as most
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.fields import Model, Name, Text, Timeout
from agentq.coordinator.flow import Rate, WhenFull
from agentq.coordinator.lifecycle import QUEUED, State
from agentq.coordinator.plans import OnFailed, Which
from agentq.coordinator.schedules import Overlap
from agentq.coordinator.tokens import Kind, Scope, rate_of
from agentq.coordinator.turn import Budgets

Why = Annotated[str, StringConstraints(max_length=most.ERROR_CHARACTERS)]


class Body(BaseModel):
    """What is not known is refused, rather than passed over."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _is_narrow(cls, value: Any) -> Any:
        """Each field that there is none of is a fault that takes time to describe, so too many are one."""
        if isinstance(value, dict) and len(value) > most.FAULTS:
            raise ValueError(f"it has {len(value)} fields; there are {len(cls.model_fields)}")
        return value


class Cancel(Body):
    """Why, and how long its worker may take to confirm it."""

    reason: Annotated[Why, Field(examples=["not needed any more"])] = "cancelled on request"
    stop_ms: Timeout = most.STOP_MS


class Signal(Body):
    """Something for a run to know."""

    name: Annotated[Name, Field(examples=["deployed"])]
    data: JsonValue = None


class Judgement(Body):
    """What there is to say beside yes or no."""

    comment: Why = ""


class Because(Body):
    """Why it is done: shown to whoever asks."""

    why: Why = ""


class NewSession(Body):
    """A conversation with an agent."""

    name: Name | None = None
    agent: Annotated[Name | None, Field(examples=["claude"])] = None
    """May be left out for a fork, which has the agent of the session that it goes on from."""
    cwd: Text | None = None
    model: Model | None = None
    budgets: Budgets | None = None
    fork: Name | None = None


class Fork(Body):
    """What to call the other one."""

    name: Name | None = None


class Close(Body):
    """Whether what is in its line is cancelled, rather than let go on."""

    cancel: bool = False


class NewSchedule(Body):
    """When, by one of `cron`, `every_ms` and `at_ms`; and what. `run` is as a body of `POST /runs`."""

    run: Annotated[dict[str, Any], Field(examples=[{"kind": "command", "argv": ["make", "test"]}])]
    cron: Annotated[str | None, Field(examples=["30 2 * * *"])] = None
    tz: str = "UTC"
    every_ms: int | None = None
    start_ms: int | None = None
    at_ms: int | None = None
    until_ms: int | None = None
    jitter_ms: int = 0
    missed: str = "none"
    catch_up_ms: int | None = None
    overlap: Overlap = Overlap.SKIP


class PlanTask(Body):
    """A task: its id in the plan, its run as a body of `POST /runs`, and the tasks that must complete before it."""

    id: Annotated[Name, Field(examples=["test"])]
    run: Annotated[dict[str, Any], Field(examples=[{"kind": "command", "argv": ["make", "test"]}])]
    needs: Annotated[tuple[Name, ...], Field(examples=[["build"]], fail_fast=True)] = ()
    inputs: Annotated[tuple[Name, ...], Field(fail_fast=True)] = ()
    """Tasks whose outcomes stand in its prompt, its arguments or its environment."""


class NewPlan(Body):
    """Tasks that depend on each other."""

    name: Annotated[Name, Field(examples=["release"])]
    on_failed: OnFailed = "skip"
    tasks: Annotated[tuple[PlanTask, ...], Field(min_length=1, fail_fast=True)]


class MoreTasks(Body):
    """Tasks to be added."""

    tasks: Annotated[tuple[PlanTask, ...], Field(min_length=1, fail_fast=True)]


class RetryPlan(Body):
    """Which tasks: those that failed, all that did not complete, or one."""

    which: Which = "failed"
    task: Name | None = None


class NewLimit(Body):
    """How much there is of a key: so many runs at once, or so many units in a time, or both."""

    max: Annotated[int | None, Field(ge=0, examples=[3])] = None
    rate: Annotated[Rate | None, BeforeValidator(lambda rate: _spelled(rate))] = None
    """Or in short, as `100/1m`."""
    when_full: WhenFull = WhenFull.QUEUE


def _spelled(rate: Any) -> Any:
    return rate_of(rate)._asdict() if isinstance(rate, str) else rate


class Shut(Body):
    """Until when nobody is let in, and why."""

    until_ms: Annotated[int, Field(le=most.DUE_AT_MS_MAX), AfterValidator(lambda at_ms: _to_come(at_ms))]
    """A time, in milliseconds since 1970."""
    why: Why = ""


def _to_come(at_ms: int) -> int:
    if at_ms <= wall_ms():
        raise ValueError("it is a time to come, in milliseconds since 1970")
    return at_ms


class Purge(Body):
    """Which of the runs that wait are cancelled."""

    states: Annotated[tuple[State, ...], Field(examples=[["pending"]], fail_fast=True)] = QUEUED


class Move(Body):
    """Where to."""

    to: Annotated[Name, Field(examples=["slow"])]


class Weigh(Body):
    """So many turns for a key where others get one."""

    fair_key: str
    weight: Annotated[float, Field(examples=[3])]


class NewToken(Body):
    """Who may do what, and until when."""

    name: Annotated[str, Field(examples=["ci"])]
    scopes: Annotated[tuple[Scope, ...], Field(examples=[["submit", "read"]], fail_fast=True)]
    kind: Kind = "client"
    queues: Annotated[tuple[str, ...], Field(fail_fast=True)] = ()
    expires_ms: Timeout | None = None
    rate: Annotated[str | None, Field(examples=["100/1s"])] = None
