"""The one place where what an agent told (`Facts`) and how its process ended (`End`) become a verdict.

No one of them is true alone: a program may report an error and exit with 0, be killed after its last word, or exit with
1 and have said why.
"""

from __future__ import annotations

import signal as signals
from dataclasses import dataclass
from typing import Literal

from agentq.worker.agents.reading import Facts
from agentq.worker.agents.resets import is_limit, reset_of
from agentq.worker.agents.verdicts import CONSEQUENCES, Verdict, VerdictKind

Why = Literal["startup", "silence", "timeout", "linger", "budget", "no_price", "refused", "sleep", "cancelled"]

FAR_MS = 40 * 86_400_000
"""No limit lasts longer than a month; a reset beyond that was misread, or is a mistake of the service's."""
_MINUTE_MS = 60_000
"""Words name the minute in which a limit ends, and it may be in the last second of it."""

_k = VerdictKind
_GOOD = (_k.OK, _k.OK_WITH_DENIALS, _k.LINGERED, _k.SLEEPS)
_FORCED: dict[str, VerdictKind] = {
    "startup": _k.STARTUP,
    "silence": _k.SILENCE,
    "timeout": _k.TIMEOUT,
    "linger": _k.NO_RESULT,
    "budget": _k.BUDGET,
    "no_price": _k.NO_PRICE,
    "refused": _k.THROTTLED,
    "sleep": _k.NO_RESULT,
    "cancelled": _k.INTERRUPTED,
}
_EXPLAINED_BY_THE_AGENT = ("startup", "silence", "timeout", "linger", "refused")
"""Ends of which the agent may have told the reason before: it was refused, and went on asking."""


@dataclass(frozen=True, slots=True)
class End:
    """How an agent's process ended."""

    exit_code: int | None = None
    signal: int | None = None
    why: Why | None = None
    """What we ended it for; None where it ended by itself, or by somebody else."""
    changed: bool | None = None
    """Whether there are changes in its folder; None where nobody asked for any."""
    declared: bool = False
    """It has declared that no changes are needed."""
    now_ms: int = 0
    zone: str = ""
    """Of the agent, for times of the day that it names without one; empty is that of this machine."""


def judged(facts: Facts, end: End) -> Verdict:
    kind, reset_at_ms = _with_limits(_kind(facts, end), facts, end)
    return Verdict(kind, "" if kind in _GOOD else _error(kind, facts, end), reset_at_ms)


def _kind(facts: Facts, end: End) -> VerdictKind:
    if end.why == "cancelled":
        return _k.INTERRUPTED
    if end.why == "sleep" and facts.sleep is not None:
        return _k.SLEEPS
    if facts.concluded:
        return _concluded(facts, end) if facts.ok else _failed(facts, end)
    if end.why is not None:
        known = facts.kind if end.why in _EXPLAINED_BY_THE_AGENT else None
        return known or _FORCED[end.why]
    return _unsaid(facts, end)


def _concluded(facts: Facts, end: End) -> VerdictKind:
    """It said that all is well. What killed it after that has cut off nothing but its idling."""
    ended_by_force = end.why is not None or _signal(end) is not None
    if not ended_by_force and end.exit_code not in (0, None):
        return facts.exits.get(end.exit_code, _k.AGENT_ERROR)
    return _good(facts, end, _k.LINGERED if ended_by_force else _k.OK)


def _failed(facts: Facts, end: End) -> VerdictKind:
    """It said that it failed: its flags say why, or its exit code."""
    return facts.kind or facts.exits.get(end.exit_code or 0, _k.AGENT_ERROR)


def _good(facts: Facts, end: End, kind: VerdictKind) -> VerdictKind:
    if facts.sleep is not None:
        return _k.SLEEPS
    if facts.kind is not None:  # it declined, or did no more than to plan
        return facts.kind
    if end.changed is False and not end.declared:
        return _k.NO_CHANGES
    return _k.OK_WITH_DENIALS if facts.denials and kind is _k.OK else kind


def _unsaid(facts: Facts, end: End) -> VerdictKind:
    """It ended without its last word."""
    if end.exit_code is not None and end.exit_code in facts.exits:
        told = facts.exits[end.exit_code]
        return _good(facts, end, told) if told is _k.OK else facts.kind or told
    if (signal := _signal(end)) is not None:
        return _k.INTERRUPTED if signal == signals.SIGINT else _k.KILLED
    if facts.kind is not None:
        return facts.kind
    return _k.NO_RESULT if end.exit_code in (0, None) else _k.AGENT_ERROR


def _signal(end: End) -> int | None:
    """What killed it; programs that catch a signal often say so by an exit code of 128 and its number."""
    if end.signal:
        return end.signal
    return {128 + each: each.value for each in _DEADLY}.get(end.exit_code or 0)


_DEADLY = (signals.SIGHUP, signals.SIGINT, signals.SIGKILL, signals.SIGTERM)


def _with_limits(kind: VerdictKind, facts: Facts, end: End) -> tuple[VerdictKind, int | None]:
    """A limit of the account has an end that lies ahead, or names none; everything else is a throttle, for which one
    waits as the service asks, or as the run's policy says. A credit that comes back by itself is a limit.
    """
    if kind not in (_k.THROTTLED, _k.LIMITED, _k.CREDIT):
        return kind, None
    told = facts.reset_at_ms or reset_of(facts.error, end.now_ms, end.zone)
    if told is None and kind is not _k.THROTTLED:
        return kind, None
    if told is None or not end.now_ms < told < end.now_ms + FAR_MS:
        return _k.THROTTLED, None
    if kind is _k.THROTTLED and not is_limit(facts.error):
        return _k.THROTTLED, told
    return _k.LIMITED, told if facts.reset_at_ms else told + _MINUTE_MS


def _error(kind: VerdictKind, facts: Facts, end: End) -> str:
    """One sentence: the agent's own words, if it has any for this, else what the verdict means."""
    forced = end.why not in (None, "refused") and kind is _FORCED[end.why]
    if facts.error and not forced and kind not in (_k.NO_CHANGES, _k.KILLED):
        return facts.error
    means = CONSEQUENCES[kind].means
    if kind in (_k.AGENT_ERROR, _k.NO_RESULT, _k.KILLED):
        how = f"signal {end.signal}" if end.signal else f"exit code {end.exit_code}"
        means = f"{means} ({how})"
    return means
