"""What a backend does with sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentq.coordinator.model.agent_options import AgentBudgets
    from agentq.coordinator.runs.queries import RunListPage
    from agentq.coordinator.sessions.verbs import SessionRecord


class SessionVerbs(Protocol):
    """What may be said of sessions."""

    def new(
        self,
        name: str | None,
        agent: str,
        *,
        cwd: str | None = None,
        model: str | None = None,
        budgets: AgentBudgets | None = None,
        fork: str | None = None,
    ) -> SessionRecord: ...

    def get(self, name: str) -> SessionRecord: ...

    def turns(self, name: str, *, limit: int = 100, cursor: str | None = None) -> RunListPage: ...

    def close(self, name: str, *, cancel: bool = False) -> SessionRecord: ...
