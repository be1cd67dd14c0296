"""The dialects of claude-agent-orchestrator as data, one row each. A new dialect is a new row.

    A            commit 3cf44c7, December 2025
    B            commit ba0f42d, January 2026, the last with `executor_type`
    v0.1-v0.6    the releases 0.1.0 to 0.6.0: they register as C does, and are stopped as A and B are
    C            since 0.7.0

A row defines how a runner is recognised, identified and stopped, the fields of a request for a run, when a session
becomes visible, and the shape of lists. All dialects are served at the same time on the same URLs. Paths and most
fields are the same for all and are in no row, since each client reads only its own fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

DialectName = Literal["a", "b", "v0.1-v0.6", "c"]
SessionCreator = Literal["executor", "server"]
CallbackTrigger = Literal["parent", "execution_mode"]


class StopSpelling(NamedTuple):
    """One format of a stop order: the key in the answer to a poll, and whether it lists runs or sessions."""

    key: str
    names: Literal["run", "session"]


STOP_RUNS, STOP_SESSIONS = StopSpelling("stop_runs", "run"), StopSpelling("stop_sessions", "session")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The properties of one dialect."""

    name: DialectName

    # ---- a runner registers
    registers_with: tuple[str, ...]
    """Fields of the registration body. The first row whose fields are all present matches."""
    executor_has: str | None = None
    """A field of `executor` that distinguishes this dialect from others with the same fields."""
    identity_fields: tuple[str, ...]
    """The fields that the runner's id is derived from, so that it gets the same id again; if one is missing the id is
    random."""
    fetches_scripts: bool = False
    """Whether a poll may answer `sync_scripts`."""

    # ---- a runner is told to stop
    stops: tuple[StopSpelling, ...]
    """Formats of a stop order. One answer contains all; the runner reads the one that it knows."""

    # ---- a client asks for a run
    requested_with: str
    """The field of `POST /runs` that identifies the dialect; requests of rows with the same field are alike."""
    accepted_status: Literal[200, 201]
    callback_requested_by: CallbackTrigger
    """What requests a callback: a parent alone, or `execution_mode: async_callback` together with a parent."""
    callback_in_tags: bool
    """Whether a callback is formatted with tags (`<agent-callback …>`) or as sentences."""

    # ---- a session
    server_reports_progress: bool = False
    """Whether the server sends `run_start` and `run_completed` for a run; otherwise its executor does."""
    session_created_by: SessionCreator
    """Who creates the session. With `executor`, the lists and `by-name` hide it until `POST /sessions`."""
    unfinished_message: str
    """The error for the result of a session that has not finished."""
    affinity_fields: tuple[str, ...] = ("hostname", "project_dir", "executor_profile")
    """The fields of the affinity answer beside `session_id`: where the conversation runs."""
    refuses_stop_of_ended: bool
    """Whether stopping a run that has ended is refused with 400."""

    # ---- lists
    array_paths: Collection[str] = ("/agents", "/capabilities", "/scripts", "/mcp-servers")
    """Lists that are answered as an array; all others are an object with one key."""
    has_pages: bool = False
    """Whether its clients request further pages; otherwise a list without `limit` and `cursor` is answered whole."""


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
    # A runner of 0.7 whose registration lacks `lifecycle` sends the same fields, but reads the other format.
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
    # A runner of A sends the same three. Both get an id from them, and a second process at the same time is refused.
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
"""By name, in the order in which a registration is matched."""
NEWEST_DIALECT = DIALECT_C
REQUEST_DIALECTS: tuple[Dialect, ...] = (DIALECT_A, DIALECT_C, DIALECT_B)
"""The rows that a request for a run is matched with, one for each identifying field."""
WHOLE_LIST_MAX = 10_000
"""The most rows of a list that is answered whole; older rows are reached with `limit` and `cursor`."""


def find_dialect(name: str | None) -> Dialect:
    """The row of a name, as stored with a run or session; the newest dialect if the name is unknown."""
    return DIALECTS.get(name or "", NEWEST_DIALECT)


def match_registration(fields: Collection[str], executor: Collection[str]) -> Dialect:
    """The dialect of a registration with these fields and these fields of `executor`."""
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
    """Whether a list is requested without `limit` and `cursor`, as clients of the dialect do. They get the whole
    list in their format; clients of agentq get a page."""
    return not {"limit", "cursor"} & {*parameters}
