"""The records and verbs of sessions: conversations with an agent, whose runs are turns, one after the other.

A session has an agent, and what that agent calls the conversation; the host that has it, or a transcript that travels;
what all turns have spent, and how much they may. Its turns stand in a line (see `lua/shared/session_turns.lua`): a
submit to a session that is busy is not refused, it waits. What is said of a session by those who use it is here; what
its turns tell of it is in `conversations.py`.
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
"""Of each session in the reply of the script."""
NAME_DIGEST_BYTES = 6
"""Of what tells sessions apart that were given no name."""

RunIdList = list[str]

_name_adapter: TypeAdapter[str] = TypeAdapter(Name)
_text_adapter: TypeAdapter[str] = TypeAdapter(Text)
_model_adapter: TypeAdapter[str] = TypeAdapter(ModelName)


class SessionRecord(BaseModel):
    """A session as it stands."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    name: str
    agent: str
    state: Literal["open", "closed"]
    created_at_ms: int
    used_at_ms: int
    """When a turn was last submitted to it, or ended."""
    closed_at_ms: int | None = None
    agent_session: str | None = None
    """What the agent calls the conversation; None before its first turn has begun."""
    host: str | None = None
    """Where it was last gone on with."""
    stays: bool
    """Whether it must be gone on with there: it cannot travel."""
    account: str | None = None
    cwd: str | None = None
    model: str | None = None
    budgets: AgentBudgets | None = None
    """Of all turns together."""
    spent: AgentSpending
    forked_from: str | None = None
    made_by: str = ""
    """The token that made it; empty without one."""
    last: str | None = None
    """The turn that was submitted last."""
    live: str | None
    """The turn whose turn it is."""
    turns: int
    """How many stand in the line, that one among them."""


@dataclass(frozen=True, slots=True)
class SessionListPage:
    """Part of a list. With `cursor` the next call goes on; without one, this was all."""

    sessions: list[SessionRecord]
    cursor: str | None
    damaged: list[str] = field(default_factory=list)
    """Names of those whose records cannot be read."""


class Sessions:
    """What anyone may say of sessions."""

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
        """Begin a session; with `fork`, one that goes on from where that one is, which goes on by itself.

        Without a name it gets one. What is not said is as in the session that it goes on from. Said again with the same
        `operation`, it is the same session.
        """
        agent, fork = check_session_name(agent, "an agent"), fork and check_session_name(fork)
        operation = operation or self.store.nonce()
        name = self._generate_name(agent, fork, operation) if name is None else self._check_new_name(name, fork)
        where = "" if cwd is None else _validate(_text_adapter, cwd, "a folder")
        which = "" if model is None else _validate(_model_adapter, model, "a model")
        caps = "" if budgets is None else budgets.model_dump_json(exclude_none=True)
        words: tuple[CommandArgument, ...] = (name, agent, where, which, caps, fork or "", operation)
        reply = str(self.store.call("session/create", self.partition(name), *words))
        if reply.startswith("no_session"):
            raise NotFound(self.unknown(fork or ""))
        self._raise_refusal(name, reply)
        return self.get(name)

    def get(self, name: str) -> SessionRecord:
        """A session as it stands."""
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
        """A page of its runs, newest first, also of those that are not turns."""
        self.get(name)
        return RunQueries(self.store).page(RunFilter(session=name), limit=limit, cursor=cursor)

    def line(self, name: str, most: int = 100) -> RunIdList:
        """The turns that have not ended, the first first."""
        partition = self.partition(check_session_name(name))
        ids: RunIdList = self.store.connection.command(
            "ZRANGE", self.store.key(partition, "session_turns", name), 0, most - 1
        )
        return ids

    def close(self, name: str, *, cancel: bool = False) -> SessionRecord:
        """Let it take no more turns. What is in its line goes on; or is cancelled, and what runs is to stop."""
        partition = self.partition(check_session_name(name))
        while True:
            reply = str(self.store.call("session/close", partition, name, 1 if cancel else ""))
            if reply == "not_found":
                raise NotFound(self.unknown(name))
            if reply == "ok 0":
                return self.get(name)

    def partition(self, name: str) -> int:
        """Where a session lives, with its runs."""
        return session_partition(self.store, name)

    def unknown(self, name: str) -> str:
        """That there is no session of this name, and what may have been meant."""
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
    """A session's name, checked."""
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


def _parse_session(name: str, told: str, live: str, turns: int) -> SessionRecord:
    fields: dict[str, Any] = parse_script_json(told)
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
