"""A collector of traces: it takes what OpenTelemetry's exporters send over HTTP, and keeps it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.servers import until


class Span:
    """One that was sent."""

    def __init__(self, service: str, span: Any) -> None:
        self.service = service
        self.name: str = span.name
        self.kind: int = span.kind
        self.trace: str = span.trace_id.hex()
        self.id: str = span.span_id.hex()
        self.parent: str = span.parent_span_id.hex()
        self.links: list[tuple[str, str]] = [(each.trace_id.hex(), each.span_id.hex()) for each in span.links]
        self.failed: bool = span.status.code == 2
        self.attributes = {each.key: _value(each.value) for each in span.attributes}
        self.times: tuple[int, int] = (span.start_time_unix_nano, span.end_time_unix_nano)


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


class Collector:
    """See above."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        taken = self.spans

        class Taker(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    import gzip

                    body = gzip.decompress(body)
                for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    named = {each.key: _value(each.value) for each in of_resource.resource.attributes}
                    for scope in of_resource.scope_spans:
                        taken.extend(Span(str(named["service.name"]), span) for span in scope.spans)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Taker)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self._server.server_port}",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }

    def named(self, name: str, most: int = 1) -> list[Span]:
        """Spans of a name, as soon as there are so many."""
        until(
            lambda: len(self._of(name)) >= most, f"{most} spans {name!r}, beside {sorted({s.name for s in self.spans})}"
        )
        return self._of(name)

    def _of(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
