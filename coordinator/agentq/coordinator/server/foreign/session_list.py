"""All sessions at once, as clients of other systems list them: they know of no pages, and look names up in the list.

Read in two round trips a thousand sessions: what is said of each, and the state of its newest turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from agentq.coordinator.identity import partition_of
from agentq.coordinator.lifecycle import HELD, TERMINAL, State
from agentq.coordinator.limits import ANSWER_BYTES, LIST_A_CALL
from agentq.coordinator.link import fields_of
from agentq.coordinator.server.foreign.conversing import Conversing
from agentq.coordinator.server.foreign.dialects import WHOLE
from agentq.coordinator.server.foreign.roster import Roster
from agentq.coordinator.server.foreign.session_status import About, Turn, is_begun, status_from
from agentq.coordinator.sessions import Session, partition_of_session

Fields = dict[str, Any]


class SessionList:
    """Lists sessions in the fields of the dialects."""

    def __init__(self, roster: Roster, conversing: Conversing) -> None:
        self.roster = roster
        self.conversing = conversing
        self.store = conversing.store

    def whole(self, bound_to: str | None = None) -> list[Fields]:
        """Every session that its protocol shows, the last used first. `bound_to` is the token of a runner, which sees
        only those that it has been in.
        """
        found, seen, size, cursor = list[Fields](), 0, 0, None
        while True:
            shelf = self.conversing.sessions.list(limit=min(LIST_A_CALL, WHOLE - seen), cursor=cursor)
            for told in self._shown(shelf.sessions, bound_to):
                found.append(told)
                size += sum(len(value) for value in told.values() if isinstance(value, str))
            seen, cursor = seen + len(shelf.sessions), shelf.cursor
            if cursor is None or seen >= WHOLE or size > ANSWER_BYTES:
                return found

    def _shown(self, sessions: Sequence[Session], bound_to: str | None) -> Iterable[Fields]:
        abouts = self._abouts(sessions)
        turns = self._turns(each for session in sessions for each in (session.live, session.last) if each)
        if bound_to is not None:
            sessions, abouts = self._owned(sessions, abouts, turns, bound_to)
        for session, about in zip(sessions, abouts, strict=True):
            status = self._status(session, about, turns)
            if is_begun(about, status):
                yield self.conversing.also(session.name, about, session, status)

    def _abouts(self, sessions: Sequence[Session]) -> list[About]:
        key = self.store.key
        asked = [
            ("HGETALL", key(partition_of_session(self.store, each.name), "dialect_fields", each.name))
            for each in sessions
        ]
        return [fields_of(flat) for flat in self.store.connection.commands(asked)]

    def _turns(self, runs: Iterable[str]) -> dict[str, tuple[Turn, str]]:
        """The turns that are there still, each with its worker."""
        ids, key = list(dict.fromkeys(runs)), self.store.key
        asked = [("HMGET", key(partition_of(each), "run", each), "state", "stop_at_ms", "worker") for each in ids]
        replies = self.store.connection.commands(asked)
        return {
            run: (Turn(run, State(state), bool(stop)), worker or "")
            for run, (state, stop, worker) in zip(ids, replies, strict=True)
            if state is not None
        }

    def _owned(
        self,
        sessions: Sequence[Session],
        abouts: Sequence[About],
        turns: dict[str, tuple[Turn, str]],
        bound_to: str,
    ) -> tuple[list[Session], list[About]]:
        """The sessions that a runner of this token has begun, or is in."""
        places = [
            {about.get("bound_by", ""), turns[session.live][1] if session.live in turns else ""}
            for session, about in zip(sessions, abouts, strict=True)
        ]
        runners = sorted({runner for place in places for runner in place if runner})
        looks = self.roster.look_all(runners) if runners else []
        own = {look.runner for look in looks if look is not None and look.fields.get("token", "") == bound_to}
        kept = [place for place, of_it in enumerate(places) if of_it & own]
        return [sessions[place] for place in kept], [abouts[place] for place in kept]

    def _status(self, session: Session, about: About, turns: dict[str, tuple[Turn, str]]) -> str:
        live = turns[session.live][0] if session.live in turns else None
        last = turns[session.last][0] if session.last in turns else None
        is_known = last is not None and last.state in TERMINAL
        if (live is not None and live.state not in HELD) or (live is None and session.last and not is_known):
            return self.conversing.status_of(session.name, about)  # it follows from a turn before these
        return status_from(about, live, lambda: last if is_known else None)
