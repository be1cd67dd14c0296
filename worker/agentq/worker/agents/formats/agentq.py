"""agentq's own format, JSON lines, for programs made to run here: each is an event, or facts about the outcome."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from agentq.coordinator.model.agent_events import (
    AgentEvent,
    AnyAgentEvent,
    ModelTurnEvent,
    ResultEvent,
    SleepRequestEvent,
    SpendingEvent,
    StartedEvent,
    TextEvent,
    ThoughtEvent,
    TodoListEvent,
    ToolCallEvent,
    ToolDeniedEvent,
    truncate_text,
)
from agentq.worker.agents.formats.json_lines import JsonLinesReader, build_unknown_event, cut_error
from agentq.worker.agents.formats.safe_values import Record, cut_answer, cut_line, shrink_value
from agentq.worker.agents.verdicts import VerdictKind

_SINGLE_LINE_FIELDS = ("id", "tool", "about", "path", "model", "session", "why", "what")
_ACTIVITY_EVENTS = (StartedEvent, ModelTurnEvent, TextEvent, ThoughtEvent, ToolCallEvent, TodoListEvent)
_DENIALS_MAX = 1_000
_COUNTED_FIELDS = ("input_tokens", "cached_tokens", "output_tokens", "turns")
_Amount = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
_NonEmptyText = Annotated[str, Field(min_length=1)]


class ReportedFacts(BaseModel):
    """Facts that a program may report about itself; omitted ones stay unchanged."""

    model_config = ConfigDict(extra="ignore", defer_build=True)

    session: _NonEmptyText | None = Field(
        None, description="its own id of the conversation, by which it can be resumed"
    )
    model: _NonEmptyText | None = Field(None, description="the model that it uses")
    concluded: bool | None = Field(None, description="whether it has said its last word; a `result` sets it")
    ok: bool | None = Field(None, description="whether that was a good one; a `result` sets it")
    text: str | None = Field(None, description="what it answered; a good `result` sets it")
    structured: JsonValue = Field(None, description="what it answered, as JSON: the run's result")
    kind: VerdictKind | None = Field(
        None, description="a word of the table of outcomes, where it knows better why it failed"
    )
    error: str | None = Field(None, description="one sentence; a bad `result` sets it")
    reset_at_ms: Annotated[int, Field(gt=0, lt=10**15)] | None = Field(
        None, description="when the limit ends that it met, in milliseconds since 1970"
    )
    denials: list[str] | None = Field(None, description="tools that it was not allowed; each `denied` adds one")
    totals: dict[str, _Amount] | None = Field(
        None,
        description="numbers of the whole conversation, as it counts them: of `cost_usd`, `input_tokens`, "
        "`cached_tokens`, `output_tokens` and `turns`, what they were before this attempt is taken off, and the rest "
        "is what it spent",
    )


_event_adapter: TypeAdapter[Any] = TypeAdapter(AnyAgentEvent, config=ConfigDict(defer_build=True))


class AgentqReader(JsonLinesReader):
    """Reads the output of one attempt."""

    def read_event(self, kind: str, event: Record) -> Iterable[AgentEvent]:
        self.facts.has_output = True
        try:
            if kind == "facts":
                self._facts(told := ReportedFacts.model_validate(event))
                return self._grown(told.totals) if told.totals else []
            limited = limit_event(_event_adapter.validate_python(event))
        except ValidationError:
            return [build_unknown_event(event)]
        self._done(limited)
        return [self.facts.spent if isinstance(limited, SpendingEvent) else limited]

    def _facts(self, reported: ReportedFacts) -> None:
        facts = self.facts
        for name in reported.model_fields_set & {"concluded", "ok", "kind", "reset_at_ms"}:
            if (value := getattr(reported, name)) is not None or name in ("kind", "ok", "reset_at_ms"):
                setattr(facts, name, value)
        facts.session = cut_line(reported.session or "") or facts.session
        facts.model = cut_line(reported.model or "") or facts.model
        facts.text = facts.text if reported.text is None else cut_answer(reported.text)
        facts.error = facts.error if reported.error is None else cut_error(reported.error)
        if reported.totals is not None:
            facts.totals = {
                name: reported.totals[name] for name in ("cost_usd", *_COUNTED_FIELDS) if name in reported.totals
            }
        if reported.denials is not None:
            facts.denials = [cut_line(tool) for tool in reported.denials[:_DENIALS_MAX]]
        if "structured" in reported.model_fields_set:
            facts.structured = reported.structured

    def _grown(self, totals: dict[str, float]) -> list[AgentEvent]:
        """The spending of this attempt, by the growth of the conversation's totals, if reported."""
        before = self.facts.spent
        input_, cached, output, turns = (
            round(self.grown_since(name, totals[name])) if name in totals else getattr(before, name)
            for name in _COUNTED_FIELDS
        )
        cost = self.grown_since("cost_usd", totals["cost_usd"]) if "cost_usd" in totals else before.cost_usd
        now = self.set_spending(input_, cached, output, turns, cost)
        return [] if now == before else [now]

    def _done(self, event: AgentEvent) -> None:
        facts = self.facts
        if isinstance(event, _ACTIVITY_EVENTS) and facts.concluded:
            facts.concluded, facts.ok, facts.kind, facts.error = False, None, None, ""
        match event:
            case StartedEvent():
                facts.session, facts.model = event.session or facts.session, event.model or facts.model
            case SpendingEvent():
                self.set_spending(
                    event.input_tokens, event.cached_tokens, event.output_tokens, event.turns, event.cost_usd
                )
            case SleepRequestEvent():
                facts.sleep = event
            case ToolDeniedEvent():
                facts.denials += [event.tool] if len(facts.denials) < _DENIALS_MAX else []
            case ResultEvent():
                facts.concluded, facts.ok = True, event.ok
                facts.text = event.text if event.ok else facts.text
                facts.error = facts.error if event.ok else event.text


def limit_event(event: AgentEvent) -> AgentEvent:
    """A foreign event, cut to the bounds of agentq's."""
    less: dict[str, Any] = {}
    for name, value in event:
        if isinstance(value, str) and name != "type":
            less[name] = cut_line(value) if name in _SINGLE_LINE_FIELDS else truncate_text(value)
        elif name in ("input", "raw"):
            less[name] = shrink_value(value)
        elif name == "items":
            less[name] = [(cut_line(text), state) for text, state in value[:100]]
    return event.model_copy(update=less)
