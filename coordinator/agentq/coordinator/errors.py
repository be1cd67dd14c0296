"""The exceptions of agentq, by what the caller can do about each.

    AgentqError
    ├── Invalid              correct the input                             exit 2
    ├── NotFound             check the id                                  exit 2
    ├── Damaged              a stored record is unreadable: an operator repairs it  exit 1
    ├── Undurable            done, but perhaps not yet on disk             exit 1
    ├── Unreachable          the server cannot be reached: try again       exit 3
    ├── NotAllowed           the server refuses this user                  exit 4
    │   └── LoginFailed        the server rejects the user and password
    ├── Refused              the present state forbids it                  exit 5
    │   ├── WrongState         the run is in another state
    │   ├── Fenced             this attempt was superseded: stop its processes, write nothing
    │   ├── Stopping           a stop was ordered: do not start the run, confirm the stop
    │   ├── Duplicate          a live record has that id or key
    │   ├── Evicted            this worker was declared lost, or never registered: register again
    │   ├── Draining           this worker takes no more runs
    │   ├── Stale              the record changed since it was read: read it again
    │   └── Incompatible       the data belong to another version of agentq
    ├── TryLater             the server is full, loading or busy: nothing changed   exit 75
    │   └── NotNow             the present state refuses it and will change
    └── WaitTimedOut         the wait ended before its condition was met   exit 124

Scripts reply with words; `refusal_error` is the one place that maps a word to an exception. The first line of a
class's docstring is its default message.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class AgentqError(Exception):
    """An agentq call failed."""

    exit_code = 1
    by_place = False
    """Whether the message begins with `file:line`, which editors can open."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").partition("\n")[0])


class Invalid(AgentqError):
    """The input is not valid."""

    exit_code = 2


class NotFound(AgentqError):
    """The record does not exist."""

    exit_code = 2


class Damaged(AgentqError):
    """A stored record cannot be read."""


@contextmanager
def reading_record(what: str) -> Iterator[None]:
    """Turn any error of parsing a stored record into `Damaged`: only a foreign write can make it unreadable."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise Damaged(f"The record of {what} is damaged ({type(error).__name__}).") from error


class Unreachable(AgentqError):
    """The server cannot be reached."""

    exit_code = 3


def has_untrusted_certificate(fault: BaseException | None) -> bool:
    """Whether the connection failed because of the server's certificate, so that a retry would not help."""
    while fault is not None and type(fault).__name__ != "SSLCertVerificationError":
        fault = fault.__cause__ or fault.__context__
    return fault is not None


class NotAllowed(AgentqError):
    """The server does not permit this user to do that."""

    exit_code = 4


class LoginFailed(NotAllowed):
    """The server rejects the user and password."""


class Refused(AgentqError):
    """The present state does not permit it."""

    exit_code = 5


class WrongState(Refused):
    """The verb does not apply to the state of the run."""


class Fenced(Refused):
    """This attempt was superseded; stop its processes and write nothing more."""


class Stopping(Refused):
    """The run is to be cancelled; do not start it, confirm the stop instead."""


class Duplicate(Refused):
    """A live record has that id or dedupe key already."""


class Evicted(Refused):
    """This worker is not registered, or was declared lost; register again."""


class Draining(Refused):
    """This worker is draining and takes no more runs."""


class Stale(Refused):
    """The record changed meanwhile; read it again."""


class Undurable(AgentqError):
    """It was done, but the server cannot confirm that it is on disk."""


class Incompatible(Refused):
    """The data in this namespace belong to another version of agentq."""


class TryLater(AgentqError):
    """The server accepts no new work at the moment; nothing was changed."""

    exit_code = 75


class NotNow(TryLater):
    """The present state refuses it; try again later. Nothing was changed."""


class WaitTimedOut(AgentqError):
    """The wait timed out."""

    exit_code = 124


REFUSALS: dict[str, tuple[type[AgentqError], str]] = {
    "not_found": (NotFound, "There is no {subject}; it may have been deleted after its retention."),
    "wrong_state": (WrongState, "The {subject} is {detail}; this verb does not apply to that state."),
    "fenced": (Fenced, "This attempt of the {subject} was superseded; stop its processes and write nothing more."),
    "stopping": (Stopping, "The {subject} is being cancelled; do not start it, confirm the stop instead."),
    "id_taken": (Duplicate, "The {subject} exists already, with another spec; use a new id."),
    "duplicate": (Duplicate, "The {subject} is refused: {detail} has its id or key."),
    "no_dependency": (NotFound, "The {subject} depends on {detail}, which does not exist."),
    "parent_ended": (WrongState, "The parent of the {subject}, {detail}, does not exist or has ended."),
    "parent_fenced": (Fenced, "This attempt of {detail} was superseded; it may not touch the {subject}."),
    "not_permitted": (NotAllowed, "The {subject} may not exceed the permissions of its parent: {detail}."),
    "queue_not_readable": (
        NotAllowed,
        "The {subject} is in the queue {detail}, which the token of this run may not read.",
    ),
    "too_deep": (
        NotNow,
        "The {subject} is refused: it would be nested deeper than {detail} generations of agents.",
    ),
    "not_its_child": (NotAllowed, "The {subject} is not a child of {detail}; a run may cancel only its own children."),
    "too_many_children": (
        NotNow,
        "The parent of the {subject}, {detail}, has the maximum number of children; wait until some have ended.",
    ),
    "exceeds_burst": (
        Invalid,
        "The {subject} needs more units at once than the burst of the limit {detail}; ask for fewer, or raise the "
        "burst.",
    ),
    "no_session": (
        NotFound,
        "The {subject} is a turn of the session {detail}, which does not exist; create it with `agentq session new`.",
    ),
    "closed_session": (
        WrongState,
        "The {subject} is a turn of the session {detail}, which is closed; create another, or continue its "
        "conversation with `agentq session fork`.",
    ),
    "wrong_agent": (Invalid, "The {subject} names another agent than the session {detail}."),
    "name_taken": (Duplicate, "The {subject} exists already, and is {detail}; choose another name."),
    "too_many_webhooks": (
        Refused,
        "The {subject} is refused: there are {detail}, which is the maximum; remove one first.",
    ),
    "too_many_redeliveries": (
        NotNow,
        "The {subject} has {detail} redeliveries queued, which is the maximum; wait for some.",
    ),
    "no_conversation": (
        WrongState,
        "The {subject} has no conversation yet, so there is no transcript to save.",
    ),
    "too_many_signals": (
        NotNow,
        "The {subject} has {detail} signals that it has not received yet, which is the maximum.",
    ),
    "cycle": (
        Invalid,
        "The {subject} cannot depend on {detail}, which was submitted or requeued later and is blocked itself: "
        "that could be a dependency cycle.",
    ),
    "evicted": (Evicted, "The {subject} is no longer registered; stop its runs and register again."),
    "draining": (Draining, "The {subject} is draining and takes no more runs."),
    "lease_expired": (Evicted, "The lease of the {subject} has expired; send a heartbeat first."),
    "evicts_keys": (
        Incompatible,
        "The {subject} evicts keys when its memory is full ({detail}), which loses runs; set maxmemory-policy "
        "noeviction.",
    ),
    "intake_closed": (NotNow, "The {subject} is refused: the intake of the queue {detail} is closed."),
    "too_many_queues": (
        NotNow,
        "The {subject} needs a new queue, and there are {detail}, which is the maximum (AGENTQ_QUEUES_MAX); a queue is "
        "deleted some time after its last run.",
    ),
    "too_many_sessions": (
        NotNow,
        "The {subject} is refused: there are {detail}, including those closed in the last week, which is the maximum "
        "(AGENTQ_SESSIONS_MAX).",
    ),
    "too_many_schedules": (
        Refused,
        "The {subject} is refused: there are {detail}, which is the maximum (AGENTQ_SCHEDULES_MAX).",
    ),
    "too_many_for_token": (
        NotNow,
        "The {subject} is refused: this token has created {detail}, and one token may have half of the maximum "
        "(AGENTQ_QUEUES_MAX, AGENTQ_SESSIONS_MAX, AGENTQ_SCHEDULES_MAX).",
    ),
    "too_many_blueprints": (Invalid, "The {subject} is full: {detail} is the maximum."),
    "stale": (Stale, "The {subject} changed meanwhile; read it again."),
    "releasing_runs": (NotNow, "The {subject} still has runs of an earlier registration to release; call again."),
    "ended_recently": (
        NotNow,
        "The {subject} ended less than a minute ago; it is kept so long for a repeated submit.",
    ),
    "plan_not_ended": (
        WrongState,
        "The {subject} is a task of the plan {detail}, and is kept until that plan has ended.",
    ),
    "no_plan": (NotFound, "The {subject} is a task of the plan {detail}, which does not exist."),
    "closed_plan": (
        WrongState,
        "The {subject} is refused: the plan {detail} was stopped and takes no more tasks; continue it with "
        "`agentq plan retry`.",
    ),
    "no_tasks": (WrongState, "The {subject} has no tasks yet and stays open."),
    "plan_stopping": (
        NotNow,
        "The {subject} is refused: the plan {detail} is being stopped; try again when its last task has ended.",
    ),
    "notifying_dependents": (
        NotNow,
        "The dependents of the {subject} are still being notified of its end; try again in a moment.",
    ),
}


def refusal_error(reply: str, subject: str) -> AgentqError | None:
    """The exception for the reply of a script; None if the reply is not a refusal."""
    word, _, detail = reply.partition(" ")
    if word not in REFUSALS:
        return None
    kind, sentence = REFUSALS[word]
    return kind(sentence.format(subject=subject, detail=detail or "another one"))


def quote_input(value: object) -> str:
    """The value as it is shown in an error sentence, at most 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
