"""Responses about plans and schedules."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import AgentSpending, RunSpec
from agentq.coordinator.model.workspace import WorkspaceSpec
from agentq.coordinator.plans.verbs import OnFailedPolicy
from agentq.coordinator.schedules.verbs import OverlapPolicy
from agentq.server.schema.view_model import CursorField, ResponseModel, RunIdField, StateField, TimeField


class PlanView(ResponseModel):
    """A plan and its progress."""

    id: Annotated[str, Field(examples=["release-3f09c2ab4"])]
    name: Annotated[str, Field(examples=["release"])]
    state: Annotated[str, Field(examples=["running"])]
    sealed: bool
    """Whether all of its tasks are there."""
    stopped: Annotated[str | None, Field(examples=["cancelled"])]
    """How it ends, or has ended, since it was stopped; none if it was not."""
    retrying: bool
    """Whether tasks of it that have ended are being let begin again."""
    on_failed: OnFailedPolicy
    tasks: Annotated[int, Field(examples=[2])]
    expected: Annotated[int, Field(examples=[2])]
    """The number of tasks that it should have; it has fewer if its submit was interrupted."""
    counts: Annotated[dict[State, int], Field(examples=[{"completed": 1, "running": 1}])]
    stopped_why: str | None
    made_by: Annotated[str | None, Field(examples=["3f09c2ab41d7"])]
    """The token that created it, if one did."""
    created_at: TimeField
    ended_at: TimeField | None


class PlanViewPage(ResponseModel):
    """A page of plans, newest first."""

    plans: list[PlanView]
    next: CursorField


class PlanHeaderView(ResponseModel):
    """What holds for a plan as a whole, as it was submitted."""

    name: Annotated[str, Field(examples=["release"])]
    file: str
    folder: str
    host: Annotated[str, Field(examples=["build-1"])]
    """Where it was submitted."""
    on_failed: OnFailedPolicy
    max_parallel: int | None
    budget_usd: float | None
    queues: list[str]
    """Where its tasks wait."""
    crewed: bool
    """Whether its tasks wait for workers that were started for it alone."""
    repository: str | None
    local: bool
    """Whether the repository is a folder of that host."""
    base: str | None
    target: str | None
    update_checkout: bool
    checked_out: str | None
    """The branch that was checked out there."""
    workspace: WorkspaceSpec | None
    """What tasks that are added later work in."""
    shapes: Annotated[dict[str, str], Field(examples=[{"test": "0f3c41d2a9b7"}])]
    """A digest of each task of its file."""
    given: Annotated[dict[str, RunIdField], Field(examples=[{}])]
    """Runs of earlier plans of the file that were not done again, by their tasks."""


class PlanTaskView(ResponseModel):
    """A task of a plan."""

    id: Annotated[str, Field(examples=["test"])]
    run: RunIdField
    agent: Annotated[str | None, Field(examples=["claude"])]
    state: StateField
    reason: str | None
    attempt: int
    worker: str | None
    created_at: TimeField
    claimed_at: TimeField | None
    started_at: TimeField | None
    finished_at: TimeField | None
    class_: Annotated[OutcomeClass | None, Field(alias="class")]
    cost_usd: float | None
    spent: AgentSpending | None


class PlanTaskViewPage(ResponseModel):
    """A page of tasks, in the order of their plan."""

    tasks: list[PlanTaskView]
    next: CursorField


class AddTasksResult(ResponseModel):
    """The runs of the added tasks, by task id."""

    runs: Annotated[dict[str, RunIdField], Field(examples=[{"docs": "run_01k9zq3c5007m2x4c8r1tnq"}])]


class ScheduleView(ResponseModel):
    """A schedule and its next tick."""

    name: Annotated[str, Field(examples=["nightly"])]
    state: Annotated[str, Field(examples=["active"])]
    why: str | None
    cron: Annotated[str | None, Field(examples=["30 2 * * *"])]
    tz: Annotated[str | None, Field(examples=["Europe/Berlin"])]
    every_ms: int | None
    start_at: TimeField | None
    """From when the interval counts."""
    at: TimeField | None
    until: TimeField | None
    jitter_ms: int | None
    missed: Annotated[str | None, Field(examples=["none"])]
    catch_up_ms: int | None
    overlap: OverlapPolicy
    next_at: TimeField | None
    last_at: TimeField | None
    made_by: Annotated[str | None, Field(examples=["3f09c2ab41d7"])]
    """The token that created it, if one did."""
    created_at: TimeField | None
    paused_at: TimeField | None
    ended_at: TimeField | None
    live: list[RunIdField]
    """Its runs that have not ended."""
    spec: RunSpec | None


class ScheduleDetailView(ScheduleView):
    """A schedule with its next five ticks."""

    next: list[TimeField]


class ScheduleViewList(ResponseModel):
    """All schedules, by name."""

    schedules: list[ScheduleView]


class ScheduleTickView(ResponseModel):
    """The result of a tick."""

    what: Annotated[str, Field(examples=["fired"])]
    tick_at: TimeField | None
    before: TimeField | None
    at: TimeField
    run: str | None
    why: str | None


class ScheduleHistoryView(ResponseModel):
    """The results of a schedule's ticks, newest first."""

    history: list[ScheduleTickView]
