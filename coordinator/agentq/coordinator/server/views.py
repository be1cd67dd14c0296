"""What there is, as it is answered: the shapes of `--json`, and beside them the names of other systems for it."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from agentq.coordinator.confidential import hidden, shown
from agentq.coordinator.life import Run, Summary
from agentq.coordinator.schedules import Schedule
from agentq.coordinator.server import foreign
from agentq.coordinator.sessions import Session
from agentq.coordinator.shapes import run_record, schedule_record, session_record


def run_view(run: Run) -> dict[str, Any]:
    """A run, whole, but for the values of what is secret of it."""
    record = foreign.concealed(run_record(run))
    also: dict[str, Any] = shown(foreign.also(run))
    return also | record | {"spec": hidden(record["spec"])}


def summary_view(run: Summary) -> dict[str, Any]:
    """A run in a list."""
    return foreign.also_brief(run) | foreign.brief(run)


def schedule_view(schedule: Schedule) -> dict[str, Any]:
    """A schedule, but for the values of what is secret of its runs."""
    record = schedule_record(schedule)
    return record if record["spec"] is None else record | {"spec": hidden(record["spec"])}


def session_view(session: Session) -> dict[str, Any]:
    """A session."""
    return foreign.also_session(session) | session_record(session)


def content_of(body: object) -> bytes:
    """An answer in JSON, as it goes out."""
    return to_json(body)


def told(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer in JSON."""
    return Response(content_of(body), status, headers, media_type="application/json")


def tagged(request: Request, body: object) -> Response:
    """The same with an ETag; nothing but that if the client has it already."""
    content = content_of(body)
    tag = tag_of(content)
    if knows(request, tag):
        return Response(status_code=304, headers={"etag": tag})
    return Response(content, headers={"etag": tag}, media_type="application/json")


def tag_of(content: bytes) -> str:
    return f'"{blake2b(content, digest_size=12).hexdigest()}"'


def knows(request: Request, tag: str) -> bool:
    """Whether the client has said that it has this already."""
    known = request.headers.get("if-none-match", "")
    return known.strip() == "*" or tag in [each.strip().removeprefix("W/") for each in known.split(",")]
