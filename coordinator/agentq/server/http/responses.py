"""JSON responses, with an ETag where clients may have the content already."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from agentq.coordinator.public_json.schedules import schedule_json
from agentq.coordinator.schedules.verbs import ScheduleRecord
from agentq.coordinator.security.secret_fields import redact_spec


def build_schedule_view(schedule: ScheduleRecord) -> dict[str, Any]:
    """The JSON of a schedule, with the secrets of its runs replaced."""
    record = schedule_json(schedule)
    return record if record["spec"] is None else record | {"spec": redact_spec(record["spec"])}


def encode_json(body: object) -> bytes:
    """The JSON bytes of a response."""
    return to_json(body)


def json_response(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON response."""
    return Response(encode_json(body), status, headers, media_type="application/json")


def etag_response(request: Request, body: object) -> Response:
    """A JSON response with an ETag; 304 if the client has it already."""
    content = encode_json(body)
    tag = compute_etag(content)
    if matches_etag(request, tag):
        return Response(status_code=304, headers={"etag": tag})
    return Response(content, headers={"etag": tag}, media_type="application/json")


def compute_etag(content: bytes) -> str:
    return f'"{blake2b(content, digest_size=12).hexdigest()}"'


def matches_etag(request: Request, tag: str) -> bool:
    """Whether the client has this content already."""
    known = request.headers.get("if-none-match", "")
    return known.strip() == "*" or tag in [each.strip().removeprefix("W/") for each in known.split(",")]
