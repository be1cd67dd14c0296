"""Runs, their attempts and outcomes, in public JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentq.coordinator.model.agent_options import AgentTurnOptions
from agentq.coordinator.model.durations import format_iso, parse_iso_ms
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.public_json import format_time

if TYPE_CHECKING:
    from agentq.coordinator.model.spec import AgentOutcome, AgentSpending, Outcome
    from agentq.coordinator.runs.run_record import AttemptRecord, RunListEntry, RunRecord
    from agentq.coordinator.runs.wait import SignalMessage


def run_json(run: RunRecord) -> dict[str, Any]:
    """A run. Its spec holds what differs from the defaults, and can be submitted again with `--from-jsonl`."""
    return {
        "id": run.id,
        "kind": run.spec.kind,
        "state": run.state.value,
        "reason": run.reason or None,
        "queue": run.spec.queue,
        "priority": run.spec.priority,
        "attempt": run.attempt,
        "worker": run.worker or None,
        "schedule": run.schedule or None,
        "made_by": run.made_by or None,
        "created_at": format_iso(run.submitted_at_ms),
        "due_at": format_time(run.due_at_ms),
        "claimed_at": format_time(run.claimed_at_ms),
        "started_at": format_time(run.started_at_ms),
        "finished_at": format_time(run.finished_at_ms),
        "waits_for": _wait_json(run),
        "agent": agent_json(run),
        "outcome": outcome_json(run.outcome),
        "attempts": [attempt_json(attempt) for attempt in run.attempts],
        "spec": {"kind": run.spec.kind, **run.spec.model_dump(mode="json", exclude_defaults=True)},
    }


def run_entry_json(run: RunListEntry) -> dict[str, Any]:
    """A run in a list."""
    return {
        "id": run.id,
        "state": run.state.value,
        "reason": run.reason or None,
        "queue": run.queue,
        "priority": run.priority,
        "demands": run.demands,
        "attempt": run.attempt,
        "worker": run.worker or None,
        "created_at": format_iso(run.submitted_at_ms),
    }


def read_run_entry(source: dict[str, Any]) -> RunListEntry:
    """A run in a list, from its JSON."""
    from agentq.coordinator.runs.run_record import RunListEntry

    names = ("id", "state", "queue", "priority", "attempt")
    return RunListEntry(
        **{name: source[name] for name in names},
        demands=source["demands"] or {},
        worker=source["worker"] or "",
        reason=source["reason"] or "",
        submitted_at_ms=parse_iso_ms(source["created_at"]),
    )


def read_signal(source: dict[str, Any]) -> SignalMessage:
    """A signal, from its JSON, which `SignalMessage.record` makes."""
    from agentq.coordinator.runs.wait import SignalMessage

    return SignalMessage(
        **{name: source[name] for name in ("id", "name", "data", "by")}, at_ms=parse_iso_ms(source["at"])
    )


def outcome_json(outcome: Outcome | None) -> dict[str, Any] | None:
    """How it ended."""
    if outcome is None:
        return None
    return {
        "class": outcome.class_.value,
        "exit_code": outcome.exit_code,
        "error": outcome.error,
        "result": outcome.result,
    }


def attempt_json(attempt: AttemptRecord) -> dict[str, Any]:
    """One try at it."""
    outcome = attempt.outcome
    return {
        "attempt": attempt.attempt,
        "worker": attempt.worker or None,
        "claimed_at": format_time(attempt.claimed_at_ms),
        "started_at": format_time(attempt.started_at_ms),
        "ended_at": format_time(attempt.ended_at_ms),
        "verb": attempt.verb,
        "outcome": None if outcome is None else outcome.model_dump(mode="json", by_alias=True),
    }


def agent_json(run: RunRecord) -> dict[str, Any] | None:
    """Its agent, and the conversation; None for what is no agent."""
    if run.spec.kind != "agent":
        return None
    word, turn = last_agent_outcome(run), run.spec.turn or AgentTurnOptions()
    return {
        "name": run.spec.agent,
        "model": run.model or turn.model,
        "account": run.account or turn.account,
        "session": run.spec.session,
        "agent_session": run.agent_session or (word and word.session),
        "host": run.host,
        "stays": run.is_host_pinned,
        "verdict": word and word.verdict,
        "denials": list(word.denials) if word is not None else [],
        "spent": None if run.spending is None else spending_json(run.spending),
    }


def last_agent_outcome(run: RunRecord) -> AgentOutcome | None:
    """The last that an attempt of it told."""
    words = (attempt.outcome.agent for attempt in reversed(run.attempts) if attempt.outcome is not None)
    return next((word for word in words if word is not None), None)


def spending_json(spent: AgentSpending) -> dict[str, Any]:
    """What an agent has spent."""
    return spent.model_dump(mode="json")


def _wait_json(run: RunRecord) -> dict[str, Any] | None:
    if run.state is not State.WAITING:
        return None
    record = run.wait.model_dump(mode="json", include={"signals", "approval", "children", "state"})
    return {**record, "until": format_time(run.wait.until_ms), "since": format_time(run.parked_at_ms)}
