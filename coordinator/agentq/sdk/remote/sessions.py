"""Sessions, as a coordinator tells of them."""

from __future__ import annotations

from typing import Any

from agentq.coordinator.identity import new_nonce
from agentq.coordinator.life import Summary
from agentq.coordinator.records import Page
from agentq.coordinator.sessions import Session
from agentq.coordinator.turn import Budgets
from agentq.sdk.remote.wire import Wire


class Sessions:
    """What may be said of sessions."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def new(
        self,
        name: str | None,
        agent: str,
        *,
        cwd: str | None = None,
        model: str | None = None,
        budgets: Budgets | None = None,
        fork: str | None = None,
    ) -> Session:
        if name is None and fork is None:
            # With a name of ours it can be sent again; a fork's must fit to where the other one lives.
            name = f"{agent}-{new_nonce()}"
        told = None if budgets is None else budgets.model_dump(exclude_none=True)
        fields = {"name": name, "agent": agent, "cwd": cwd, "model": model, "budgets": told, "fork": fork}
        made = self._wire.post("/sessions", {field: value for field, value in fields.items() if value is not None})
        return self.get(made["name"])

    def get(self, name: str) -> Session:
        return Session.model_validate(self._wire.get(f"/records/sessions/{name}"))

    def turns(self, name: str, *, limit: int = 100, cursor: str | None = None) -> Page:
        told = self._wire.get(f"/records/sessions/{name}/turns", {"limit": limit, "cursor": cursor})
        return Page([Summary.model_validate(each) for each in told["runs"]], told["cursor"])

    def close(self, name: str, *, cancel: bool = False) -> Session:
        body: dict[str, Any] = {"cancel": cancel}
        self._wire.post(f"/sessions/{name}/close", body)
        return self.get(name)
