"""What stands in the public JSON of queues, limits, schedules, workers and tokens: all that a client reads back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.public_json.queues import limit_json, queue_json, read_limit, read_queue
from agentq.coordinator.public_json.schedules import (
    read_schedule,
    read_schedule_history,
    schedule_history_json,
    schedule_json,
)
from agentq.coordinator.public_json.tokens import read_token, token_json
from agentq.coordinator.public_json.workers import read_worker, worker_json
from agentq.coordinator.queues.limits import LimitFullPolicy, LimitRate, LimitRecord
from agentq.coordinator.queues.stats import QueuePause, QueueStats
from agentq.coordinator.schedules.cron import ScheduleRule
from agentq.coordinator.schedules.verbs import ScheduleHistoryEntry, ScheduleRecord, ScheduleState
from agentq.coordinator.security.tokens import RequestRate, TokenRecord, TokenScope
from agentq.coordinator.workers.registry import WorkerOverview

AT_MS = 1_900_000_000_123
RUN = "run_01k9zq3c5007m2x4c8r1tnq"
SPEC = RunSpec(kind="command", argv=["make", "test"], queue="builds", labels={"team": "red"}, env={"A": "b"})


def schedule(rule: ScheduleRule | None, spec: RunSpec | None = SPEC) -> ScheduleRecord:
    return ScheduleRecord(
        name="nightly",
        state=ScheduleState.PAUSED,
        revision="",
        rule=rule,
        spec=spec,
        overlap="cancel_old",
        next_at_ms=AT_MS + 1,
        last_at_ms=AT_MS + 2,
        created_at_ms=AT_MS + 3,
        paused_at_ms=AT_MS + 4,
        ended_at_ms=AT_MS + 5,
        why="a holiday",
        made_by="3f09c2ab41d7",
        live=[RUN],
    )


TIMES: dict[str, Any] = {"until_ms": AT_MS + 9, "missed": "all", "catch_up_ms": 60_000}
WORKER = WorkerOverview(
    id="w1",
    state="silent",
    slots=3,
    queues=("a", "b"),
    labels={"gpu": "a100"},
    only_matching=True,
    about={"pid": 7, "nested": [None, {"a": True}]},
    seen_at_ms=AT_MS,
    lease_until_ms=AT_MS + 1,
    runs=[RUN],
    registered_at_ms=AT_MS + 2,
    runs_ended=17,
    ended_at_ms=AT_MS + 3,
    ended_why="asked",
    silent_ms=22_000,
    lost_in_ms=8_000,
)
TOKEN = TokenRecord(
    id="3f09c2ab41d7",
    name="ci",
    kind="worker",
    scopes=(TokenScope.WORK,),
    queues=("builds",),
    rate=RequestRate(100, 1000, 100),
    created_at_ms=AT_MS,
    expires_at_ms=AT_MS + 1,
    made_by="4f09c2ab41d7",
    used_at_ms=AT_MS + 2,
)
RECORDS: dict[str, tuple[Any, Any, Any]] = {
    "queue": (
        queue_json,
        read_queue,
        QueueStats(
            queue="a",
            counts={State.PENDING: 7, State.FAILED: 1},
            oldest_ms=AT_MS,
            submitted_a_minute=1.5,
            ended_a_minute=0.1,
            paused=QueuePause("*", AT_MS + 1, "maintenance"),
            drained=QueuePause("a", AT_MS + 2, ""),
        ),
    ),
    "an empty queue": (queue_json, read_queue, QueueStats(queue="a")),
    "limit": (
        limit_json,
        read_limit,
        LimitRecord(
            key="repo:acme",
            max=3,
            rate=LimitRate(units=10, per_ms=60_000, burst=20),
            when_full=LimitFullPolicy.KEEP_LATEST,
            shut_until_ms=AT_MS,
            shut_why="usage limit",
            held=2,
            waiting=5,
        ),
    ),
    "a limit that nobody has set": (limit_json, read_limit, LimitRecord(key="a", held=0, waiting=0)),
    "schedule by cron": (
        schedule_json,
        read_schedule,
        schedule(ScheduleRule(cron="30 2 * * *", tz="Europe/Berlin", jitter_ms=5, **TIMES)),
    ),
    "schedule by interval": (
        schedule_json,
        read_schedule,
        schedule(ScheduleRule(every_ms=600_000, start_ms=AT_MS, jitter_ms=9, **TIMES)),
    ),
    "schedule of one tick": (schedule_json, read_schedule, schedule(ScheduleRule(at_ms=AT_MS))),
    "schedule that cannot be read": (schedule_json, read_schedule, schedule(None, None)),
    "schedule history": (
        schedule_history_json,
        read_schedule_history,
        ScheduleHistoryEntry(what="made", at_ms=AT_MS, tick_ms=AT_MS + 1, before_ms=AT_MS + 2, run=RUN, why="asked"),
    ),
    "worker": (worker_json, read_worker, WORKER),
    "a worker that is heard": (
        worker_json,
        read_worker,
        WORKER.model_copy(
            update={"state": "ready", "silent_ms": None, "lost_in_ms": None, "ended_at_ms": None, "ended_why": ""}
        ),
    ),
    "token": (token_json, read_token, TOKEN),
    "a token without bounds": (
        token_json,
        read_token,
        TOKEN.model_copy(update={"rate": None, "queues": (), "expires_at_ms": None, "used_at_ms": None, "made_by": ""}),
    ),
}


@pytest.mark.parametrize(("to_json", "read", "record"), RECORDS.values(), ids=RECORDS.keys())
def test_a_record_is_read_back_from_its_json(to_json: Any, read: Any, record: Any) -> None:
    assert read(json.loads(json.dumps(to_json(record)))) == record
