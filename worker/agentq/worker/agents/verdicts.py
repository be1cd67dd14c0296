"""How an agent's attempt ended, as one of a few verdicts, and what each does to the run, to its conversation and to its
account.

This table is the only source; the README's table is generated from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from agentq.coordinator.model.lifecycle import OutcomeClass


class VerdictKind(StrEnum):
    """The verdicts."""

    OK = "ok"
    OK_WITH_DENIALS = "ok_with_denials"
    LINGERED = "lingered"
    SLEEPS = "sleeps"
    AGENT_ERROR = "agent_error"
    NO_CHANGES = "no_changes"
    PLAN_ONLY = "plan_only"
    MAX_TURNS = "max_turns"
    BUDGET = "budget"
    NO_PRICE = "no_price"
    CONTEXT = "context_too_long"
    REFUSED = "refused"
    THROTTLED = "throttled"
    LIMITED = "limited"
    AUTH = "auth"
    CREDIT = "credit"
    INPUT = "input"
    INTERRUPTED = "interrupted"
    KILLED = "killed"
    NO_RESULT = "no_result"
    NO_SESSION = "no_session"
    STARTUP = "startup"
    SILENCE = "silence"
    TIMEOUT = "timeout"


RunConsequence = Literal["finish", "park", "fail", "back off", "defer"]
ConversationConsequence = Literal["goes on", "begins anew"]
GateConsequence = Literal["", "until the reset, else for 10 minutes", "for 10 minutes"]


@dataclass(frozen=True, slots=True)
class VerdictConsequence:
    """The consequences of a verdict."""

    class_: OutcomeClass
    run: RunConsequence
    """`fail` spends an attempt of the class's budget; `back off` and `defer` spend none: the first waits as the run's
    policy or the service says, the second until the reported reset.
    """
    conversation: ConversationConsequence
    """What the next attempt does with the conversation."""
    gate: GateConsequence
    """How long the account refuses requests."""
    means: str


_Class = OutcomeClass
CONSEQUENCES: dict[VerdictKind, VerdictConsequence] = {
    VerdictKind.OK: VerdictConsequence(_Class.OK, "finish", "goes on", "", "it said that it is done"),
    VerdictKind.OK_WITH_DENIALS: VerdictConsequence(
        _Class.OK, "finish", "goes on", "", "the same, and some tools were not allowed; shown as a warning"
    ),
    VerdictKind.LINGERED: VerdictConsequence(
        _Class.LINGER, "finish", "goes on", "", "it said that it is done, did not end, and was ended"
    ),
    VerdictKind.SLEEPS: VerdictConsequence(_Class.OK, "park", "goes on", "", "it asked to be woken later"),
    VerdictKind.AGENT_ERROR: VerdictConsequence(_Class.EXIT, "fail", "goes on", "", "it says that it failed"),
    VerdictKind.NO_CHANGES: VerdictConsequence(
        _Class.NO_OUTPUT, "fail", "goes on", "", "changes were asked for, there are none, and it did not declare that"
    ),
    VerdictKind.PLAN_ONLY: VerdictConsequence(_Class.NO_OUTPUT, "fail", "goes on", "",
        "it ended with a plan, and did nothing"),
    VerdictKind.MAX_TURNS: VerdictConsequence(_Class.BUDGET, "fail", "goes on", "", "it used all its turns"),
    VerdictKind.BUDGET: VerdictConsequence(_Class.BUDGET, "fail", "goes on", "", "it used all its money or tokens"),
    VerdictKind.NO_PRICE: VerdictConsequence(
        _Class.REJECTED, "fail", "goes on", "", "its cost is capped, and nobody knows what its model costs"
    ),
    VerdictKind.CONTEXT: VerdictConsequence(_Class.REJECTED, "fail", "begins anew", "",
        "the conversation is too long for it"),
    VerdictKind.REFUSED: VerdictConsequence(_Class.REJECTED, "fail", "goes on", "", "the model declined to do it"),
    VerdictKind.THROTTLED: VerdictConsequence(
        _Class.LIMIT, "back off", "goes on", "", "its service is overloaded, or asks to slow down"
    ),
    VerdictKind.LIMITED: VerdictConsequence(
        _Class.LIMIT, "defer", "goes on", "until the reset, else for 10 minutes", "the account is at its limit"
    ),
    VerdictKind.AUTH: VerdictConsequence(_Class.AUTH, "fail", "goes on", "for 10 minutes",
        "nobody is logged in, or a wrong key"),
    VerdictKind.CREDIT: VerdictConsequence(_Class.AUTH, "fail", "goes on", "for 10 minutes",
        "the account has no money left"),
    VerdictKind.INPUT: VerdictConsequence(_Class.REJECTED, "fail", "goes on", "", "it did not take what it was given"),
    VerdictKind.INTERRUPTED: VerdictConsequence(_Class.SIGNAL, "fail", "goes on", "", "somebody interrupted it"),
    VerdictKind.KILLED: VerdictConsequence(_Class.SIGNAL, "fail", "goes on", "", "somebody killed it"),
    VerdictKind.NO_RESULT: VerdictConsequence(_Class.EXIT, "fail", "goes on", "", "it ended without its last word"),
    VerdictKind.NO_SESSION: VerdictConsequence(
        _Class.EXIT, "fail", "begins anew", "", "it does not know the conversation that it was to go on with"
    ),
    VerdictKind.STARTUP: VerdictConsequence(_Class.STARTUP, "fail", "goes on", "",
        "it was started, said nothing, and was ended"),
    VerdictKind.SILENCE: VerdictConsequence(_Class.SILENCE, "fail", "goes on", "", "it fell silent, and was ended"),
    VerdictKind.TIMEOUT: VerdictConsequence(_Class.TIMEOUT, "fail", "goes on", "",
        "it ran longer than it may, and was ended"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one attempt ended."""

    kind: VerdictKind
    error: str = ""
    """One sentence; empty where all is well."""
    reset_at_ms: int | None = None

    @property
    def consequence(self) -> VerdictConsequence:
        return CONSEQUENCES[self.kind]
