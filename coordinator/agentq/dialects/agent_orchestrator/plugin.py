"""The dialect as a plug-in of the server: its routes, its fields in records, its answers on paths of agentq."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, ClassVar

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from agentq.coordinator.errors import Invalid, NotFound
from agentq.coordinator.runs.queries import RunFilter
from agentq.coordinator.runs.run_record import RunListEntry, RunRecord
from agentq.coordinator.sessions.verbs import SessionRecord
from agentq.dialects.agent_orchestrator import error_codes, run_translation
from agentq.dialects.agent_orchestrator.blueprints import blueprint_routes
from agentq.dialects.agent_orchestrator.dialect_table import wants_whole_list
from agentq.dialects.agent_orchestrator.examples import EXAMPLES
from agentq.dialects.agent_orchestrator.run_translation import STATES_BY_STATUS
from agentq.dialects.agent_orchestrator.runners import runner_routes
from agentq.dialects.agent_orchestrator.services import DialectServices
from agentq.dialects.agent_orchestrator.sessions import event_routes, session_routes
from agentq.dialects.agent_orchestrator.sessions.response_models import DialectSessionViewList
from agentq.server.auth.access_control import Principal
from agentq.server.dialect import DialectServer, ListPage, ServerDialect
from agentq.server.http import problems, responses
from agentq.server.record_views import JsonObject

RUN_ID_PATTERN = re.compile(r"run_[0-9a-f]{12}")
STATUS_PARAMETER = {
    "name": "status",
    "in": "query",
    "required": False,
    "description": "Only those with this status of claude-agent-orchestrator.",
    "schema": {"type": "string", "enum": [*STATES_BY_STATUS]},
}


class AgentOrchestrator(ServerDialect):
    """The runner protocol in its four variants; see README.md."""

    routers = (runner_routes.router, session_routes.router, blueprint_routes.router, event_routes.router)
    examples = EXAMPLES
    response_models: ClassVar = {("GET", "/sessions"): DialectSessionViewList}
    parameters: ClassVar = {("GET", "/runs"): (STATUS_PARAMETER,)}

    def __init__(self, server: DialectServer) -> None:
        super().__init__(server)
        self._services = DialectServices(server)

    def install(self, app: FastAPI) -> None:
        app.state.agent_orchestrator = self._services
        error_codes.install_handlers(app)

    def start(self) -> None:
        self._services.start()

    async def stop(self) -> None:
        await self._services.stop()

    # ---- fields in records

    def run_fields(self, run: RunRecord) -> JsonObject:
        return run_translation.translate_run(run)

    def run_entry_fields(self, run: RunListEntry) -> JsonObject:
        return run_translation.translate_summary(run)

    def result_fields(self, run: RunRecord) -> JsonObject:
        return run_translation.translate_result(run) or {}

    def session_fields(self, session: SessionRecord) -> JsonObject:
        return {"session_id": session.name, "session_name": session.name}

    def hide_secrets(self, record: JsonObject) -> JsonObject:
        return run_translation.hide_scope(record)

    # ---- requests on paths of agentq

    def check_run_id(self, text: str) -> None:
        if RUN_ID_PATTERN.fullmatch(text):
            raise NotFound("Run not found")

    def is_from_executor(self, body: object) -> bool:
        """Sessions of agentq are created without an id."""
        return isinstance(body, dict) and "session_id" in body

    async def submit_run(self, request: Request, caller: Principal, body: Any, key: str | None) -> Response | None:
        if not isinstance(body, dict) or "type" not in body or "kind" in body:
            return None
        return await session_routes.submit_dialect_run(request, caller, body, key)

    async def list_runs(self, request: Request, which: RunFilter, page: ListPage) -> Response | None:
        """Without parameters, or with `status` alone, all runs: clients of the dialect have no pages."""
        given = request.query_params
        status = read_status(given.get("status"))
        if status is None and given:
            return None
        narrowed = which if status is None else dataclasses.replace(which, states=STATES_BY_STATUS[status])
        server = self.server

        def read() -> JsonObject:
            if {*given} <= {"status"}:
                runs, following = run_translation.list_all_runs(server.run_queries, narrowed, status)
                return {"runs": runs, "next": following}
            found = server.run_queries.page(narrowed, limit=page.limit, cursor=page.cursor)
            shown = map(server.views.run_entry, found.runs)
            runs, last = run_translation.translate_runs(server.run_queries, shown, status)
            return {"runs": runs, "next": last or found.cursor}

        return responses.json_response(await server.call_in_thread(read))

    async def create_session(self, request: Request, caller: Principal, body: object) -> Response | None:
        """`session_id` marks a report of an executor that it has begun a session."""
        return await session_routes.begin_session(request, caller, body) if self.is_from_executor(body) else None

    async def list_sessions(self, request: Request, caller: Principal) -> Response | None:
        if not wants_whole_list(request.query_params):
            return None
        return await session_routes.list_all_sessions(request, caller)

    async def get_session(self, request: Request, caller: Principal, name: str) -> Response | None:
        """A session by any of its names: in the dialect's format under `session`, and in agentq's format beside it."""
        server = self.server

        def read() -> JsonObject:
            fields = session_routes.find_session(request, caller, name)
            if fields is None:
                return server.views.session(server.sessions.get(name))
            try:
                own = server.views.session(server.sessions.get(fields["session_name"]))
            except NotFound:
                own = {}  # that of a single run, which is none of agentq's
            return {**fields, **own, "session_id": fields["session_id"], "session": fields}

        try:
            return responses.etag_response(request, await server.call_in_thread(read))
        except NotFound as missing:
            # Clients match this sentence; the explanation for people is in `advice`.
            return problems.error_response(
                NotFound("Session not found"), problems.get_request_id(request), advice=str(missing)
            )


def read_status(text: str | None) -> str | None:
    """The status that a list is filtered by; refuses an unknown one."""
    if text is not None and text not in STATES_BY_STATUS:
        raise Invalid(f"status: {text[:40]!r} is none of {', '.join(STATES_BY_STATUS)}.")
    return text
