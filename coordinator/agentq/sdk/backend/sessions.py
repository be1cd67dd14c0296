"""What a backend does with sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentq.coordinator.model.agent_options import AgentBudgets
    from agentq.coordinator.runs.queries import RunListPage
    from agentq.coordinator.sessions.verbs import SessionListPage, SessionRecord


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

    def list(self, *, limit: int = 100, cursor: str | None = None) -> SessionListPage:
        """A page of sessions, the last used first."""

    def turns(self, name: str, *, limit: int = 100, cursor: str | None = None) -> RunListPage: ...

    def line(self, name: str, most: int = 100) -> Sequence[str]:
        """The turns that have not ended, the first first."""

    def close(self, name: str, *, cancel: bool = False) -> SessionRecord: ...
