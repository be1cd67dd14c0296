"""What is told of plans and sessions in public JSON is all that there is: the record is read from it again."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from agentq.coordinator.events.stream import Event
from agentq.coordinator.model.agent_options import AgentBudgets
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import AgentSpending
from agentq.coordinator.plans.queries import PlanRecord, TaskRecord
from agentq.coordinator.public_json.plans import plan_json, read_plan, read_task, task_json
from agentq.coordinator.public_json.sessions import read_session, session_json
from agentq.coordinator.sessions.verbs import SessionRecord

SPENT = AgentSpending(cost_usd=1.25, input_tokens=1000, cached_tokens=10, output_tokens=7, turns=3)
AT_MS = 1_900_000_000_123
ENDED_PLAN = PlanRecord(
    id="shop-1", name="shop", on_failed="fail-plan", sealed=True, expected=3, tasks=4,
    counts={State.COMPLETED: 3, State.FAILED: 1}, created_at_ms=AT_MS, stopped="failed", stopped_why="a task failed",
    retrying=True, ended="failed", ended_at_ms=AT_MS + 1, made_by="3f09c2ab41d7",
)  # fmt: skip
OPEN_PLAN = PlanRecord(
    id="shop-2", name="shop", on_failed="skip", sealed=False, expected=3, tasks=0, counts={}, created_at_ms=AT_MS,
    stopped=None, stopped_why="", retrying=False, ended=None, ended_at_ms=None, made_by="",
)  # fmt: skip
ENDED_TASK = TaskRecord(
    id="test", run="run_01k9zq3c5007m2x4c8r1tnq", state=State.FAILED, attempt=2, worker="w1", reason="why",
    submitted_at_ms=AT_MS, claimed_at_ms=AT_MS + 1, started_at_ms=AT_MS + 2, finished_at_ms=AT_MS + 3,
    class_=OutcomeClass.TIMEOUT, spending=SPENT, agent="claude",
)  # fmt: skip
NEW_TASK = replace(
    ENDED_TASK, state=State.BLOCKED, attempt=0, worker="", reason="", claimed_at_ms=None, started_at_ms=None,
    finished_at_ms=None, class_=None, spending=None, agent=None,
)  # fmt: skip
UNPRICED_TASK = replace(ENDED_TASK, spending=AgentSpending(known_usd=0.5))
CLOSED_SESSION = SessionRecord(
    name="chat", agent="claude", state="closed", created_at_ms=AT_MS, used_at_ms=AT_MS + 1, closed_at_ms=AT_MS + 2,
    agent_session="s-1", host="here", stays=True, account="work", cwd="/srv", model="opus",
    budgets=AgentBudgets(cost_usd=2.0), spent=SPENT, forked_from="other", made_by="3f09c2ab41d7",
    last="run_01k9zq3c5007m2x4c8r1tnq", live="run_01k9zq3c5007m2x4c8r1tnq", turns=2,
)  # fmt: skip
NEW_SESSION = SessionRecord(
    name="chat", agent="claude", state="open", created_at_ms=AT_MS, used_at_ms=AT_MS, stays=False,
    spent=AgentSpending(), live=None, turns=0,
)  # fmt: skip
EVENT = Event(
    id=f"{AT_MS}-0/1", partition=3, event="failed", run="run_01k9zq3c5007m2x4c8r1tnq", state=State.FAILED, attempt=2,
    worker="w1", detail="why", plan="shop-1",
)  # fmt: skip


@pytest.mark.parametrize("record", [ENDED_PLAN, OPEN_PLAN], ids=["ended", "open"])
def test_a_plan_is_read_again_as_it_was(record: PlanRecord) -> None:
    assert read_plan(json.loads(json.dumps(plan_json(record)))) == record


@pytest.mark.parametrize("record", [ENDED_TASK, NEW_TASK, UNPRICED_TASK], ids=["ended", "new", "of unknown cost"])
def test_a_task_is_read_again_as_it_was(record: TaskRecord) -> None:
    assert read_task(json.loads(json.dumps(task_json(record)))) == record


@pytest.mark.parametrize("record", [CLOSED_SESSION, NEW_SESSION], ids=["closed", "new"])
def test_a_session_is_read_again_as_it_was_whatever_a_dialect_adds(record: SessionRecord) -> None:
    told = json.loads(json.dumps(session_json(record)))

    assert read_session({**told, "session_id": "theirs"}) == record


def test_an_event_is_read_again_as_it_was() -> None:
    nobodys = EVENT.model_copy(update={"worker": "", "run": "", "state": ""})

    assert [Event.from_public_json(json.loads(json.dumps(each.public_json()))) for each in (EVENT, nobodys)] == [
        EVENT,
        nobodys,
    ]


@pytest.mark.parametrize("record", [ENDED_PLAN, ENDED_TASK, CLOSED_SESSION], ids=["plan", "task", "session"])
def test_the_records_read_again_have_all_fields_set(record: PlanRecord | TaskRecord | SessionRecord) -> None:
    names = SessionRecord.model_fields if isinstance(record, SessionRecord) else [each.name for each in fields(record)]

    assert [name for name in names if getattr(record, name) in (None, "", 0, False)] == []
