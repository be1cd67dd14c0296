"""Trace context: links a run to the OpenTelemetry trace that it was submitted in.

A run carries the place in a trace that it was submitted from (`traceparent`), and its processes are told theirs, as the
variable TRACEPARENT. That needs nothing installed. Where the program that submits has loaded OpenTelemetry, each submit
is a span of the kind producer; where a worker or server is told by the usual variables (OTEL_EXPORTER_OTLP_ENDPOINT, or
OTEL_TRACES_EXPORTER) where its traces go, and OpenTelemetry is installed (the extra `otel`), it sends its own. Nothing
here loads OpenTelemetry but `export`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agentq.coordinator.model.field_types import TRACEPARENT_PATTERN
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.package_version import installed_version

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, Tracer

TRACEPARENT_VARIABLE = "TRACEPARENT"
ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
FLUSH_TIMEOUT_MS = 2_000
INSTALL_COMMAND = "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
"""How long a process that ends waits for its last spans to be taken."""
_TRACEPARENT_PATTERN = re.compile(TRACEPARENT_PATTERN)
_ZERO_TRACE_ID = "0" * 32


def is_enabled() -> bool:
    """Whether there may be a trace to be in."""
    return TRACEPARENT_VARIABLE in os.environ or get_tracer() is not None


def get_tracer() -> Tracer | None:
    """Where spans are made, if this program has said where they go. That OpenTelemetry is loaded does not say so."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None or isinstance(api.get_tracer_provider(), api.ProxyTracerProvider):
        return None
    found: Tracer = api.get_tracer("agentq", installed_version())
    return found


def validate_traceparent(text: str | None) -> str | None:
    """A traceparent, if it is one that says something."""
    return text if text and _TRACEPARENT_PATTERN.fullmatch(text) and text[3:35] != _ZERO_TRACE_ID else None


def format_traceparent(context: SpanContext) -> str | None:
    """The place of a span, as a traceparent; None of one that is nowhere."""
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def add_traceparent(spec: RunSpec, traceparent: str | None) -> RunSpec:
    """A run as it is submitted in a trace, unless it says itself in which."""
    if traceparent is None or spec.traceparent is not None:
        return spec
    return spec.model_copy(update={"traceparent": traceparent})


@contextmanager
def submit_span(queue: str = "", within: str | None = None) -> Iterator[tuple[str | None, Callable[[str, int], None]]]:
    """While something is submitted, to one queue or several, within what it says itself or the environment does: where
    in a trace that is, and what to tell of it then: the id of the run if it is one, and how many they are.
    """
    found, around = get_tracer(), within or validate_traceparent(os.environ.get(TRACEPARENT_VARIABLE))
    if found is None:
        yield around, lambda *_: None
        return
    attributes = {
        "messaging.system": "agentq",
        "messaging.operation.name": "submit",
        "messaging.operation.type": "send",
    }
    if queue:
        attributes["messaging.destination.name"] = queue
    from opentelemetry.trace import SpanKind, get_current_span

    parent = None if get_current_span().get_span_context().is_valid else make_context(around)
    span = found.start_span(f"send {queue}".strip(), context=parent, kind=SpanKind.PRODUCER, attributes=attributes)

    def name_runs(run_id: str, count: int) -> None:
        named = {"messaging.message.id": run_id} if count == 1 else {"messaging.batch.message_count": count}
        span.set_attributes(named)

    try:
        yield format_traceparent(span.get_span_context()) or around, name_runs
    except Exception as error:
        mark_span_failed(span, error)
        raise
    finally:
        span.end()


def start_request_span(method: str, path: str, traceparent: str | None) -> Span | None:
    """The span of a request, from now on; None where no spans are made."""
    found = get_tracer()
    if found is None:
        return None
    from opentelemetry.trace import SpanKind

    attributes = {"http.request.method": method, "url.path": path}
    context = make_context(validate_traceparent(traceparent))
    return found.start_span(method, context=context, kind=SpanKind.SERVER, attributes=attributes)


def end_request_span(span: Span, method: str, route: str, status: int) -> None:
    """The end of it, when it is known which route it took and what was answered."""
    if route:
        span.update_name(f"{method} {route}")
        span.set_attribute("http.route", route)
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        mark_span_failed(span, f"answered {status}")
    span.end()


def mark_span_failed(span: Span, error: BaseException | str) -> None:
    """Say of a span that it did not come to a good end."""
    from opentelemetry.trace import Status, StatusCode

    if isinstance(error, BaseException):
        span.set_attribute("error.type", type(error).__name__)
    span.set_status(Status(StatusCode.ERROR, str(error)[:200]))


def make_context(traceparent: str | None) -> Any:
    """The context that a traceparent stands for; None without one. OpenTelemetry is there."""
    if traceparent is None:
        return None
    from opentelemetry.trace import NonRecordingSpan, set_span_in_context

    return set_span_in_context(NonRecordingSpan(parse_span_context(traceparent)))


def parse_span_context(traceparent: str) -> SpanContext:
    """The place in a trace that a traceparent stands for."""
    from opentelemetry.trace import SpanContext, TraceFlags

    _, trace_id, span_id, flags = traceparent.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))


def is_export_configured(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment says where traces go."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    return exporter in ("otlp", "console") or (
        exporter == "" and any(environment.get(name) for name in ENDPOINT_VARIABLES)
    )


def start_export(service: str, note: Callable[[str], None] = lambda _: None) -> Callable[[], None]:
    """Send the traces of this process where the environment says, if it does; returns what sends the last of them.

    Whoever has set up OpenTelemetry in this process already, by `opentelemetry-instrument` say, is left alone.
    """
    if not is_export_configured():
        return lambda: None
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
    except ImportError:
        note(f"traces are to be sent, and OpenTelemetry is not installed; add it with: {INSTALL_COMMAND}")
        return lambda: None
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return lambda: None
    named = {"service.name": os.environ.get("OTEL_SERVICE_NAME") or service, "service.version": installed_version()}
    exporter: SpanExporter = ConsoleSpanExporter(out=sys.stderr)
    if os.environ.get("OTEL_TRACES_EXPORTER") != "console":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        exporter = OTLPSpanExporter()
    # It is flushed by who knows how long it may take, not by the interpreter as it ends.
    provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
    processor = BatchSpanProcessor(exporter)
    provider.add_span_processor(processor)
    trace.set_tracer_provider(provider)

    def flush() -> None:
        processor.force_flush(FLUSH_TIMEOUT_MS)

    return flush
