"""Responses about runs and sessions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from agentq.coordinator.model.agent_options import AgentBudgets
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import AgentSpending, Outcome, RunSpec
from agentq.coordinator.runs.logs import LogStream
from agentq.server.http.problems import Problem
from agentq.server.schema.view_model import (
    CursorField,
    OpenResponseModel,
    QueueField,
    ResponseModel,
    RunIdField,
    StateField,
    TimeField,
)


class ReceiptView(ResponseModel):
    """The result of submitting a run."""

    id: RunIdField
    created: Annotated[bool, Field(examples=[True])]
    """Whether the run is new, instead of an existing one with the same dedupe key."""


class SubmitResult(ReceiptView):
    """The result of submitting one run."""

    notes: Annotated[list[str], Field(examples=[["There is no limit repo:acme, so it limits nothing."]])]
    """Warnings about a run that was accepted."""


class RefusedReceiptView(ReceiptView):
    """A run of several that was refused."""

    refused: Problem


class SubmitManyResult(ResponseModel):
    """The results of submitting several runs, in their order."""

    runs: list[ReceiptView | RefusedReceiptView]
    notes: list[str]
    """Warnings about runs that were accepted."""


class UnmetDemandsView(ResponseModel):
    """What no registered worker offers to some of the runs."""

    lane: Annotated[str, Field(examples=["default:5:gpu=a100"])]
    """Their queue, priority and demands."""
    demands: Annotated[list[str], Field(examples=[["gpu=a100"]])]
    because: str


class SubmissionCheckView(ResponseModel):
    """What is strange about runs, though they would be taken."""

    unset_limits: dict[str, str]
    """A sentence for each limit that they name and that is not set."""
    unoffered_agents: Annotated[list[str], Field(examples=[["claude"]])]
    unmet: list[UnmetDemandsView]
    unserved_queues: Annotated[list[str], Field(examples=[["builds"]])]
    """Those of their queues that no worker is registered for."""


class OutcomeView(ResponseModel):
    """The outcome of a run."""

    class_: Annotated[OutcomeClass, Field(alias="class")]
    exit_code: Annotated[int | None, Field(examples=[0])]
    error: str | None
    result: JsonValue


class AttemptView(ResponseModel):
    """One attempt of a run."""

    attempt: Annotated[int, Field(examples=[1])]
    worker: str | None
    claimed_at: TimeField | None
    started_at: TimeField | None
    ended_at: TimeField | None
    verb: str | None
    """The verb that ended it: finish, fail, defer, release, park or lose."""
    outcome: Outcome | None


class WaitView(ResponseModel):
    """The wait of a run that gave its slot back."""

    signals: list[str]
    approval: bool
    children: str | None
    state: JsonValue
    until: TimeField | None
    since: TimeField | None


class RunAgentView(ResponseModel):
    """The agent of a run, and its conversation."""

    name: Annotated[str | None, Field(examples=["claude"])]
    model: str | None
    account: str | None
    session: str | None
    agent_session: str | None
    host: str | None
    stays: bool
    """Whether the conversation is bound to its host."""
    verdict: str | None
    denials: list[str]
    spent: AgentSpending | None


class RunSummaryView(OpenResponseModel):
    """A run in a list."""

    id: RunIdField
    state: StateField
    reason: str | None
    queue: QueueField
    priority: Annotated[int, Field(examples=[5])]
    demands: dict[str, str | list[str]] | None
    """In a list that is answered whole, those of the other protocol, whose `tags` are a list."""
    attempt: Annotated[int, Field(examples=[1])]
    worker: Annotated[str | None, Field(examples=["build01-4711-x"])]
    created_at: TimeField


class RunView(OpenResponseModel):
    """A run with all fields."""

    id: RunIdField
    kind: Annotated[Literal["command", "function", "agent"], Field(examples=["command"])]
    state: StateField
    reason: str | None
    """Why a run is blocked or deferred."""
    queue: QueueField
    priority: Annotated[int, Field(examples=[5])]
    attempt: int
    worker: Annotated[str | None, Field(examples=["build01-4711-x"])]
    schedule: str | None
    made_by: Annotated[str | None, Field(examples=["3f09c2ab41d7"])]
    """The token that submitted it, if one did."""
    created_at: TimeField
    due_at: TimeField | None
    claimed_at: TimeField | None
    started_at: TimeField | None
    finished_at: TimeField | None
    waits_for: WaitView | None
    agent: RunAgentView | None
    outcome: OutcomeView | None
    attempts: list[AttemptView]
    spec: Annotated[RunSpec, Field(examples=[{"kind": "command", "argv": ["make", "test"]}])]
    """The fields that differ from the defaults; the spec can be submitted again."""


class RunViewPage(ResponseModel):
    """A page of runs. It may be short, or empty, and not be the last."""

    runs: list[RunSummaryView]
    next: CursorField


class RunStateView(ResponseModel):
    """The current state of a run."""

    id: RunIdField
    state: StateField


class LogEntryView(ResponseModel):
    """A piece of a run's output."""

    id: Annotated[str, Field(examples=["1895754600000-0"])]
    at: TimeField
    attempt: Annotated[int, Field(examples=[1])]
    stream: LogStream
    text: Annotated[str, Field(examples=["ok\n"])]
    from_byte: int
    """The number of bytes of the log before it."""


class LogViewPage(ResponseModel):
    """A page of a log."""

    entries: list[LogEntryView]
    next: Annotated[str, Field(examples=["1895754600000-0"])]
    """The `after` of the next page."""
    ended: bool
    """Whether the log is complete."""


class RunResultView(OpenResponseModel):
    """The outcome of a run, with the end of its output."""

    id: RunIdField
    state: StateField
    outcome: OutcomeView | None
    tail: Annotated[str | None, Field(examples=["ok\n"])]


class AttemptViewList(ResponseModel):
    """All stored attempts, the oldest first."""

    attempts: list[AttemptView]


class ChildrenView(ResponseModel):
    """The live children of a run, the oldest hundred by name."""

    live: int
    runs: list[RunIdField]


class SignalView(ResponseModel):
    """A signal that a run has not taken yet."""

    id: str
    name: Annotated[str, Field(examples=["deployed"])]
    data: JsonValue
    at: TimeField
    by: Annotated[str, Field(examples=["ci"])]


class SignalViewList(ResponseModel):
    """The signals that a run has not taken yet, the oldest first."""

    signals: list[SignalView]


class ExplanationView(ResponseModel):
    """Why a run is in its state, the most important sentence first."""

    id: RunIdField
    state: StateField
    because: Annotated[list[str], Field(examples=[["No worker serves the queue default."]])]


class EventView(OpenResponseModel):
    """What happened to a run, a plan or a worker."""

    id: Annotated[str, Field(examples=["1700000000000-0"])]
    at: TimeField
    event: Annotated[str, Field(examples=["completed"])]
    run: str
    state: str
    worker: str | None
    detail: str


class RecentEventList(ResponseModel):
    """The newest events, the oldest of them first."""

    events: list[EventView]
    next: Annotated[str, Field(examples=["1700000000000-0"])]
    """Where to go on after them."""


class SessionView(OpenResponseModel):
    """A conversation with an agent."""

    name: Annotated[str, Field(examples=["review"])]
    agent: Annotated[str, Field(examples=["claude"])]
    state: Literal["open", "closed"]
    live: str | None
    """The live turn."""
    turns_in_line: int
    last: str | None
    model: str | None
    cwd: str | None
    account: str | None
    host: str | None
    stays: bool
    agent_session: str | None
    forked_from: str | None
    budgets: AgentBudgets | None
    spent: AgentSpending
    made_by: Annotated[str | None, Field(examples=["3f09c2ab41d7"])]
    """The token that created it, if one did."""
    created_at: TimeField
    used_at: TimeField
    closed_at: TimeField | None


class SessionViewPage(ResponseModel):
    """A page of sessions, the last used first."""

    sessions: list[SessionView]
    next: CursorField


class TurnViewPage(RunViewPage):
    """A page of a session's turns, newest first."""

    line: list[RunIdField]
    """The turns that have not ended, the first first."""
