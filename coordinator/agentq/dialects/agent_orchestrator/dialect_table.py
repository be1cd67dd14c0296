"""The dialects of claude-agent-orchestrator as data: one row each, so that a fifth is a row.

    A            commit 3cf44c7, December 2025
    B            commit ba0f42d, January 2026, the last with `executor_type`
    v0.1-v0.6    the releases 0.1.0 to 0.6.0: they register as C does and are stopped as A and B are
    C            since 0.7.0

A row says how a runner is recognised, identified and stopped, what a request for a run looks like, what is shown of a
session before its executor has begun it, and what lists answer. All rows are answered at the same time on the same
URLs: what does not depend on the dialect (paths, most fields) is in no row, since each client reads its own fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

DialectName = Literal["a", "b", "v0.1-v0.6", "c"]
SessionCreator = Literal["executor", "server"]
CallbackTrigger = Literal["parent", "execution_mode"]


class StopSpelling(NamedTuple):
    """One spelling of an order to stop: the key of the answer to a poll, and whether it names runs or sessions."""

    key: str
    names: Literal["run", "session"]


STOP_RUNS, STOP_SESSIONS = StopSpelling("stop_runs", "run"), StopSpelling("stop_sessions", "session")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What is particular to one dialect."""

    name: DialectName

    # ---- a runner registers
    registers_with: tuple[str, ...]
    """Fields that the body of a registration of this dialect has; of the first row whose fields are all there it is."""
    executor_has: str | None = None
    """A field of `executor` that tells it from other dialects with the same fields."""
    identity_fields: tuple[str, ...]
    """What the runner's id is made of, so that it gets the same again; without all of them it is made up."""
    fetches_scripts: bool = False
    """Whether a poll may answer `sync_scripts`."""

    # ---- a runner is told to stop
    stops: tuple[StopSpelling, ...]
    """All spellings stand in one answer; the runner reads the one that it knows."""

    # ---- a client asks for a run
    requested_with: str
    """The field of `POST /runs` that tells the dialect; requests of two rows with the same field are alike."""
    accepted_status: Literal[200, 201]
    callback_requested_by: CallbackTrigger
    """What asks for a callback: a parent alone, or `execution_mode: async_callback` with one."""
    callback_in_tags: bool
    """Whether a parent is told of its child in tags (`<agent-callback …>`), or in sentences."""

    # ---- a session
    server_reports_progress: bool = False
    """Whether the server tells `run_start` and `run_completed` of a run; where not, its executor does."""
    session_created_by: SessionCreator
    """Who makes the session: with `executor` the lists and `by-name` do not show it before `POST /sessions`."""
    unfinished_message: str
    """The sentence with which the result of a session is refused that has not finished."""
    affinity_fields: tuple[str, ...] = ("hostname", "project_dir", "executor_profile")
    """Where a conversation is, in the fields that are answered beside `session_id`."""
    refuses_stop_of_ended: bool
    """Whether stopping a run that has ended is refused with 400."""

    # ---- lists
    array_paths: Collection[str] = ("/agents", "/capabilities", "/scripts", "/mcp-servers")
    """Lists that are answered as an array; all others are an object with the list under the name of what it holds."""
    has_pages: bool = False
    """Whether its clients ask for a second page; where not, a list without `limit` and `cursor` is answered whole."""


DIALECT_C = Dialect(
    name="c",
    registers_with=("executor_profile",),
    executor_has="lifecycle",
    identity_fields=("hostname", "project_dir", "executor_profile", "executor.command"),
    fetches_scripts=True,
    stops=(STOP_SESSIONS,),
    requested_with="parameters",
    accepted_status=201,
    callback_requested_by="execution_mode",
    callback_in_tags=True,
    server_reports_progress=True,
    session_created_by="server",
    unfinished_message="Session not finished or idle",
    refuses_stop_of_ended=False,
)
DIALECT_RELEASES = Dialect(
    name="v0.1-v0.6",
    registers_with=("executor_profile",),
    identity_fields=("hostname", "project_dir", "executor_profile", "executor.command"),
    fetches_scripts=True,
    # A runner of 0.7 whose registration does not tell its lifecycle registers with the same fields: it reads the other.
    stops=(STOP_RUNS, STOP_SESSIONS),
    requested_with="parameters",
    accepted_status=201,
    callback_requested_by="execution_mode",
    callback_in_tags=True,
    server_reports_progress=True,
    session_created_by="server",
    unfinished_message="Session not finished",
    refuses_stop_of_ended=True,
)
DIALECT_B = Dialect(
    name="b",
    # A runner of A sends the same three; both get an id of them, and a second process at the same time is refused.
    registers_with=("hostname", "project_dir", "executor_type"),
    identity_fields=("hostname", "project_dir", "executor_type"),
    stops=(STOP_RUNS,),
    requested_with="prompt",
    accepted_status=200,
    callback_requested_by="execution_mode",
    callback_in_tags=False,
    session_created_by="server",
    unfinished_message="Session not finished",
    affinity_fields=("executor_session_id", "hostname", "project_dir", "executor_type"),
    refuses_stop_of_ended=True,
)
DIALECT_A = Dialect(
    name="a",
    registers_with=(),
    identity_fields=("hostname", "project_dir", "executor_type"),
    stops=(STOP_RUNS,),
    requested_with="session_name",
    accepted_status=200,
    callback_requested_by="parent",
    callback_in_tags=False,
    session_created_by="executor",
    unfinished_message="Session not finished",
    refuses_stop_of_ended=True,
)

DIALECTS: Mapping[str, Dialect] = {each.name: each for each in (DIALECT_C, DIALECT_RELEASES, DIALECT_B, DIALECT_A)}
"""By name, in the order in which a registration is compared with them."""
NEWEST_DIALECT = DIALECT_C
REQUEST_DIALECTS: tuple[Dialect, ...] = (DIALECT_A, DIALECT_C, DIALECT_B)
"""The rows that a request for a run is compared with, one of each field that tells."""
WHOLE_LIST_MAX = 10_000
"""The most rows of a list that is answered whole; what is older is reached with `limit` and `cursor`."""


def find_dialect(name: str | None) -> Dialect:
    """A row by its name, as a run's notes or a session's facts have it; the newest if it is not known."""
    return DIALECTS.get(name or "", NEWEST_DIALECT)


def match_registration(fields: Collection[str], executor: Collection[str]) -> Dialect:
    """The dialect of a registration with these fields, whose `executor` has those."""
    return next(
        row
        for row in DIALECTS.values()
        if all(field in fields for field in row.registers_with)
        and (row.executor_has is None or row.executor_has in executor)
    )


def match_request(fields: Collection[str]) -> Dialect:
    """The dialect of a request for a run with these fields."""
    return next((row for row in REQUEST_DIALECTS if row.requested_with in fields), NEWEST_DIALECT)


def wants_whole_list(parameters: Iterable[str]) -> bool:
    """Whether a list is asked for as foreign clients ask, who know of no pages: then all of it is answered, in their
    shape. Clients of ours ask with `limit` or `cursor`, and get a page.
    """
    return not {"limit", "cursor"} & {*parameters}
