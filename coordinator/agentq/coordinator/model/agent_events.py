"""Agent events: one line of JSON per event, in the stream `event` of the run's log.

Every agent's own events become these, whatever it calls them, so that people, dashboards and budgets read one language.
What is not understood passes through as `other`. Texts are cut to `AGENT_EVENT_CHARACTERS`; the agent's own lines are
in the stream `out` beside them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

AGENT_EVENT_CHARACTERS = 4 << 10


class AgentEvent(BaseModel):
    """One of these."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class StartedEvent(AgentEvent):
    """The agent is up; a process may say so several times."""

    type: Literal["began"] = "began"
    session: str | None = None
    """The agent's own id of the conversation."""
    model: str | None = None


class ModelTurnEvent(AgentEvent):
    """The model was asked once more; the number is of this attempt."""

    type: Literal["turn"] = "turn"
    number: int


class TextEvent(AgentEvent):
    """Words for whoever asked."""

    type: Literal["text"] = "text"
    text: str


class ThoughtEvent(AgentEvent):
    """Words of the model to itself."""

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
    """What it means to do, as a whole: each with `todo`, `doing` or `done`."""

    type: Literal["plan"] = "plan"
    items: list[tuple[str, Literal["todo", "doing", "done"]]]


class SpendingEvent(AgentEvent):
    """What this attempt has spent so far, in all; differences are taken where an agent tells running totals."""

    type: Literal["spent"] = "spent"
    cost_usd: float | None = None
    """None where the agent does not tell, and no price is known."""
    input_tokens: int = 0
    """All that was read, from the cache as well."""
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
    """It wants to be woken later, and asked this."""

    type: Literal["sleep"] = "sleep"
    for_ms: int
    prompt: str = ""
    why: str = ""


class ResultEvent(AgentEvent):
    """Its word that it is done, which may be followed by more."""

    type: Literal["result"] = "result"
    ok: bool
    text: str = ""


class UnknownEvent(AgentEvent):
    """Something that this version does not know."""

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
    """Read one back."""
    read: AnyAgentEvent = _event_adapter.validate_json(line)
    return read


def truncate_text(text: str) -> str:
    """As much of a text as is told."""
    if len(text) <= AGENT_EVENT_CHARACTERS:
        return text
    return f"{text[:AGENT_EVENT_CHARACTERS]}… ({len(text) - AGENT_EVENT_CHARACTERS} characters more)"
