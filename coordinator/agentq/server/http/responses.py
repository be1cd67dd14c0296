"""What there is, as it is answered: the shapes of `--json`, and beside them the names of other systems for it."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from agentq.coordinator.public_json import run_json, schedule_json, session_json
from agentq.coordinator.runs.run_record import RunListEntry, RunRecord
from agentq.coordinator.schedules.verbs import ScheduleRecord
from agentq.coordinator.security.secret_fields import redact_spec, redact_value
from agentq.coordinator.sessions.verbs import SessionRecord
from agentq.dialects import agent_orchestrator


def build_run_view(run: RunRecord) -> dict[str, Any]:
    """A run, whole, but for the values of what is secret of it."""
    record = agent_orchestrator.hide_scope(run_json(run))
    also: dict[str, Any] = redact_value(agent_orchestrator.translate_run(run))
    return also | record | {"spec": redact_spec(record["spec"])}


def build_summary_view(run: RunListEntry) -> dict[str, Any]:
    """A run in a list."""
    return agent_orchestrator.translate_summary(run) | agent_orchestrator.summarize_run(run)


def build_schedule_view(schedule: ScheduleRecord) -> dict[str, Any]:
    """A schedule, but for the values of what is secret of its runs."""
    record = schedule_json(schedule)
    return record if record["spec"] is None else record | {"spec": redact_spec(record["spec"])}


def build_session_view(session: SessionRecord) -> dict[str, Any]:
    """A session."""
    return agent_orchestrator.translate_session(session) | session_json(session)


def encode_json(body: object) -> bytes:
    """An answer in JSON, as it goes out."""
    return to_json(body)


def json_response(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer in JSON."""
    return Response(encode_json(body), status, headers, media_type="application/json")


def etag_response(request: Request, body: object) -> Response:
    """The same with an ETag; nothing but that if the client has it already."""
    content = encode_json(body)
    tag = compute_etag(content)
    if matches_etag(request, tag):
        return Response(status_code=304, headers={"etag": tag})
    return Response(content, headers={"etag": tag}, media_type="application/json")


def compute_etag(content: bytes) -> str:
    return f'"{blake2b(content, digest_size=12).hexdigest()}"'


def matches_etag(request: Request, tag: str) -> bool:
    """Whether the client has said that it has this already."""
    known = request.headers.get("if-none-match", "")
    return known.strip() == "*" or tag in [each.strip().removeprefix("W/") for each in known.split(",")]
