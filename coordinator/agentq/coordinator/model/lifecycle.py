"""The lifecycle of a run, as data.

                         ┌────────── unblock ──────────┐   ┌── claim ──┐   ┌── start ──┐
    submit ──> blocked ──┤                             ├─> pending     claimed     running ──> completed
       │                 └─> scheduled ── promote ─────┘   ^  ^  │         │           │          failed
       └─────────────────────────────────────────────────┘  │  │         └─ release ─┤          cancelled
                              ^                              │  └───────── requeue ───┼─────── (terminal)
                              └───────── fail, defer ────────┼────────────────────────┤
                                                             └── wake ── waiting <─ park

This table is the only definition of the transitions. The guard inside every Lua script, the tables and the diagram
in the README and the conformance test are made from it. An event that ends a run is named like the state it ends in,
so that a client that waits for a run needs to know only the terminal states.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """The state of a run."""

    BLOCKED = "blocked"
    SCHEDULED = "scheduled"
    PENDING = "pending"
    CLAIMED = "claimed"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


STATE_MEANINGS = {
    State.BLOCKED: "waits for a run, a turn or a limit; `reason` says which",
    State.SCHEDULED: "waits for a time: a delay, a backoff, a deferral",
    State.PENDING: "in a lane, to be claimed",
    State.CLAIMED: "delivered to a worker, which has not started it",
    State.RUNNING: "its worker prepares, executes or merges it",
    State.WAITING: "gave its slot back and waits to be woken",
    State.COMPLETED: "ended: the work is in",
    State.FAILED: "ended: its retry budget is spent, or the failure is final",
    State.CANCELLED: "ended: cancelled on request",
    State.SKIPPED: "ended: something it depends on did not complete",
}

QUEUED_STATES = (State.BLOCKED, State.SCHEDULED, State.PENDING)
HELD_STATES = (State.CLAIMED, State.RUNNING)
TERMINAL_STATES = (State.COMPLETED, State.FAILED, State.CANCELLED, State.SKIPPED)
LIVE_STATES = tuple(state for state in State if state not in TERMINAL_STATES)


class TransitionActor(StrEnum):
    """Who may call a verb."""

    CLIENT = "any client that may submit"
    WORKER = "the worker that holds the attempt"
    DUTY = "a duty"
    SCRIPT = "a script, as part of another verb"


@dataclass(frozen=True, slots=True)
class Transition:
    """One transition. `sources` is empty for submit; `target` None means that the state stays."""

    verb: str
    sources: tuple[State, ...]
    target: State | None
    event: str
    who: TransitionActor
    note: str = ""

    def arrows(self) -> list[tuple[State | None, State]]:
        """Every (from, to) pair that this row stands for."""
        if not self.sources:
            assert self.target is not None
            return [(None, self.target)]
        return [(source, self.target or source) for source in self.sources]


def _build_transitions() -> tuple[Transition, ...]:
    s, t, who = State, Transition, TransitionActor
    held, queued, ended = HELD_STATES, QUEUED_STATES, TERMINAL_STATES
    stopped = "a stop was ordered: the run ends, whatever the worker reports"
    return (
        t("submit", (), s.PENDING, "submitted", who.CLIENT),
        t("submit", (), s.SCHEDULED, "submitted", who.CLIENT, "due later"),
        t("submit", (), s.BLOCKED, "submitted", who.CLIENT, "depends on a run that has not ended"),
        t("unblock", (s.BLOCKED,), s.PENDING, "unblocked", who.SCRIPT, "its last dependency or a limit lets it go"),
        t("unblock", (s.BLOCKED,), s.SCHEDULED, "unblocked", who.SCRIPT, "as above, but due later"),
        t("block", (s.PENDING,), s.BLOCKED, "blocked", who.SCRIPT, "a limit has no capacity for it"),
        t("promote", (s.SCHEDULED,), s.PENDING, "promoted", who.DUTY, "it is due"),
        t("promote", (s.WAITING,), s.PENDING, "woken", who.DUTY, "its alarm is due"),
        t("claim", (s.PENDING,), s.CLAIMED, "claimed", who.WORKER, "attempt + 1, a new fence"),
        t("start", (s.CLAIMED,), s.RUNNING, "started", who.WORKER),
        t("report", held, None, "progressed", who.WORKER, "numbered; an old number changes nothing"),
        t("finish", held, s.COMPLETED, "completed", who.WORKER),
        t("fail", held, s.FAILED, "failed", who.WORKER, "the budget of its class is spent, or the class is final"),
        t("fail", held, s.SCHEDULED, "retried", who.WORKER, "after a backoff"),
        t("fail", held, s.CANCELLED, "cancelled", who.WORKER, stopped),
        t("defer", held, s.SCHEDULED, "deferred", who.WORKER, "a usage limit; spends no attempt"),
        t("defer", held, s.FAILED, "failed", who.WORKER, "deferred too often"),
        t("defer", held, s.CANCELLED, "cancelled", who.WORKER, stopped),
        t("release", held, s.PENDING, "released", who.WORKER, "a draining worker hands back; spends no attempt"),
        t("release", held, s.CANCELLED, "cancelled", who.WORKER, stopped),
        t("park", held, s.WAITING, "parked", who.WORKER, "gives its slot back"),
        t("park", held, s.PENDING, "woken", who.WORKER, "what it waits for is there already"),
        t("park", held, s.CANCELLED, "cancelled", who.WORKER, stopped),
        t("signal", (*queued, *held, s.WAITING), None, "signalled", who.CLIENT, "kept until an attempt receives it"),
        t("signal", (s.WAITING,), s.PENDING, "woken", who.CLIENT, "it waited for that"),
        t("wake", (s.WAITING,), s.PENDING, "woken", who.CLIENT, "or a script: its children have ended"),
        t("wake", held, None, "wake_requested", who.CLIENT, "the next park does not sleep"),
        t("cancel", (*queued, s.WAITING), s.CANCELLED, "cancelled", who.CLIENT),
        t("cancel", held, None, "stop_ordered", who.CLIENT, "cancelled when the worker confirms"),
        t("lose", held, s.PENDING, "lost", who.DUTY, "the first time; spends the crash budget"),
        t("lose", held, s.SCHEDULED, "lost", who.DUTY, "from the second time on, after a backoff"),
        t("lose", held, s.FAILED, "failed", who.DUTY, "the crash budget is spent"),
        t("lose", held, s.CANCELLED, "cancelled", who.DUTY, stopped),
        t("expire", queued, s.FAILED, "failed", who.DUTY, "not started in time"),
        t("expire", held, s.CANCELLED, "cancelled", who.DUTY, "a stop that its worker did not confirm in time"),
        t("skip", (s.BLOCKED,), s.SKIPPED, "skipped", who.SCRIPT, "a dependency did not complete"),
        t("skip", (s.BLOCKED,), s.FAILED, "failed", who.SCRIPT, "as above, where the spec says `fail`"),
        t("transfer", queued, None, "moved", who.CLIENT, "to another queue"),
        t("requeue", ended, s.PENDING, "requeued", who.CLIENT, "by an operator, with fresh budgets"),
        t(
            "requeue",
            ended,
            s.BLOCKED,
            "requeued",
            who.CLIENT,
            "as above, of a turn behind others, or a task with live dependencies",
        ),
    )


TRANSITIONS = _build_transitions()
VERBS = tuple(dict.fromkeys(row.verb for row in TRANSITIONS))


def source_states(verb: str) -> frozenset[State]:
    """The states from which a verb is legal."""
    return frozenset(source for row in TRANSITIONS if row.verb == verb for source in row.sources)


def find_transition(verb: str, source: State | None, target: State) -> Transition | None:
    """The row that lets a verb take a run from one state to another, if there is one."""
    return next((row for row in TRANSITIONS if row.verb == verb and (source, target) in row.arrows()), None)


class OutcomeClass(StrEnum):
    """Why an attempt ended."""

    OK = "ok"
    EXIT = "exit"
    SIGNAL = "signal"
    OOM = "oom"
    TIMEOUT = "timeout"
    SILENCE = "silence"
    STARTUP = "startup"
    LINGER = "linger"
    SPAWN = "spawn"
    LOST = "lost"
    LIMIT = "limit"
    AUTH = "auth"
    BUDGET = "budget"
    CONFLICT = "conflict"
    CHECK = "check"
    NO_OUTPUT = "no_output"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    INTERNAL = "internal"


COMPLETING_CLASSES = (OutcomeClass.OK, OutcomeClass.LINGER)
"""Classes of completed attempts. `linger`: the agent had reported its result, and then did not exit."""


class RetryBudget(StrEnum):
    """The budgets that pay for retries. A class without a budget is final."""

    FAILURES = "failures"
    CRASHES = "crashes"
    DEFERRALS = "deferrals"


CLASS_BUDGETS = {
    OutcomeClass.EXIT: RetryBudget.FAILURES,
    OutcomeClass.SIGNAL: RetryBudget.FAILURES,
    OutcomeClass.OOM: RetryBudget.FAILURES,
    OutcomeClass.TIMEOUT: RetryBudget.FAILURES,
    OutcomeClass.SILENCE: RetryBudget.FAILURES,
    OutcomeClass.STARTUP: RetryBudget.FAILURES,
    OutcomeClass.CONFLICT: RetryBudget.FAILURES,
    OutcomeClass.CHECK: RetryBudget.FAILURES,
    OutcomeClass.NO_OUTPUT: RetryBudget.FAILURES,
    OutcomeClass.SPAWN: RetryBudget.CRASHES,
    OutcomeClass.LOST: RetryBudget.CRASHES,
    OutcomeClass.INTERNAL: RetryBudget.CRASHES,
    OutcomeClass.LIMIT: RetryBudget.DEFERRALS,
}
