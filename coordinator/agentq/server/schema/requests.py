"""Request models for bodies that are not runs; unknown fields are refused."""

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

from agentq.coordinator import bounds as most
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.model.agent_options import AgentBudgets
from agentq.coordinator.model.field_types import ModelName, Name, RunId, Text, TimeoutMs
from agentq.coordinator.model.lifecycle import QUEUED_STATES, State
from agentq.coordinator.model.workspace import WorkspaceSpec
from agentq.coordinator.plans.verbs import OnFailedPolicy, RetrySelection
from agentq.coordinator.queues.limits import LimitFullPolicy, LimitRate
from agentq.coordinator.schedules.verbs import OverlapPolicy
from agentq.coordinator.security.tokens import TokenKind, TokenScope, parse_rate

ReasonText = Annotated[str, StringConstraints(max_length=most.ERROR_CHARACTERS)]


class RequestModel(BaseModel):
    """Refuses unknown fields instead of ignoring them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _is_narrow(cls, value: Any) -> Any:
        """Many unknown fields are one error, since describing each takes time."""
        if isinstance(value, dict) and len(value) > most.INPUT_ERRORS:
            raise ValueError(f"it has {len(value)} fields; there are {len(cls.model_fields)}")
        return value


class CancelRunRequest(RequestModel):
    """The reason, and how long the worker may take to confirm the stop."""

    reason: Annotated[ReasonText, Field(examples=["not needed any more"])] = "cancelled on request"
    stop_ms: TimeoutMs = most.STOP_DEADLINE_MS


class SignalRunRequest(RequestModel):
    """A signal for a run."""

    name: Annotated[Name, Field(examples=["deployed"])]
    data: JsonValue = None


class ApprovalRequest(RequestModel):
    """A comment with the decision."""

    comment: ReasonText = ""


class ReasonRequest(RequestModel):
    """The reason of an action, shown with its effect."""

    why: ReasonText = ""


class CreateSessionRequest(RequestModel):
    """A conversation with an agent."""

    name: Name | None = None
    agent: Annotated[Name | None, Field(examples=["claude"])] = None
    """Optional for a fork, which has the agent of its origin."""
    cwd: Text | None = None
    model: ModelName | None = None
    budgets: AgentBudgets | None = None
    fork: Name | None = None


class ForkSessionRequest(RequestModel):
    """The name of the fork."""

    name: Name | None = None


class CloseSessionRequest(RequestModel):
    """Whether queued turns are cancelled instead of continuing."""

    cancel: bool = False


class PutScheduleRequest(RequestModel):
    """The time, by one of `cron`, `every_ms` and `at_ms`, and the run, as a body of `POST /runs`."""

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
    overlap: OverlapPolicy = OverlapPolicy.SKIP


class PlanTaskRequest(RequestModel):
    """A task: its id in the plan, its run as a body of `POST /runs`, and the tasks that must complete before it."""

    id: Annotated[Name, Field(examples=["test"])]
    run: Annotated[dict[str, Any], Field(examples=[{"kind": "command", "argv": ["make", "test"]}])]
    needs: Annotated[tuple[Name, ...], Field(examples=[["build"]], fail_fast=True)] = ()
    inputs: Annotated[tuple[Name, ...], Field(fail_fast=True)] = ()
    """Tasks whose outcomes are used in its prompt, arguments or environment."""


class CreatePlanRequest(RequestModel):
    """Tasks that depend on each other, and what holds for all of them."""

    name: Annotated[Name, Field(examples=["release"])]
    id: Annotated[Name | None, Field(examples=["release-3f09c2ab4"])] = None
    """The server makes one if none is given. Sent again with the same body, it completes the same plan."""
    on_failed: OnFailedPolicy = "skip"
    max_parallel: Annotated[int | None, Field(ge=1)] = None
    """How many of its tasks may run at once."""
    budget_usd: Annotated[float | None, Field(gt=0)] = None
    """Once its tasks have cost so much, no more of them begin."""
    given: Annotated[dict[Name, RunId], Field(examples=[{}])] = {}
    """Runs that have ended, by the names by which `inputs` of its tasks take from them."""
    queues: Annotated[tuple[Name, ...], Field(fail_fast=True)] = ("default",)
    """Where its tasks wait; like all that follows, for whoever goes on with it later."""
    crewed: bool = False
    file: Text = ""
    folder: Text = ""
    host: Text = ""
    repository: Text | None = None
    local: bool = False
    base: Text | None = None
    target: Text | None = None
    update_checkout: bool = False
    checked_out: Text | None = None
    workspace: WorkspaceSpec | None = None
    """What tasks that are added later work in."""
    shapes: dict[Name, str] = {}
    """A digest of each task of its file, to see which have changed when it is run again."""
    tasks: Annotated[tuple[PlanTaskRequest, ...], Field(min_length=1, fail_fast=True)]


class AddTasksRequest(RequestModel):
    """The tasks to add."""

    tasks: Annotated[tuple[PlanTaskRequest, ...], Field(min_length=1, fail_fast=True)]


class RetryPlanRequest(RequestModel):
    """The tasks to retry: those that failed, all that did not complete, or one."""

    which: RetrySelection = "failed"
    task: Name | None = None


class PutLimitRequest(RequestModel):
    """The size of a limit: runs at once, units in a time, or both."""

    max: Annotated[int | None, Field(ge=0, examples=[3])] = None
    rate: Annotated[LimitRate | None, BeforeValidator(lambda rate: _parse_rate(rate))] = None
    """Or in short form, as `100/1m`."""
    when_full: LimitFullPolicy = LimitFullPolicy.QUEUE


def _parse_rate(rate: Any) -> Any:
    return parse_rate(rate)._asdict() if isinstance(rate, str) else rate


class ShutLimitRequest(RequestModel):
    """Until when no run is admitted, and why."""

    until_ms: Annotated[int, Field(le=most.DUE_AT_MS_MAX), AfterValidator(lambda at_ms: _check_future(at_ms))]
    """A time, in milliseconds since 1970."""
    why: ReasonText = ""


def _check_future(at_ms: int) -> int:
    if at_ms <= wall_ms():
        raise ValueError("it is a time to come, in milliseconds since 1970")
    return at_ms


class PurgeQueueRequest(RequestModel):
    """The states of the runs to cancel."""

    states: Annotated[tuple[State, ...], Field(examples=[["pending"]], fail_fast=True)] = QUEUED_STATES


class MoveRunsRequest(RequestModel):
    """The queue to move runs to."""

    to: Annotated[Name, Field(examples=["slow"])]


class FairWeightRequest(RequestModel):
    """The share of a key, where other keys have 1."""

    fair_key: str
    weight: Annotated[float, Field(examples=[3])]


class CreateTokenRequest(RequestModel):
    """The scopes and the expiry of a token."""

    name: Annotated[str, Field(examples=["ci"])]
    scopes: Annotated[tuple[TokenScope, ...], Field(examples=[["submit", "read"]], fail_fast=True)]
    kind: TokenKind = "client"
    queues: Annotated[tuple[str, ...], Field(fail_fast=True)] = ()
    expires_ms: TimeoutMs | None = None
    rate: Annotated[str | None, Field(examples=["100/1s"])] = None
