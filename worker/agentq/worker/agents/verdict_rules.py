"""Turns what an agent reported (`AgentFacts`) and how its process ended (`AgentEnd`) into a verdict.

Neither is reliable alone: a program may report an error and exit with 0, be killed after its result, or exit with 1
after explaining it.
"""

from __future__ import annotations

import signal as signals
from dataclasses import dataclass
from typing import Literal

from agentq.worker.agents.accounts.limit_resets import is_limit_error, parse_reset
from agentq.worker.agents.reader import AgentFacts
from agentq.worker.agents.verdicts import CONSEQUENCES, Verdict, VerdictKind

EndReason = Literal["startup", "silence", "timeout", "linger", "budget", "no_price", "refused", "sleep", "cancelled"]

RESET_MS_MAX = 40 * 86_400_000
"""No limit lasts longer than a month; a later reset was misread, or is the service's mistake."""
_MINUTE_MS = 60_000
"""A text names the minute in which a limit ends, and it may end in its last second."""

_Kind = VerdictKind
_GOOD_KINDS = (_Kind.OK, _Kind.OK_WITH_DENIALS, _Kind.LINGERED, _Kind.SLEEPS)
_KIND_OF_REASON: dict[str, VerdictKind] = {
    "startup": _Kind.STARTUP,
    "silence": _Kind.SILENCE,
    "timeout": _Kind.TIMEOUT,
    "linger": _Kind.NO_RESULT,
    "budget": _Kind.BUDGET,
    "no_price": _Kind.NO_PRICE,
    "refused": _Kind.THROTTLED,
    "sleep": _Kind.NO_RESULT,
    "cancelled": _Kind.INTERRUPTED,
}
_REASONS_AGENT_EXPLAINS = ("startup", "silence", "timeout", "linger", "refused")
"""Ends whose reason the agent may have reported before: it was refused, and kept retrying."""


@dataclass(frozen=True, slots=True)
class AgentEnd:
    """How an agent's process ended."""

    exit_code: int | None = None
    signal: int | None = None
    why: EndReason | None = None
    """Why agentq ended it; None if it ended otherwise."""
    changed: bool | None = None
    """Whether its folder changed; None if not requested."""
    declared: bool = False
    """Whether it declared that no changes are needed."""
    now_ms: int = 0
    zone: str = ""
    """The agent's time zone, for times without one; empty for that of this machine."""


def judge_end(facts: AgentFacts, end: AgentEnd) -> Verdict:
    kind, reset_at_ms = _apply_limits(_decide_kind(facts, end), facts, end)
    return Verdict(kind, "" if kind in _GOOD_KINDS else _format_error(kind, facts, end), reset_at_ms)


def _decide_kind(facts: AgentFacts, end: AgentEnd) -> VerdictKind:
    if end.why == "cancelled":
        return _Kind.INTERRUPTED
    if end.why == "sleep" and facts.sleep is not None:
        return _Kind.SLEEPS
    if facts.concluded:
        return _judge_success(facts, end) if facts.ok else _judge_failure(facts, end)
    if end.why is not None:
        known = facts.kind if end.why in _REASONS_AGENT_EXPLAINS else None
        return known or _KIND_OF_REASON[end.why]
    return _judge_without_result(facts, end)


def _judge_success(facts: AgentFacts, end: AgentEnd) -> VerdictKind:
    """It reported success. A kill after that only cut off its idling."""
    ended_by_force = end.why is not None or _find_ending_signal(end) is not None
    if not ended_by_force and end.exit_code not in (0, None):
        return facts.exits.get(end.exit_code, _Kind.AGENT_ERROR)
    return _confirm_success(facts, end, _Kind.LINGERED if ended_by_force else _Kind.OK)


def _judge_failure(facts: AgentFacts, end: AgentEnd) -> VerdictKind:
    """It reported failure: its flags say why, or its exit code."""
    return facts.kind or facts.exits.get(end.exit_code or 0, _Kind.AGENT_ERROR)


def _confirm_success(facts: AgentFacts, end: AgentEnd, kind: VerdictKind) -> VerdictKind:
    if facts.sleep is not None:
        return _Kind.SLEEPS
    if facts.kind is not None:  # it declined, or did no more than to plan
        return facts.kind
    if end.changed is False and not end.declared:
        return _Kind.NO_CHANGES
    return _Kind.OK_WITH_DENIALS if facts.denials and kind is _Kind.OK else kind


def _judge_without_result(facts: AgentFacts, end: AgentEnd) -> VerdictKind:
    """It ended without a result."""
    if end.exit_code is not None and end.exit_code in facts.exits:
        kind = facts.exits[end.exit_code]
        return _confirm_success(facts, end, kind) if kind is _Kind.OK else facts.kind or kind
    if (signal := _find_ending_signal(end)) is not None:
        return _Kind.INTERRUPTED if signal == signals.SIGINT else _Kind.KILLED
    if facts.kind is not None:
        return facts.kind
    return _Kind.NO_RESULT if end.exit_code in (0, None) else _Kind.AGENT_ERROR


def _find_ending_signal(end: AgentEnd) -> int | None:
    """The signal that killed it; programs that catch it often exit with 128 plus its number."""
    if end.signal:
        return end.signal
    return {128 + each: each.value for each in _ENDING_SIGNALS}.get(end.exit_code or 0)


_ENDING_SIGNALS = (signals.SIGHUP, signals.SIGINT, signals.SIGKILL, signals.SIGTERM)


def _apply_limits(kind: VerdictKind, facts: AgentFacts, end: AgentEnd) -> tuple[VerdictKind, int | None]:
    """A limit of the account ends in the future or at an unknown time; any other is a throttle, after which the run
    waits as the service asks, or as its policy says. A credit that refills by itself is a limit.
    """
    if kind not in (_Kind.THROTTLED, _Kind.LIMITED, _Kind.CREDIT):
        return kind, None
    reset_at_ms = facts.reset_at_ms or parse_reset(facts.error, end.now_ms, end.zone)
    if reset_at_ms is None and kind is not _Kind.THROTTLED:
        return kind, None
    if reset_at_ms is None or not end.now_ms < reset_at_ms < end.now_ms + RESET_MS_MAX:
        return _Kind.THROTTLED, None
    if kind is _Kind.THROTTLED and not is_limit_error(facts.error):
        return _Kind.THROTTLED, reset_at_ms
    return _Kind.LIMITED, reset_at_ms if facts.reset_at_ms else reset_at_ms + _MINUTE_MS


def _format_error(kind: VerdictKind, facts: AgentFacts, end: AgentEnd) -> str:
    """One sentence: the agent's own, if it has one, else the meaning of the verdict."""
    forced = end.why not in (None, "refused") and kind is _KIND_OF_REASON[end.why]
    if facts.error and not forced and kind not in (_Kind.NO_CHANGES, _Kind.KILLED):
        return facts.error
    means = CONSEQUENCES[kind].means
    if kind in (_Kind.AGENT_ERROR, _Kind.NO_RESULT, _Kind.KILLED):
        how = f"signal {end.signal}" if end.signal else f"exit code {end.exit_code}"
        means = f"{means} ({how})"
    return means
