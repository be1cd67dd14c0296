"""Sessions: conversations with an agent, of which each run is a turn, one after the other.

A session has an agent, and what that agent calls the conversation; the host that has it, or a transcript that travels;
what all turns have spent, and how much they may. Its turns stand in a line (see `lua/shared/session_turns.lua`): a submit to a session
that is busy is not refused, it waits. What is said of a session by those who use it is here; what its turns tell of it
is in `conversations.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import count
from typing import Any, Literal
from zlib import crc32

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from agentq.coordinator.connection import Word
from agentq.coordinator.errors import Invalid, NotFound, refusal
from agentq.coordinator.fields import Model, Name, Text, one_sentence
from agentq.coordinator.identity import new_nonce
from agentq.coordinator.life import spending_of
from agentq.coordinator.limits import LIST_A_CALL
from agentq.coordinator.records import Filter, Page, Records
from agentq.coordinator.run import Spending
from agentq.coordinator.store import Store
from agentq.coordinator.turn import Budgets

FIELDS = 4
"""Of each session in the reply of the script."""

Ids = list[str]

_name: TypeAdapter[str] = TypeAdapter(Name)
_text: TypeAdapter[str] = TypeAdapter(Text)
_model: TypeAdapter[str] = TypeAdapter(Model)


class Session(BaseModel):
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
    budgets: Budgets | None = None
    """Of all turns together."""
    spent: Spending
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
class Shelf:
    """Part of a list. With `cursor` the next call goes on; without one, this was all."""

    sessions: list[Session]
    cursor: str | None


class Sessions:
    """What anyone may say of sessions."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def new(
        self,
        name: str | None,
        agent: str,
        *,
        cwd: str | None = None,
        model: str | None = None,
        budgets: Budgets | None = None,
        fork: str | None = None,
        operation: str | None = None,
    ) -> Session:
        """Begin a session; with `fork`, one that goes on from where that one is, which goes on by itself.

        Without a name it gets one. What is not said is as in the session that it goes on from.
        """
        agent, fork = _checked(_name, agent, "an agent"), fork and _checked(_name, fork, "a session")
        name = self._made_name(agent, fork) if name is None else self._free_name(name, fork)
        where = "" if cwd is None else _checked(_text, cwd, "a folder")
        which = "" if model is None else _checked(_model, model, "a model")
        caps = "" if budgets is None else budgets.model_dump_json(exclude_none=True)
        operation = operation or self.store.nonce()
        words: tuple[Word, ...] = (name, agent, where, which, caps, fork or "", operation)
        reply = str(self.store.call("session/create", self.partition(name), *words))
        if reply.startswith("no_session"):
            raise NotFound(self.unknown(fork or ""))
        self._say(name, reply)
        return self.get(name)

    def get(self, name: str) -> Session:
        """A session as it stands."""
        found = self._read(self.partition(_checked(_name, name, "a session")), "", 1, name).sessions
        if not found:
            raise NotFound(self.unknown(name))
        return found[0]

    def list(self, *, limit: int = 100, cursor: str | None = None) -> Shelf:
        """A page of sessions, the last used first."""
        if not 1 <= limit <= LIST_A_CALL:
            raise Invalid(f"A page has 1 to {LIST_A_CALL} sessions, not {limit}.")
        shelves = [self._read(partition, cursor or "", limit) for partition in self.store.partitions()]
        floor = max((shelf.cursor for shelf in shelves if shelf.cursor), key=_place, default=None)
        found = sorted((each for shelf in shelves for each in shelf.sessions), key=_own_place, reverse=True)
        if floor is not None:
            found = [each for each in found if _own_place(each) >= _place(floor)]
        if len(found) > limit:
            found = found[:limit]
            floor = f"{found[-1].used_at_ms} {found[-1].name}"
        return Shelf(found, floor)

    def all(self) -> Iterator[Session]:
        """Every session, the last used first."""
        cursor: str | None = None
        while True:
            shelf = self.list(limit=LIST_A_CALL, cursor=cursor)
            yield from shelf.sessions
            cursor = shelf.cursor
            if cursor is None:
                return

    def turns(self, name: str, *, limit: int = 100, cursor: str | None = None) -> Page:
        """A page of its runs, newest first, also of those that are not turns."""
        self.get(name)
        return Records(self.store).page(Filter(session=name), limit=limit, cursor=cursor)

    def line(self, name: str, most: int = 100) -> Ids:
        """The turns that have not ended, the first first."""
        partition = self.partition(_checked(_name, name, "a session"))
        ids: Ids = self.store.connection.command(
            "ZRANGE", self.store.key(partition, "session_turns", name), 0, most - 1
        )
        return ids

    def close(self, name: str, *, cancel: bool = False) -> Session:
        """Let it take no more turns. What is in its line goes on; or is cancelled, and what runs is to stop."""
        partition = self.partition(_checked(_name, name, "a session"))
        while True:
            reply = str(self.store.call("session/close", partition, name, 1 if cancel else ""))
            if reply == "not_found":
                raise NotFound(self.unknown(name))
            if reply == "ok 0":
                return self.get(name)

    def partition(self, name: str) -> int:
        """Where a session lives, with its runs."""
        return partition_of_session(self.store, name)

    def unknown(self, name: str) -> str:
        """That there is no session of this name, and what may have been meant."""
        shown = f"There is no session {name[:80]}; `agentq session ls` shows those that there are."
        return shown + suggestion(self.store, name)

    def _made_name(self, agent: str, fork: str | None) -> str:
        names = (f"{agent}-{new_nonce()}" for _ in count())
        return next(name for name in names if fork is None or self.partition(name) == self.partition(fork))

    def _free_name(self, name: str, fork: str | None) -> str:
        name = _checked(_name, name, "a session")
        if fork is not None and self.partition(name) != self.partition(fork):
            names = (f"{name}-{number}" for number in count(2))
            other = next(each for each in names if self.partition(each) == self.partition(fork))
            raise Invalid(f"The session {name} would live in another partition than {fork}; call it {other}, say.")
        return name

    def _read(self, partition: int, before: str, limit: int, *names: str) -> Shelf:
        cursor, *flat = self.store.call("session/list", partition, before, limit, *names)
        found = [_session(*flat[at : at + FIELDS]) for at in range(0, len(flat), FIELDS)]
        return Shelf(found, cursor or None)

    def _say(self, name: str, reply: str) -> None:
        refused = refusal(reply, f"session {name}")
        if refused is not None:
            raise refused


def partition_of_session(store: Store, name: str) -> int:
    """Where a session lives: as whatever else is told apart by its name."""
    return crc32(name.encode()) % store.keyspace.partitions


def suggestion(store: Store, name: str) -> str:
    """The session whose name is nearest, as a question; nothing if none is near."""
    names = [
        each
        for partition in store.partitions()
        for each in store.connection.command("ZRANGE", store.key(partition, "sessions"), 0, LIST_A_CALL - 1, "REV")
    ]
    near = get_close_matches(name, names, 1)
    return f" Did you mean {near[0]}?" if near else ""


def _checked(adapter: TypeAdapter[str], text: str, what: str) -> str:
    try:
        return adapter.validate_python(text)
    except ValidationError as error:
        raise Invalid(f"{text[:80]!r} is not the name of {what}: {one_sentence(error)}") from error


def _place(cursor: str) -> tuple[int, str]:
    at_ms, _, name = cursor.partition(" ")
    return int(at_ms), name


def _own_place(session: Session) -> tuple[int, str]:
    return session.used_at_ms, session.name


def _session(name: str, told: str, live: str, turns: int) -> Session:
    fields: dict[str, Any] = json.loads(told)
    budgets = fields.pop("budgets", None)
    return Session.model_validate(
        fields
        | {
            "name": name,
            "stays": "stays" in fields,
            "budgets": budgets and json.loads(budgets),
            "spent": spending_of(fields.get("spending", "")),
            "live": live or None,
            "turns": turns,
        }
    )
