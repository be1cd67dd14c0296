"""What every reader of an agent's output is, and what it has understood by the end.

A reader is fed whole lines of stdout, in order, and says what the agent does in our words (`doings`). By the end it has
gathered `Facts`. `judged` (see `verdicts`) makes a verdict of facts and of how the process ended. A reader does no
input or output, reads no clock, and never raises: what it does not understand is an `Other`, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import JsonValue

from agentq.coordinator.model.agent_events import AgentEvent, SleepRequestEvent, SpendingEvent
from agentq.worker.agents.verdicts import VerdictKind


@dataclass(slots=True)
class AgentFacts:
    """What a reader has gathered."""

    session: str | None = None
    """The agent's own id of the conversation."""
    model: str | None = None
    has_output: bool = False
    """It has said anything at all that we understand: it is up."""
    concluded: bool = False
    """It has said its last word, unless something follows."""
    ok: bool | None = None
    """Whether that last word was a good one."""
    text: str = ""
    """What it answered."""
    structured: JsonValue = None
    kind: VerdictKind | None = None
    """What its own flags and error codes make of it; None where they say nothing."""
    exits: Mapping[int, VerdictKind] = field(default_factory=dict)
    """What exit codes of this agent mean by themselves, when it has not said its last word."""
    error: str = ""
    refused: bool = False
    """Its service refuses its requests and it goes on asking; to end it loses nothing."""
    reset_at_ms: int | None = None
    """When the limit that it met ends, where it says so."""
    denials: list[str] = field(default_factory=list)
    """Tools that it was not allowed."""
    sleep: SleepRequestEvent | None = None
    """It has asked to be woken, and what for; durable waiting is ours."""
    spent: SpendingEvent = field(default_factory=SpendingEvent)
    """Of this attempt alone: what was there before (`Before`) is taken off."""
    totals: Mapping[str, float] = field(default_factory=dict)
    """The agent's own running totals of the conversation, as they stand now; the `Before` of the next attempt."""


@dataclass(frozen=True, slots=True)
class PriorConversation:
    """What a reader has to know of the conversation before this attempt."""

    totals: Mapping[str, float] = field(default_factory=dict)
    """The agent's running totals when it was last read; nothing in a new conversation."""
    prices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Dollars for a million tokens, by model: `input`, `cached` and `output`."""
    model: str | None = None
    """The model that was asked for, where the agent does not say which it uses."""


class AgentReader(Protocol):
    """One attempt's reader."""

    facts: AgentFacts

    def read(self, line: str) -> Iterable[AgentEvent]:
        """One line of stdout, without its end."""

    def read_error(self, line: str) -> Iterable[AgentEvent]:
        """One line of stderr, for agents that tell errors there."""

    def finish(self) -> None:
        """There are no more lines: whatever can only be told from the whole is now in the facts."""
