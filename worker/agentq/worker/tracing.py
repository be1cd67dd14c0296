"""OpenTelemetry traces of what a worker executes; see `coordinator/tracing.py`.

    send NAME                          producer, where it was submitted
      └ link ─ process NAME            consumer, the whole attempt
                 ├ claim               until its worker starts it
                 ├ execute, or invoke_agent NAME
                 └ finish              until the server acknowledged the outcome

A function call is one span, in the child that makes it, so that spans of the function are inside it. Without
OpenTelemetry, or without an exporter, no spans are made.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

from agentq.coordinator import tracing
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.model.lifecycle import COMPLETING_CLASSES
from agentq.coordinator.model.spec import AgentSpending, Outcome, RunSpec, is_function_lane, parse_lane
from agentq.sdk.functions.codec import Function

if TYPE_CHECKING:  # a child for functions, which has `Calling` alone, starts in half the time without a Redis client
    from opentelemetry.trace import Span, Tracer

    from agentq.coordinator.runs.verbs import Claim
    from agentq.worker.reporting.report_sender import AttemptReport


@dataclass(slots=True)
class _AttemptSpans:
    """The open spans of one attempt."""

    attempt: Span
    step: Span
    spec: RunSpec


class WorkerTracing:
    """Traces the process attempts of one worker. Called from several threads."""

    def __init__(self, tracer: Tracer | None, flush: Callable[[], None] = lambda: None) -> None:
        self._tracer = tracer
        self._spans: dict[Claim, _AttemptSpans] = {}
        self.flush = flush

    @classmethod
    def from_environment(cls, note: Callable[[str], None]) -> WorkerTracing:
        """Tracing as the environment configures it."""
        flush = tracing.start_export("agentq-worker", note)
        return cls(tracing.get_tracer(), flush)

    def on_claim(self, claim: Claim, spec: RunSpec) -> None:
        """An attempt begins."""
        if self._tracer is None:
            return
        span = _start_process_span(self._tracer, claim.id, claim.lane, spec.traceparent)
        span.set_attribute("agentq.run.attempt", int(claim.fence.partition("-")[0]))
        self._spans[claim] = _AttemptSpans(span, self._start_step("claim", span), spec)

    def trace_reports(self, send: Callable[[AttemptReport], None]) -> Callable[[AttemptReport], None]:
        """Wraps `send` so that each report updates the spans."""
        if self._tracer is None:
            return send

        def send_traced(report: AttemptReport) -> None:
            self._on_report(report)
            send(report)

        return send_traced

    def on_answered(self, report: AttemptReport, refused: AgentqError | None) -> None:
        """The server answered a report."""
        if report.is_final and (spans := self._spans.pop(report.claim, None)) is not None:
            if refused is not None:
                tracing.mark_span_failed(spans.attempt, refused)
            spans.step.end()
            spans.attempt.end()

    def forget(self, claim: Claim) -> None:
        """End the spans of a fenced attempt."""
        if (spans := self._spans.pop(claim, None)) is not None:
            tracing.mark_span_failed(spans.attempt, "superseded")
            spans.step.end()
            spans.attempt.end()

    def traceparent(self, claim: Claim, spec: RunSpec) -> str | None:
        """The position of an attempt's processes in a trace."""
        spans = self._spans.get(claim)
        return spec.traceparent if spans is None else tracing.format_traceparent(spans.attempt.get_span_context())

    def _on_report(self, report: AttemptReport) -> None:
        spans = self._spans.get(report.claim)
        if spans is None or self._tracer is None:
            return
        if report.verb == "start":
            spans.step.end()
            agent = spans.spec.agent if spans.spec.kind == "agent" else None
            spans.step = self._start_step(f"invoke_agent {agent}" if agent else "execute", spans.attempt)
        elif report.is_final:
            _describe_outcome(spans, report)
            spans.step.end()
            spans.step = self._start_step("finish", spans.attempt)
            spans.step.set_attributes({"messaging.operation.type": "settle", "agentq.verb": report.verb})

    def _start_step(self, name: str, attempt: Span) -> Span:
        from opentelemetry.trace import set_span_in_context

        assert self._tracer is not None
        return self._tracer.start_span(name, context=set_span_in_context(attempt))


class CallTracing:
    """Traces the function calls of one child."""

    def __init__(self, tracer: Tracer | None, flush: Callable[[], None]) -> None:
        self._tracer = tracer
        self.is_on = tracer is not None
        self.flush = flush

    @classmethod
    def from_environment(cls) -> CallTracing:
        """Tracing as the environment configures it, which a child inherits."""
        flush = tracing.start_export("agentq-worker")
        return cls(tracing.get_tracer(), flush)

    def wrap(self, function: Function, run: str, lane: str, traceparent: str | None) -> Function:
        """The function, called inside a span."""
        if self._tracer is None:
            return function
        inner, traced = function.run, copy.copy(function)

        @wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._span(function.path, run, lane, traceparent):
                return inner(*args, **kwargs)

        @wraps(inner)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with self._span(function.path, run, lane, traceparent):
                return await inner(*args, **kwargs)

        traced.run = awaited if inspect.iscoroutinefunction(inspect.unwrap(inner)) else call
        return traced

    @contextmanager
    def _span(self, path: str, run: str, lane: str, traceparent: str | None) -> Iterator[None]:
        from opentelemetry.trace import use_span

        assert self._tracer is not None
        span = _start_process_span(self._tracer, run, lane, traceparent)
        span.set_attribute("code.function.name", path)
        with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield
            except BaseException as error:
                tracing.mark_span_failed(span, error)
                raise


def _start_process_span(tracer: Tracer, run: str, lane: str, traceparent: str | None) -> Span:
    """Start the span of an attempt, linked with that of its submit, which may be hours older and shared."""
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanKind

    queue = parse_lane(lane)["queue"]
    attributes = {
        "messaging.system": "agentq",
        "messaging.operation.name": "call" if is_function_lane(lane) else "execute",
        "messaging.operation.type": "process",
        "messaging.destination.name": queue,
        "messaging.consumer.group.name": "workers",
        "messaging.message.id": run,
    }
    links = (
        [Link(tracing.parse_span_context(traceparent))]
        if tracing.validate_traceparent(traceparent) and traceparent
        else []
    )
    return tracer.start_span(
        f"process {queue}", context=Context(), kind=SpanKind.CONSUMER, attributes=attributes, links=links
    )


def _describe_outcome(spans: _AttemptSpans, report: AttemptReport) -> None:
    """Set the outcome on the spans of the step and of the attempt."""
    outcome = report.outcome or Outcome()
    if report.verb in ("fail", "defer") or outcome.class_ not in COMPLETING_CLASSES:
        for span in (spans.step, spans.attempt):
            span.set_attribute("error.type", outcome.class_.value)
            tracing.mark_span_failed(span, outcome.error or outcome.class_.value)
    spans.attempt.set_attribute("agentq.outcome", outcome.class_.value if report.outcome else report.verb)
    if outcome.exit_code is not None:
        spans.step.set_attribute("process.exit.code", outcome.exit_code)
    if spans.spec.kind == "agent":
        spans.step.set_attributes(_build_agent_attributes(spans.spec, outcome))


def _build_agent_attributes(spec: RunSpec, outcome: Outcome) -> dict[str, str | int | float]:
    """The attributes of the OpenTelemetry conventions for generative AI."""
    agent = outcome.agent
    attributes: dict[str, str | int | float | None] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": spec.agent,
        "gen_ai.conversation.id": spec.session or (agent.session if agent else None),
        "gen_ai.response.model": agent.model if agent else None,
    }
    if agent is not None and agent.spent != AgentSpending():
        attributes |= {
            "gen_ai.usage.input_tokens": agent.spent.input_tokens,
            "gen_ai.usage.output_tokens": agent.spent.output_tokens,
            "agentq.cost_usd": agent.spent.cost_usd,
        }
    return {name: value for name, value in attributes.items() if value is not None}
