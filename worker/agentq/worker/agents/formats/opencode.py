"""opencode's lines of JSON. It has no last word of its own: a step that ends with `stop` is one, until another begins.
Costs and tokens are of each step. A request that its service refused it repeats for ever, and says so in its log alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from agentq.coordinator.doings import (
    Began,
    Called,
    Changed,
    Concluded,
    Denied,
    Doing,
    Limited,
    Returned,
    Said,
    Thought,
    Turned,
    cut,
)
from agentq.worker.agents.formats.events import EventReader, error_text, planned, unknown
from agentq.worker.agents.formats.values import (
    Record,
    answer,
    clean,
    count_of,
    number_of,
    one_line,
    record_of,
    records_of,
    text_of,
)
from agentq.worker.agents.reading import Before
from agentq.worker.agents.services import kind_of
from agentq.worker.agents.verdicts import VerdictKind

_k = VerdictKind
_WRITES = ("write", "edit", "patch", "multiedit")
_NAMES = {
    "ProviderAuthError": _k.AUTH,
    "MessageAbortedError": _k.INTERRUPTED,
    "ContextOverflowError": _k.CONTEXT,
    "ProviderModelNotFoundError": _k.INPUT,
}
_REFUSED = re.compile(
    r'^timestamp=\S+ level=ERROR .*\bmessage="stream error" .*\bsmall=false .*\berror\.error="(?P<error>.*)"$'
)
"""A line of its log. What is `small` is the title of the conversation, which it can do without."""
_LOGGED = re.compile(r"^timestamp=\S+ level=")
_ERROR_NAME = re.compile(r"^(?:\w+: )?(?:Failed after \d+ attempts\. Last error: )?")
_REASONS = {"content-filter": _k.REFUSED, "length": None, "error": None}
"""Ends of a step that are no good last word."""


class OpencodeReader(EventReader):
    """One attempt's."""

    def __init__(self, before: Before) -> None:
        super().__init__(before)
        self._turns = 0
        self._read, self._cached, self._wrote = 0, 0, 0
        self._cost = 0.0
        self._said = ""

    def told(self, kind: str, event: Record) -> Iterable[Doing]:
        began = []
        if session := text_of(event, "sessionID"):
            if self.facts.session != session:
                began = [Began(session=session, model=self.facts.model)]
            self.facts.session = session
        self.facts.told = True
        return [*began, *self._event(kind, event, record_of(event, "part"))]

    def _event(self, kind: str, event: Record, part: Record) -> Iterable[Doing]:
        match kind:
            case "step_start":
                return self._step()
            case "text":
                return self._text(part)
            case "reasoning":
                return [Thought(text=cut(text_of(part, "text")))]
            case "tool_use":
                return self._tool(part)
            case "step_finish":
                return self._stepped(part)
            case "error":
                return self._error(record_of(event, "error"))
        return [unknown(event)]

    def read_error(self, line: str) -> Iterable[Doing]:
        line = clean(line)
        if refused := _REFUSED.match(line):
            self.facts.told = True
            if not self.facts.concluded:
                return self.asks_again(_ERROR_NAME.sub("", refused["error"].replace('\\"', '"'), count=1))
        elif not _LOGGED.match(line):
            self.plain(line)
        return []

    def plain(self, line: str) -> None:
        if line.startswith(("Session not found", "Error: Session not found")) and not self.facts.told:
            self.facts.kind = _k.NO_SESSION
        if "database is locked" in line and not self.facts.told:
            # Several that start at once in a new home keep each other out; a moment later there is room.
            self.facts.kind = _k.THROTTLED
        self.complained(line)

    def _step(self) -> Iterator[Doing]:
        self.facts.concluded, self.facts.ok, self.facts.kind, self.facts.error = False, None, None, ""
        self._turns += 1
        self._said = ""
        yield Turned(number=self._turns)

    def _text(self, part: Record) -> Iterator[Doing]:
        text = text_of(part, "text")
        self._said = answer(f"{self._said}\n{text}" if self._said else text)
        yield Said(text=cut(text))

    def _tool(self, part: Record) -> Iterator[Doing]:
        """A tool is told when it has ended."""
        id_, tool, state = text_of(part, "callID"), text_of(part, "tool"), record_of(part, "state")
        called = self.calls(id_, tool, state.get("input"))
        self.returned(id_)
        yield called
        if tool == "todowrite":
            yield planned(records_of(record_of(state, "input"), "todos"))
        failed = text_of(state, "error")
        if "rejected permission" in failed or "prevents you from using this specific tool call" in failed:
            self.facts.denials.append(called.tool)
            yield Denied(tool=called.tool, why=one_line(failed))
        ok = text_of(state, "status") != "error"
        yield Returned(id=called.id, tool=called.tool, ok=ok, text=cut(text_of(state, "output") or failed))
        if ok and (path := _written(called)):
            yield Changed(path=path)

    def _stepped(self, part: Record) -> Iterator[Doing]:
        tokens = record_of(part, "tokens")
        cache = record_of(tokens, "cache")
        self._cached += count_of(cache, "read")
        self._read += count_of(tokens, "input") + count_of(cache, "read") + count_of(cache, "write")
        self._wrote += count_of(tokens, "output") + count_of(tokens, "reasoning")
        self._cost += max(0.0, number_of(part, "cost"))
        # A cost of nothing is what it says of a model that it has no price for.
        yield self.spent(self._read, self._cached, self._wrote, self._turns, self._cost or None)
        reason = text_of(part, "reason")
        if reason in ("tool-calls", "unknown", ""):
            return
        good = reason not in _REASONS
        self.facts.concluded, self.facts.ok, self.facts.kind = True, good, _REASONS.get(reason)
        self.facts.text = self._said if good else ""
        self.facts.error = "" if good else f"the model's answer ended with {one_line(reason)}"
        yield Concluded(ok=good, text=cut(self._said or self.facts.error))

    def _error(self, error: Record) -> Iterator[Doing]:
        told = record_of(error, "data")
        message = text_of(told, "message") or text_of(error, "message", "name")
        status = count_of(told, "statusCode")
        kind = _NAMES.get(text_of(error, "name")) or kind_of(status, message)
        if kind is None and told.get("isRetryable") is True:
            kind = _k.THROTTLED
        self.facts.concluded, self.facts.ok = True, False
        self.facts.kind, self.facts.error = kind, error_text(message)
        if kind is _k.LIMITED:
            yield Limited(reached=True, what=one_line(message))
        yield Concluded(ok=False, text=cut(message))


def _written(called: Called) -> str:
    if called.tool not in _WRITES or not isinstance(called.input, dict):
        return ""
    return text_of(called.input, "filePath", "path")
