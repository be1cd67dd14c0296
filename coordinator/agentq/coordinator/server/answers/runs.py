"""What is answered of runs and sessions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from agentq.coordinator.lifecycle import OutcomeClass
from agentq.coordinator.logs import Stream
from agentq.coordinator.run import Outcome, RunSpec, Spending
from agentq.coordinator.server.answers.answer import Answer, At, Both, Id, Next, Queued, Stands
from agentq.coordinator.server.problems import Problem
from agentq.coordinator.turn import Budgets


class Receipt(Answer):
    """What became of a run that was submitted."""

    id: Id
    created: Annotated[bool, Field(examples=[True])]
    """Whether it is new, rather than one that is there with the same dedupe key."""


class Submitted(Receipt):
    """What became of one run that was submitted."""

    notes: Annotated[list[str], Field(examples=[["There is no limit repo:acme, so it limits nothing."]])]
    """What is strange about it, though it was taken."""


class Refused(Receipt):
    """One of many that the store refused."""

    refused: Problem


class Receipts(Answer):
    """What became of many, in their order."""

    runs: list[Receipt | Refused]
    notes: list[str]
    """What is strange about them, though they were taken."""


class Ended(Answer):
    """How it ended."""

    class_: Annotated[OutcomeClass, Field(alias="class")]
    exit_code: Annotated[int | None, Field(examples=[0])]
    error: str | None
    result: JsonValue


class Attempt(Answer):
    """One try at a run."""

    attempt: Annotated[int, Field(examples=[1])]
    worker: str | None
    claimed_at: At | None
    started_at: At | None
    ended_at: At | None
    verb: str | None
    """What ended it: finish, fail, defer, release, park or lose."""
    outcome: Outcome | None


class WaitsFor(Answer):
    """What a run that gave its slot back waits for."""

    signals: list[str]
    approval: bool
    children: str | None
    state: JsonValue
    until: At | None
    since: At | None


class Agent(Answer):
    """The agent of a run, and the conversation."""

    name: Annotated[str | None, Field(examples=["claude"])]
    model: str | None
    account: str | None
    session: str | None
    agent_session: str | None
    host: str | None
    stays: bool
    """Whether the conversation cannot leave its host."""
    verdict: str | None
    denials: list[str]
    spent: Spending | None


class RunSummary(Both):
    """A run in a list."""

    id: Id
    state: Stands
    reason: str | None
    queue: Queued
    priority: Annotated[int, Field(examples=[5])]
    demands: dict[str, str | list[str]] | None
    """In a list that is answered whole those of the other protocol, whose `tags` are a list."""
    attempt: Annotated[int, Field(examples=[1])]
    worker: Annotated[str | None, Field(examples=["build01-4711-x"])]
    created_at: At


class Run(Both):
    """A run, whole."""

    id: Id
    kind: Annotated[Literal["command", "function", "agent"], Field(examples=["command"])]
    state: Stands
    reason: str | None
    """What a blocked run waits for, or why it is put off."""
    queue: Queued
    priority: Annotated[int, Field(examples=[5])]
    attempt: int
    worker: Annotated[str | None, Field(examples=["build01-4711-x"])]
    schedule: str | None
    made_by: Annotated[str | None, Field(examples=["3f09c2ab41d7"])]
    """The token that made it, if one did."""
    created_at: At
    due_at: At | None
    claimed_at: At | None
    started_at: At | None
    finished_at: At | None
    waits_for: WaitsFor | None
    agent: Agent | None
    outcome: Ended | None
    attempts: list[Attempt]
    spec: Annotated[RunSpec, Field(examples=[{"kind": "command", "argv": ["make", "test"]}])]
    """What differs from the defaults; it can be submitted again."""


class RunPage(Answer):
    """A page of runs. It may be short, or empty, and not be the last."""

    runs: list[RunSummary]
    next: Next


class Moved(Answer):
    """The state that a run is in now."""

    id: Id
    state: Stands


class LogEntry(Answer):
    """A piece of what a run wrote."""

    id: Annotated[str, Field(examples=["1895754600000-0"])]
    at: At
    attempt: Annotated[int, Field(examples=[1])]
    stream: Stream
    text: Annotated[str, Field(examples=["ok\n"])]
    from_byte: int
    """How many bytes of the log come before it."""


class LogPage(Answer):
    """A piece of a log."""

    entries: list[LogEntry]
    next: Annotated[str, Field(examples=["1895754600000-0"])]
    """The `after` of the next piece."""
    ended: bool
    """Whether this was all that there will be."""


class Result(Both):
    """How a run ended, with the end of what it wrote."""

    id: Id
    state: Stands
    outcome: Ended | None
    tail: Annotated[str | None, Field(examples=["ok\n"])]


class Attempts(Answer):
    """All tries that are kept, the oldest first."""

    attempts: list[Attempt]


class Children(Answer):
    """The live children of a run, the oldest hundred by name."""

    live: int
    runs: list[Id]


class Why(Answer):
    """Why a run is where it is, the most important sentence first."""

    id: Id
    state: Stands
    because: Annotated[list[str], Field(examples=[["No worker serves the queue default."]])]


class Session(Both):
    """A conversation with an agent."""

    name: Annotated[str, Field(examples=["review"])]
    agent: Annotated[str, Field(examples=["claude"])]
    state: Literal["open", "closed"]
    live: str | None
    """The turn that goes on."""
    turns_in_line: int
    last: str | None
    model: str | None
    cwd: str | None
    account: str | None
    host: str | None
    stays: bool
    agent_session: str | None
    forked_from: str | None
    budgets: Budgets | None
    spent: Spending
    made_by: Annotated[str | None, Field(examples=["3f09c2ab41d7"])]
    """The token that made it, if one did."""
    created_at: At
    used_at: At
    closed_at: At | None


class SessionPage(Answer):
    """A page of sessions, the last used first."""

    sessions: list[Session]
    next: Next


class ForeignSession(Both):
    """A session in the words of other systems."""

    session_id: Annotated[str, Field(examples=["ses_0123456789ab"])]
    session_name: str
    status: Annotated[str, Field(examples=["finished"])]


class AllSessions(Answer):
    """All sessions, where neither `limit` nor `cursor` was asked with: in the words of other systems."""

    sessions: list[ForeignSession]


class TurnPage(RunPage):
    """A page of a session's turns, newest first."""

    line: list[Id]
    """Those that have not ended, the first first."""
