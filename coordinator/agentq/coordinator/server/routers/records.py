"""Runs and sessions as the store has them, for clients that read them with agentq's own models: the Python SDK."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json
from starlette.responses import Response

from agentq.coordinator.confidential import hidden
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.fields import RunId
from agentq.coordinator.identity import partition_of
from agentq.coordinator.lifecycle import TERMINAL
from agentq.coordinator.limits import LIST_A_CALL
from agentq.coordinator.link import fields_of
from agentq.coordinator.run import lane_parts
from agentq.coordinator.server import foreign, problems, views
from agentq.coordinator.server.access import Principal, allowed
from agentq.coordinator.server.parameters import KNOWN
from agentq.coordinator.server.service import Service, service_of

router = APIRouter(prefix="/records", tags=["records"], dependencies=[KNOWN])

IDS = 500
ANSWER_BYTES = 8 << 20
"""Once an answer is so large, the rest is left for the next."""
SECRET = ("fence", "op")
"""What only whoever holds the run may know."""

Name = Annotated[str, Path(description="The name of a session.")]


class Looked(BaseModel):
    """The runs to look at."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"ids": ["run_01k9zq3c5007m2x4c8r1tnq"]}})

    ids: Annotated[tuple[RunId, ...], Field(min_length=1, max_length=IDS, strict=False)]
    ended: bool = False
    """Only those that have ended are wanted whole."""


@router.post("/runs", summary="Look at many runs")
async def runs(
    request: Request, body: Looked, caller: Annotated[Principal, allowed("read", by_queue=True)]
) -> Response:
    """The hashes of these runs. `live` names those that have not ended, if only ended ones were wanted; `left` those
    that did not fit into the answer."""
    service = service_of(request)
    return views.told(await service.ask(_look, service, caller, body))


@router.get("/sessions/{name}", summary="A session", dependencies=[allowed("read")])
async def session(request: Request, name: Name) -> Response:
    """Everything that is known of it."""
    service = service_of(request)
    return views.told((await service.ask(service.sessions.get, name)).model_dump(mode="json"))


@router.get("/sessions/{name}/turns", summary="The turns of a session", dependencies=[allowed("read")])
async def turns(
    request: Request,
    name: Name,
    limit: Annotated[int, Query(ge=1, le=LIST_A_CALL)] = 100,
    cursor: Annotated[str | None, Query(max_length=256)] = None,
) -> Response:
    """A page of its runs, newest first."""
    service = service_of(request)
    page = await service.ask(service.sessions.turns, name, limit=limit, cursor=cursor)
    return views.told({"runs": [run.model_dump(mode="json") for run in page.runs], "cursor": page.cursor})


def _look(service: Service, caller: Principal, asked: Looked) -> dict[str, Any]:
    answer: dict[str, Any] = {"runs": {}, "live": [], "missing": [], "refused": {}, "left": []}
    ids, size = list(dict.fromkeys(asked.ids)), 0
    for place, run_id in enumerate(ids):
        if size > ANSWER_BYTES:
            answer["left"] = ids[place:]
            break
        key = service.store.key(partition_of(run_id), "run", run_id)
        state, lane = service.store.connection.command("HMGET", key, "state", "lane")
        if state is None:
            answer["missing"].append(run_id)
            continue
        try:
            caller.check_queue(lane_parts(lane)["queue"])
        except AgentqError as refused:
            answer["refused"][run_id] = problems.problem(403, str(refused), kind="denied")
            continue
        if asked.ended and state not in TERMINAL:
            answer["live"].append(run_id)
            continue
        fields = fields_of(service.store.connection.command("HGETALL", key))
        answer["runs"][run_id] = _told(fields)
        size += sum(map(len, fields.values()))
    return answer


def _told(fields: dict[str, str]) -> dict[str, str]:
    """The hash, but for what is secret of it."""
    spec = fields["spec"]
    if spec.startswith("{") and any(mark in spec for mark in ('"env"', '"scope"', '"workspace"')):
        shown = foreign.concealed({"spec": hidden(json.loads(spec))})
        fields["spec"] = to_json(shown["spec"]).decode()
    return {name: value for name, value in fields.items() if name not in SECRET}
