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

from agentq.coordinator.demands import PLAN
from agentq.coordinator.errors import Incompatible, NotFound
from agentq.coordinator.flow import Flow
from agentq.coordinator.plans import OnFailed, Plans, Task
from agentq.coordinator.run import RunSpec
from agentq.coordinator.workspace import Workspace
from agentq.planning.compiling import Compiled, Planned

VERSION = 1
PLAN_LIMIT = "plan:"
"""What the limit begins with under which the tasks of a plan run that says how many may at once."""


class Head(BaseModel):
    """What holds for a plan as a whole, as it is kept with it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    file: str = ""
    folder: str = ""
    host: str = ""
    on_failed: OnFailed = "skip"
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
    workspace: Workspace | None = None
    """What a task that is added to the plan works in, if nothing else is said."""
    shapes: dict[str, str] = Field(default_factory=dict)
    """What each task of its file was, as a digest."""
    given: dict[str, str] = Field(default_factory=dict)
    """Runs of earlier plans of the same file that are not done again, by their tasks."""

    @property
    def is_bound(self) -> bool:
        """Whether its work is done in folders of the host where it was submitted."""
        return bool(self.host) and (self.local or self.repository is None)


def head_of(compiled: Compiled, *, file: str = "", folder: str = "", host: str = "", crewed: bool = False) -> Head:
    """What is to be kept of a plan beside its tasks."""
    site = compiled.site
    where: dict[str, Any] = {}
    if site is not None:
        where = {"repository": site.repository, "local": site.local, "base": site.base, "target": site.target}
        where |= {"update_checkout": site.update_checkout, "checked_out": site.checked_out}
        where["workspace"] = compiled.workspace
    return Head(
        name=compiled.name,
        file=file,
        folder=folder,
        host=host,
        on_failed=_policy(compiled.on_failed),
        max_parallel=compiled.max_parallel,
        budget_usd=compiled.budget_usd,
        queues=tuple(dict.fromkeys(task.spec.queue for task in compiled.tasks)),
        crewed=crewed,
        **where,
    )


def _policy(word: str) -> OnFailed:
    return "run" if word == "run" else "fail-plan" if word == "fail-plan" else "skip"


def submit_plan(plans: Plans, plan: str, head: Head, tasks: Sequence[Planned], *, durable: bool = False) -> str:
    """Put a plan into the world under this id."""
    bound(plans, plan, head)
    ours = [_crewed(task, plan) for task in tasks] if head.crewed else list(tasks)
    source = json.dumps(
        {"v": VERSION, "head": head.model_dump(mode="json", exclude_defaults=True), "tasks": list(map(_told, ours))},
        ensure_ascii=False,
        separators=(",", ":"),
    )
    made = [Task(task.id, task.spec, task.needs, task.inputs) for task in ours]
    return _created(plans, plan, head, made, source, durable=durable)


def _created(plans: Plans, plan: str, head: Head, tasks: list[Task], source: str, *, durable: bool = False) -> str:
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


def bound(plans: Plans, plan: str, head: Head) -> None:
    """Say how many tasks of a plan may run at once, if it does."""
    if head.max_parallel is not None:
        Flow(plans.store).limit(f"{PLAN_LIMIT}{plan}", most=head.max_parallel)


def unbound(plans: Plans, plan: str, head: Head) -> None:
    """Forget that again, when the plan has ended."""
    if head.max_parallel is not None:
        with suppress(NotFound):
            Flow(plans.store).unlimit(f"{PLAN_LIMIT}{plan}")


def complete_plan(plans: Plans, plan: str) -> None:
    """Submit what is missing of a plan whose submit was cut."""
    source = plans.source(plan)
    head, tasks = read_source(source)
    bound(plans, plan, head)
    made = [Task(task.id, task.spec, task.needs, task.inputs) for task in tasks]
    _created(plans, plan, head, made, source)


def head_in(plans: Plans, plan: str) -> Head:
    """What is kept of a plan; little, if somebody else made it."""
    source = plans.source(plan)
    return read_source(source)[0] if source.startswith(_OURS) else Head(name=plan)


_OURS = '{"v":'


def read_source(source: str) -> tuple[Head, list[Planned]]:
    """What is kept with a plan, read back."""
    said = json.loads(source)
    if said.get("v") != VERSION:
        raise Incompatible(f"This plan was made by another version of agentq ({said.get('v')!r}); use that one.")
    return Head.model_validate(said["head"]), list(_tasks(said["tasks"]))


def _tasks(told: Iterable[dict[str, Any]]) -> Iterable[Planned]:
    for each in told:
        spec = RunSpec.model_validate_json(json.dumps(each["spec"]))
        yield Planned(each["id"], spec, tuple(each.get("needs", ())), tuple(each.get("inputs", ())))


def _told(task: Planned) -> dict[str, Any]:
    spec = {"kind": task.spec.kind, **task.spec.model_dump(mode="json", exclude_defaults=True)}
    links = {"needs": task.needs, "inputs": task.inputs}
    return {"id": task.id, "spec": spec, **{name: list(ids) for name, ids in links.items() if ids}}


def crewed(spec: RunSpec, plan: str) -> RunSpec:
    """A run that is left to the workers of its plan."""
    return spec.model_copy(update={"demands": {**spec.demands, PLAN: plan}})


def _crewed(task: Planned, plan: str) -> Planned:
    return Planned(task.id, crewed(task.spec, plan), task.needs, task.inputs)
