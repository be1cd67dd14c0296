"""Runs that a session has asked for: while one of them has not ended, its parent takes none of a runner's slots.

A parent mostly does nothing but wait for its child. Counted, it would hold the slot that the child needs.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.lifecycle import TERMINAL_STATES, State
from agentq.dialects.agent_orchestrator.sessions.store import DialectSessionStore

CHILD_PREFIX = "child:"
"""What the facts of a session begin with that name the runs it has asked for."""
CHILDREN_MAX = 200
"""Children of a session that are noted at a time: as long as one of them lives, the parent waits."""


class ChildRuns:
    """Knows the runs that were asked for by a session."""

    def __init__(self, session_store: DialectSessionStore) -> None:
        self.session_store = session_store
        self.store = session_store.store

    def add(self, parent: str, run_id: str) -> None:
        """Note a run before it is submitted; those that have ended meanwhile are forgotten."""
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
