"""What an agent does, as it is told: one line of JSON for each doing, in the stream `event` of its run's log.

Every agent's own events become these, whatever it calls them, so that people, dashboards and budgets read one language.
What is not understood passes through as `other`. Texts are cut to `DOING_CHARACTERS`; the agent's own lines are in the
stream `out` beside them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

DOING_CHARACTERS = 4 << 10


class Doing(BaseModel):
    """One of these."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Began(Doing):
    """The agent is up; a process may say so several times."""

    type: Literal["began"] = "began"
    session: str | None = None
    """The agent's own id of the conversation."""
    model: str | None = None


class Turned(Doing):
    """The model was asked once more; the number is of this attempt."""

    type: Literal["turn"] = "turn"
    number: int


class Said(Doing):
    """Words for whoever asked."""

    type: Literal["text"] = "text"
    text: str


class Thought(Doing):
    """Words of the model to itself."""

    type: Literal["thought"] = "thought"
    text: str


class Called(Doing):
    """A tool is used."""

    type: Literal["tool"] = "tool"
    id: str = ""
    tool: str
    about: str = ""
    """The command, path or query that it is about, on one line."""
    input: JsonValue = None


class Returned(Doing):
    """A tool has ended."""

    type: Literal["tool_end"] = "tool_end"
    id: str = ""
    tool: str = ""
    ok: bool = True
    text: str = ""


class Changed(Doing):
    """A file was changed."""

    type: Literal["file"] = "file"
    path: str
    how: Literal["added", "changed", "deleted"] = "changed"


class Planned(Doing):
    """What it means to do, as a whole: each with `todo`, `doing` or `done`."""

    type: Literal["plan"] = "plan"
    items: list[tuple[str, Literal["todo", "doing", "done"]]]


class Spent(Doing):
    """What this attempt has spent so far, in all; differences are taken where an agent tells running totals."""

    type: Literal["spent"] = "spent"
    cost_usd: float | None = None
    """None where the agent does not tell, and no price is known."""
    input_tokens: int = 0
    """All that was read, from the cache as well."""
    cached_tokens: int = 0
    output_tokens: int = 0
    turns: int = 0


class Held(Doing):
    """The agent waits before it asks its service again: a throttle, an overload."""

    type: Literal["held"] = "held"
    why: str
    for_ms: int | None = None


class Limited(Doing):
    """The account is at its limit, or nearly."""

    type: Literal["limit"] = "limit"
    reached: bool
    until_ms: int | None = None
    what: str = ""


class Denied(Doing):
    """A tool was not allowed."""

    type: Literal["denied"] = "denied"
    tool: str
    why: str = ""


class Sleeps(Doing):
    """It wants to be woken later, and asked this."""

    type: Literal["sleep"] = "sleep"
    for_ms: int
    prompt: str = ""
    why: str = ""


class Concluded(Doing):
    """Its word that it is done, which may be followed by more."""

    type: Literal["result"] = "result"
    ok: bool
    text: str = ""


class Other(Doing):
    """Something that this version does not know."""

    type: Literal["other"] = "other"
    raw: JsonValue


AnyDoing = Annotated[
    Began | Turned | Said | Thought | Called | Returned | Changed | Planned | Spent | Held | Limited | Denied | Sleeps
    | Concluded | Other,
    Field(discriminator="type"),
]  # fmt: skip
_doing: TypeAdapter[Any] = TypeAdapter(AnyDoing, config=ConfigDict(defer_build=True))


def doing_of(line: str) -> AnyDoing:
    """Read one back."""
    read: AnyDoing = _doing.validate_json(line)
    return read


def cut(text: str) -> str:
    """As much of a text as is told."""
    if len(text) <= DOING_CHARACTERS:
        return text
    return f"{text[:DOING_CHARACTERS]}… ({len(text) - DOING_CHARACTERS} characters more)"
