"""Submits a compiled plan, to Redis or to a coordinator over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from agentq.coordinator.model.demands import PLAN_LABEL
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.plans.queries import OnFailedPolicy, PlanRecord
from agentq.coordinator.plans.source import PlanHeader, TaskSubmission
from agentq.planning.compiler import CompiledPlan, CompiledTask


class PlanSubmitter(Protocol):
    """Submits plans: to Redis itself, or to a coordinator over HTTP."""

    def submit(
        self, plan: str, header: PlanHeader, tasks: Sequence[TaskSubmission], *, durable: bool = False
    ) -> PlanRecord: ...


def build_header(
    compiled: CompiledPlan, *, file: str = "", folder: str = "", host: str = "", crewed: bool = False
) -> PlanHeader:
    """The properties of a plan that are stored beside its tasks."""
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
    plans: PlanSubmitter, plan: str, header: PlanHeader, tasks: Sequence[CompiledTask], *, durable: bool = False
) -> str:
    """Submit a compiled plan under this id, which is returned."""
    made = [TaskSubmission(task.id, task.spec, task.needs, task.inputs) for task in tasks]
    if header.crewed:
        made = [task._replace(spec=reserve_for_plan(task.spec, plan)) for task in made]
    return plans.submit(plan, header, made, durable=durable).id


def reserve_for_plan(spec: RunSpec, plan: str) -> RunSpec:
    """A run that only the workers of its plan may execute."""
    return spec.model_copy(update={"demands": {**spec.demands, PLAN_LABEL: plan}})
