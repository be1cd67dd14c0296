"""Stores sessions: those of agentq, plus the fields and events that only the dialects have.

A session of agentq has a name, an agent and queued turns. Fields from executors and clients are stored beside it
(`dialect_fields`), events of executors in a stream (`dialect_events`), and an id that an executor gave it in an alias
(`session_alias`). The status is never stored: it is derived from the turns, so it cannot be out of date.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from pydantic import JsonValue, TypeAdapter, ValidationError

from agentq.coordinator.bounds import DIALECT_EVENT_BYTES, DIALECT_RUNNER_MS, LIST_PER_CALL
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import Invalid, NotFound, WrongState, refusal_error
from agentq.coordinator.model.field_types import Name
from agentq.coordinator.model.ids import new_nonce, partition_of
from agentq.coordinator.model.lifecycle import HELD_STATES, LIVE_STATES, TERMINAL_STATES, State
from agentq.coordinator.runs.queries import RunFilter, RunQueries
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.coordinator.sessions.verbs import SessionRecord, Sessions
from agentq.coordinator.storage.session_lookup import session_partition
from agentq.coordinator.storage.socket_link import pairs_to_dict
from agentq.coordinator.storage.store import NamespaceStore
from agentq.dialects.agent_orchestrator.demands import DialectDemands
from agentq.dialects.agent_orchestrator.dialect_table import find_dialect
from agentq.dialects.agent_orchestrator.run_translation import build_result, format_time, translate_result
from agentq.dialects.agent_orchestrator.runners.registration import is_runner_id
from agentq.dialects.agent_orchestrator.sessions.session_status import (
    FINISHED,
    IDLE,
    NOT_EXISTENT,
    SessionFields,
    derive_status,
    is_session_visible,
    make_status_turn,
)

ENDING_EVENTS = ("session_stop", "run_completed")
"""Events of an executor after which its session is finished, whether or not the runner has reported the run."""
EVENTS_PER_PAGE = 1000
TURNS_PER_PAGE, PAGES_MAX = 100, 20
"""Limits for a search through the newest turns of a session; a page can be short."""
PAGE_BYTES_MAX = 8 << 20
"""A page that has reached this size ends; the rest is left for the next."""
EVENTS_PER_READ = 20
FIRST_READ_EVENTS = 2
"""Newest events that are read for several sessions at once: a result is usually the last event or the one before it."""
SEARCHED_EVENTS_MAX = 2000
"""The most events that are searched for a result, a few at a time."""
RUN_FIELD = "run"
"""The session field that names the run of a session of a single run."""

_name_adapter: TypeAdapter[str] = TypeAdapter(Name)


@dataclass(frozen=True, slots=True)
class ExecutorEvent:
    """An event that an executor sent."""

    id: str
    run: str
    event: dict[str, Any]


class DialectSessionStore:
    """The sessions of the dialects."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store
        self.sessions = Sessions(store)
        self.run_queries = RunQueries(store)
        self.run_verbs = RunVerbs(store)

    # ---- which session

    def resolve(self, named: str) -> str | None:
        """The session that an id, name or alias stands for; None if there is none."""
        try:
            name = _name_adapter.validate_python(named)
        except ValidationError:
            return None
        command, partition = self.store.connection.command, session_partition(self.store, name)
        self.store.guard()
        keys = (self.store.key(partition, "session", name), self.store.key(partition, "dialect_fields", name))
        if command("EXISTS", *keys):
            return name
        found: str | None = command("GET", self.store.key(self._alias_partition(name), "session_alias", name))
        return found

    def exists(self, named: str) -> bool:
        return self.resolve(named) is not None

    def get_name(self, named: str) -> str:
        """The session that an id, name or alias stands for; raises NotFound."""
        session = self.resolve(named)
        if session is None:
            raise NotFound("Session not found")
        return session

    def set_alias(self, alias: str, session: str) -> None:
        """Let another id lead to a session."""
        refused = refusal_error(
            self.store.call("session/set_alias", self._alias_partition(alias), alias, session, DIALECT_RUNNER_MS),
            f"session id {alias}",
        )
        if refused is not None:
            raise refused

    def _alias_partition(self, alias: str) -> int:
        return crc32(alias.encode()) % self.store.keyspace.partitions

    # ---- what is said of it

    def timestamp(self) -> str:
        return format_time(wall_ms()) or ""

    def read_fields(self, session: str) -> SessionFields:
        """The dialect fields of a session."""
        key = self.store.key(session_partition(self.store, session), "dialect_fields", session)
        return pairs_to_dict(self.store.connection.command("HGETALL", key))

    def set_fields(self, session: str, /, **fields: str) -> None:
        """Set dialect fields of a session; an empty value deletes the field."""
        if any(len(value) > DIALECT_EVENT_BYTES for value in fields.values()):
            raise Invalid(f"A field of a session has {DIALECT_EVENT_BYTES} characters at most.")
        words = [word for pair in fields.items() for word in (session, *pair)]
        self.store.call(
            "dialect/set_fields", session_partition(self.store, session), "about", DIALECT_RUNNER_MS, *words
        )

    def affinity(self, fields: Mapping[str, str]) -> DialectDemands:
        """Where a conversation runs, as demands."""
        profile = fields.get("executor_profile") or fields.get("executor_type")
        return DialectDemands(hostname=fields.get("hostname") or None, executor_profile=profile or None)

    def add_pending_callback(self, run_id: str) -> None:
        """Record that the end of a run needs a callback."""
        self.store.call("dialect/track_callbacks", partition_of(run_id), "owe", run_id)

    # ---- its turns

    def list_turns(
        self,
        session: str,
        states: Iterable[State] = tuple(State),
        *,
        fields: SessionFields | None = None,
        limit: int = 100,
    ) -> list[RunRecord]:
        """Runs of a session in some states, the newest first."""
        run_id = (self.read_fields(session) if fields is None else fields).get(RUN_FIELD)
        if run_id:
            return [run for run in self._get_existing([run_id]) if run.state in states]
        found, cursor, pages = list[str](), None, 0
        while len(found) < limit and (cursor or not pages) and pages < PAGES_MAX:
            page = self.run_queries.page(RunFilter(tuple(states), session=session), limit=TURNS_PER_PAGE, cursor=cursor)
            found += (each.id for each in page.runs)
            cursor, pages = page.cursor, pages + 1
        return self._get_existing(found[:limit])

    def _get_existing(self, ids: Iterable[str]) -> list[RunRecord]:
        found = []
        for run_id in ids:
            try:
                found.append(self.run_queries.get(run_id))
            except NotFound:
                continue  # deleted since it was listed
        return found

    def get_live_turn(self, session: str, fields: SessionFields | None = None) -> RunRecord | None:
        """The live turn of a session."""
        queued = self.sessions.line(session, 1)
        found = self._get_existing(queued) if queued else self.list_turns(session, LIVE_STATES, fields=fields, limit=1)
        return found[0] if found else None

    def get_last_ended_turn(self, session: str, fields: SessionFields | None = None) -> RunRecord | None:
        """The newest turn that has ended."""
        return next(iter(self.list_turns(session, TERMINAL_STATES, fields=fields, limit=1)), None)

    def read_visible_status(self, named: str) -> str:
        """The status of a session; `not_existent` if it is not visible to clients of its dialect."""
        session = self.resolve(named)
        if session is None:
            return NOT_EXISTENT
        fields = self.read_fields(session)
        status = self.read_status(session, fields)
        return status if is_session_visible(fields, status) else NOT_EXISTENT

    def read_status(self, session: str, fields: SessionFields) -> str:
        """The status of a session that exists."""
        live = self.get_live_turn(session, fields)
        return derive_status(
            fields, make_status_turn(live), lambda: make_status_turn(self.get_last_ended_turn(session, fields))
        )

    # ---- what executors tell

    def append_event(self, session: str, event: dict[str, Any], operation: str | None = None) -> str:
        """Store an event; returns its id."""
        text = json.dumps(event)
        if len(text) > DIALECT_EVENT_BYTES:
            raise Invalid(f"The event has {len(text)} bytes; {DIALECT_EVENT_BYTES} is the most.")
        live = self.get_live_turn(session)
        run = live.id if live is not None else ""
        words = (session, run, operation or new_nonce(), text, DIALECT_RUNNER_MS)
        reply = str(self.store.call("dialect/append_event", session_partition(self.store, session), *words))
        if event.get("event_type") in ENDING_EVENTS:
            self.set_fields(session, finished_run=run, finished_at_ms=reply.removeprefix("ok ").partition("-")[0])
        return reply.removeprefix("ok ")

    def read_events(
        self, session: str, after: str = "", limit: int = EVENTS_PER_PAGE
    ) -> tuple[list[ExecutorEvent], str | None]:
        """The events of a session after one of them, the oldest first; and the id of the last, if there may be more."""
        key = self.store.key(session_partition(self.store, session), "dialect_events", session)
        found, size = list[ExecutorEvent](), 0
        while len(found) < limit and size < PAGE_BYTES_MAX:
            page_size, start = min(EVENTS_PER_READ, limit - len(found)), f"({after}" if after else "-"
            entries = self.store.connection.command("XRANGE", key, start, "+", "COUNT", page_size)
            found += _parse_events(entries)
            if len(entries) < page_size:
                return found, None
            after, size = found[-1].id, size + sum(len(text) for _, flat in entries for text in flat)
        return found, after

    def read_event(self, session: str, entry: str) -> dict[str, Any] | None:
        """One event; None if it is no longer stored."""
        key = self.store.key(session_partition(self.store, session), "dialect_events", session)
        found = _parse_events(self.store.connection.command("XRANGE", key, entry, entry))
        return found[0].event if found else None

    def read_newest_events(self, *sessions: str) -> list[Iterator[ExecutorEvent]]:
        """The newest events of each of these sessions, the newest first, read lazily."""
        keys = [self.store.key(session_partition(self.store, each), "dialect_events", each) for each in sessions]
        commands = [("XREVRANGE", key, "+", "-", "COUNT", FIRST_READ_EVENTS) for key in keys]
        return list(map(self._read_backwards, keys, self.store.connection.commands(commands)))

    def _read_backwards(self, key: str, entries: Sequence[Any]) -> Iterator[ExecutorEvent]:
        """These entries of a stream, and then those before them."""
        page_size, seen = FIRST_READ_EVENTS, 0
        while True:
            found = _parse_events(entries)
            yield from found
            seen += len(found)
            if len(found) < page_size or seen >= SEARCHED_EVENTS_MAX:
                return
            page_size = EVENTS_PER_READ
            entries = self.store.connection.command("XREVRANGE", key, f"({found[-1].id}", "-", "COUNT", page_size)

    # ---- its result

    def find_result(self, session: str, run_id: str | None = None) -> JsonValue:
        """The result that executors sent for a run or for a session; None if there is none."""
        return self.find_results([(session, run_id)])[0]

    def find_results(self, requests: Sequence[tuple[str, str | None]]) -> list[JsonValue]:
        """The results for several runs, in one round trip."""
        newest = self.read_newest_events(*(session for session, _ in requests))
        return [_find_result(each, run) for each, (_, run) in zip(newest, requests, strict=True)]

    def read_result(self, session: str) -> dict[str, JsonValue]:
        """The newest result of a session. A later turn that failed does not hide it."""
        fields = self.read_fields(session)
        status = self.read_status(session, fields)
        run = next(iter(self.list_turns(session, (State.COMPLETED,), fields=fields, limit=1)), None)
        found = translate_result(run) if run is not None else None
        if found is None and (run is not None or status in (FINISHED, IDLE)):
            result = self.find_result(session, run.id if run is not None else None)
            found = build_result(result) if result is not None else None
        if found is not None:
            return found
        if status in (FINISHED, IDLE) or run is not None:
            raise NotFound("No result found")
        raise UnfinishedSession(find_dialect(fields.get("dialect")).unfinished_message)

    # ---- an end to it

    def delete(self, session: str) -> dict[str, int]:
        """Delete a session and its events, and those of its ended runs that may be deleted."""
        fields = self.read_fields(session)
        self._cancel_pending(session, fields)
        if self.get_live_turn(session) is not None or fields.get("idle_run"):
            raise WrongState("Stop session first")
        runs = self.list_turns(session, TERMINAL_STATES, fields=fields, limit=LIST_PER_CALL)
        event_count = self.store.connection.command(
            "XLEN", self.store.key(session_partition(self.store, session), "dialect_events", session)
        )
        refused = refusal_error(
            str(self.store.call("session/delete", session_partition(self.store, session), session)),
            f"session {session}",
        )
        if refused is not None:
            raise refused
        if fields.get("given_id"):
            self.store.call(
                "session/set_alias",
                self._alias_partition(fields["given_id"]),
                fields["given_id"],
                "",
                DIALECT_RUNNER_MS,
            )
        refusals = self.run_verbs.forget([(run.id, run.state) for run in runs])
        return {"session": 1, "events_count": int(event_count), "runs_count": sum(each is None for each in refusals)}

    def _cancel_pending(self, session: str, fields: SessionFields) -> None:
        """Cancel the queued turns of a session of which none has begun, the last first."""
        live = self.get_live_turn(session, fields)
        if live is None or live.state in HELD_STATES:
            return
        for run_id in reversed(self.sessions.line(session) or [live.id]):
            with suppress(WrongState, NotFound):  # it ended at that moment
                self.run_verbs.cancel(run_id, "its session was deleted")

    # ---- in the words of the dialects

    def describe(self, session: str) -> dict[str, Any]:
        """The fields of a session, for all dialects."""
        return self.describe_record(session, self.read_fields(session), self._get_record(session))

    def describe_visible(self, session: str, status: str | None = None) -> dict[str, Any] | None:
        """The fields of a session, if clients of its dialect can see it. A known status may be passed."""
        fields = self.read_fields(session)
        described = self.describe_record(session, fields, self._get_record(session), status)
        return described if is_session_visible(fields, described["status"]) else None

    def _get_record(self, session: str) -> SessionRecord | None:
        try:
            return self.sessions.get(session)
        except NotFound:
            return None

    def describe_record(
        self, session: str, fields: SessionFields, stored: SessionRecord | None, status: str | None = None
    ) -> dict[str, Any]:
        """The fields of a session that was read already; the status may be passed if it is known."""
        created = fields.get("bound_at") or None
        return {
            "session_id": fields.get("given_id") or session,
            "session_name": session,
            "status": status or self.read_status(session, fields),
            "created_at": format_time(stored.created_at_ms) if stored is not None else created,
            "project_dir": fields.get("project_dir") or (stored.cwd if stored is not None else None),
            "agent_name": fields.get("agent_name") or None,
            "last_resumed_at": fields.get("last_resumed_at") or None,
            "parent_session_id": fields.get("parent") or None,
            "parent_session_name": fields.get("parent") or None,
            "executor_session_id": fields.get("executor_session_id")
            or (stored.agent_session if stored is not None else None),
            "executor_profile": fields.get("executor_profile") or None,
            "executor_type": fields.get("executor_type") or None,
            "execution_mode": fields.get("execution_mode") or "sync",
            "hostname": fields.get("hostname")
            or (stored.host if stored is not None and not is_runner_id(stored.host or "") else None),
        }


class UnfinishedSession(Invalid):
    """The session has no result yet."""


def _parse_events(entries: Sequence[Any]) -> list[ExecutorEvent]:
    found = []
    for entry_id, flat in entries:
        fields = pairs_to_dict(flat)
        found.append(ExecutorEvent(entry_id, fields["run"], json.loads(fields["event"])))
    return found


def _find_result(events: Iterable[ExecutorEvent], run_id: str | None) -> JsonValue:
    """The result among events, the newest first: of a run, or of any run."""
    result: JsonValue = None
    for each in events:
        if run_id is not None and each.run != run_id:
            continue
        kind = each.event.get("event_type")
        if kind == "result":
            data = each.event.get("result_data")
            return data if data is not None else each.event.get("result_text")
        if kind == "message" and result is None and each.event.get("role") == "assistant":
            result = _extract_text(each.event)
    return result


def _extract_text(event: Mapping[str, Any]) -> str | None:
    """The text of a message."""
    content = event.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    return "".join(text for text in texts if isinstance(text, str)) or None
