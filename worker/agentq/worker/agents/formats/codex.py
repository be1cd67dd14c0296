"""Reads Codex's JSON stream.

Token counts are totals of the thread. It reports no cost. An account limit is prose in an error, with a local time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

from agentq.coordinator.model.agent_events import (
    AccountLimitEvent,
    AgentEvent,
    FileChangeEvent,
    ModelTurnEvent,
    ResultEvent,
    SpendingEvent,
    StartedEvent,
    TextEvent,
    ThoughtEvent,
    ThrottledEvent,
    ToolDeniedEvent,
    ToolResultEvent,
    truncate_text,
)
from agentq.worker.agents.accounts.limit_resets import is_limit_error
from agentq.worker.agents.accounts.service_errors import classify_service_error
from agentq.worker.agents.formats.json_lines import JsonLinesReader, build_plan_event, build_unknown_event, cut_error
from agentq.worker.agents.formats.safe_values import (
    Record,
    clean_line,
    cut_answer,
    cut_line,
    extract_text,
    get_count,
    get_record,
    get_records,
    get_text,
)
from agentq.worker.agents.reader import PriorConversation
from agentq.worker.agents.verdicts import VerdictKind

_STATUS_ERROR = re.compile(
    r"^(?:unexpected status|exceeded retry limit, last status:|http error:?|api error:?) (\d{3})\b", re.I
)
_RETRY_LINE = re.compile(r"^(?:Reconnecting|Falling back|Retrying)\b")
_NO_SESSION = re.compile(
    r"no rollout found for thread id|^(?:error: )?no (?:saved )?(?:session|thread|conversation) found", re.I
)
_INPUT_ERROR = re.compile(
    r"input_too_large|^(?:error: )?(?:no prompt provided|not inside a trusted directory|input exceeds)", re.I
)
_CHANGE_KINDS: dict[str, Literal["added", "changed", "deleted"]] = {"add": "added", "delete": "deleted"}
_TOOL_ITEMS = ("command_execution", "mcp_tool_call", "web_search", "collab_tool_call", "file_change")


class CodexReader(JsonLinesReader):
    """Reads the output of one attempt."""

    def __init__(self, before: PriorConversation) -> None:
        super().__init__(before)
        self.facts.exits = {2: VerdictKind.INPUT}
        self._turns = 0
        self._text_seen = ""

    def read_event(self, kind: str, event: Record) -> Iterable[AgentEvent]:
        self.facts.has_output = True
        match kind:
            case "thread.started":
                self.facts.session = get_text(event, "thread_id") or self.facts.session
                return [StartedEvent(session=self.facts.session, model=self.facts.model)]
            case "turn.started":
                return self._turn()
            case "item.started" | "item.updated" | "item.completed":
                return self._item(kind.removeprefix("item."), get_record(event, "item"))
            case "error":
                return self._error(get_text(event, "message"))
            case "turn.completed":
                return self._completed(get_record(event, "usage"))
            case "turn.failed":
                return self._failed(get_text(get_record(event, "error"), "message"))
        return [build_unknown_event(event)]

    def read_plain(self, line: str) -> None:
        if not self.facts.concluded:
            if _NO_SESSION.search(line):
                self.facts.kind = VerdictKind.NO_SESSION
            elif _INPUT_ERROR.search(line):
                self.facts.kind = VerdictKind.INPUT
        self.note_complaint(line)

    def read_error(self, line: str) -> Iterable[AgentEvent]:
        if not self.facts.has_output:  # later, tools and logs write here too
            return super().read_error(line)
        self.note_complaint(clean_line(line))
        return []

    def _turn(self) -> Iterator[AgentEvent]:
        self.facts.concluded, self.facts.ok, self.facts.kind, self.facts.error = False, None, None, ""
        self._turns += 1
        yield ModelTurnEvent(number=self._turns)

    def _item(self, stage: str, item: Record) -> Iterator[AgentEvent]:
        kind = get_text(item, "type", "item_type")
        if kind == "todo_list":
            yield build_plan_event(get_records(item, "items"))
        elif kind in _TOOL_ITEMS:
            yield from self._tool(stage, kind, item)
        elif stage == "completed":
            yield from self._text_event(kind, item)

    def _text_event(self, kind: str, item: Record) -> Iterator[AgentEvent]:
        match kind:
            case "agent_message" | "assistant_message":
                self._text_seen = cut_answer(get_text(item, "text"))
                yield TextEvent(text=truncate_text(get_text(item, "text")))
            case "reasoning":
                yield ThoughtEvent(text=truncate_text(get_text(item, "text")))
            case _:
                yield build_unknown_event(item)

    def _tool(self, stage: str, kind: str, item: Record) -> Iterator[AgentEvent]:
        id_ = get_text(item, "id")
        called = self.end_tool(id_) if stage == "completed" else None
        if stage == "started" or (stage == "completed" and called is None):
            called = self.start_tool(id_, _get_tool_name(kind, item), _get_tool_input(kind, item))
            yield called
        if stage != "completed":
            return
        self.end_tool(id_)
        status = get_text(item, "status")
        if status == "declined":
            self.facts.denials.append(_get_tool_name(kind, item))
            yield ToolDeniedEvent(tool=_get_tool_name(kind, item), why=cut_line(get_text(item, "command")))
        ok = status not in ("failed", "declined") and get_count(item, "exit_code") == 0
        yield ToolResultEvent(
            id=id_[:200], tool=_get_tool_name(kind, item), ok=ok, text=truncate_text(_get_tool_result(item))
        )
        if kind == "file_change" and ok:
            for change in get_records(item, "changes")[:1_000]:
                yield FileChangeEvent(
                    path=get_text(change, "path"), how=_CHANGE_KINDS.get(get_text(change, "kind"), "changed")
                )

    def _error(self, message: str) -> Iterator[AgentEvent]:
        """It may try again after this, and says so; an error that stands is followed by the turn's failure."""
        if _RETRY_LINE.match(message):
            yield ThrottledEvent(why=cut_line(message))
            return
        self.facts.error = cut_error(message)
        self.facts.kind = _classify_message(message)
        if self.facts.kind is VerdictKind.LIMITED or is_limit_error(message):
            yield AccountLimitEvent(reached=True, what=cut_line(message))
        else:
            yield ThrottledEvent(why=cut_line(message))

    def _completed(self, usage: Record) -> Iterator[AgentEvent]:
        self.facts.concluded, self.facts.ok, self.facts.kind, self.facts.error = True, True, None, ""
        self.facts.text = self._text_seen
        yield self._billed(usage)
        yield ResultEvent(ok=True, text=truncate_text(self._text_seen))

    def _failed(self, message: str) -> Iterator[AgentEvent]:
        message = message or self.facts.error
        self.facts.concluded, self.facts.ok = True, False
        self.facts.error, self.facts.kind = cut_error(message), _classify_message(message)
        yield ResultEvent(ok=False, text=truncate_text(message))

    def _billed(self, usage: Record) -> SpendingEvent:
        """The tokens of the whole thread, less those before."""
        totals = {name: get_count(usage, name) for name in ("input_tokens", "cached_input_tokens", "output_tokens")}
        self.facts.totals = dict(totals)
        read, cached, wrote = (int(self.grown_since(name, total)) for name, total in totals.items())
        return self.set_spending(read, cached, wrote, self._turns)


def _classify_message(message: str) -> VerdictKind | None:
    status = _STATUS_ERROR.match(message)
    return classify_service_error(int(status[1]) if status else 0, message)


def _get_tool_name(kind: str, item: Record) -> str:
    match kind:
        case "command_execution":
            return "shell"
        case "mcp_tool_call":
            return cut_line(f"{get_text(item, 'server')}.{get_text(item, 'tool')}")
        case "collab_tool_call":
            return cut_line(get_text(item, "tool")) or kind
    return kind


def _get_tool_input(kind: str, item: Record) -> object:
    match kind:
        case "command_execution":
            return {"command": get_text(item, "command")}
        case "file_change":
            return {"path": ", ".join(get_text(each, "path") for each in get_records(item, "changes")[:20])}
        case "web_search":
            return {"query": get_text(item, "query")}
        case "collab_tool_call":
            return {"prompt": get_text(item, "prompt")}
    return item.get("arguments")


def _get_tool_result(item: Record) -> str:
    return (
        get_text(item, "aggregated_output")
        or extract_text(get_record(item, "result").get("content"))
        or get_text(get_record(item, "error"), "message")
    )
