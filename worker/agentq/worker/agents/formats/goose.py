"""Reads goose's JSON stream, which ends with `complete` and exit code 0 even if the model answered nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agentq.coordinator.model.agent_events import (
    AccountLimitEvent,
    AgentEvent,
    FileChangeEvent,
    ModelTurnEvent,
    ResultEvent,
    ThoughtEvent,
    ToolCallEvent,
    ToolDeniedEvent,
    ToolResultEvent,
    truncate_text,
)
from agentq.worker.agents.accounts.service_errors import classify_service_error
from agentq.worker.agents.formats.json_lines import JsonLinesReader, build_unknown_event, cut_error
from agentq.worker.agents.formats.message_buffer import MessageBuffer
from agentq.worker.agents.formats.safe_values import (
    Record,
    cut_line,
    extract_text,
    get_count,
    get_record,
    get_records,
    get_text,
)
from agentq.worker.agents.reader import PriorConversation
from agentq.worker.agents.verdicts import VerdictKind

_WRITE_TOOLS = ("developer__text_editor", "text_editor", "write", "edit")


class GooseReader(JsonLinesReader):
    """Reads the output of one attempt."""

    def __init__(self, before: PriorConversation) -> None:
        super().__init__(before)
        self._turns = 0
        self._model_asked = True
        self._pieces = MessageBuffer()

    def read_event(self, kind: str, event: Record) -> Iterable[AgentEvent]:
        self.facts.has_output = True
        match kind:
            case "message":
                return self._read_message(get_record(event, "message"))
            case "error":
                message = get_text(event, "error") or get_text(get_record(event, "error"), "message")
                return [*self._pieces.take_unsent(), *self._error(message)]
            case "complete":
                return [*self._pieces.take_unsent(), *self._complete(event)]
        return [build_unknown_event(event)]

    def read_plain(self, line: str) -> None:
        if line.startswith(("Error: No session found", "Error: Session not found")) and not self.facts.has_output:
            self.facts.kind = VerdictKind.NO_SESSION
        self.note_complaint(line)

    def _read_message(self, message: Record) -> Iterator[AgentEvent]:
        self.facts.concluded, self.facts.ok = False, None
        mine = get_text(message, "role") == "assistant"
        if mine and self._model_asked:
            self._model_asked = False
            self._turns += 1
            yield ModelTurnEvent(number=self._turns)
        for part in get_records(message, "content"):
            yield from self._part(part, mine)

    def _part(self, part: Record, mine: bool) -> Iterator[AgentEvent]:
        match get_text(part, "type"):
            case "text" if mine and get_text(part, "text"):
                self._pieces.add(get_text(part, "text"))
            case "thinking" if get_text(part, "thinking"):
                yield ThoughtEvent(text=truncate_text(get_text(part, "thinking")))
            case "toolRequest":
                call = get_record(part, "toolCall", "value") or get_record(part, "toolCall")
                yield from self._pieces.take_unsent()
                self._pieces.reset()
                yield self.start_tool(get_text(part, "id"), get_text(call, "name"), call.get("arguments"))
            case "toolResponse":
                yield from self._returned(get_text(part, "id"), get_record(part, "toolResult"))

    def _returned(self, id_: str, result: Record) -> Iterator[AgentEvent]:
        self._model_asked = True
        called = self.end_tool(id_)
        value = get_record(result, "value")
        failed = get_text(result, "status") == "error" or value.get("isError") is True
        text = extract_text(result.get("value")) or extract_text(value.get("content")) or get_text(result, "error")
        tool = called.tool if called else ""
        if failed and text.startswith("The user has declined to run this tool"):
            self.facts.denials.append(tool)
            yield ToolDeniedEvent(tool=tool)
        yield ToolResultEvent(id=id_[:200], tool=tool, ok=not failed, text=truncate_text(text))
        if called and not failed and (path := _find_written_path(called)):
            yield FileChangeEvent(path=path)

    def _error(self, message: str) -> Iterator[AgentEvent]:
        self.facts.concluded, self.facts.ok = True, False
        self.facts.kind, self.facts.error = classify_service_error(0, message), cut_error(message)
        if self.facts.kind is VerdictKind.LIMITED:
            yield AccountLimitEvent(reached=True, what=cut_line(message))
        yield ResultEvent(ok=False, text=truncate_text(message))

    def _complete(self, event: Record) -> Iterator[AgentEvent]:
        read, wrote = get_count(event, "input_tokens"), get_count(event, "output_tokens")
        yield self.set_spending(read or max(0, get_count(event, "total_tokens") - wrote), 0, wrote, self._turns)
        if self.facts.ok is False:
            return
        if not self._pieces.answer.strip():  # with an error of its model it ends just so
            self.facts.error = "it ended and has said nothing"
            return
        self.facts.concluded, self.facts.ok, self.facts.text = True, True, self._pieces.answer
        yield ResultEvent(ok=True, text=truncate_text(self.facts.text))


def _find_written_path(called: ToolCallEvent) -> str:
    if called.tool not in _WRITE_TOOLS or not isinstance(called.input, dict) or called.input.get("command") == "view":
        return ""
    return get_text(called.input, "path")
