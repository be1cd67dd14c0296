"""The base of readers for agents whose output is one JSON object a line."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from agentq.coordinator.bounds import CONVERSATION_FIELD_CHARACTERS, SPENT_COUNT_MAX, SPENT_USD_MAX
from agentq.coordinator.model.agent_events import (
    AccountLimitEvent,
    AgentEvent,
    ModelTurnEvent,
    SpendingEvent,
    TextEvent,
    ThoughtEvent,
    ThrottledEvent,
    TodoListEvent,
    ToolCallEvent,
    UnknownEvent,
    truncate_text,
)
from agentq.worker.agents.accounts.pricing import compute_cost
from agentq.worker.agents.accounts.service_errors import classify_service_error
from agentq.worker.agents.formats.safe_values import (
    Record,
    clean_line,
    cut_line,
    get_text,
    parse_event,
    shrink_value,
    summarize_input,
)
from agentq.worker.agents.reader import AgentFacts, PriorConversation
from agentq.worker.agents.verdicts import VerdictKind

REFUSALS_MAX = 4
"""How many requests the service may refuse in a row before the agent is ended: the run's own backoff continues, in the
same conversation, and holds no slot meanwhile.
"""
_ERROR_CHARACTERS = 600
_ERROR_LINE = re.compile(r"(?:\w*error|fatal|panic)\b", re.IGNORECASE)
_WARNING_LINE = re.compile(r"\W*warn", re.IGNORECASE)
_ANSWER_EVENTS = (ModelTurnEvent, TextEvent, ThoughtEvent, ToolCallEvent)
_OPEN_TOOLS_MAX = 256
_PLAN_ITEMS_MAX = 100


class JsonLinesReader(ABC):
    """A format interprets events in `read_event`; other lines are skipped, or read by `read_plain`."""

    def __init__(self, before: PriorConversation) -> None:
        self.before = before
        self.facts = AgentFacts(model=before.model)
        self._complaint = ""
        self._refusals = 0
        self._open_tools: dict[str, ToolCallEvent] = {}

    def read(self, line: str) -> Iterable[AgentEvent]:
        event = parse_event(clean_line(line))
        if event is None:
            self.read_plain(clean_line(line))
            return []
        kind = get_text(event, "type")
        events = list(self.read_event(kind, event)) if kind else []
        if not self.facts.refused and any(isinstance(each, _ANSWER_EVENTS) for each in events):
            self._refusals = 0
        self._drop_long_names()
        return events

    @abstractmethod
    def read_event(self, kind: str, event: Record) -> Iterable[AgentEvent]:
        """The events of one line's object."""

    def _drop_long_names(self) -> None:
        """A longer text is no id and no existing model."""
        facts = self.facts
        if len(facts.session or "") > CONVERSATION_FIELD_CHARACTERS:
            facts.session = None
        if len(facts.model or "") > CONVERSATION_FIELD_CHARACTERS:
            facts.model = None

    def read_plain(self, line: str) -> None:
        """A line that is no event: perhaps an error."""
        self.note_complaint(line)

    def read_error(self, line: str) -> Iterable[AgentEvent]:
        self.read_plain(clean_line(line))
        return []

    def on_refused_request(self, message: str) -> Iterator[AgentEvent]:
        """The service refused a request, and the agent will retry it."""
        self._refusals += 1
        self.facts.kind = classify_service_error(0, message) or VerdictKind.THROTTLED
        self.facts.error = cut_error(message)
        limited = self.facts.kind is VerdictKind.LIMITED
        self.facts.refused = limited or self._refusals >= REFUSALS_MAX
        yield (
            AccountLimitEvent(reached=True, what=cut_line(message))
            if limited
            else ThrottledEvent(why=cut_line(message))
        )

    def note_complaint(self, line: str) -> None:
        """Keep the last plain text, the only explanation when the agent dies without an event. A line that says that it
        is an error counts more than what follows it.
        """
        if not line.strip() or _WARNING_LINE.match(line):
            return
        if _ERROR_LINE.match(line) or not _ERROR_LINE.match(self._complaint):
            self._complaint = cut_line(line, _ERROR_CHARACTERS)

    def finish(self) -> None:
        if not self.facts.ok and not self.facts.error:
            self.facts.error = self._complaint

    def start_tool(self, id_: str, tool: str, given: Any) -> ToolCallEvent:
        """A tool call begins; it is remembered until it ends, and the oldest is dropped beyond a bound."""
        called = ToolCallEvent(
            id=id_[:200], tool=cut_line(tool), about=summarize_input(given), input=shrink_value(given)
        )
        if len(self._open_tools) >= _OPEN_TOOLS_MAX:
            del self._open_tools[next(iter(self._open_tools))]
        self._open_tools[called.id] = called
        return called

    def end_tool(self, id_: str) -> ToolCallEvent | None:
        """The tool call that has ended, if it is known."""
        return self._open_tools.pop(id_[:200], None)

    def grown_since(self, name: str, total: float, totals: Mapping[str, float] | None = None) -> float:
        """How much one of the agent's totals has grown in this attempt. A smaller total has restarted."""
        before = (self.before.totals if totals is None else totals).get(name, 0)
        return total - before if total >= before else total

    def set_spending(
        self, input_: int, cached: int, output: int, turns: int, cost: float | None = None
    ) -> SpendingEvent:
        """Keep the spending so far; a cost that is not reported is computed, where the price is known.

        Impossible numbers are cut to the bounds.
        """
        input_, cached, output, turns = (
            min(max(each, 0), SPENT_COUNT_MAX - 1) for each in (input_, cached, output, turns)
        )
        if cost is None:
            cost = compute_cost(self.before.prices, self.facts.model, input_, cached, output)
        if cost is not None:
            cost = min(max(cost, 0.0), SPENT_USD_MAX - 1)
        now = SpendingEvent(cost_usd=cost, input_tokens=input_, cached_tokens=cached, output_tokens=output, turns=turns)
        self.facts.spent = now
        return now


def build_plan_event(items: list[Record]) -> TodoListEvent:
    """A plan whose items have a text and a state."""
    return TodoListEvent(items=[_parse_plan_item(item) for item in items[:_PLAN_ITEMS_MAX]])


def _parse_plan_item(item: Record) -> tuple[str, Literal["todo", "doing", "done"]]:
    done = item.get("completed") is True
    return cut_line(get_text(item, "content", "text")), "done" if done else _PLAN_STATES.get(
        get_text(item, "status"), "todo"
    )


_PLAN_STATES: dict[str, Literal["todo", "doing", "done"]] = {
    "in_progress": "doing",
    "completed": "done",
    "cancelled": "done",
}


def build_unknown_event(event: Record) -> UnknownEvent:
    return UnknownEvent(raw=shrink_value(event))


def cut_error(text: str) -> str:
    """An error, cut to the kept length."""
    return truncate_text(text.strip())
