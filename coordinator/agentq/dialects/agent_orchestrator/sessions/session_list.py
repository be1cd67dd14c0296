"""Lists all sessions for clients without pages, which also look up names in that list.

Takes two round trips per thousand sessions: one for their fields, one for the states of their newest turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from agentq.coordinator.bounds import LIST_PER_CALL, RESPONSE_BYTES
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.lifecycle import HELD_STATES, TERMINAL_STATES, State
from agentq.coordinator.sessions.verbs import SessionRecord
from agentq.coordinator.storage.session_lookup import session_partition
from agentq.coordinator.storage.socket_link import pairs_to_dict
from agentq.dialects.agent_orchestrator.dialect_table import WHOLE_LIST_MAX
from agentq.dialects.agent_orchestrator.runners.registry import RunnerRegistry
from agentq.dialects.agent_orchestrator.sessions.session_status import (
    SessionFields,
    StatusTurn,
    derive_status,
    is_session_visible,
)
from agentq.dialects.agent_orchestrator.sessions.store import DialectSessionStore

Fields = dict[str, Any]


class SessionLister:
    """Lists sessions in the fields of the dialects."""

    def __init__(self, runner_registry: RunnerRegistry, session_store: DialectSessionStore) -> None:
        self.runner_registry = runner_registry
        self.session_store = session_store
        self.store = session_store.store

    def list_all(self, bound_to: str | None = None) -> list[Fields]:
        """All sessions that are visible in their dialect, the last used first.

        `bound_to` is the token of a runner, which sees only sessions that it has executed.
        """
        found, seen, size, cursor = list[Fields](), 0, 0, None
        while True:
            page = self.session_store.sessions.list(limit=min(LIST_PER_CALL, WHOLE_LIST_MAX - seen), cursor=cursor)
            for described in self._describe_visible(page.sessions, bound_to):
                found.append(described)
                size += sum(len(value) for value in described.values() if isinstance(value, str))
            seen, cursor = seen + len(page.sessions), page.cursor
            if cursor is None or seen >= WHOLE_LIST_MAX or size > RESPONSE_BYTES:
                return found

    def _describe_visible(self, sessions: Sequence[SessionRecord], bound_to: str | None) -> Iterable[Fields]:
        session_fields = self._read_fields(sessions)
        turns = self._read_turns(each for session in sessions for each in (session.live, session.last) if each)
        if bound_to is not None:
            sessions, session_fields = self._select_owned(sessions, session_fields, turns, bound_to)
        for session, fields in zip(sessions, session_fields, strict=True):
            status = self._status(session, fields, turns)
            if is_session_visible(fields, status):
                yield self.session_store.describe_record(session.name, fields, session, status)

    def _read_fields(self, sessions: Sequence[SessionRecord]) -> list[SessionFields]:
        key = self.store.key
        commands = [
            ("HGETALL", key(session_partition(self.store, each.name), "dialect_fields", each.name)) for each in sessions
        ]
        return [pairs_to_dict(flat) for flat in self.store.connection.commands(commands)]

    def _read_turns(self, runs: Iterable[str]) -> dict[str, tuple[StatusTurn, str]]:
        """The existing turns, each with its worker."""
        ids, key = list(dict.fromkeys(runs)), self.store.key
        commands = [("HMGET", key(partition_of(each), "run", each), "state", "stop_at_ms", "worker") for each in ids]
        replies = self.store.connection.commands(commands)
        return {
            run: (StatusTurn(run, State(state), bool(stop)), worker or "")
            for run, (state, stop, worker) in zip(ids, replies, strict=True)
            if state is not None
        }

    def _select_owned(
        self,
        sessions: Sequence[SessionRecord],
        session_fields: Sequence[SessionFields],
        turns: dict[str, tuple[StatusTurn, str]],
        bound_to: str,
    ) -> tuple[list[SessionRecord], list[SessionFields]]:
        """The sessions that a runner with this token has begun or holds."""
        workers = [
            {fields.get("bound_by", ""), turns[session.live][1] if session.live in turns else ""}
            for session, fields in zip(sessions, session_fields, strict=True)
        ]
        runners = sorted({runner for pair in workers for runner in pair if runner})
        snapshots = self.runner_registry.read_snapshots(runners) if runners else []
        own = {
            snapshot.runner
            for snapshot in snapshots
            if snapshot is not None and snapshot.fields.get("token", "") == bound_to
        }
        kept = [index for index, of_it in enumerate(workers) if of_it & own]
        return [sessions[place] for place in kept], [session_fields[place] for place in kept]

    def _status(self, session: SessionRecord, fields: SessionFields, turns: dict[str, tuple[StatusTurn, str]]) -> str:
        live = turns[session.live][0] if session.live in turns else None
        last = turns[session.last][0] if session.last in turns else None
        is_known = last is not None and last.state in TERMINAL_STATES
        if (live is not None and live.state not in HELD_STATES) or (live is None and session.last and not is_known):
            return self.session_store.read_status(session.name, fields)  # it depends on an earlier turn
        return derive_status(fields, live, lambda: last if is_known else None)
