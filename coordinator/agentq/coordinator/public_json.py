"""What there is, in the JSON that the outside sees: by `--json`, and over HTTP. The names in it never change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.model.agent_options import AgentTurnOptions
from agentq.coordinator.model.durations import format_iso
from agentq.coordinator.model.lifecycle import State

if TYPE_CHECKING:
    # A command that shows one of these need not load the others.
    from agentq.coordinator.events.stream import Event
    from agentq.coordinator.model.spec import AgentOutcome, AgentSpending, Outcome
    from agentq.coordinator.plans.verbs import PlanRecord, TaskRecord
    from agentq.coordinator.queues.limits import LimitRecord
    from agentq.coordinator.queues.stats import QueuePause, QueueStats
    from agentq.coordinator.runs.logs import RunLogEntry
    from agentq.coordinator.runs.queries import RunQueries, WorkerRecord
    from agentq.coordinator.runs.run_record import AttemptRecord, RunListEntry, RunRecord
    from agentq.coordinator.schedules.verbs import ScheduleHistoryEntry, ScheduleRecord
    from agentq.coordinator.security.tokens import TokenRecord
    from agentq.coordinator.sessions.verbs import SessionRecord


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
        "due_at": _format_time(run.due_at_ms),
        "claimed_at": _format_time(run.claimed_at_ms),
        "started_at": _format_time(run.started_at_ms),
        "finished_at": _format_time(run.finished_at_ms),
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


def plan_json(plan: PlanRecord) -> dict[str, Any]:
    """A plan. `counts` has how many of its tasks are in each state in which there are any."""
    return {
        "id": plan.id,
        "name": plan.name,
        "state": plan.state,
        "on_failed": plan.on_failed,
        "tasks": plan.tasks,
        "expected": plan.expected,
        "counts": {state.value: count for state, count in plan.counts.items()},
        "stopped_why": plan.stopped_why or None,
        "made_by": plan.made_by or None,
        "created_at": format_iso(plan.created_at_ms),
        "ended_at": _format_time(plan.ended_at_ms),
    }


def task_json(task: TaskRecord) -> dict[str, Any]:
    """A task of a plan."""
    return {
        "id": task.id,
        "run": task.run,
        "agent": task.agent,
        "state": task.state.value,
        "reason": task.reason or None,
        "attempt": task.attempt,
        "worker": task.worker or None,
        "claimed_at": _format_time(task.claimed_at_ms),
        "started_at": _format_time(task.started_at_ms),
        "finished_at": _format_time(task.finished_at_ms),
        "class": task.class_.value if task.class_ else None,
        "cost_usd": task.spending.cost_usd if task.spending else None,
    }


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


def _wait_json(run: RunRecord) -> dict[str, Any] | None:
    if run.state is not State.WAITING:
        return None
    record = run.wait.model_dump(mode="json", include={"signals", "approval", "children", "state"})
    return {**record, "until": _format_time(run.wait.until_ms), "since": _format_time(run.parked_at_ms)}


def attempt_json(attempt: AttemptRecord) -> dict[str, Any]:
    """One try at it."""
    outcome = attempt.outcome
    return {
        "attempt": attempt.attempt,
        "worker": attempt.worker or None,
        "claimed_at": _format_time(attempt.claimed_at_ms),
        "started_at": _format_time(attempt.started_at_ms),
        "ended_at": _format_time(attempt.ended_at_ms),
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
        "stays": run.tied,
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


def session_json(session: SessionRecord) -> dict[str, Any]:
    """A session."""
    return {
        "name": session.name,
        "agent": session.agent,
        "state": session.state,
        "live": session.live,
        "turns_in_line": session.turns,
        "last": session.last,
        "model": session.model,
        "cwd": session.cwd,
        "account": session.account,
        "host": session.host,
        "stays": session.stays,
        "agent_session": session.agent_session,
        "forked_from": session.forked_from,
        "made_by": session.made_by or None,
        "budgets": None if session.budgets is None else session.budgets.model_dump(mode="json"),
        "spent": spending_json(session.spent),
        "created_at": format_iso(session.created_at_ms),
        "used_at": format_iso(session.used_at_ms),
        "closed_at": None if session.closed_at_ms is None else format_iso(session.closed_at_ms),
    }


def queue_json(record: QueueStats) -> dict[str, Any]:
    """A queue."""
    return {
        "queue": record.queue,
        **{state.value: record.counts.get(state, 0) for state in State},
        "oldest_at": None if record.oldest_ms is None else format_iso(record.oldest_ms),
        "submitted_a_minute": round(record.submitted_a_minute, 1),
        "ended_a_minute": round(record.ended_a_minute, 1),
        "paused": _pause_json(record.paused),
        "drained": _pause_json(record.drained),
    }


def _pause_json(pause: QueuePause | None) -> dict[str, str] | None:
    return None if pause is None else {"at": format_iso(pause.at_ms), "why": pause.why}


def limit_json(found: LimitRecord) -> dict[str, Any]:
    """A limit."""
    return {
        "key": found.key,
        "max": found.max,
        "rate": None if found.rate is None else found.rate.model_dump(),
        "when_full": found.when_full.value,
        "shut_until": None if found.shut_until_ms is None else format_iso(found.shut_until_ms),
        "shut_why": found.shut_why or None,
        "held": found.held,
        "waiting": found.waiting,
    }


def schedule_json(found: ScheduleRecord) -> dict[str, Any]:
    """A schedule."""
    rule, spec = found.rule, found.spec
    return {
        "name": found.name,
        "state": found.state.value,
        "why": found.why or None,
        "cron": rule and rule.cron,
        "tz": rule.tz if rule is not None and rule.cron is not None else None,
        "every_ms": rule and rule.every_ms,
        "at": _format_time(rule.at_ms if rule else None),
        "until": _format_time(rule.until_ms if rule else None),
        "jitter_ms": rule and rule.jitter_ms,
        "missed": rule and rule.missed,
        "catch_up_ms": rule and rule.catch_up_ms,
        "overlap": found.overlap,
        "next_at": _format_time(found.next_at_ms),
        "last_at": _format_time(found.last_at_ms),
        "made_by": found.made_by or None,
        "created_at": _format_time(found.created_at_ms),
        "paused_at": _format_time(found.paused_at_ms),
        "ended_at": _format_time(found.ended_at_ms),
        "live": found.live,
        "spec": spec and {"kind": spec.kind, **spec.model_dump(mode="json", exclude_defaults=True)},
    }


def schedule_history_json(each: ScheduleHistoryEntry) -> dict[str, Any]:
    """What became of a tick of a schedule."""
    return {
        "what": each.what,
        "tick_at": _format_time(each.tick_ms),
        "before": _format_time(each.before_ms),
        "at": format_iso(each.at_ms),
        "run": each.run,
        "why": each.why,
    }


def worker_json(records: list[WorkerRecord]) -> dict[str, Any]:
    """A worker, as all partitions that it serves know it."""
    described = records[0].identity
    return {
        "id": records[0].id,
        "state": worker_state(records),
        "slots": described.slots,
        "queues": list(described.queues),
        "labels": described.labels,
        "only_matching": described.only_matching,
        "about": described.about,
        "seen_at": format_iso(min(record.seen_at_ms for record in records)),
        "lease_until": None if records[0].ended_at_ms else format_iso(min(record.lease_until_ms for record in records)),
        "runs": [run for record in records for run in sorted(record.runs)],
        "registered_at": _format_time(min((record.registered_at_ms or 0 for record in records), default=0) or None),
        "runs_ended": sum(record.runs_ended for record in records),
        "ended_at": _format_time(records[0].ended_at_ms),
        "ended_why": records[0].ended_why or None,
    }


def worker_state(records: list[WorkerRecord]) -> str:
    """One that is silent in any partition is silent; one that is registered in none has left, or was lost."""
    if records[0].ended_at_ms is not None:
        return "lost" if any(record.state == "lost" for record in records) else "left"
    if any(record.silent_ms(wall_ms()) for record in records):
        return "silent"
    return "draining" if any(record.state == "draining" for record in records) else records[0].state


def describe_silence(records: list[WorkerRecord], now_ms: int, grace_ms: int) -> str:
    """How long a worker has not been heard in the worst partition, and when it is declared lost; empty if it is."""
    silent = max(records, key=lambda record: record.silent_ms(now_ms))
    return silent.silence(now_ms, grace_ms)


def group_workers(workers: list[WorkerRecord]) -> dict[str, list[WorkerRecord]]:
    """Workers by id; one that serves several partitions has a record in each."""
    found: dict[str, list[WorkerRecord]] = {}
    for record in workers:
        found.setdefault(record.id, []).append(record)
    return dict(sorted(found.items()))


def list_recent_workers(records: RunQueries) -> dict[str, list[WorkerRecord]]:
    """Workers by id, also those that left or were lost within the last hour, and are registered no more."""
    registered = group_workers(records.workers())
    return dict(sorted((group_workers(records.workers(departed=True)) | registered).items()))


def token_json(token: TokenRecord) -> dict[str, Any]:
    """A token of the server, which nobody can be told again."""
    return {
        "id": token.id,
        "name": token.name,
        "kind": token.kind,
        "scopes": [scope.value for scope in token.scopes],
        "queues": list(token.queues),
        "rate": token.rate and token.rate._asdict(),
        "made_by": token.made_by or None,
        "created_at": format_iso(token.created_at_ms),
        "expires_at": _format_time(token.expires_at_ms),
        "used_at": _format_time(token.used_at_ms),
    }


def event_json(event: Event) -> dict[str, Any]:
    """An event."""
    record = event.model_dump(mode="json") | {"at": format_iso(event.at_ms), "worker": event.worker or None}
    return {name: record[name] for name in ("id", "at", *type(event).model_fields) if name in record}


def log_position_json(entry: RunLogEntry) -> dict[str, Any]:
    """Where a piece of a log stands; what it holds comes beside it."""
    return {"id": entry.id, "at": format_iso(entry.at_ms), "attempt": entry.attempt, "stream": entry.stream}


def log_json(entry: RunLogEntry) -> dict[str, Any]:
    """A piece of a log."""
    return log_position_json(entry) | {"text": entry.text, "from_byte": entry.from_byte}


def _format_time(at_ms: int | None) -> str | None:
    return None if at_ms is None else format_iso(at_ms)
