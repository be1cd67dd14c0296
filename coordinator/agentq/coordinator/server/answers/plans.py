"""What is answered of plans and schedules."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agentq.coordinator.lifecycle import OutcomeClass, State
from agentq.coordinator.plans import OnFailed
from agentq.coordinator.run import RunSpec
from agentq.coordinator.schedules import Overlap
from agentq.coordinator.server.answers.answer import Answer, At, Id, Next, Stands


class Plan(Answer):
    """A plan, and how far it is."""

    id: Annotated[str, Field(examples=["release-3f09c2ab4"])]
    name: Annotated[str, Field(examples=["release"])]
    state: Annotated[str, Field(examples=["running"])]
    on_failed: OnFailed
    tasks: Annotated[int, Field(examples=[2])]
    expected: Annotated[int, Field(examples=[2])]
    """How many it is to have; fewer are there if its submit was cut."""
    counts: Annotated[dict[State, int], Field(examples=[{"completed": 1, "running": 1}])]
    stopped_why: str | None
    made_by: Annotated[str | None, Field(examples=["3f09c2ab41d7"])]
    """The token that made it, if one did."""
    created_at: At
    ended_at: At | None


class PlanPage(Answer):
    """A page of plans, newest first."""

    plans: list[Plan]
    next: Next


class Task(Answer):
    """A task of a plan."""

    id: Annotated[str, Field(examples=["test"])]
    run: Id
    agent: Annotated[str | None, Field(examples=["claude"])]
    state: Stands
    reason: str | None
    attempt: int
    worker: str | None
    claimed_at: At | None
    started_at: At | None
    finished_at: At | None
    class_: Annotated[OutcomeClass | None, Field(alias="class")]
    cost_usd: float | None


class TaskPage(Answer):
    """A page of tasks, in the order of their plan."""

    tasks: list[Task]
    next: Next


class TasksAdded(Answer):
    """The runs of tasks that were added, by their ids."""

    runs: Annotated[dict[str, Id], Field(examples=[{"docs": "run_01k9zq3c5007m2x4c8r1tnq"}])]


class Schedule(Answer):
    """A schedule, and when it is due."""

    name: Annotated[str, Field(examples=["nightly"])]
    state: Annotated[str, Field(examples=["active"])]
    why: str | None
    cron: Annotated[str | None, Field(examples=["30 2 * * *"])]
    tz: Annotated[str | None, Field(examples=["Europe/Berlin"])]
    every_ms: int | None
    at: At | None
    until: At | None
    jitter_ms: int | None
    missed: Annotated[str | None, Field(examples=["none"])]
    catch_up_ms: int | None
    overlap: Overlap
    next_at: At | None
    last_at: At | None
    made_by: Annotated[str | None, Field(examples=["3f09c2ab41d7"])]
    """The token that made it, if one did."""
    created_at: At | None
    paused_at: At | None
    ended_at: At | None
    live: list[Id]
    """The runs of it that have not ended."""
    spec: RunSpec | None


class ScheduleAhead(Schedule):
    """A schedule, with its next five times."""

    next: list[At]


class Schedules(Answer):
    """All schedules, by name."""

    schedules: list[Schedule]


class Happening(Answer):
    """What became of a tick."""

    what: Annotated[str, Field(examples=["fired"])]
    tick_at: At | None
    before: At | None
    at: At
    run: str | None
    why: str | None


class History(Answer):
    """What became of a schedule's ticks, newest first."""

    history: list[Happening]
