"""Codex's stream of JSON. Its tokens are those of the whole thread, it tells no cost, and its limits are prose in an
error, with a time of the day where it runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

from agentq.coordinator.doings import (
    Began,
    Changed,
    Concluded,
    Denied,
    Doing,
    Held,
    Limited,
    Returned,
    Said,
    Spent,
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
    one_line,
    record_of,
    records_of,
    text_of,
    text_within,
)
from agentq.worker.agents.reading import Before
from agentq.worker.agents.resets import is_limit
from agentq.worker.agents.services import kind_of
from agentq.worker.agents.verdicts import VerdictKind

_STATUS = re.compile(
    r"^(?:unexpected status|exceeded retry limit, last status:|http error:?|api error:?) (\d{3})\b", re.I
)
_AGAIN = re.compile(r"^(?:Reconnecting|Falling back|Retrying)\b")
_NO_SESSION = re.compile(
    r"no rollout found for thread id|^(?:error: )?no (?:saved )?(?:session|thread|conversation) found", re.I
)
_INPUT = re.compile(
    r"input_too_large|^(?:error: )?(?:no prompt provided|not inside a trusted directory|input exceeds)", re.I
)
_CHANGES: dict[str, Literal["added", "changed", "deleted"]] = {"add": "added", "delete": "deleted"}
_TOOLS = ("command_execution", "mcp_tool_call", "web_search", "collab_tool_call", "file_change")


class CodexReader(EventReader):
    """One attempt's."""

    def __init__(self, before: Before) -> None:
        super().__init__(before)
        self.facts.exits = {2: VerdictKind.INPUT}
        self._turns = 0
        self._said = ""

    def told(self, kind: str, event: Record) -> Iterable[Doing]:
        self.facts.told = True
        match kind:
            case "thread.started":
                self.facts.session = text_of(event, "thread_id") or self.facts.session
                return [Began(session=self.facts.session, model=self.facts.model)]
            case "turn.started":
                return self._turn()
            case "item.started" | "item.updated" | "item.completed":
                return self._item(kind.removeprefix("item."), record_of(event, "item"))
            case "error":
                return self._error(text_of(event, "message"))
            case "turn.completed":
                return self._completed(record_of(event, "usage"))
            case "turn.failed":
                return self._failed(text_of(record_of(event, "error"), "message"))
        return [unknown(event)]

    def plain(self, line: str) -> None:
        if not self.facts.concluded:
            if _NO_SESSION.search(line):
                self.facts.kind = VerdictKind.NO_SESSION
            elif _INPUT.search(line):
                self.facts.kind = VerdictKind.INPUT
        self.complained(line)

    def read_error(self, line: str) -> Iterable[Doing]:
        if not self.facts.told:  # later, tools and logs write here too
            return super().read_error(line)
        self.complained(clean(line))
        return []

    def _turn(self) -> Iterator[Doing]:
        self.facts.concluded, self.facts.ok, self.facts.kind, self.facts.error = False, None, None, ""
        self._turns += 1
        yield Turned(number=self._turns)

    def _item(self, stage: str, item: Record) -> Iterator[Doing]:
        kind = text_of(item, "type", "item_type")
        if kind == "todo_list":
            yield planned(records_of(item, "items"))
        elif kind in _TOOLS:
            yield from self._tool(stage, kind, item)
        elif stage == "completed":
            yield from self._words(kind, item)

    def _words(self, kind: str, item: Record) -> Iterator[Doing]:
        match kind:
            case "agent_message" | "assistant_message":
                self._said = answer(text_of(item, "text"))
                yield Said(text=cut(text_of(item, "text")))
            case "reasoning":
                yield Thought(text=cut(text_of(item, "text")))
            case _:
                yield unknown(item)

    def _tool(self, stage: str, kind: str, item: Record) -> Iterator[Doing]:
        id_ = text_of(item, "id")
        called = self.returned(id_) if stage == "completed" else None
        if stage == "started" or (stage == "completed" and called is None):
            called = self.calls(id_, _name(kind, item), _given(kind, item))
            yield called
        if stage != "completed":
            return
        self.returned(id_)
        status = text_of(item, "status")
        if status == "declined":
            self.facts.denials.append(_name(kind, item))
            yield Denied(tool=_name(kind, item), why=one_line(text_of(item, "command")))
        ok = status not in ("failed", "declined") and count_of(item, "exit_code") == 0
        yield Returned(id=id_[:200], tool=_name(kind, item), ok=ok, text=cut(_result(item)))
        if kind == "file_change" and ok:
            for change in records_of(item, "changes")[:1_000]:
                yield Changed(path=text_of(change, "path"), how=_CHANGES.get(text_of(change, "kind"), "changed"))

    def _error(self, message: str) -> Iterator[Doing]:
        """It may try again after this, and says so; an error that stands is followed by the turn's failure."""
        if _AGAIN.match(message):
            yield Held(why=one_line(message))
            return
        self.facts.error = error_text(message)
        self.facts.kind = _kind(message)
        if self.facts.kind is VerdictKind.LIMITED or is_limit(message):
            yield Limited(reached=True, what=one_line(message))
        else:
            yield Held(why=one_line(message))

    def _completed(self, usage: Record) -> Iterator[Doing]:
        self.facts.concluded, self.facts.ok, self.facts.kind, self.facts.error = True, True, None, ""
        self.facts.text = self._said
        yield self._billed(usage)
        yield Concluded(ok=True, text=cut(self._said))

    def _failed(self, message: str) -> Iterator[Doing]:
        message = message or self.facts.error
        self.facts.concluded, self.facts.ok = True, False
        self.facts.error, self.facts.kind = error_text(message), _kind(message)
        yield Concluded(ok=False, text=cut(message))

    def _billed(self, usage: Record) -> Spent:
        """Of the whole thread, less what it was before."""
        totals = {name: count_of(usage, name) for name in ("input_tokens", "cached_input_tokens", "output_tokens")}
        self.facts.totals = dict(totals)
        read, cached, wrote = (int(self.since(name, total)) for name, total in totals.items())
        return self.spent(read, cached, wrote, self._turns)


def _kind(message: str) -> VerdictKind | None:
    status = _STATUS.match(message)
    return kind_of(int(status[1]) if status else 0, message)


def _name(kind: str, item: Record) -> str:
    match kind:
        case "command_execution":
            return "shell"
        case "mcp_tool_call":
            return one_line(f"{text_of(item, 'server')}.{text_of(item, 'tool')}")
        case "collab_tool_call":
            return one_line(text_of(item, "tool")) or kind
    return kind


def _given(kind: str, item: Record) -> object:
    match kind:
        case "command_execution":
            return {"command": text_of(item, "command")}
        case "file_change":
            return {"path": ", ".join(text_of(each, "path") for each in records_of(item, "changes")[:20])}
        case "web_search":
            return {"query": text_of(item, "query")}
        case "collab_tool_call":
            return {"prompt": text_of(item, "prompt")}
    return item.get("arguments")


def _result(item: Record) -> str:
    return (
        text_of(item, "aggregated_output")
        or text_within(record_of(item, "result").get("content"))
        or text_of(record_of(item, "error"), "message")
    )
