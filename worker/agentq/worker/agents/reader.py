"""The protocol of readers of an agent's output, and the facts that a reader gathers.

A reader is fed complete lines of stdout, in order, and yields agentq's events. At the end it has gathered `AgentFacts`.
`judge_end` (see `verdict_rules`) turns the facts and the exit of the process into a verdict. A reader does no input or
output, reads no clock, and never raises: what it does not understand becomes an unknown event, or nothing.
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
    """Whether it has written anything understandable: it is up."""
    concluded: bool = False
    """Whether it has reported its result, unless something follows."""
    ok: bool | None = None
    """Whether that result is a success."""
    text: str = ""
    """Its answer."""
    structured: JsonValue = None
    kind: VerdictKind | None = None
    """What its flags and error codes mean; None where they say nothing."""
    exits: Mapping[int, VerdictKind] = field(default_factory=dict)
    """What exit codes of this agent mean without a result."""
    error: str = ""
    refused: bool = False
    """Its service refuses its requests and it keeps retrying; ending it loses nothing."""
    reset_at_ms: int | None = None
    """When its limit ends, if reported."""
    denials: list[str] = field(default_factory=list)
    """Tools that it was denied."""
    sleep: SleepRequestEvent | None = None
    """Its request to sleep and be woken, which agentq turns into a durable wait."""
    spent: SpendingEvent = field(default_factory=SpendingEvent)
    """The spending of this attempt alone, without the conversation's before it."""
    totals: Mapping[str, float] = field(default_factory=dict)
    """The agent's running totals of the conversation; the next attempt subtracts them."""


@dataclass(frozen=True, slots=True)
class PriorConversation:
    """What a reader needs to know of the conversation before this attempt."""

    totals: Mapping[str, float] = field(default_factory=dict)
    """The agent's running totals when last read; empty for a new conversation."""
    prices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Dollars per million tokens, by model: `input`, `cached` and `output`."""
    model: str | None = None
    """The requested model, for agents that do not report theirs."""


class AgentReader(Protocol):
    """Reads the output of one attempt."""

    facts: AgentFacts

    def read(self, line: str) -> Iterable[AgentEvent]:
        """Read one line of stdout, without its end."""

    def read_error(self, line: str) -> Iterable[AgentEvent]:
        """Read one line of stderr, for agents that report errors there."""

    def finish(self) -> None:
        """The output has ended: complete the facts."""
