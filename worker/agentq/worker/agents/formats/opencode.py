"""Reads opencode's JSON lines.

There is no final event: a step that ends with `stop` is the last, unless another begins. Costs and tokens are per step.
opencode repeats a refused request for ever, and reports that only in its log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from agentq.coordinator.model.agent_events import (
    AccountLimitEvent,
    AgentEvent,
    FileChangeEvent,
    ModelTurnEvent,
    ResultEvent,
    StartedEvent,
    TextEvent,
    ThoughtEvent,
    ToolCallEvent,
    ToolDeniedEvent,
    ToolResultEvent,
    truncate_text,
)
from agentq.worker.agents.accounts.service_errors import classify_service_error
from agentq.worker.agents.formats.json_lines import JsonLinesReader, build_plan_event, build_unknown_event, cut_error
from agentq.worker.agents.formats.safe_values import (
    Record,
    clean_line,
    cut_answer,
    cut_line,
    get_count,
    get_number,
    get_record,
    get_records,
    get_text,
)
from agentq.worker.agents.reader import PriorConversation
from agentq.worker.agents.verdicts import VerdictKind

_Kind = VerdictKind
_WRITE_TOOLS = ("write", "edit", "patch", "multiedit")
_KIND_OF_ERROR_NAME = {
    "ProviderAuthError": _Kind.AUTH,
    "MessageAbortedError": _Kind.INTERRUPTED,
    "ContextOverflowError": _Kind.CONTEXT,
    "ProviderModelNotFoundError": _Kind.INPUT,
}
_REFUSED_REQUEST = re.compile(
    r'^timestamp=\S+ level=ERROR .*\bmessage="stream error" .*\bsmall=false .*\berror\.error="(?P<error>.*)"$'
)
"""A line of its log. `small` is the conversation's title, which it does not need."""
_LOG_LINE = re.compile(r"^timestamp=\S+ level=")
_ERROR_PREFIX = re.compile(r"^(?:\w+: )?(?:Failed after \d+ attempts\. Last error: )?")
_KIND_OF_REASON = {"content-filter": _Kind.REFUSED, "length": None, "error": None}
"""Ends of a step that are no success."""


class OpencodeReader(JsonLinesReader):
    """Reads the output of one attempt."""

    def __init__(self, before: PriorConversation) -> None:
        super().__init__(before)
        self._turns = 0
        self._read, self._cached, self._wrote = 0, 0, 0
        self._cost = 0.0
        self._text_seen = ""

    def read_event(self, kind: str, event: Record) -> Iterable[AgentEvent]:
        began = []
        if session := get_text(event, "sessionID"):
            if self.facts.session != session:
                began = [StartedEvent(session=session, model=self.facts.model)]
            self.facts.session = session
        self.facts.has_output = True
        return [*began, *self._event(kind, event, get_record(event, "part"))]

    def _event(self, kind: str, event: Record, part: Record) -> Iterable[AgentEvent]:
        match kind:
            case "step_start":
                return self._step()
            case "text":
                return self._text(part)
            case "reasoning":
                return [ThoughtEvent(text=truncate_text(get_text(part, "text")))]
            case "tool_use":
                return self._tool(part)
            case "step_finish":
                return self._stepped(part)
            case "error":
                return self._error(get_record(event, "error"))
        return [build_unknown_event(event)]

    def read_error(self, line: str) -> Iterable[AgentEvent]:
        line = clean_line(line)
        if refused := _REFUSED_REQUEST.match(line):
            self.facts.has_output = True
            if not self.facts.concluded:
                return self.on_refused_request(_ERROR_PREFIX.sub("", refused["error"].replace('\\"', '"'), count=1))
        elif not _LOG_LINE.match(line):
            self.read_plain(line)
        return []

    def read_plain(self, line: str) -> None:
        if line.startswith(("Session not found", "Error: Session not found")) and not self.facts.has_output:
            self.facts.kind = _Kind.NO_SESSION
        if "database is locked" in line and not self.facts.has_output:
            # Several that start at once in a new home keep each other out; a moment later there is room.
            self.facts.kind = _Kind.THROTTLED
        self.note_complaint(line)

    def _step(self) -> Iterator[AgentEvent]:
        self.facts.concluded, self.facts.ok, self.facts.kind, self.facts.error = False, None, None, ""
        self._turns += 1
        self._text_seen = ""
        yield ModelTurnEvent(number=self._turns)

    def _text(self, part: Record) -> Iterator[AgentEvent]:
        text = get_text(part, "text")
        self._text_seen = cut_answer(f"{self._text_seen}\n{text}" if self._text_seen else text)
        yield TextEvent(text=truncate_text(text))

    def _tool(self, part: Record) -> Iterator[AgentEvent]:
        """A tool call is reported when it has ended."""
        id_, tool, state = get_text(part, "callID"), get_text(part, "tool"), get_record(part, "state")
        called = self.start_tool(id_, tool, state.get("input"))
        self.end_tool(id_)
        yield called
        if tool == "todowrite":
            yield build_plan_event(get_records(get_record(state, "input"), "todos"))
        failed = get_text(state, "error")
        if "rejected permission" in failed or "prevents you from using this specific tool call" in failed:
            self.facts.denials.append(called.tool)
            yield ToolDeniedEvent(tool=called.tool, why=cut_line(failed))
        ok = get_text(state, "status") != "error"
        yield ToolResultEvent(
            id=called.id, tool=called.tool, ok=ok, text=truncate_text(get_text(state, "output") or failed)
        )
        if ok and (path := _find_written_path(called)):
            yield FileChangeEvent(path=path)

    def _stepped(self, part: Record) -> Iterator[AgentEvent]:
        tokens = get_record(part, "tokens")
        cache = get_record(tokens, "cache")
        self._cached += get_count(cache, "read")
        self._read += get_count(tokens, "input") + get_count(cache, "read") + get_count(cache, "write")
        self._wrote += get_count(tokens, "output") + get_count(tokens, "reasoning")
        self._cost += max(0.0, get_number(part, "cost"))
        # A cost of nothing is what it says of a model that it has no price for.
        yield self.set_spending(self._read, self._cached, self._wrote, self._turns, self._cost or None)
        reason = get_text(part, "reason")
        if reason in ("tool-calls", "unknown", ""):
            return
        good = reason not in _KIND_OF_REASON
        self.facts.concluded, self.facts.ok, self.facts.kind = True, good, _KIND_OF_REASON.get(reason)
        self.facts.text = self._text_seen if good else ""
        self.facts.error = "" if good else f"the model's answer ended with {cut_line(reason)}"
        yield ResultEvent(ok=good, text=truncate_text(self._text_seen or self.facts.error))

    def _error(self, error: Record) -> Iterator[AgentEvent]:
        details = get_record(error, "data")
        message = get_text(details, "message") or get_text(error, "message", "name")
        status = get_count(details, "statusCode")
        kind = _KIND_OF_ERROR_NAME.get(get_text(error, "name")) or classify_service_error(status, message)
        if kind is None and details.get("isRetryable") is True:
            kind = _Kind.THROTTLED
        self.facts.concluded, self.facts.ok = True, False
        self.facts.kind, self.facts.error = kind, cut_error(message)
        if kind is _Kind.LIMITED:
            yield AccountLimitEvent(reached=True, what=cut_line(message))
        yield ResultEvent(ok=False, text=truncate_text(message))


def _find_written_path(called: ToolCallEvent) -> str:
    if called.tool not in _WRITE_TOOLS or not isinstance(called.input, dict):
        return ""
    return get_text(called.input, "filePath", "path")
