"""The stored source of a plan: its header, and its tasks as they were submitted.

From it a plan whose submit was cut is completed without its file, and a task that is added later gets the same place to
work in as the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from agentq.coordinator.errors import Incompatible
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.model.workspace import WorkspaceSpec
from agentq.coordinator.plans.queries import OnFailedPolicy

SOURCE_VERSION = 1
_SOURCE_PREFIX = '{"v":'


class TaskSubmission(NamedTuple):
    """One task on the way in: its run, without what follows from its place in the plan."""

    id: str
    spec: RunSpec
    needs: Sequence[str] = ()
    """Tasks that must complete before it."""
    inputs: Sequence[str] = ()
    """Tasks whose outcomes stand in it; it needs them, directly or not."""


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


def format_source(header: PlanHeader, tasks: Sequence[TaskSubmission]) -> str:
    """What is kept, as a text."""
    document = {
        "v": SOURCE_VERSION,
        "head": header.model_dump(mode="json", exclude_defaults=True),
        "tasks": list(map(task_fields, tasks)),
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def parse_source(source: str) -> tuple[PlanHeader, list[TaskSubmission]]:
    """What is kept with a plan, read back."""
    document = json.loads(source) if source.startswith(_SOURCE_PREFIX) else {}
    if document.get("v") != SOURCE_VERSION:
        raise Incompatible(f"This plan was made by another version of agentq ({document.get('v')!r}); use that one.")
    return PlanHeader.model_validate(document["head"]), list(_parse_tasks(document["tasks"]))


def parse_header(source: str, plan: str) -> PlanHeader:
    """The header of a plan; little, if something else was kept with it."""
    return parse_source(source)[0] if source.startswith(_SOURCE_PREFIX) else PlanHeader(name=plan)


def task_fields(task: TaskSubmission) -> dict[str, Any]:
    """A task in JSON: its spec has only what was said of it."""
    spec = {"kind": task.spec.kind, **task.spec.model_dump(mode="json", exclude_unset=True)}
    links = {"needs": task.needs, "inputs": task.inputs}
    return {"id": task.id, "spec": spec, **{name: list(ids) for name, ids in links.items() if ids}}


def _parse_tasks(document: Sequence[dict[str, Any]]) -> Iterator[TaskSubmission]:
    for each in document:
        spec = RunSpec.model_validate_json(json.dumps(each["spec"]))
        yield TaskSubmission(each["id"], spec, tuple(each.get("needs", ())), tuple(each.get("inputs", ())))
