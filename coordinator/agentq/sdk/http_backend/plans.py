"""Plans, as a coordinator has them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from agentq.coordinator.bounds import LIST_PER_CALL
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.plans.queries import PlanRecord, TaskRecord, check_plan_name
from agentq.coordinator.plans.source import PlanHeader, TaskSubmission, task_fields
from agentq.coordinator.plans.verbs import RetrySelection
from agentq.coordinator.public_json.plans import read_plan, read_task
from agentq.sdk.http_backend.http_client import HttpClient, new_request_key
from agentq.sdk.http_backend.plan_watcher import HttpPlanWatcher


class HttpPlans:
    """Submits, reads and steers plans over HTTP."""

    def __init__(self, wire: HttpClient) -> None:
        self._wire = wire

    def submit(
        self, plan: str, header: PlanHeader, tasks: Sequence[TaskSubmission], *, durable: bool = False
    ) -> PlanRecord:
        check_plan_name(plan)
        whole = {"id": plan, **header.model_dump(mode="json", exclude_defaults=True), "tasks": _tasks_json(tasks)}
        return read_plan(self._wire.post("/plans", whole, query={"durable": "true" if durable else None}))

    def complete(self, plan: str) -> PlanRecord:
        return read_plan(self._wire.post(_path(plan, "/complete")))

    def add(self, plan: str, tasks: Sequence[TaskSubmission]) -> dict[str, str]:
        runs: dict[str, str] = self._wire.post(_path(plan, "/tasks"), {"tasks": _tasks_json(tasks)})["runs"]
        return runs

    def get(self, plan: str) -> PlanRecord:
        return read_plan(self._wire.get(_path(plan)))

    def ls(self, *, limit: int = 100, cursor: str | None = None) -> tuple[list[PlanRecord], str | None]:
        page = self._wire.get("/plans", {"limit": limit, "cursor": cursor})
        return [read_plan(each) for each in page["plans"]], page["next"]

    def header(self, plan: str) -> PlanHeader:
        return PlanHeader.model_validate_json(json.dumps(self._wire.get(_path(plan, "/header"))))

    def tasks(
        self, plan: str, *states: State, limit: int = 100, cursor: str | None = None
    ) -> tuple[list[TaskRecord], str | None]:
        query = {"state": ",".join(states) or None, "limit": limit, "cursor": cursor}
        page = self._wire.get(_path(plan, "/tasks"), query)
        return [read_task(each) for each in page["tasks"]], page["next"]

    def all_tasks(self, plan: str, *states: State) -> Iterator[TaskRecord]:
        cursor: str | None = None
        while True:
            page, cursor = self.tasks(plan, *states, limit=LIST_PER_CALL, cursor=cursor)
            yield from page
            if cursor is None:
                return

    def cancel(self, plan: str, why: str = "cancelled on request") -> PlanRecord:
        return read_plan(self._wire.post(_path(plan, "/cancel"), {"why": why}))

    def retry(self, plan: str, which: RetrySelection = "failed", *, task: str | None = None) -> PlanRecord:
        return read_plan(self._wire.post(_path(plan, "/retry"), {"which": which, "task": task}, key=new_request_key()))

    def remove_limit(self, plan: str) -> None:
        self._wire.say("DELETE", _path(plan, "/limit"))

    def watch(self, plan: str) -> HttpPlanWatcher:
        return HttpPlanWatcher(self._wire, check_plan_name(plan))


def _path(plan: str, rest: str = "") -> str:
    return f"/plans/{check_plan_name(plan)}{rest}"


def _tasks_json(tasks: Sequence[TaskSubmission]) -> list[dict[str, Any]]:
    told = map(task_fields, tasks)
    return [{"run": task.pop("spec"), **task} for task in told]
