"""Runs and sessions as stored, for clients that parse them with agentq's own models: the Python SDK."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import ConfigDict, Field
from pydantic_core import to_json
from starlette.responses import Response

from agentq.coordinator.bounds import LIST_PER_CALL, RESPONSE_BYTES
from agentq.coordinator.errors import Damaged, NotAllowed, NotFound
from agentq.coordinator.id_lookup import IdLookup
from agentq.coordinator.model.field_types import RunId
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.lifecycle import TERMINAL_STATES
from agentq.coordinator.model.spec import parse_lane
from agentq.coordinator.runs.rq_titles import read_rq_titles
from agentq.coordinator.security.secret_fields import REDACTED, redact_spec
from agentq.coordinator.security.secret_patterns import redact_secrets
from agentq.coordinator.storage.socket_link import pairs_to_dict
from agentq.server.auth.access_control import Principal, require_scope
from agentq.server.http import problems, responses
from agentq.server.http.parameters import ONLY_KNOWN_PARAMETERS
from agentq.server.http.problems import Denied
from agentq.server.schema import requests
from agentq.server.service import ServerService, get_service

router = APIRouter(prefix="/records", tags=["records"], dependencies=[ONLY_KNOWN_PARAMETERS])

IDS_MAX = 500
SECRET_FIELDS = ("fence", "operation", "delivered_to", "attempt_spending")
"""Fields that contain a fence or a nonce, which only the worker of the run may see."""

SessionNamePath = Annotated[str, Path(description="The name of a session.")]


class RunLookupRequest(requests.RequestModel):
    """The runs to read."""

    model_config = ConfigDict(json_schema_extra={"example": {"ids": ["run_01k9zq3c5007m2x4c8r1tnq"]}})

    ids: Annotated[tuple[RunId, ...], Field(min_length=1, max_length=IDS_MAX, strict=False, fail_fast=True)]
    ended: bool = False
    """Return only ended runs whole."""
    given_to: Annotated[RunId | None, Field(strict=False)] = None
    """Return only inputs that this run may have: none of a queue that the token which submitted it may not read."""


class RqTitlesRequest(requests.RequestModel):
    """The runs whose titles are wanted."""

    model_config = ConfigDict(json_schema_extra={"example": {"ids": ["run_01k9zq3c5007m2x4c8r1tnq"]}})

    ids: Annotated[tuple[RunId, ...], Field(min_length=1, max_length=IDS_MAX, strict=False, fail_fast=True)]


@router.post("/runs", summary="Read several runs")
async def look_up_runs(
    request: Request, body: RunLookupRequest, caller: Annotated[Principal, require_scope("read", by_queue=True)]
) -> Response:
    """The hashes of these runs. `live` lists those that have not ended, if only ended ones were requested; `left` those
    that did not fit into the response."""
    service = get_service(request)
    return responses.json_response(await service.call_in_thread(_read_runs, service, caller, body))


@router.post("/rq-titles", summary="What RQ calls its jobs that are runs")
async def read_titles(
    request: Request, body: RqTitlesRequest, caller: Annotated[Principal, require_scope("read", by_queue=True)]
) -> Response:
    """The descriptions that RQ has of these runs, by id; of a run that is no job of RQ, or is gone, there is none."""
    service = get_service(request)
    return responses.json_response({"titles": await service.call_in_thread(_read_titles, service, caller, body.ids)})


@router.get("/find", summary="Find a run by a part of its id")
async def find_run(
    request: Request,
    caller: Annotated[Principal, require_scope("read", by_queue=True)],
    run: Annotated[
        str | None, Query(max_length=400, description="The beginning or the end of an id, or PLAN/TASK.")
    ] = None,
    live: Annotated[bool, Query(description="Without `run`: the newest that has not ended.")] = False,
) -> Response:
    """The whole id of a run; of the newest run if none is named. A token for some queues finds only runs of these,
    by id."""
    service = get_service(request)
    return responses.json_response(await service.call_in_thread(_resolve_reference, service, caller, run, live))


@router.get("/sessions/{name}", summary="Get a session", dependencies=[require_scope("read")])
async def get_session(request: Request, name: SessionNamePath) -> Response:
    """The stored record."""
    service = get_service(request)
    return responses.json_response((await service.call_in_thread(service.sessions.get, name)).model_dump(mode="json"))


@router.get("/sessions/{name}/turns", summary="List the turns of a session", dependencies=[require_scope("read")])
async def list_turns(
    request: Request,
    name: SessionNamePath,
    limit: Annotated[int, Query(ge=1, le=LIST_PER_CALL)] = 100,
    cursor: Annotated[str | None, Query(max_length=256)] = None,
) -> Response:
    """A page of its runs, newest first."""
    service = get_service(request)
    page = await service.call_in_thread(service.sessions.turns, name, limit=limit, cursor=cursor)
    return responses.json_response({"runs": [run.model_dump(mode="json") for run in page.runs], "cursor": page.cursor})


def _resolve_reference(service: ServerService, caller: Principal, run: str | None, live: bool) -> dict[str, str]:
    if run is not None and "/" in run and caller.queues:
        raise Denied("This token is only for some queues, and a plan may use others; name the run by its id.")
    references = IdLookup(service.run_queries, caller.queues)
    return {"id": references.newest(live=live) if run is None else references.run(run)}


def _read_titles(service: ServerService, caller: Principal, ids: tuple[str, ...]) -> dict[str, str]:
    runs = []
    for run_id in dict.fromkeys(ids):
        with suppress(NotFound, Damaged):
            run = service.run_queries.get(run_id)
            caller.check_queue(run.spec.queue)
            runs.append(run)
    titles = read_rq_titles(service.store, runs)
    return {run_id: redact_secrets(title, REDACTED) for run_id, title in titles.items()}


def _read_runs(service: ServerService, caller: Principal, asked: RunLookupRequest) -> dict[str, Any]:
    answer: dict[str, Any] = {"runs": {}, "live": [], "missing": [], "refused": {}, "left": []}
    ids, size = list(dict.fromkeys(asked.ids)), 0
    for index, run_id in enumerate(ids):
        if size > RESPONSE_BYTES:
            answer["left"] = ids[index:]
            break
        key = service.store.key(partition_of(run_id), "run", run_id)
        state, lane = service.store.connection.command("HMGET", key, "state", "lane")
        if state is None:
            answer["missing"].append(run_id)
            continue
        try:
            caller.check_queue(parse_lane(lane or "")["queue"])
            if asked.given_to is not None:
                service.run_queries.given(asked.given_to, [run_id])
            if asked.ended and state not in TERMINAL_STATES:
                answer["live"].append(run_id)
                continue
            fields = pairs_to_dict(service.store.connection.command("HGETALL", key))
            answer["runs"][run_id] = _hide_secrets(service, fields)
            size += sum(map(len, fields.values()))
        except NotAllowed as refused:
            answer["refused"][run_id] = problems.build_problem(403, str(refused), kind="denied")
        except (ValueError, KeyError, Damaged):
            message = f"The record of the run {run_id} is damaged."
            answer["refused"][run_id] = problems.build_problem(409, message, kind="damaged")
    return answer


def _hide_secrets(service: ServerService, fields: dict[str, str]) -> dict[str, str]:
    """The hash without its secrets."""
    spec = fields["spec"]
    if spec.startswith("{") and any(mark in spec for mark in ('"env"', '"scope"', '"workspace"')):
        shown = service.views.hide_secrets({"spec": redact_spec(json.loads(spec))})
        fields["spec"] = to_json(shown["spec"]).decode()
    else:
        fields["spec"] = redact_secrets(spec, REDACTED)
    return {name: value for name, value in fields.items() if name not in SECRET_FIELDS}
