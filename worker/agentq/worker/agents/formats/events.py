"""The reader that all agents have in common whose output is one JSON object a line."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from agentq.coordinator.doings import Called, Doing, Held, Limited, Other, Planned, Said, Spent, Thought, Turned, cut
from agentq.coordinator.limits import FACT_CHARACTERS, SPENT_COUNT_MAX, SPENT_USD_MAX
from agentq.worker.agents.formats.values import Record, about, clean, event_of, one_line, small, text_of
from agentq.worker.agents.pricing import cost_of
from agentq.worker.agents.reading import Before, Facts
from agentq.worker.agents.services import kind_of
from agentq.worker.agents.verdicts import VerdictKind

REFUSALS = 4
"""Requests that an agent's service refuses one after the other before the agent is ended: the run's own backoff goes on
asking, in the same conversation, and holds no slot meanwhile."""
_COMPLAINT_CHARACTERS = 600
_ERROR = re.compile(r"(?:\w*error|fatal|panic)\b", re.IGNORECASE)
_WARNING = re.compile(r"\W*warn", re.IGNORECASE)
_ANSWERS = (Turned, Said, Thought, Called)
_OPEN_TOOLS = 256
_PLAN_ITEMS = 100


class EventReader(ABC):
    """A format says what an event means, in `told`; lines that are no events are passed over, or read by `plain`."""

    def __init__(self, before: Before) -> None:
        self.before = before
        self.facts = Facts(model=before.model)
        self._complaint = ""
        self._refusals = 0
        self._open: dict[str, Called] = {}

    def read(self, line: str) -> Iterable[Doing]:
        event = event_of(clean(line))
        if event is None:
            self.plain(clean(line))
            return []
        kind = text_of(event, "type")
        told = list(self.told(kind, event)) if kind else []
        if not self.facts.refused and any(isinstance(each, _ANSWERS) for each in told):
            self._refusals = 0
        self._keep_names_short()
        return told

    @abstractmethod
    def told(self, kind: str, event: Record) -> Iterable[Doing]:
        """What an event means."""

    def _keep_names_short(self) -> None:
        """What is longer is no id, and no model that there is."""
        facts = self.facts
        if len(facts.session or "") > FACT_CHARACTERS:
            facts.session = None
        if len(facts.model or "") > FACT_CHARACTERS:
            facts.model = None

    def plain(self, line: str) -> None:
        """A line that is no event: a complaint, perhaps."""
        self.complained(line)

    def read_error(self, line: str) -> Iterable[Doing]:
        self.plain(clean(line))
        return []

    def asks_again(self, message: str) -> Iterator[Doing]:
        """Its service refused a request, and the agent will repeat it."""
        self._refusals += 1
        self.facts.kind = kind_of(0, message) or VerdictKind.THROTTLED
        self.facts.error = error_text(message)
        limited = self.facts.kind is VerdictKind.LIMITED
        self.facts.refused = limited or self._refusals >= REFUSALS
        yield Limited(reached=True, what=one_line(message)) if limited else Held(why=one_line(message))

    def complained(self, line: str) -> None:
        """The last words outside of the agent's language are all that there is, when it dies without a word in it. One
        that says that it is an error counts for more than what follows it.
        """
        if not line.strip() or _WARNING.match(line):
            return
        if _ERROR.match(line) or not _ERROR.match(self._complaint):
            self._complaint = one_line(line, _COMPLAINT_CHARACTERS)

    def ended(self) -> None:
        if not self.facts.ok and not self.facts.error:
            self.facts.error = self._complaint

    def calls(self, id_: str, tool: str, given: Any) -> Called:
        """A tool is used; it is remembered until it ends, and the oldest is forgotten where there are too many."""
        called = Called(id=id_[:200], tool=one_line(tool), about=about(given), input=small(given))
        if len(self._open) >= _OPEN_TOOLS:
            del self._open[next(iter(self._open))]
        self._open[called.id] = called
        return called

    def returned(self, id_: str) -> Called | None:
        """The tool that has ended, if it is known."""
        return self._open.pop(id_[:200], None)

    def since(self, name: str, total: float, totals: Mapping[str, float] | None = None) -> float:
        """What one of the agent's running totals has grown by in this attempt. One that is smaller than it was has
        begun anew.
        """
        before = (self.before.totals if totals is None else totals).get(name, 0)
        return total - before if total >= before else total

    def spent(self, input_: int, cached: int, output: int, turns: int, cost: float | None = None) -> Spent:
        """Keep what was spent so far; a cost that the agent does not tell is reckoned, where the price is known.

        What nobody can have spent is told as the most, or the least, that can be.
        """
        input_, cached, output, turns = (
            min(max(each, 0), SPENT_COUNT_MAX - 1) for each in (input_, cached, output, turns)
        )
        if cost is None:
            cost = cost_of(self.before.prices, self.facts.model, input_, cached, output)
        if cost is not None:
            cost = min(max(cost, 0.0), SPENT_USD_MAX - 1)
        now = Spent(cost_usd=cost, input_tokens=input_, cached_tokens=cached, output_tokens=output, turns=turns)
        self.facts.spent = now
        return now


def planned(items: list[Record]) -> Planned:
    """A plan whose items have a text and, by one word, how far they are."""
    return Planned(items=[_item(item) for item in items[:_PLAN_ITEMS]])


def _item(item: Record) -> tuple[str, Literal["todo", "doing", "done"]]:
    done = item.get("completed") is True
    return one_line(text_of(item, "content", "text")), "done" if done else _STATES.get(text_of(item, "status"), "todo")


_STATES: dict[str, Literal["todo", "doing", "done"]] = {
    "in_progress": "doing",
    "completed": "done",
    "cancelled": "done",
}


def unknown(event: Record) -> Other:
    return Other(raw=small(event))


def error_text(text: str) -> str:
    """As much of an error as is kept."""
    return cut(text.strip())
