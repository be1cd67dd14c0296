"""Translates runs into the fields of the dialects: the union of all, so that each client finds its own fields.

    pending    blocked, scheduled, pending        claimed    claimed
    running    running, waiting                   stopping   claimed or running, with a stop ordered
    completed  completed                          failed     failed, skipped
    stopped    cancelled

Values of a request that a spec has no field for are stored in the spec's notes under `dialect`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from agentq.coordinator.bounds import LIST_PER_CALL, RESPONSE_BYTES
from agentq.coordinator.errors import Damaged, NotFound
from agentq.coordinator.model.durations import to_utc
from agentq.coordinator.model.field_types import Name
from agentq.coordinator.model.lifecycle import HELD_STATES, OutcomeClass, State
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.public_json.runs import run_entry_json
from agentq.coordinator.runs.queries import RunFilter, RunQueries
from agentq.coordinator.runs.run_record import RunListEntry, RunRecord
from agentq.coordinator.security.secret_fields import redact_value
from agentq.dialects.agent_orchestrator import dialect_table
from agentq.dialects.agent_orchestrator.dialect_table import WHOLE_LIST_MAX
from agentq.dialects.agent_orchestrator.runners.registration import AUTONOMOUS, TYPE_LABEL

NOTES_KEY = "dialect"
START_SESSION, RESUME_SESSION = "start_session", "resume_session"
NO_RUNNER_ERROR = "No matching runner available within timeout"
DISCONNECTED_ERROR = "Runner disconnected during execution"
BLOCKED = "Blocked by on_run_start hook: "

ExecutionMode = Literal["sync", "async_poll", "async_callback"]
DialectStatus = Literal["pending", "claimed", "running", "stopping", "completed", "failed", "stopped"]
STATUS_BY_STATE = {
    State.BLOCKED: "pending",
    State.SCHEDULED: "pending",
    State.PENDING: "pending",
    State.CLAIMED: "claimed",
    State.RUNNING: "running",
    State.WAITING: "running",
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.SKIPPED: "failed",
    State.CANCELLED: "stopped",
}

STATES_BY_STATUS: Mapping[str, tuple[State, ...]] = {
    status: tuple(state for state in State if STATUS_BY_STATE[state] == status) for status in STATUS_BY_STATE.values()
} | {"stopping": tuple(HELD_STATES)}
"""The states of each status, by which a list is filtered. A run that is stopping is in a held state."""


class DialectNotes(BaseModel):
    """Values of a request that a spec has no field for."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    dialect: dialect_table.DialectName = "c"
    type: Literal["start_session", "resume_session"] = "start_session"
    mode: ExecutionMode = "sync"
    agent: str | None = None
    """The requested agent; None if the default agent was used."""
    parameters: dict[str, JsonValue] = {}
    """All but the prompt."""
    prompted: bool = True
    """Whether the request had a prompt; otherwise the prompt was built from the parameters."""
    project: str | None = None
    parent: Name | None = None
    """The session that requested this one."""
    scope: dict[str, JsonValue] = {}
    wanted: dict[str, JsonValue] = {}
    hook: str | None = None
    """The run of the start hook, which may change or block this one."""
    finish: dict[str, JsonValue] | None = None
    """The hook to run after this one."""
    answers: Annotated[tuple[str, ...], Field(max_length=1000)] = ()
    """The runs whose ends this run reports, as a callback."""

    @classmethod
    def from_spec(cls, spec: RunSpec) -> DialectNotes:
        """The notes of a run; defaults for a run that did not come through the dialect, whatever its notes contain."""
        notes = spec.notes.get(NOTES_KEY)
        with suppress(ValidationError):
            return cls.model_validate(notes)
        return cls(agent=spec.agent)

    @property
    def needs_callback(self) -> bool:
        """Whether the end of the run is sent to its parent or to a finish hook."""
        return self.finish is not None or (self.mode == "async_callback" and self.parent is not None)

    def to_spec_notes(self) -> dict[str, JsonValue]:
        """The notes in the format of a spec."""
        return {NOTES_KEY: self.model_dump(mode="json", exclude_defaults=True)}


def build_prompt(parameters: dict[str, JsonValue]) -> str:
    """The prompt for an agent that takes nothing else: the prompt parameter, or all parameters by name."""
    if has_prompt(parameters):
        return str(parameters["prompt"])
    lines = "\n".join(f"{name}: {value}" for name, value in parameters.items())
    return f"<inputs>\n{lines}\n</inputs>"


def drop_prompt(parameters: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The parameters that a spec has no field for; all of them if the prompt is built from them."""
    if has_prompt(parameters):
        return {name: value for name, value in parameters.items() if name != "prompt"}
    return parameters


def has_prompt(parameters: dict[str, JsonValue]) -> bool:
    """Whether the parameters include a prompt."""
    prompt = parameters.get("prompt")
    return isinstance(prompt, str) and bool(prompt.strip())


def translate_status(state: State, stopping: bool) -> str:
    """The status of a run."""
    return "stopping" if stopping and state in HELD_STATES else STATUS_BY_STATE[state]


def get_session_id(run: RunRecord) -> str:
    """The session id of a run. A run without a session has an id of its own, which no request can resume."""
    return run.spec.session or derive_session_id(run.id)


def derive_session_id(run_id: str) -> str:
    """The session id of a run without a session."""
    return f"ses_{sha256(run_id.encode()).hexdigest()[:12]}"


def translate_run(run: RunRecord) -> dict[str, Any]:
    """A run in the fields of the dialects."""
    spec, notes = run.spec, DialectNotes.from_spec(run.spec)
    session = get_session_id(run)
    prompt = spec.prompt if spec.kind == "agent" else None
    return {
        "run_id": run.id,
        "type": notes.type,
        "session_id": session,
        "session_name": spec.session,
        "agent_name": notes.agent,
        "prompt": prompt,
        "parameters": {**({"prompt": prompt} if prompt is not None and notes.prompted else {}), **notes.parameters},
        "project_dir": notes.project or spec.cwd,
        "parent_session_id": notes.parent,
        "parent_session_name": notes.parent,
        "execution_mode": notes.mode,
        "demands": {"executor_type": AUTONOMOUS, "tags": [], **notes.wanted} if NOTES_KEY in spec.notes else None,
        "status": translate_status(run.state, run.stop_at_ms is not None),
        "runner_id": run.worker or _find_last_worker(run),
        "error": describe_error(run),
        "created_at": format_time(run.submitted_at_ms),
        "claimed_at": format_time(run.claimed_at_ms),
        "started_at": format_time(run.started_at_ms),
        "completed_at": format_time(run.finished_at_ms),
        "timeout_at": format_time(run.submitted_at_ms + spec.expires_ms) if spec.expires_ms is not None else None,
    }


def translate_summary(run: RunListEntry) -> dict[str, Any]:
    """The fields in a list of a run that came through a dialect. Only such a run demands an executor type."""
    if TYPE_LABEL not in (run.demands or {}):
        return {}
    return {
        "run_id": run.id,
        "status": STATUS_BY_STATE[run.state],
        "runner_id": run.worker or None,
        "created_at": format_time(run.submitted_at_ms),
    }


def translate_runs(
    run_queries: RunQueries, entries: Iterable[dict[str, Any]], status: str | None
) -> tuple[list[dict[str, Any]], str | None]:
    """The runs of a list with all fields of the dialects, optionally only those with a status. If the answer is
    full, also the last run that was read."""
    found, size, last = list[dict[str, Any]](), 0, None
    for each in entries:
        if size > RESPONSE_BYTES:
            return found, last
        last = each["id"]
        try:
            size += run_queries.size(last)
            translated = redact_value(translate_run(run_queries.get(last)))
        except NotFound:
            continue  # forgotten since it was listed
        except Damaged:
            translated = each
        if status is None or translated.get("status") == status:
            found.append({**each, **translated})
    return found, None


def list_all_runs(
    run_queries: RunQueries, which: RunFilter, status: str | None
) -> tuple[list[dict[str, Any]], str | None]:
    """The newest runs, for clients without pages; and the cursor of the next page, if there is one."""
    found, cursor, size = list[dict[str, Any]](), None, 0
    while True:
        page = run_queries.page(which, limit=LIST_PER_CALL, cursor=cursor)
        translated, last = translate_runs(run_queries, map(run_entry_json, page.runs), status)
        found += translated
        size += sum(len(str(each.get("prompt") or "")) for each in translated)
        cursor = last or page.cursor
        if last is not None or cursor is None or len(found) >= WHOLE_LIST_MAX or size > RESPONSE_BYTES:
            return found, cursor


def _find_last_worker(run: RunRecord) -> str | None:
    return run.attempts[-1].worker or None if run.attempts else None


def describe_error(run: RunRecord) -> str | None:
    """The error of a failed run."""
    if run.outcome is None or run.state not in (State.FAILED, State.SKIPPED):
        return None
    if run.outcome.class_ is OutcomeClass.LOST:
        return DISCONNECTED_ERROR
    if run.outcome.class_ is OutcomeClass.TIMEOUT and run.attempt == 0:
        return NO_RUNNER_ERROR
    if (
        run.outcome.class_ is OutcomeClass.REJECTED
        and run.attempt == 0
        and DialectNotes.from_spec(run.spec).hook is not None
    ):
        return f"{BLOCKED}Hook failed: {run.outcome.error}"
    return run.outcome.error or f"The run ended as {run.outcome.class_}."


def format_time(at_ms: int | None) -> str | None:
    """A time with its offset, in the format of the dialects."""
    if at_ms is None:
        return None
    return to_utc(at_ms).isoformat()


def translate_result(run: RunRecord) -> dict[str, JsonValue] | None:
    """The result of a run in the fields of all dialects; None if it has none."""
    if run.outcome is None:
        return None
    result, text = run.outcome.result, run.outcome.tail
    if result is None and text is None:
        return None
    return build_result(None if result is None and text is not None else result, text)


def build_result(found: JsonValue, text: str | None = None) -> dict[str, JsonValue]:
    """The fields of a result, which is text or data; `result` is either as text."""
    if found is None or isinstance(found, str):
        text_found = text if found is None else found
        return {"result": text_found, "result_text": text_found, "result_data": None}
    return {"result": json.dumps(found, ensure_ascii=False), "result_text": None, "result_data": found}


def hide_scope(record: dict[str, Any]) -> dict[str, Any]:
    """A run's record without its scope, which only its runner may see, and without the system prompt, which may contain
    it."""
    spec = record.get("spec", {})
    notes = spec.get("notes", {}).get(NOTES_KEY)
    if isinstance(notes, dict) and notes.pop("scope", None):
        spec.get("turn", {}).pop("system_prompt", None)
    return record
