"""Sessions, as a coordinator tells of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentq.coordinator.model.agent_options import AgentBudgets
from agentq.coordinator.public_json.runs import read_run_entry
from agentq.coordinator.public_json.sessions import read_session
from agentq.coordinator.runs.queries import RunListPage
from agentq.coordinator.sessions.verbs import SessionListPage, SessionRecord, check_session_name
from agentq.sdk.http_backend.http_client import HttpClient, QueryParameters, new_request_key


class HttpSessions:
    """What may be said of sessions."""

    def __init__(self, wire: HttpClient) -> None:
        self._wire = wire

    def new(
        self,
        name: str | None,
        agent: str,
        *,
        cwd: str | None = None,
        model: str | None = None,
        budgets: AgentBudgets | None = None,
        fork: str | None = None,
    ) -> SessionRecord:
        check_session_name(agent, "an agent")
        for each in filter(None, (fork, name)):
            check_session_name(each)
        told = None if budgets is None else budgets.model_dump(exclude_none=True)
        fields = {"name": name, "agent": agent, "cwd": cwd, "model": model, "budgets": told, "fork": fork}
        given = {field: value for field, value in fields.items() if value is not None}
        return read_session(self._wire.post("/sessions", given, key=new_request_key()))

    def get(self, name: str) -> SessionRecord:
        return SessionRecord.model_validate(self._wire.get(f"/records/sessions/{check_session_name(name)}"))

    def list(self, *, limit: int = 100, cursor: str | None = None) -> SessionListPage:
        page = self._wire.get("/sessions", {"limit": limit, "cursor": cursor})
        return SessionListPage([read_session(each) for each in page["sessions"]], page["next"], page.get("damaged", []))

    def turns(self, name: str, *, limit: int = 100, cursor: str | None = None) -> RunListPage:
        page = self._turns(name, {"limit": limit, "cursor": cursor})
        return RunListPage([read_run_entry(each) for each in page["runs"]], page["next"])

    def line(self, name: str, most: int = 100) -> Sequence[str]:
        line: Sequence[str] = self._turns(name, {"limit": 1})["line"]
        return line[:most]

    def close(self, name: str, *, cancel: bool = False) -> SessionRecord:
        return read_session(self._wire.post(f"/sessions/{check_session_name(name)}/close", {"cancel": cancel}))

    def _turns(self, name: str, query: QueryParameters) -> Any:
        return self._wire.get(f"/sessions/{check_session_name(name)}/turns", query)
