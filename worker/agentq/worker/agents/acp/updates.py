"""Turns the updates of an agent, in version 1 of the Agent Client Protocol, into agentq's events. Its tasks:

1. Join the pieces of a text: an event is a paragraph or more, not a syllable.
2. Report a tool call once, when its use is known, and its end, with the files that it changed.
3. Keep the last message as the answer, and the running totals of spending.

Malformed updates become unknown events, or are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.model.agent_events import (
    AgentEvent,
    FileChangeEvent,
    TextEvent,
    ThoughtEvent,
    TodoListEvent,
    ToolCallEvent,
    ToolResultEvent,
    UnknownEvent,
    truncate_text,
)

Message = dict[str, Any]
SendEvent = Callable[[AgentEvent], None]

TEXT_CHUNK_CHARACTERS = 4 << 10
TEXT_CHUNK_MS = 2_000
ANSWER_CHARACTERS = 256 << 10
INPUT_CHARACTERS = 512
"""Length limit of each text in the input of a tool."""
INPUT_PARTS = 32
SUMMARY_CHARACTERS = 300
CALLS_MAX = 1_000
"""How many tool calls are tracked at a time."""
PATH_FIELDS = (
    "file_path",
    "filePath",
    "path",
    "abs_path",
    "notebook_path",
    "source",
    "destination",
    "old_path",
    "new_path",
)
"""Fields of a tool's input in which agents name files."""
_PLAN_STATES: dict[str, Literal["todo", "doing", "done"]] = {"in_progress": "doing", "completed": "done"}
_IGNORED_UPDATES = frozenset(
    (
        *("user_message_chunk", "available_commands_update", "current_mode_update", "config_option_update"),
        *("session_info_update", "plan_update", "plan_removed"),
    )
)


@dataclass(slots=True)
class AcpToolCall:
    """One tool call, as reported so far."""

    id: str
    title: str = ""
    kind: str = "other"
    input: Any = None
    paths: dict[str, Literal["added", "changed", "deleted"]] = field(default_factory=dict)
    text: str = ""
    is_reported: bool = False

    def add(self, update: Message) -> None:
        """Merge an update; missing and invalid fields stay as they were."""
        for name in ("title", "kind"):
            if isinstance(update.get(name), str):
                setattr(self, name, update[name])
        if update.get("rawInput") not in (None, {}):
            self.input = update["rawInput"]
        for location in _select_dicts(update.get("locations")):
            self._touch(location.get("path"), "changed")
        for content in _select_dicts(update.get("content")):
            if content.get("type") == "diff":
                self._touch(content.get("path"), "changed" if content.get("oldText") else "added")
            elif content.get("type") == "content":
                self.text = _extract_text(content.get("content")) or self.text

    def names(self) -> list[str]:
        """All files that it names."""
        given = self.input if isinstance(self.input, dict) else {}
        return [*self.paths, *(given[name] for name in PATH_FIELDS if isinstance(given.get(name), str))]

    def _touch(self, path: object, how: Literal["added", "changed"]) -> None:
        if isinstance(path, str) and path and len(self.paths) < INPUT_PARTS:
            self.paths[path] = "deleted" if self.kind == "delete" else how


class AcpUpdates:
    """The updates of one turn. Those before `live` are of earlier turns, and only their totals count."""

    def __init__(self, tell: SendEvent) -> None:
        self.live = False
        self.answer = ""
        self.did_something = False
        self.totals: dict[str, float] = {}
        self._send = tell
        self._calls: dict[str, AcpToolCall] = {}
        self._kind: type[TextEvent] | type[ThoughtEvent] = TextEvent
        self._message = ""
        self._text_parts = ""
        self._text_since_ms = 0

    def take(self, update: Message) -> None:
        """Handle one update."""
        match update.get("sessionUpdate"):
            case "usage_update":
                self._add_cost(update.get("cost"))
            case _ if not self.live:
                return
            case "agent_message_chunk":
                self._begin_message(update.get("messageId"))
                self._add_text(TextEvent, _extract_text(update.get("content")))
            case "agent_thought_chunk":
                self._add_text(ThoughtEvent, _extract_text(update.get("content")))
            case "tool_call" | "tool_call_update":
                self.call(update)
            case "plan":
                self.flush()
                entries = _select_dicts(update.get("entries"))
                items = [
                    (truncate_text(str(e.get("content", ""))), _PLAN_STATES.get(str(e.get("status")), "todo"))
                    for e in entries
                ]
                self._send(TodoListEvent(items=items[:INPUT_PARTS]))
            case str(word) if word in _IGNORED_UPDATES:
                return
            case _:
                self.flush()
                self._send(UnknownEvent(raw=shrink_value(update)))

    def call(self, update: Message, *, known: bool = False) -> AcpToolCall:
        """A tool call begins or continues; `known` if it can be reported now."""
        self.flush()
        self.answer, self.did_something = "", True
        name = str(update.get("toolCallId", ""))
        if name not in self._calls and len(self._calls) >= CALLS_MAX:
            self._calls.pop(next(iter(self._calls)))
        call = self._calls.setdefault(name, AcpToolCall(name))
        call.add(update)
        status = update.get("status")
        if not call.is_reported and (
            known or call.input is not None or status in ("in_progress", "completed", "failed")
        ):
            call.is_reported = True
            about = " ".join(call.title.split())[:SUMMARY_CHARACTERS]
            tool = call.kind if call.kind != "other" else about or "tool"
            self._send(ToolCallEvent(id=name, tool=tool, about=about, input=shrink_value(call.input)))
        if status in ("completed", "failed"):
            self._end(call, ok=status == "completed")
        return call

    def flush(self) -> None:
        """Emit the gathered text."""
        text, self._text_parts = self._text_parts, ""
        for event in _split_text(self._kind, text):
            self._send(event)

    def flush_in_time(self) -> None:
        """Emit it if it has waited long enough: a long text is not kept until its end."""
        if self._text_parts and monotonic_ms() - self._text_since_ms >= TEXT_CHUNK_MS:
            self.flush()

    def _end(self, call: AcpToolCall, *, ok: bool) -> None:
        self._send(ToolResultEvent(id=call.id, tool=call.kind, ok=ok, text=truncate_text(call.text)))
        if ok and call.kind in ("edit", "delete", "move"):
            for path, how in call.paths.items():
                self._send(FileChangeEvent(path=path, how=how))
        del self._calls[call.id]

    def set_usage(self, usage: object) -> None:
        """The tokens of the conversation at the end of a turn. Some agents count cached tokens among the input and some
        beside it, which the total tells.
        """
        reported = usage if isinstance(usage, dict) else {}
        counts = [reported.get(name) for name in ("totalTokens", "inputTokens", "outputTokens", "cachedReadTokens")]
        total, read, written, cached = (one if isinstance(one, int) and one >= 0 else 0 for one in counts)
        if read or written:
            self.totals["input_tokens"] = max(read, total - written)
            self.totals["cached_tokens"] = cached
            self.totals["output_tokens"] = written

    def _begin_message(self, name: object) -> None:
        """A new message begins; the last one is the answer."""
        if isinstance(name, str) and name != self._message:
            self.flush()
            self._message, self.answer = name, ""

    def _add_text(self, kind: type[TextEvent] | type[ThoughtEvent], text: str) -> None:
        if kind is not self._kind:
            self.flush()
            self._kind = kind
        if not text:
            return
        if not self._text_parts:
            self._text_since_ms = monotonic_ms()
        self._text_parts += text
        if kind is TextEvent:
            self.did_something = True
            self.answer = (self.answer + text)[-ANSWER_CHARACTERS:]
        if len(self._text_parts) >= TEXT_CHUNK_CHARACTERS:
            self.flush()

    def _add_cost(self, cost: object) -> None:
        if isinstance(cost, dict) and isinstance(cost.get("amount"), int | float) and cost.get("currency") == "USD":
            self.totals["cost_usd"] = float(cost["amount"])


def shrink_value(value: Any) -> Any:
    """A foreign value, cut to the reported size."""
    match value:
        case str():
            return value if len(value) <= INPUT_CHARACTERS else value[:INPUT_CHARACTERS] + "…"
        case dict():
            return {
                str(key)[:SUMMARY_CHARACTERS]: _shrink_leaf(part) for key, part in list(value.items())[:INPUT_PARTS]
            }
        case list():
            return [_shrink_leaf(part) for part in value[:INPUT_PARTS]]
        case _:
            return value


def _shrink_leaf(value: Any) -> Any:
    return shrink_value(str(value)) if isinstance(value, dict | list) else shrink_value(value)


def _split_text(kind: type[TextEvent] | type[ThoughtEvent], text: str) -> Iterator[AgentEvent]:
    for at in range(0, len(text), TEXT_CHUNK_CHARACTERS):
        piece = text[at : at + TEXT_CHUNK_CHARACTERS]
        if piece.strip():
            yield kind(text=piece)


def _extract_text(content: object) -> str:
    """The text of a content block; other blocks by their type only."""
    if not isinstance(content, dict):
        return ""
    if content.get("type") == "text":
        return str(content.get("text", ""))
    return f"[{content.get('type', 'something')}]"


def _select_dicts(value: object) -> list[Message]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
