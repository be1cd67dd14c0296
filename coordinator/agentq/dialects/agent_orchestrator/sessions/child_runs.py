"""Records the child runs of sessions. While a child has not ended, its parent takes no slot of its runner.

A parent usually only waits for its child. If it were counted, it would hold the slot that the child needs.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.lifecycle import TERMINAL_STATES, State
from agentq.dialects.agent_orchestrator.sessions.store import DialectSessionStore

CHILD_PREFIX = "child:"
"""Prefix of the session fields that name its child runs."""
CHILDREN_MAX = 200
"""Recorded children of a session at a time; while one of them lives, the parent counts as waiting."""


class ChildRuns:
    """The child runs of sessions."""

    def __init__(self, session_store: DialectSessionStore) -> None:
        self.session_store = session_store
        self.store = session_store.store

    def add(self, parent: str, run_id: str) -> None:
        """Record a child before it is submitted, and drop those that have ended."""
        if not self.session_store.exists(parent):
            return
        known = self._list_children(parent)
        ended = {
            f"{CHILD_PREFIX}{each}": "" for each, lives in zip(known, self._are_live(known), strict=True) if not lives
        }
        if len(known) - len(ended) < CHILDREN_MAX:
            self.session_store.set_fields(parent, **ended, **{f"{CHILD_PREFIX}{run_id}": "1"})

    def count_waiting_parents(self, sessions: Iterable[str]) -> int:
        """How many of these sessions have a child that has not ended."""
        return sum(any(self._are_live(self._list_children(session))) for session in sessions if session)

    def _list_children(self, session: str) -> list[str]:
        return [
            name.removeprefix(CHILD_PREFIX)
            for name in self.session_store.read_fields(session)
            if name.startswith(CHILD_PREFIX)
        ]

    def _are_live(self, runs: list[str]) -> list[bool]:
        commands = [("HGET", self.store.key(partition_of(run), "run", run), "state") for run in runs]
        states = self.store.connection.commands(commands) if commands else []
        return [state is not None and State(state) not in TERMINAL_STATES for state in states]
