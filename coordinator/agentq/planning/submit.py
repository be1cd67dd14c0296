"""A plan that can be submitted goes into the world, and can be completed there if its submit was cut.

What is kept with it is all that makes it: its head, and its tasks as they were compiled. So whoever finds it half
submitted completes it without its file, and whoever adds a task knows where the work of the others is done.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from agentq.coordinator.errors import Incompatible, NotFound
from agentq.coordinator.model.demands import PLAN_LABEL
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.model.workspace import WorkspaceSpec
from agentq.coordinator.plans.verbs import OnFailedPolicy, Plans, TaskSubmission
from agentq.coordinator.queues.controls import QueueControls
from agentq.planning.compiler import CompiledPlan, CompiledTask

SOURCE_VERSION = 1
PLAN_LIMIT = "plan:"
"""What the limit begins with under which the tasks of a plan run that says how many may at once."""


class PlanHeader(BaseModel):
    """What holds for a plan as a whole, as it is kept with it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    file: str = ""
    folder: str = ""
    host: str = ""
    on_failed: OnFailedPolicy = "skip"
    max_parallel: int | None = None
    budget_usd: float | None = None
    queues: tuple[str, ...] = ("default",)
    """Where its tasks wait."""
    crewed: bool = False
    """Whether its tasks wait for workers that were started for it alone."""
    repository: str | None = None
    local: bool = False
    base: str | None = None
    target: str | None = None
    update_checkout: bool = False
    checked_out: str | None = None
    workspace: WorkspaceSpec | None = None
    """What a task that is added to the plan works in, if nothing else is said."""
    shapes: dict[str, str] = Field(default_factory=dict)
    """What each task of its file was, as a digest."""
    given: dict[str, str] = Field(default_factory=dict)
    """Runs of earlier plans of the same file that are not done again, by their tasks."""

    @property
    def is_bound(self) -> bool:
        """Whether its work is done in folders of the host where it was submitted."""
        return bool(self.host) and (self.local or self.repository is None)


def build_header(
    compiled: CompiledPlan, *, file: str = "", folder: str = "", host: str = "", crewed: bool = False
) -> PlanHeader:
    """What is to be kept of a plan beside its tasks."""
    repository = compiled.repository
    location: dict[str, Any] = {}
    if repository is not None:
        location = {
            "repository": repository.repository,
            "local": repository.local,
            "base": repository.base,
            "target": repository.target,
        }
        location |= {"update_checkout": repository.update_checkout, "checked_out": repository.checked_out}
        location["workspace"] = compiled.workspace
    return PlanHeader(
        name=compiled.name,
        file=file,
        folder=folder,
        host=host,
        on_failed=_failure_policy(compiled.on_failed),
        max_parallel=compiled.max_parallel,
        budget_usd=compiled.budget_usd,
        queues=tuple(dict.fromkeys(task.spec.queue for task in compiled.tasks)),
        crewed=crewed,
        **location,
    )


def _failure_policy(word: str) -> OnFailedPolicy:
    return "run" if word == "run" else "fail-plan" if word == "fail-plan" else "skip"


def submit_plan(
    plans: Plans, plan: str, head: PlanHeader, tasks: Sequence[CompiledTask], *, durable: bool = False
) -> str:
    """Put a plan into the world under this id."""
    set_parallel_limit(plans, plan, head)
    compiled = [_reserve_task(task, plan) for task in tasks] if head.crewed else list(tasks)
    source = json.dumps(
        {
            "v": SOURCE_VERSION,
            "head": head.model_dump(mode="json", exclude_defaults=True),
            "tasks": list(map(_task_record, compiled)),
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )
    submissions = [TaskSubmission(task.id, task.spec, task.needs, task.inputs) for task in compiled]
    return _create_plan(plans, plan, head, submissions, source, durable=durable)


def _create_plan(
    plans: Plans, plan: str, head: PlanHeader, tasks: list[TaskSubmission], source: str, *, durable: bool = False
) -> str:
    return plans.create(
        head.name,
        tasks,
        plan=plan,
        source=source,
        durable=durable,
        on_failed=head.on_failed,
        budget_usd=head.budget_usd,
        given=head.given,
    )


def set_parallel_limit(plans: Plans, plan: str, head: PlanHeader) -> None:
    """Say how many tasks of a plan may run at once, if it does."""
    if head.max_parallel is not None:
        QueueControls(plans.store).limit(f"{PLAN_LIMIT}{plan}", most=head.max_parallel)


def remove_parallel_limit(plans: Plans, plan: str, head: PlanHeader) -> None:
    """Forget that again, when the plan has ended."""
    if head.max_parallel is not None:
        with suppress(NotFound):
            QueueControls(plans.store).unlimit(f"{PLAN_LIMIT}{plan}")


def complete_plan(plans: Plans, plan: str) -> None:
    """Submit what is missing of a plan whose submit was cut."""
    source = plans.source(plan)
    head, tasks = read_source(source)
    set_parallel_limit(plans, plan, head)
    submissions = [TaskSubmission(task.id, task.spec, task.needs, task.inputs) for task in tasks]
    _create_plan(plans, plan, head, submissions, source)


def read_header(plans: Plans, plan: str) -> PlanHeader:
    """What is kept of a plan; little, if somebody else made it."""
    source = plans.source(plan)
    return read_source(source)[0] if source.startswith(_SOURCE_PREFIX) else PlanHeader(name=plan)


_SOURCE_PREFIX = '{"v":'


def read_source(source: str) -> tuple[PlanHeader, list[CompiledTask]]:
    """What is kept with a plan, read back."""
    document = json.loads(source)
    if document.get("v") != SOURCE_VERSION:
        raise Incompatible(f"This plan was made by another version of agentq ({document.get('v')!r}); use that one.")
    return PlanHeader.model_validate(document["head"]), list(_parse_tasks(document["tasks"]))


def _parse_tasks(records: Iterable[dict[str, Any]]) -> Iterable[CompiledTask]:
    for each in records:
        spec = RunSpec.model_validate_json(json.dumps(each["spec"]))
        yield CompiledTask(each["id"], spec, tuple(each.get("needs", ())), tuple(each.get("inputs", ())))


def _task_record(task: CompiledTask) -> dict[str, Any]:
    spec = {"kind": task.spec.kind, **task.spec.model_dump(mode="json", exclude_defaults=True)}
    links = {"needs": task.needs, "inputs": task.inputs}
    return {"id": task.id, "spec": spec, **{name: list(ids) for name, ids in links.items() if ids}}


def reserve_for_plan(spec: RunSpec, plan: str) -> RunSpec:
    """A run that is left to the workers of its plan."""
    return spec.model_copy(update={"demands": {**spec.demands, PLAN_LABEL: plan}})


def _reserve_task(task: CompiledTask, plan: str) -> CompiledTask:
    return CompiledTask(task.id, reserve_for_plan(task.spec, plan), task.needs, task.inputs)
