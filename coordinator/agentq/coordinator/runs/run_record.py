"""The record of a run: its state, its attempts, its outcome."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue

from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import AgentSpending, Outcome, RunSpec, keep_known_fields, parse_spec
from agentq.coordinator.runs.merge_progress import MergeProgress
from agentq.coordinator.runs.wait import RunWait


class AttemptRecord(BaseModel):
    """One attempt of a run, and how it ended."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    attempt: int
    worker: str
    claimed_at_ms: int | None
    started_at_ms: int | None
    ended_at_ms: int | None
    verb: str | None
    outcome: Outcome | None


class RunListEntry(BaseModel):
    """A run in a list."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    state: State
    queue: str
    priority: int
    demands: dict[str, str]
    attempt: int
    worker: str
    reason: str
    submitted_at_ms: int


class RunRecord(BaseModel):
    """A run."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    spec: RunSpec
    state: State
    reason: str
    attempt: int
    fence: str
    worker: str
    schedule: str
    """The schedule that submitted it; empty if a client did."""
    made_by: str
    """The token that submitted it, or its schedule or parent; empty without one."""
    submitted_at_ms: int
    due_at_ms: int | None
    stop_at_ms: int | None
    claimed_at_ms: int | None
    started_at_ms: int | None
    finished_at_ms: int | None
    failures: int
    crashes: int
    deferrals: int
    spent: dict[OutcomeClass, int]
    """Retries spent, by class, for classes with a budget of their own."""
    agent_session: str | None
    """The agent's own id of the conversation."""
    host: str | None
    """The host that continued the conversation last."""
    account: str | None
    model: str | None
    spending: AgentSpending | None
    """The spending of its agent in all attempts; None if none reported any."""
    is_host_pinned: bool
    """Whether only one host can continue its conversation: the demand `host` is then not from its submit."""
    progress: JsonValue
    outcome: Outcome | None
    wait: RunWait
    """What it waits for, or waited for when it last parked; empty if it never parked."""
    parked_at_ms: int | None
    intent: MergeProgress | None
    """The progress in its workspace, recorded by its attempts."""
    attempts: list[AttemptRecord]
    """All attempts kept, oldest first, with the present one at the end."""

    @property
    def agent(self) -> str | None:
        """The agent that it is for."""
        return self.spec.agent

    @classmethod
    def from_hash(cls, run_id: str, fields: dict[str, str]) -> RunRecord:
        """Read a run from its hash."""

        def number(name: str) -> int | None:
            return int(fields[name]) if fields.get(name) else None

        def parsed(name: str) -> Any:
            return json.loads(fields[name]) if fields.get(name) else None

        times = ("due_at_ms", "stop_at_ms", "claimed_at_ms", "started_at_ms", "finished_at_ms", "parked_at_ms")
        run = {name: number(name) for name in times} | {
            "id": run_id,
            "spec": parse_spec(fields["spec"], fields["lane"]),
            "state": State(fields["state"]),
            "submitted_at_ms": int(fields["submitted_at_ms"]),
            "spent": {name[6:]: int(times) for name, times in fields.items() if name.startswith("spent:")},
            "spending": parse_spending(fields["spending"]) if "spending" in fields else None,
            "is_host_pinned": "own_host_demand" in fields,
            **{name: fields.get(name) or None for name in ("agent_session", "host", "account", "model")},
            "progress": parsed("progress"),
            "outcome": _keep_outcome_fields(parsed("outcome")),
            "wait": RunWait.from_hash(fields),
            "intent": MergeProgress.from_wire(fields["merge_progress"]) if "merge_progress" in fields else None,
            **{name: fields.get(name, "") for name in ("reason", "fence", "worker", "schedule", "made_by")},
            **{name: number(name) or 0 for name in ("attempt", "failures", "crashes", "deferrals")},
        }
        return cls.model_validate(run | {"attempts": _parse_attempts(run, fields)})


def parse_spending(sums: str) -> AgentSpending:
    """A sum as the scripts keep it: micro-dollars, attempts of unknown cost, tokens read, cached, written, turns."""
    known, unknown, *rest = [int(number) for number in sums.split()] or [0] * 6
    cost = {"known_usd" if unknown else "cost_usd": known / 1_000_000}
    return AgentSpending.model_validate({**cost, **dict(zip(_SPENDING_COUNTS, rest, strict=True))})


_SPENDING_COUNTS = ("input_tokens", "cached_tokens", "output_tokens", "turns")


def _parse_attempts(run: dict[str, Any], fields: dict[str, str]) -> list[dict[str, Any]]:
    ended = [json.loads(value) for name, value in fields.items() if name.startswith("attempt:")]
    ended = [record | {"outcome": _keep_outcome_fields(record["outcome"])} for record in ended]
    ended.sort(key=lambda record: int(record["attempt"]))
    if run["attempt"] and not (ended and ended[-1]["attempt"] == run["attempt"]):
        present = {name: run[name] for name in ("attempt", "worker", "claimed_at_ms", "started_at_ms", "outcome")}
        ended.append(present | {"ended_at_ms": run["finished_at_ms"], "verb": None})
    return ended


def _keep_outcome_fields(outcome: dict[str, Any] | None) -> dict[str, Any] | None:
    return outcome and keep_known_fields(Outcome, outcome)
