"""Our own lines of JSON, for programs that were made to run here: each is a doing, or facts about how it went."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from agentq.coordinator.doings import (
    AnyDoing,
    Began,
    Called,
    Concluded,
    Denied,
    Doing,
    Planned,
    Said,
    Sleeps,
    Spent,
    Thought,
    Turned,
    cut,
)
from agentq.worker.agents.formats.events import EventReader, error_text, unknown
from agentq.worker.agents.formats.values import Record, answer, one_line, small
from agentq.worker.agents.verdicts import VerdictKind

_ONE_LINERS = ("id", "tool", "about", "path", "model", "session", "why", "what")
_GOING_ON = (Began, Turned, Said, Thought, Called, Planned)
_COUNT = 1_000
_COUNTED = ("input_tokens", "cached_tokens", "output_tokens", "turns")
_Amount = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
_Words = Annotated[str, Field(min_length=1)]


class ToldFacts(BaseModel):
    """What a program may say of itself beside its doings; what it leaves out stays as it was."""

    model_config = ConfigDict(extra="ignore", defer_build=True)

    session: _Words | None = Field(None, description="its own id of the conversation, by which it can be resumed")
    model: _Words | None = Field(None, description="the model that it uses")
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


_doing: TypeAdapter[Any] = TypeAdapter(AnyDoing, config=ConfigDict(defer_build=True))


class AgentqReader(EventReader):
    """One attempt's."""

    def told(self, kind: str, event: Record) -> Iterable[Doing]:
        self.facts.told = True
        try:
            if kind == "facts":
                self._facts(told := ToldFacts.model_validate(event))
                return self._grown(told.totals) if told.totals else []
            doing = bounded(_doing.validate_python(event))
        except ValidationError:
            return [unknown(event)]
        self._done(doing)
        return [self.facts.spent if isinstance(doing, Spent) else doing]

    def _facts(self, told: ToldFacts) -> None:
        facts = self.facts
        for name in told.model_fields_set & {"concluded", "ok", "kind", "reset_at_ms"}:
            if (value := getattr(told, name)) is not None or name in ("kind", "ok", "reset_at_ms"):
                setattr(facts, name, value)
        facts.session = one_line(told.session or "") or facts.session
        facts.model = one_line(told.model or "") or facts.model
        facts.text = facts.text if told.text is None else answer(told.text)
        facts.error = facts.error if told.error is None else error_text(told.error)
        if told.totals is not None:
            facts.totals = {name: told.totals[name] for name in ("cost_usd", *_COUNTED) if name in told.totals}
        if told.denials is not None:
            facts.denials = [one_line(tool) for tool in told.denials[:_COUNT]]
        if "structured" in told.model_fields_set:
            facts.structured = told.structured

    def _grown(self, totals: dict[str, float]) -> list[Doing]:
        """What was spent by what its running totals of the conversation have grown by, where it tells those."""
        before = self.facts.spent
        input_, cached, output, turns = (
            round(self.since(name, totals[name])) if name in totals else getattr(before, name) for name in _COUNTED
        )
        cost = self.since("cost_usd", totals["cost_usd"]) if "cost_usd" in totals else before.cost_usd
        now = self.spent(input_, cached, output, turns, cost)
        return [] if now == before else [now]

    def _done(self, doing: Doing) -> None:
        facts = self.facts
        if isinstance(doing, _GOING_ON) and facts.concluded:
            facts.concluded, facts.ok, facts.kind, facts.error = False, None, None, ""
        match doing:
            case Began():
                facts.session, facts.model = doing.session or facts.session, doing.model or facts.model
            case Spent():
                self.spent(doing.input_tokens, doing.cached_tokens, doing.output_tokens, doing.turns, doing.cost_usd)
            case Sleeps():
                facts.sleep = doing
            case Denied():
                facts.denials += [doing.tool] if len(facts.denials) < _COUNT else []
            case Concluded():
                facts.concluded, facts.ok = True, doing.ok
                facts.text = doing.text if doing.ok else facts.text
                facts.error = facts.error if doing.ok else doing.text


def bounded(doing: Doing) -> Doing:
    """A doing of somebody else's, with no more words than ours have."""
    less: dict[str, Any] = {}
    for name, value in doing:
        if isinstance(value, str) and name != "type":
            less[name] = one_line(value) if name in _ONE_LINERS else cut(value)
        elif name in ("input", "raw"):
            less[name] = small(value)
        elif name == "items":
            less[name] = [(one_line(text), state) for text, state in value[:100]]
    return doing.model_copy(update=less)
