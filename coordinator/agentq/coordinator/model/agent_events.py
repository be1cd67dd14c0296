"""Agent events: one line of JSON per event, in the stream `event` of the run's log.

Every agent's own events become these types, so that people, dashboards and budgets read one format.
An unknown event passes through as `other`. Texts are cut to `AGENT_EVENT_CHARACTERS`; the agent's own lines are
in the stream `out` beside them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

AGENT_EVENT_CHARACTERS = 4 << 10


class AgentEvent(BaseModel):
    """Base of the agent events."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class StartedEvent(AgentEvent):
    """The agent has started; a process may report it several times."""

    type: Literal["began"] = "began"
    session: str | None = None
    """The agent's own id of the conversation."""
    model: str | None = None


class ModelTurnEvent(AgentEvent):
    """A request to the model; the number counts within this attempt."""

    type: Literal["turn"] = "turn"
    number: int


class TextEvent(AgentEvent):
    """Text of the model for the user."""

    type: Literal["text"] = "text"
    text: str


class ThoughtEvent(AgentEvent):
    """The model's reasoning."""

    type: Literal["thought"] = "thought"
    text: str


class ToolCallEvent(AgentEvent):
    """A tool is used."""

    type: Literal["tool"] = "tool"
    id: str = ""
    tool: str
    about: str = ""
    """The command, path or query that it is about, on one line."""
    input: JsonValue = None


class ToolResultEvent(AgentEvent):
    """A tool has ended."""

    type: Literal["tool_end"] = "tool_end"
    id: str = ""
    tool: str = ""
    ok: bool = True
    text: str = ""


class FileChangeEvent(AgentEvent):
    """A file was changed."""

    type: Literal["file"] = "file"
    path: str
    how: Literal["added", "changed", "deleted"] = "changed"


class TodoListEvent(AgentEvent):
    """The agent's whole to-do list: each entry is `todo`, `doing` or `done`."""

    type: Literal["plan"] = "plan"
    items: list[tuple[str, Literal["todo", "doing", "done"]]]


class SpendingEvent(AgentEvent):
    """The total spending of this attempt so far; where an agent reports running totals, the difference."""

    type: Literal["spent"] = "spent"
    cost_usd: float | None = None
    """None where the agent does not report a cost and no price is known."""
    input_tokens: int = 0
    """All input tokens, those from the cache included."""
    cached_tokens: int = 0
    output_tokens: int = 0
    turns: int = 0


class ThrottledEvent(AgentEvent):
    """The agent waits before it asks its service again: a throttle, an overload."""

    type: Literal["held"] = "held"
    why: str
    for_ms: int | None = None


class AccountLimitEvent(AgentEvent):
    """The account is at its limit, or nearly."""

    type: Literal["limit"] = "limit"
    reached: bool
    until_ms: int | None = None
    what: str = ""


class ToolDeniedEvent(AgentEvent):
    """A tool was not allowed."""

    type: Literal["denied"] = "denied"
    tool: str
    why: str = ""


class SleepRequestEvent(AgentEvent):
    """The agent asks to be woken later with this prompt."""

    type: Literal["sleep"] = "sleep"
    for_ms: int
    prompt: str = ""
    why: str = ""


class ResultEvent(AgentEvent):
    """The agent reports that it is done; more events may follow."""

    type: Literal["result"] = "result"
    ok: bool
    text: str = ""


class UnknownEvent(AgentEvent):
    """An event that this version does not know."""

    type: Literal["other"] = "other"
    raw: JsonValue


AnyAgentEvent = Annotated[
    StartedEvent | ModelTurnEvent | TextEvent | ThoughtEvent | ToolCallEvent | ToolResultEvent | FileChangeEvent
    | TodoListEvent | SpendingEvent | ThrottledEvent | AccountLimitEvent | ToolDeniedEvent | SleepRequestEvent
    | ResultEvent | UnknownEvent,
    Field(discriminator="type"),
]  # fmt: skip
_event_adapter: TypeAdapter[Any] = TypeAdapter(AnyAgentEvent, config=ConfigDict(defer_build=True))


def parse_agent_event(line: str) -> AnyAgentEvent:
    """Parse an event from its stored JSON."""
    read: AnyAgentEvent = _event_adapter.validate_json(line)
    return read


def truncate_text(text: str) -> str:
    """A text, cut to the length of an event's text."""
    if len(text) <= AGENT_EVENT_CHARACTERS:
        return text
    return f"{text[:AGENT_EVENT_CHARACTERS]}… ({len(text) - AGENT_EVENT_CHARACTERS} characters more)"
