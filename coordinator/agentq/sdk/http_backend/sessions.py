"""Sessions, as a coordinator tells of them."""

from __future__ import annotations

from typing import Any

from agentq.coordinator.model.agent_options import AgentBudgets
from agentq.coordinator.model.ids import new_nonce
from agentq.coordinator.runs.queries import RunListPage
from agentq.coordinator.runs.run_record import RunListEntry
from agentq.coordinator.sessions.verbs import SessionRecord
from agentq.sdk.http_backend.http_client import HttpClient


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
        if name is None and fork is None:
            # With a name of ours it can be sent again; a fork's must fit to where the other one lives.
            name = f"{agent}-{new_nonce()}"
        told = None if budgets is None else budgets.model_dump(exclude_none=True)
        fields = {"name": name, "agent": agent, "cwd": cwd, "model": model, "budgets": told, "fork": fork}
        made = self._wire.post("/sessions", {field: value for field, value in fields.items() if value is not None})
        return self.get(made["name"])

    def get(self, name: str) -> SessionRecord:
        return SessionRecord.model_validate(self._wire.get(f"/records/sessions/{name}"))

    def turns(self, name: str, *, limit: int = 100, cursor: str | None = None) -> RunListPage:
        told = self._wire.get(f"/records/sessions/{name}/turns", {"limit": limit, "cursor": cursor})
        return RunListPage([RunListEntry.model_validate(each) for each in told["runs"]], told["cursor"])

    def close(self, name: str, *, cancel: bool = False) -> SessionRecord:
        body: dict[str, Any] = {"cancel": cancel}
        self._wire.post(f"/sessions/{name}/close", body)
        return self.get(name)
