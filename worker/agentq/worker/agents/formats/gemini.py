"""Gemini CLI's stream of JSON. Its answer comes in pieces; an error that ends it comes as JSON over several lines of
stderr, and as an exit code: its own, or what a byte can hold of the status of HTTP (401 is 145, which is no signal).
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
    Held,
    Limited,
    Returned,
    Spent,
    Turned,
    cut,
)
from agentq.worker.agents.formats.events import EventReader, error_text, unknown
from agentq.worker.agents.formats.pieces import Pieces
from agentq.worker.agents.formats.values import (
    Record,
    clean,
    count_of,
    event_of,
    one_line,
    record_of,
    text_of,
)
from agentq.worker.agents.reading import Before
from agentq.worker.agents.services import kind_of, kind_of_status
from agentq.worker.agents.verdicts import VerdictKind

_k = VerdictKind
_OWN_EXITS = {
    41: _k.AUTH,
    42: _k.INPUT,
    44: _k.INPUT,
    52: _k.INPUT,
    53: _k.MAX_TURNS,
    54: _k.AGENT_ERROR,
    55: _k.INPUT,
    130: _k.INTERRUPTED,
}
"""Login, input, sandbox, configuration, turns, a tool, a folder that it does not trust, cancelled."""
_STATUSES = (400, 401, 402, 403, 404, 408, 413, 422, 429, *range(500, 505))
EXITS = {status % 256: kind for status in _STATUSES if (kind := kind_of_status(status))} | _OWN_EXITS
_WRITES = ("write_file", "replace", "edit")
_NO_SESSION = (
    "Error resuming session: No previous sessions found",
    "Error resuming session: Invalid session identifier",
)
_IN_USE = re.compile(r'^Error starting session: Session ID "([^"]{1,100})" already exists')
_RETRY = re.compile(r"^Attempt \d+ failed(?: with status \d+)?[:.]?\s*(?:Retrying with backoff\.\.\.\s*)?(?P<error>.*)")
_CODE = re.compile(r"""^\[?(?:API Error:)?\s*\{"error":\{"code":(\d{3})\b""")
_COMPLAINT_LINES = 200


class GeminiReader(EventReader):
    """One attempt's."""

    def __init__(self, before: Before) -> None:
        super().__init__(before)
        self.facts.exits = EXITS
        self._pieces = Pieces()
        self._turns = 0
        self._asked = True
        self._complaints: list[str] | None = None

    def told(self, kind: str, event: Record) -> Iterable[Doing]:
        self.facts.told = True
        if kind == "message":
            return self._message(event)
        return [*self._pieces.told(), *self._other(kind, event)]

    def _other(self, kind: str, event: Record) -> Iterable[Doing]:
        match kind:
            case "init":
                self.facts.session = text_of(event, "session_id") or self.facts.session
                self.facts.model = text_of(event, "model") or self.facts.model
                return [Began(session=self.facts.session, model=self.facts.model)]
            case "tool_use":
                return self._tool(event)
            case "tool_result":
                return self._returned(event)
            case "error":
                return self._error(event)
            case "result":
                return self._result(event)
        return [unknown(event)]

    def _message(self, event: Record) -> Iterator[Doing]:
        if text_of(event, "role") != "assistant":
            return
        self.facts.concluded, self.facts.ok, self.facts.kind = False, None, None
        yield from self._turn()
        if not event.get("delta"):
            yield from self._pieces.told()
            self._pieces.anew()
        self._pieces.add(text_of(event, "content"))

    def _turn(self) -> Iterator[Doing]:
        """The model was asked by the prompt, and is asked again when tools have ended."""
        if self._asked:
            self._asked = False
            self._turns += 1
            yield Turned(number=self._turns)

    def _tool(self, event: Record) -> Iterator[Doing]:
        yield from self._turn()
        self._pieces.anew()
        yield self.calls(text_of(event, "tool_id"), text_of(event, "tool_name"), event.get("parameters"))

    def _returned(self, event: Record) -> Iterator[Doing]:
        self._asked = True
        id_ = text_of(event, "tool_id")
        called = self.returned(id_)
        ok = text_of(event, "status") != "error"
        failed = record_of(event, "error")
        tool = called.tool if called else ""
        if text_of(failed, "type") in ("policy_violation", "permission_denied", "tool_not_allowed"):
            self.facts.denials.append(tool)
            yield Denied(tool=tool, why=one_line(text_of(failed, "message")))
        text = text_of(event, "output") or text_of(failed, "message")
        yield Returned(id=id_[:200], tool=tool, ok=ok, text=cut(text))
        if called and ok and (path := _written(called)):
            yield Changed(path=path)

    def _error(self, event: Record) -> Iterator[Doing]:
        message = text_of(event, "message")
        if text_of(event, "severity") == "error":
            self.facts.error, self.facts.kind = error_text(message), kind_of(0, message)
        yield Held(why=one_line(message))

    def _result(self, event: Record) -> Iterator[Doing]:
        failed = text_of(event, "status") == "error"
        self.facts.concluded, self.facts.ok = True, not failed
        self.facts.text = "" if failed else self._pieces.answer
        if failed:
            self._failed(record_of(event, "error"))
        else:
            self.facts.kind, self.facts.error = None, ""
        yield self._billed(record_of(event, "stats"))
        if self.facts.kind is _k.LIMITED:
            yield Limited(reached=True, what=one_line(self.facts.error))
        yield Concluded(ok=not failed, text=cut(self.facts.text or self.facts.error))

    def _failed(self, error: Record) -> None:
        message = text_of(error, "message")
        within = _CODE.match(message)
        code = count_of(error, "code", "status") or (int(within[1]) if within else 0)
        self.facts.error = error_text(message) or self.facts.error
        self.facts.kind = _OWN_EXITS.get(code) or kind_of(code, message) or self.facts.kind

    def _billed(self, stats: Record) -> Spent:
        read = count_of(stats, "input_tokens")
        return self.spent(read, count_of(stats, "cached"), count_of(stats, "output_tokens"), self._turns)

    def read_error(self, line: str) -> Iterable[Doing]:
        """The error is an object over several lines, as one prints it for people."""
        line = clean(line)
        self.complained(line)
        if line.startswith(_NO_SESSION):
            self.facts.kind = _k.NO_SESSION
        elif in_use := _IN_USE.match(line):  # an attempt before this one began it: it can be gone on with
            self.facts.session, self.facts.kind = in_use[1], _k.AGENT_ERROR
        elif (again := _RETRY.match(line)) and not self.facts.concluded:
            return self.asks_again(_refusal(again["error"]))
        if line.rstrip() == "{":
            self._complaints = []
        if self._complaints is None:
            return []
        self._complaints.append(line)
        if line.rstrip() == "}" or len(self._complaints) > _COMPLAINT_LINES:
            told, self._complaints = record_of(event_of("".join(self._complaints)) or {}, "error"), None
            if told:
                self._complaint = error_text(text_of(told, "message"))
                self._failed(told)
        return []


def _refusal(error: str) -> str:
    """What the service said of a request that is repeated: the message of an object, or prose."""
    told = event_of(error[found:]) if (found := error.find("{")) >= 0 else None
    return text_of(record_of(told or {}, "error"), "message") or error


def _written(called: Called) -> str:
    if called.tool not in _WRITES or not isinstance(called.input, dict):
        return ""
    return text_of(called.input, "file_path", "absolute_path", "path")
