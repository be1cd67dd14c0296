"""Runs and sessions as the store has them, for clients that read them with agentq's own models: the Python SDK."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import ConfigDict, Field
from pydantic_core import to_json
from starlette.responses import Response

from agentq.coordinator.confidential import HIDDEN, hidden
from agentq.coordinator.errors import Damaged, NotAllowed
from agentq.coordinator.fields import RunId
from agentq.coordinator.identity import partition_of
from agentq.coordinator.lifecycle import TERMINAL
from agentq.coordinator.limits import ANSWER_BYTES, LIST_A_CALL
from agentq.coordinator.link import fields_of
from agentq.coordinator.references import References
from agentq.coordinator.run import lane_parts
from agentq.coordinator.secret_shapes import without_secrets
from agentq.coordinator.server import bodies, foreign, problems, views
from agentq.coordinator.server.access import Principal, allowed
from agentq.coordinator.server.parameters import KNOWN
from agentq.coordinator.server.problems import Denied
from agentq.coordinator.server.service import Service, service_of

router = APIRouter(prefix="/records", tags=["records"], dependencies=[KNOWN])

IDS = 500
SECRET = ("fence", "op")
"""What only whoever holds the run may know."""

Name = Annotated[str, Path(description="The name of a session.")]


class Looked(bodies.Body):
    """The runs to look at."""

    model_config = ConfigDict(json_schema_extra={"example": {"ids": ["run_01k9zq3c5007m2x4c8r1tnq"]}})

    ids: Annotated[tuple[RunId, ...], Field(min_length=1, max_length=IDS, strict=False, fail_fast=True)]
    ended: bool = False
    """Only those that have ended are wanted whole."""
    given_to: Annotated[RunId | None, Field(strict=False)] = None
    """Only what this run may be given: none of a queue that the token which submitted it may not read."""


@router.post("/runs", summary="Look at many runs")
async def runs(
    request: Request, body: Looked, caller: Annotated[Principal, allowed("read", by_queue=True)]
) -> Response:
    """The hashes of these runs. `live` names those that have not ended, if only ended ones were wanted; `left` those
    that did not fit into the answer."""
    service = service_of(request)
    return views.told(await service.ask(_look, service, caller, body))


@router.get("/find", summary="Find the run that is meant")
async def find(
    request: Request,
    caller: Annotated[Principal, allowed("read", by_queue=True)],
    run: Annotated[
        str | None, Query(max_length=400, description="The beginning or the end of an id, or PLAN/TASK.")
    ] = None,
    live: Annotated[bool, Query(description="Without `run`: the newest that has not ended.")] = False,
) -> Response:
    """Its whole id; of the newest run if none is named. A token for some queues finds only runs of these, by id."""
    service = service_of(request)
    return views.told(await service.ask(_find, service, caller, run, live))


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


def _find(service: Service, caller: Principal, run: str | None, live: bool) -> dict[str, str]:
    if run is not None and "/" in run and caller.queues:
        raise Denied("This token is good for some queues only, and a plan may be in others; name the run by its id.")
    references = References(service.records, caller.queues)
    return {"id": references.newest(live=live) if run is None else references.run(run)}


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
            caller.check_queue(lane_parts(lane or "")["queue"])
            if asked.given_to is not None:
                service.records.given(asked.given_to, [run_id])
            if asked.ended and state not in TERMINAL:
                answer["live"].append(run_id)
                continue
            fields = fields_of(service.store.connection.command("HGETALL", key))
            answer["runs"][run_id] = _told(fields)
            size += sum(map(len, fields.values()))
        except NotAllowed as refused:
            answer["refused"][run_id] = problems.problem(403, str(refused), kind="denied")
        except (ValueError, KeyError, Damaged):
            told = f"The record of the run {run_id} is damaged."
            answer["refused"][run_id] = problems.problem(500, told, kind="damaged")
    return answer


def _told(fields: dict[str, str]) -> dict[str, str]:
    """The hash, but for what is secret of it."""
    spec = fields["spec"]
    if spec.startswith("{") and any(mark in spec for mark in ('"env"', '"scope"', '"workspace"')):
        shown = foreign.concealed({"spec": hidden(json.loads(spec))})
        fields["spec"] = to_json(shown["spec"]).decode()
    else:
        fields["spec"] = without_secrets(spec, HIDDEN)
    return {name: value for name, value in fields.items() if name not in SECRET}
