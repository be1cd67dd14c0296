"""Everything that can go wrong, by what the caller can do about it.

    AgentqError
    ├── Invalid              mend the input                                exit 2
    ├── NotFound             check the id                                  exit 2
    ├── Damaged              what is stored cannot be read: an operator mends it  exit 1
    ├── Undurable            it was done, but perhaps not yet on disk      exit 1
    ├── Unreachable          the server cannot be reached: try again       exit 3
    ├── NotAllowed           the server refuses this user                  exit 4
    │   └── LoginFailed        it does not accept the user and password
    ├── Refused              the present state forbids it                  exit 5
    │   ├── WrongState         the run is in another state
    │   ├── Fenced             this attempt was superseded: stop its processes, write nothing
    │   ├── Stopping           the run is to be cancelled: do not start it, confirm the stop
    │   ├── Duplicate          something live has that id or dedupe key
    │   ├── Evicted            this worker was declared lost, or never registered: register again
    │   ├── Draining           this worker no longer takes runs
    │   ├── Stale              it was changed since it was looked at: look again
    │   └── Incompatible       the data belong to another version of agentq
    ├── TryLater             the server is full, loading or busy: nothing changed   exit 75
    │   └── NotNow             what is asked about takes it another time
    └── WaitTimedOut         what was waited for has not happened          exit 124

Scripts answer in words; `refusal` is the one place where a word becomes an exception. The first line of a class's
docstring is its message when none is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class AgentqError(Exception):
    """Something went wrong in agentq."""

    exit_code = 1
    by_place = False
    """Whether its message begins with a file and a line, as programs that jump there want it."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").partition("\n")[0])


class Invalid(AgentqError):
    """The input is not valid."""

    exit_code = 2


class NotFound(AgentqError):
    """Not found."""

    exit_code = 2


class Damaged(AgentqError):
    """What is stored cannot be read."""


@contextmanager
def reading_record(what: str) -> Iterator[None]:
    """What is read within was stored by scripts: where it has another form, somebody else has written it."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise Damaged(f"The record of {what} is damaged ({type(error).__name__}).") from error


class Unreachable(AgentqError):
    """The server cannot be reached."""

    exit_code = 3


def has_untrusted_certificate(fault: BaseException | None) -> bool:
    """Whether a server was not talked to because of its certificate: to wait for it would not help."""
    while fault is not None and type(fault).__name__ != "SSLCertVerificationError":
        fault = fault.__cause__ or fault.__context__
    return fault is not None


class NotAllowed(AgentqError):
    """The server does not allow this user to do that."""

    exit_code = 4


class LoginFailed(NotAllowed):
    """The server does not accept the user and password."""


class Refused(AgentqError):
    """The present state forbids it."""

    exit_code = 5


class WrongState(Refused):
    """The run is in a state that this verb does not take."""


class Fenced(Refused):
    """This attempt was superseded; stop its processes and write nothing more."""


class Stopping(Refused):
    """The run is to be cancelled; do not start it, confirm the stop instead."""


class Duplicate(Refused):
    """Something live has that id or dedupe key already."""


class Evicted(Refused):
    """This worker is not registered, or was declared lost; register again."""


class Draining(Refused):
    """This worker is draining and takes no more runs."""


class Stale(Refused):
    """It was changed meanwhile; look at it again."""


class Undurable(AgentqError):
    """It was done, but the server cannot promise that it is on disk."""


class Incompatible(Refused):
    """The data in this namespace belong to another version of agentq."""


class TryLater(AgentqError):
    """The server takes no new work at the moment; nothing was changed."""

    exit_code = 75


class NotNow(TryLater):
    """It is refused as things stand, which pass; nothing was changed."""


class WaitTimedOut(AgentqError):
    """What was waited for has not happened in time."""

    exit_code = 124


REFUSALS: dict[str, tuple[type[AgentqError], str]] = {
    "not_found": (NotFound, "There is no {subject}; it may have been forgotten after its time."),
    "wrong_state": (WrongState, "The {subject} is {detail}, where this verb does nothing."),
    "fenced": (Fenced, "The {subject} has gone on without this attempt; stop its processes and write nothing more."),
    "stopping": (Stopping, "The {subject} is to be cancelled; do not start it, confirm the stop instead."),
    "id_taken": (Duplicate, "The {subject} exists already, with another spec; make a new id."),
    "duplicate": (Duplicate, "The {subject} is refused: {detail} has its id or key."),
    "no_dependency": (NotFound, "The {subject} is to wait for {detail}, which does not exist."),
    "parent_ended": (WrongState, "The {subject} is to be a child of {detail}, which does not exist or has ended."),
    "parent_fenced": (Fenced, "The {subject} is no business of this attempt: {detail} has gone on without it."),
    "not_permitted": (NotAllowed, "The {subject} may do no more than the run whose child it is to be: {detail}."),
    "queue_not_readable": (
        NotAllowed,
        "The {subject} is in the queue {detail}, which the token of this run may not read.",
    ),
    "too_deep": (
        NotNow,
        "The {subject} is refused: there are {detail} generations above it already, which is the most.",
    ),
    "not_its_child": (NotAllowed, "The {subject} is no child of {detail}, which may end only its own."),
    "too_many_children": (
        NotNow,
        "The {subject} is to be a child of {detail}, which has as many as it may have; it must wait for some.",
    ),
    "exceeds_burst": (
        Invalid,
        "The {subject} asks for more units at once than there ever are of the limit {detail}; ask for fewer, or let an "
        "operator raise the burst.",
    ),
    "no_session": (
        NotFound,
        "The {subject} is to be a turn of the session {detail}, which does not exist; begin it with "
        "`agentq session new`.",
    ),
    "closed_session": (
        WrongState,
        "The {subject} is to be a turn of the session {detail}, which is closed; begin another, or go on from where it "
        "is with `agentq session fork`.",
    ),
    "wrong_agent": (Invalid, "The {subject} is for another agent than the session {detail}."),
    "name_taken": (Duplicate, "The {subject} exists already, and is {detail}; give the new one another name."),
    "too_many_webhooks": (Refused, "The {subject} is refused: there are {detail} already; remove one first."),
    "too_many_redeliveries": (NotNow, "The {subject} has {detail} messages to be delivered again already."),
    "no_conversation": (
        WrongState,
        "The {subject} has said nothing of its conversation yet, so there is none to carry.",
    ),
    "too_many_signals": (NotNow, "The {subject} has {detail} signals that it has not taken yet, which is the most."),
    "cycle": (
        Invalid,
        "The {subject} cannot wait for {detail}, which was submitted after it and waits itself: the two could wait for "
        "each other for ever.",
    ),
    "evicted": (Evicted, "The {subject} is not registered any more; stop its runs and register again."),
    "draining": (Draining, "The {subject} is draining and takes no more runs."),
    "lease_expired": (Evicted, "The lease of the {subject} has run out; send a heartbeat first."),
    "evicts_keys": (
        Incompatible,
        "The {subject} throws keys away when its memory is full ({detail}), and runs with them; set maxmemory-policy "
        "noeviction.",
    ),
    "intake_closed": (NotNow, "The {subject} is refused: the queue {detail} is drained and takes no new runs."),
    "too_many_queues": (
        NotNow,
        "The {subject} would be the first of its queue, and {detail} queues have runs, which is the most "
        "(AGENTQ_QUEUES_MAX); a queue is forgotten some time after its last run.",
    ),
    "too_many_sessions": (
        NotNow,
        "The {subject} is refused: there are {detail}, those closed in the last week among them, which is the most "
        "(AGENTQ_SESSIONS_MAX).",
    ),
    "too_many_schedules": (
        Refused,
        "The {subject} is refused: there are {detail}, which is the most (AGENTQ_SCHEDULES_MAX).",
    ),
    "too_many_for_token": (
        NotNow,
        "The {subject} is refused: this token has made {detail} that are still there, which is half of all that "
        "there may be (AGENTQ_QUEUES_MAX, AGENTQ_SESSIONS_MAX, AGENTQ_SCHEDULES_MAX), and so the most for one token.",
    ),
    "too_many_blueprints": (Invalid, "The {subject} takes no more: {detail} is the most."),
    "stale": (Stale, "The {subject} was changed meanwhile; look at it again."),
    "releasing_runs": (NotNow, "The {subject} still has runs of an earlier life to give back; call again."),
    "ended_recently": (
        NotNow,
        "The {subject} ended less than a minute ago; what its submit may yet ask for is kept so long.",
    ),
    "plan_not_ended": (WrongState, "The {subject} is a task of the plan {detail}, and is kept until that has ended."),
    "no_plan": (NotFound, "The {subject} is to be a task of the plan {detail}, which does not exist."),
    "closed_plan": (
        WrongState,
        "The {subject} is refused: the plan {detail} was stopped and takes no more tasks; `agentq plan retry` lets it "
        "go on.",
    ),
    "no_tasks": (WrongState, "The {subject} has no tasks yet, and stays open."),
    "plan_stopping": (
        NotNow,
        "The {subject} has to wait: the plan {detail} is being stopped; try again when its last task has ended.",
    ),
    "notifying_dependents": (
        NotNow,
        "The dependents of the {subject} are still being told how it ended; try again in a moment.",
    ),
}


def refusal_error(reply: str, subject: str) -> AgentqError | None:
    """The exception that a script's word stands for; None for one that is no refusal."""
    word, _, detail = reply.partition(" ")
    if word not in REFUSALS:
        return None
    kind, sentence = REFUSALS[word]
    return kind(sentence.format(subject=subject, detail=detail or "another one"))


def quote_input(value: object) -> str:
    """What was given, as far as it fits into a sentence."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
