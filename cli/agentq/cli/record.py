"""A run as the outside sees it: the JSON of `--json`, whose names never change, and short words for people."""

from __future__ import annotations

import json
import shlex
from typing import Any

from agentq.cli.turns import turn_record, word_of
from agentq.coordinator.life import Attempt, Run
from agentq.coordinator.lifecycle import OutcomeClass, State
from agentq.coordinator.moments import iso
from agentq.coordinator.run import Outcome, RunSpec

WHAT_CHARACTERS = 200


def run_record(run: Run) -> dict[str, Any]:
    """A run in JSON. Its spec holds what differs from the defaults, and can be submitted again with `--from-jsonl`."""
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
        "created_at": iso(run.submitted_at_ms),
        "due_at": _time(run.due_at_ms),
        "claimed_at": _time(run.claimed_at_ms),
        "started_at": _time(run.started_at_ms),
        "finished_at": _time(run.finished_at_ms),
        "waits_for": _wait_record(run),
        "agent": turn_record(run),
        "outcome": outcome_record(run.outcome),
        "attempts": [_attempt_record(attempt) for attempt in run.attempts],
        "spec": {"kind": run.spec.kind, **run.spec.model_dump(mode="json", exclude_defaults=True)},
    }


def outcome_record(outcome: Outcome | None) -> dict[str, Any] | None:
    if outcome is None:
        return None
    return {
        "class": outcome.class_.value,
        "exit_code": outcome.exit_code,
        "error": outcome.error,
        "result": outcome.result,
    }


def _wait_record(run: Run) -> dict[str, Any] | None:
    if run.wait is None or run.state is not State.WAITING:
        return None
    record = run.wait.model_dump(mode="json", include={"signals", "approval", "children", "state"})
    return {**record, "until": _time(run.wait.until_ms), "since": _time(run.parked_at_ms)}


def _attempt_record(attempt: Attempt) -> dict[str, Any]:
    outcome = attempt.outcome
    return {
        "attempt": attempt.attempt,
        "worker": attempt.worker or None,
        "claimed_at": _time(attempt.claimed_at_ms),
        "started_at": _time(attempt.started_at_ms),
        "ended_at": _time(attempt.ended_at_ms),
        "verb": attempt.verb,
        "outcome": None if outcome is None else outcome.model_dump(mode="json", by_alias=True),
    }


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else iso(at_ms)


def what(spec: RunSpec) -> str:
    """What a run is, in a few words: its name, or what it runs."""
    said = {
        "command": lambda: shlex.join(spec.argv),
        "function": lambda: f"{spec.function}({_arguments(spec)})",
        "agent": lambda: f"{spec.agent or 'agent'}: {first_words(spec.prompt or '')}",
        "actor": lambda: spec.name or "",
    }[spec.kind]()
    text = spec.name or said
    return text if len(text) <= WHAT_CHARACTERS else text[: WHAT_CHARACTERS - 1] + "…"


def first_words(prompt: str, most: int = WHAT_CHARACTERS) -> str:
    """The beginning of a prompt, on one line."""
    text = " ".join(prompt[: 4 * most].split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _arguments(spec: RunSpec) -> str:
    """What a function is called with, as far as there is room for it."""
    said: list[str] = []
    for name, value in [*(("", each) for each in spec.args), *((f"{key}=", each) for key, each in spec.kwargs.items())]:
        said.append(name + json.dumps(value, ensure_ascii=False))
        if sum(map(len, said)) > WHAT_CHARACTERS:
            break
    return ", ".join(said)


def ending(run: Run) -> str:
    """How a run ended, in a few words; nothing while it goes on."""
    outcome = run.outcome
    if outcome is None or run.finished_at_ms is None:
        return ""
    if outcome.class_.value == run.state.value:
        return ""  # it was cancelled, which its state says
    if (word := word_of(run)) is not None and run.attempts[-1].outcome == outcome:
        # Neither 0 nor 143 says how an agent ended; its verdict does.
        return "" if word.verdict == "ok" else word.verdict
    if outcome.exit_code is not None and outcome.class_ in (OutcomeClass.OK, OutcomeClass.EXIT):
        return f"exit {outcome.exit_code}"
    return "" if outcome.class_ is OutcomeClass.OK else outcome.class_.value
