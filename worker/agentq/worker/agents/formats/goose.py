"""goose's stream of JSON. It ends with `complete`, and with 0, even when its model said nothing at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agentq.coordinator.doings import (
    Called,
    Changed,
    Concluded,
    Denied,
    Doing,
    Limited,
    Returned,
    Thought,
    Turned,
    cut,
)
from agentq.worker.agents.formats.events import EventReader, error_text, unknown
from agentq.worker.agents.formats.pieces import Pieces
from agentq.worker.agents.formats.values import (
    Record,
    count_of,
    one_line,
    record_of,
    records_of,
    text_of,
    text_within,
)
from agentq.worker.agents.reading import Before
from agentq.worker.agents.services import kind_of
from agentq.worker.agents.verdicts import VerdictKind

_WRITES = ("developer__text_editor", "text_editor", "write", "edit")


class GooseReader(EventReader):
    """One attempt's."""

    def __init__(self, before: Before) -> None:
        super().__init__(before)
        self._turns = 0
        self._asked = True
        self._pieces = Pieces()

    def told(self, kind: str, event: Record) -> Iterable[Doing]:
        self.facts.told = True
        match kind:
            case "message":
                return self._words(record_of(event, "message"))
            case "error":
                message = text_of(event, "error") or text_of(record_of(event, "error"), "message")
                return [*self._pieces.told(), *self._error(message)]
            case "complete":
                return [*self._pieces.told(), *self._complete(event)]
        return [unknown(event)]

    def plain(self, line: str) -> None:
        if line.startswith(("Error: No session found", "Error: Session not found")) and not self.facts.told:
            self.facts.kind = VerdictKind.NO_SESSION
        self.complained(line)

    def _words(self, message: Record) -> Iterator[Doing]:
        self.facts.concluded, self.facts.ok = False, None
        mine = text_of(message, "role") == "assistant"
        if mine and self._asked:
            self._asked = False
            self._turns += 1
            yield Turned(number=self._turns)
        for part in records_of(message, "content"):
            yield from self._part(part, mine)

    def _part(self, part: Record, mine: bool) -> Iterator[Doing]:
        match text_of(part, "type"):
            case "text" if mine and text_of(part, "text"):
                self._pieces.add(text_of(part, "text"))
            case "thinking" if text_of(part, "thinking"):
                yield Thought(text=cut(text_of(part, "thinking")))
            case "toolRequest":
                call = record_of(part, "toolCall", "value") or record_of(part, "toolCall")
                yield from self._pieces.told()
                self._pieces.anew()
                yield self.calls(text_of(part, "id"), text_of(call, "name"), call.get("arguments"))
            case "toolResponse":
                yield from self._returned(text_of(part, "id"), record_of(part, "toolResult"))

    def _returned(self, id_: str, result: Record) -> Iterator[Doing]:
        self._asked = True
        called = self.returned(id_)
        value = record_of(result, "value")
        failed = text_of(result, "status") == "error" or value.get("isError") is True
        text = text_within(result.get("value")) or text_within(value.get("content")) or text_of(result, "error")
        tool = called.tool if called else ""
        if failed and text.startswith("The user has declined to run this tool"):
            self.facts.denials.append(tool)
            yield Denied(tool=tool)
        yield Returned(id=id_[:200], tool=tool, ok=not failed, text=cut(text))
        if called and not failed and (path := _written(called)):
            yield Changed(path=path)

    def _error(self, message: str) -> Iterator[Doing]:
        self.facts.concluded, self.facts.ok = True, False
        self.facts.kind, self.facts.error = kind_of(0, message), error_text(message)
        if self.facts.kind is VerdictKind.LIMITED:
            yield Limited(reached=True, what=one_line(message))
        yield Concluded(ok=False, text=cut(message))

    def _complete(self, event: Record) -> Iterator[Doing]:
        read, wrote = count_of(event, "input_tokens"), count_of(event, "output_tokens")
        yield self.spent(read or max(0, count_of(event, "total_tokens") - wrote), 0, wrote, self._turns)
        if self.facts.ok is False:
            return
        if not self._pieces.answer.strip():  # with an error of its model it ends just so
            self.facts.error = "it ended and has said nothing"
            return
        self.facts.concluded, self.facts.ok, self.facts.text = True, True, self._pieces.answer
        yield Concluded(ok=True, text=cut(self.facts.text))


def _written(called: Called) -> str:
    if called.tool not in _WRITES or not isinstance(called.input, dict) or called.input.get("command") == "view":
        return ""
    return text_of(called.input, "path")
