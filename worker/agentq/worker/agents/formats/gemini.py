"""Reads Gemini CLI's JSON stream.

The answer arrives in pieces. A fatal error is JSON on several lines of stderr, and an exit code: one of its own, or the
HTTP status modulo 256 (401 is 145, which is not a signal).
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
    SpendingEvent,
    StartedEvent,
    ThrottledEvent,
    ToolCallEvent,
    ToolDeniedEvent,
    ToolResultEvent,
    truncate_text,
)
from agentq.worker.agents.accounts.service_errors import classify_service_error, classify_status
from agentq.worker.agents.formats.json_lines import JsonLinesReader, build_unknown_event, cut_error
from agentq.worker.agents.formats.message_buffer import MessageBuffer
from agentq.worker.agents.formats.safe_values import (
    Record,
    clean_line,
    cut_line,
    get_count,
    get_record,
    get_text,
    parse_event,
)
from agentq.worker.agents.reader import PriorConversation
from agentq.worker.agents.verdicts import VerdictKind

_Kind = VerdictKind
_GEMINI_EXITS = {
    41: _Kind.AUTH,
    42: _Kind.INPUT,
    44: _Kind.INPUT,
    52: _Kind.INPUT,
    53: _Kind.MAX_TURNS,
    54: _Kind.AGENT_ERROR,
    55: _Kind.INPUT,
    130: _Kind.INTERRUPTED,
}
"""Login, input, sandbox, configuration, turns, a tool, an untrusted folder, cancelled."""
_HTTP_STATUSES = (400, 401, 402, 403, 404, 408, 413, 422, 429, *range(500, 505))
EXIT_KINDS = {status % 256: kind for status in _HTTP_STATUSES if (kind := classify_status(status))} | _GEMINI_EXITS
_WRITE_TOOLS = ("write_file", "replace", "edit")
_NO_SESSION_TEXTS = (
    "Error resuming session: No previous sessions found",
    "Error resuming session: Invalid session identifier",
)
_SESSION_IN_USE = re.compile(r'^Error starting session: Session ID "([^"]{1,100})" already exists')
_RETRY_LINE = re.compile(
    r"^Attempt \d+ failed(?: with status \d+)?[:.]?\s*(?:Retrying with backoff\.\.\.\s*)?(?P<error>.*)"
)
_ERROR_CODE = re.compile(r"""^\[?(?:API Error:)?\s*\{"error":\{"code":(\d{3})\b""")
_ERROR_LINES_MAX = 200


class GeminiReader(JsonLinesReader):
    """Reads the output of one attempt."""

    def __init__(self, before: PriorConversation) -> None:
        super().__init__(before)
        self.facts.exits = EXIT_KINDS
        self._pieces = MessageBuffer()
        self._turns = 0
        self._model_asked = True
        self._complaints: list[str] | None = None

    def read_event(self, kind: str, event: Record) -> Iterable[AgentEvent]:
        self.facts.has_output = True
        if kind == "message":
            return self._message(event)
        return [*self._pieces.take_unsent(), *self._other(kind, event)]

    def _other(self, kind: str, event: Record) -> Iterable[AgentEvent]:
        match kind:
            case "init":
                self.facts.session = get_text(event, "session_id") or self.facts.session
                self.facts.model = get_text(event, "model") or self.facts.model
                return [StartedEvent(session=self.facts.session, model=self.facts.model)]
            case "tool_use":
                return self._tool(event)
            case "tool_result":
                return self._returned(event)
            case "error":
                return self._error(event)
            case "result":
                return self._result(event)
        return [build_unknown_event(event)]

    def _message(self, event: Record) -> Iterator[AgentEvent]:
        if get_text(event, "role") != "assistant":
            return
        self.facts.concluded, self.facts.ok, self.facts.kind = False, None, None
        yield from self._turn()
        if not event.get("delta"):
            yield from self._pieces.take_unsent()
            self._pieces.reset()
        self._pieces.add(get_text(event, "content"))

    def _turn(self) -> Iterator[AgentEvent]:
        """The prompt asks the model, and ended tool calls ask it again."""
        if self._model_asked:
            self._model_asked = False
            self._turns += 1
            yield ModelTurnEvent(number=self._turns)

    def _tool(self, event: Record) -> Iterator[AgentEvent]:
        yield from self._turn()
        self._pieces.reset()
        yield self.start_tool(get_text(event, "tool_id"), get_text(event, "tool_name"), event.get("parameters"))

    def _returned(self, event: Record) -> Iterator[AgentEvent]:
        self._model_asked = True
        id_ = get_text(event, "tool_id")
        called = self.end_tool(id_)
        ok = get_text(event, "status") != "error"
        failed = get_record(event, "error")
        tool = called.tool if called else ""
        if get_text(failed, "type") in ("policy_violation", "permission_denied", "tool_not_allowed"):
            self.facts.denials.append(tool)
            yield ToolDeniedEvent(tool=tool, why=cut_line(get_text(failed, "message")))
        text = get_text(event, "output") or get_text(failed, "message")
        yield ToolResultEvent(id=id_[:200], tool=tool, ok=ok, text=truncate_text(text))
        if called and ok and (path := _find_written_path(called)):
            yield FileChangeEvent(path=path)

    def _error(self, event: Record) -> Iterator[AgentEvent]:
        message = get_text(event, "message")
        if get_text(event, "severity") == "error":
            self.facts.error, self.facts.kind = cut_error(message), classify_service_error(0, message)
        yield ThrottledEvent(why=cut_line(message))

    def _result(self, event: Record) -> Iterator[AgentEvent]:
        failed = get_text(event, "status") == "error"
        self.facts.concluded, self.facts.ok = True, not failed
        self.facts.text = "" if failed else self._pieces.answer
        if failed:
            self._failed(get_record(event, "error"))
        else:
            self.facts.kind, self.facts.error = None, ""
        yield self._billed(get_record(event, "stats"))
        if self.facts.kind is _Kind.LIMITED:
            yield AccountLimitEvent(reached=True, what=cut_line(self.facts.error))
        yield ResultEvent(ok=not failed, text=truncate_text(self.facts.text or self.facts.error))

    def _failed(self, error: Record) -> None:
        message = get_text(error, "message")
        within = _ERROR_CODE.match(message)
        code = get_count(error, "code", "status") or (int(within[1]) if within else 0)
        self.facts.error = cut_error(message) or self.facts.error
        self.facts.kind = _GEMINI_EXITS.get(code) or classify_service_error(code, message) or self.facts.kind

    def _billed(self, stats: Record) -> SpendingEvent:
        read = get_count(stats, "input_tokens")
        return self.set_spending(read, get_count(stats, "cached"), get_count(stats, "output_tokens"), self._turns)

    def read_error(self, line: str) -> Iterable[AgentEvent]:
        """The error is an object over several lines, printed for people."""
        line = clean_line(line)
        self.note_complaint(line)
        if line.startswith(_NO_SESSION_TEXTS):
            self.facts.kind = _Kind.NO_SESSION
        elif in_use := _SESSION_IN_USE.match(line):  # an attempt before this one began it: it can be gone on with
            self.facts.session, self.facts.kind = in_use[1], _Kind.AGENT_ERROR
        elif (again := _RETRY_LINE.match(line)) and not self.facts.concluded:
            return self.on_refused_request(_parse_refusal(again["error"]))
        if line.rstrip() == "{":
            self._complaints = []
        if self._complaints is None:
            return []
        self._complaints.append(line)
        if line.rstrip() == "}" or len(self._complaints) > _ERROR_LINES_MAX:
            retry, self._complaints = get_record(parse_event("".join(self._complaints)) or {}, "error"), None
            if retry:
                self._complaint = cut_error(get_text(retry, "message"))
                self._failed(retry)
        return []


def _parse_refusal(error: str) -> str:
    """The service's message about a repeated request, from an object or prose."""
    event = parse_event(error[found:]) if (found := error.find("{")) >= 0 else None
    return get_text(get_record(event or {}, "error"), "message") or error


def _find_written_path(called: ToolCallEvent) -> str:
    if called.tool not in _WRITE_TOOLS or not isinstance(called.input, dict):
        return ""
    return get_text(called.input, "file_path", "absolute_path", "path")
