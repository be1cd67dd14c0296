"""The records and verbs of sessions: conversations with an agent, whose runs are turns, one after the other.

A session has an agent and the agent's own id of the conversation; the host that has it, or a stored transcript; what
all turns have spent, and their budgets. Its turns wait in a queue (see `lua/shared/session_turns.lua`): a submit to a
busy session is not refused, it waits. This module has the verbs of clients; `conversations.py` those of attempts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from agentq.coordinator.bounds import LIST_PER_CALL
from agentq.coordinator.errors import Damaged, Invalid, NotFound, quote_input, reading_record, refusal_error
from agentq.coordinator.model.agent_options import AgentBudgets
from agentq.coordinator.model.field_types import ModelName, Name, Text, describe_error
from agentq.coordinator.model.spec import AgentSpending
from agentq.coordinator.runs.queries import RunFilter, RunListPage, RunQueries
from agentq.coordinator.runs.run_record import parse_spending
from agentq.coordinator.storage.connection import CommandArgument
from agentq.coordinator.storage.session_lookup import session_partition, suggest_session
from agentq.coordinator.storage.socket_link import parse_script_json
from agentq.coordinator.storage.store import NamespaceStore

FIELDS_PER_SESSION = 4
"""Fields of each session in the reply of `session/list`."""
NAME_DIGEST_BYTES = 6
"""Bytes of the digest in a generated name."""

RunIdList = list[str]

_name_adapter: TypeAdapter[str] = TypeAdapter(Name)
_text_adapter: TypeAdapter[str] = TypeAdapter(Text)
_model_adapter: TypeAdapter[str] = TypeAdapter(ModelName)


class SessionRecord(BaseModel):
    """A session."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    name: str
    agent: str
    state: Literal["open", "closed"]
    created_at_ms: int
    used_at_ms: int
    """When a turn was last submitted to it, or ended."""
    closed_at_ms: int | None = None
    agent_session: str | None = None
    """The agent's own id of the conversation; None before its first turn has begun."""
    host: str | None = None
    """The host that continued it last."""
    stays: bool
    """Whether only that host can continue it."""
    account: str | None = None
    cwd: str | None = None
    model: str | None = None
    budgets: AgentBudgets | None = None
    """The budgets of all turns together."""
    spent: AgentSpending
    forked_from: str | None = None
    made_by: str = ""
    """The token that made it; empty without one."""
    last: str | None = None
    """The last submitted turn."""
    live: str | None
    """The first turn that has not ended."""
    turns: int
    """The number of turns that have not ended, the live one included."""


@dataclass(frozen=True, slots=True)
class SessionListPage:
    """A page of a list. `cursor` is for the next call; None at the end."""

    sessions: list[SessionRecord]
    cursor: str | None
    damaged: list[str] = field(default_factory=list)
    """Names of sessions whose records cannot be read."""


class Sessions:
    """The sessions of one namespace."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store

    def new(
        self,
        name: str | None,
        agent: str,
        *,
        cwd: str | None = None,
        model: str | None = None,
        budgets: AgentBudgets | None = None,
        fork: str | None = None,
        operation: str | None = None,
    ) -> SessionRecord:
        """Make a session; with `fork`, one that starts from a copy of that session's conversation.

        Without a name, one is generated. Fields that are None are taken from the forked session. A second call with the
        same `operation` returns the same session.
        """
        agent, fork = check_session_name(agent, "an agent"), fork and check_session_name(fork)
        operation = operation or self.store.nonce()
        name = self._generate_name(agent, fork, operation) if name is None else self._check_new_name(name, fork)
        folder = "" if cwd is None else _validate(_text_adapter, cwd, "a folder")
        model_name = "" if model is None else _validate(_model_adapter, model, "a model")
        caps = "" if budgets is None else budgets.model_dump_json(exclude_none=True)
        arguments: tuple[CommandArgument, ...] = (name, agent, folder, model_name, caps, fork or "", operation)
        reply = str(self.store.call("session/create", self.partition(name), *arguments))
        if reply.startswith("no_session"):
            raise NotFound(self.unknown(fork or ""))
        self._raise_refusal(name, reply)
        return self.get(name)

    def get(self, name: str) -> SessionRecord:
        """Return a session."""
        found = self._read(self.partition(check_session_name(name)), "", 1, name).sessions
        if not found:
            raise NotFound(self.unknown(name))
        return found[0]

    def list(self, *, limit: int = 100, cursor: str | None = None) -> SessionListPage:
        """A page of sessions, the last used first."""
        if not 1 <= limit <= LIST_PER_CALL:
            raise Invalid(f"A page has 1 to {LIST_PER_CALL} sessions, not {limit}.")
        pages = [self._read(partition, cursor or "", limit) for partition in self.store.partitions()]
        floor = max((part.cursor for part in pages if part.cursor), key=_parse_cursor, default=None)
        found = sorted((each for part in pages for each in part.sessions), key=_sort_key, reverse=True)
        if floor is not None:
            found = [each for each in found if _sort_key(each) >= _parse_cursor(floor)]
        if len(found) > limit:
            found = found[:limit]
            floor = f"{found[-1].used_at_ms} {found[-1].name}"
        return SessionListPage(found, floor, sorted(name for part in pages for name in part.damaged))

    def all(self) -> Iterator[SessionRecord]:
        """Every session, the last used first."""
        cursor: str | None = None
        while True:
            part = self.list(limit=LIST_PER_CALL, cursor=cursor)
            yield from part.sessions
            cursor = part.cursor
            if cursor is None:
                return

    def turns(self, name: str, *, limit: int = 100, cursor: str | None = None) -> RunListPage:
        """A page of its runs, newest first, those included that are not turns."""
        self.get(name)
        return RunQueries(self.store).page(RunFilter(session=name), limit=limit, cursor=cursor)

    def line(self, name: str, most: int = 100) -> RunIdList:
        """The turns that have not ended, in order."""
        partition = self.partition(check_session_name(name))
        ids: RunIdList = self.store.connection.command(
            "ZRANGE", self.store.key(partition, "session_turns", name), 0, most - 1
        )
        return ids

    def close(self, name: str, *, cancel: bool = False) -> SessionRecord:
        """Refuse further turns. Those submitted already continue; with `cancel`, they are cancelled or stopped."""
        partition = self.partition(check_session_name(name))
        while True:
            reply = str(self.store.call("session/close", partition, name, 1 if cancel else ""))
            if reply == "not_found":
                raise NotFound(self.unknown(name))
            if reply == "ok 0":
                return self.get(name)

    def partition(self, name: str) -> int:
        """The partition of a session and its runs."""
        return session_partition(self.store, name)

    def unknown(self, name: str) -> str:
        """The message for an unknown session, with the name that was perhaps meant."""
        shown = f"There is no session {name[:80]}; `agentq session ls` shows those that there are."
        return shown + suggest_session(self.store, name)

    def _generate_name(self, agent: str, fork: str | None, operation: str) -> str:
        digests = (blake2b(f"{operation} {number}".encode(), digest_size=NAME_DIGEST_BYTES) for number in count())
        names = (f"{agent}-{digest.hexdigest()}" for digest in digests)
        return next(name for name in names if fork is None or self.partition(name) == self.partition(fork))

    def _check_new_name(self, name: str, fork: str | None) -> str:
        name = check_session_name(name)
        if fork is not None and self.partition(name) != self.partition(fork):
            names = (f"{name}-{number}" for number in count(2))
            other = next(each for each in names if self.partition(each) == self.partition(fork))
            raise Invalid(f"The session {name} would live in another partition than {fork}; call it {other}, say.")
        return name

    def _read(self, partition: int, before: str, limit: int, *names: str) -> SessionListPage:
        cursor, *flat = self.store.call("session/list", partition, before, limit, *names)
        found, damaged = list[SessionRecord](), list[str]()
        for at in range(0, len(flat), FIELDS_PER_SESSION):
            try:
                with reading_record(f"the session {flat[at]}"):
                    found.append(_parse_session(*flat[at : at + FIELDS_PER_SESSION]))
            except Damaged:
                if names:
                    raise
                damaged.append(flat[at])
        return SessionListPage(found, cursor or None, damaged)

    def _raise_refusal(self, name: str, reply: str) -> None:
        refused = refusal_error(reply, f"session {name}")
        if refused is not None:
            raise refused


def check_session_name(name: str, what: str = "a session") -> str:
    """Validate the name of a session, or of what else `what` says."""
    return _validate(_name_adapter, name, what)


def _validate(adapter: TypeAdapter[str], text: str, what: str) -> str:
    try:
        return adapter.validate_python(text)
    except ValidationError as error:
        raise Invalid(f"{quote_input(text)} is not the name of {what}: {describe_error(error)}") from error


def _parse_cursor(cursor: str) -> tuple[int, str]:
    at_ms, _, name = cursor.partition(" ")
    return int(at_ms), name


def _sort_key(session: SessionRecord) -> tuple[int, str]:
    return session.used_at_ms, session.name


def _parse_session(name: str, fields_json: str, live: str, turns: int) -> SessionRecord:
    fields: dict[str, Any] = parse_script_json(fields_json)
    budgets = fields.pop("budgets", None)
    return SessionRecord.model_validate(
        fields
        | {
            "name": name,
            "stays": "pinned_host" in fields,
            "last": fields.get("last_turn"),
            "budgets": budgets and json.loads(budgets),
            "spent": parse_spending(fields.get("spending", "")),
            "live": live or None,
            "turns": turns,
        }
    )
