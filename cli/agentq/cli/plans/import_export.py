"""From and to files: what `agentq plan import` and `agentq plan export` do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentq.coordinator.errors import AgentqError, Invalid
from agentq.planning.convert.jsonl_import import import_jsonl
from agentq.planning.convert.markdown_import import import_markdown
from agentq.planning.convert.plan_export import ExportedTask, export_plan
from agentq.planning.read.plan_file import read_file
from agentq.sdk.backend import Backend

FORMATS_BY_SUFFIX = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}


def import_tasks(file: str, kind: str | None, *, agent: str | None, name: str | None) -> dict[str, Any]:
    """The plan that a list of tasks makes."""
    text = read_file(file)
    kind = (
        kind
        or FORMATS_BY_SUFFIX.get(Path(file).suffix.lower())
        or ("jsonl" if text.lstrip().startswith("{") else "markdown")
    )
    shown = "stdin" if file == "-" else file
    if kind not in ("markdown", "jsonl", "beads"):
        raise Invalid(f"--from takes markdown or jsonl, not {kind[:40]!r}.")
    made = import_markdown(text, shown) if kind == "markdown" else import_jsonl(text, shown)
    head: dict[str, Any] = {"name": name} if name else {}
    if agent:
        head["defaults"] = {"agent": agent}
    return {
        **{key: value for key, value in made.items() if key not in (*head, "tasks")},
        **head,
        "tasks": made["tasks"],
    }


def export_document(backend: Backend, plan: str) -> dict[str, Any]:
    """A plan that was submitted, as a document."""
    return export_plan(backend.plans.header(plan), list_exported_tasks(backend, plan))


def list_exported_tasks(backend: Backend, plan: str) -> Iterator[ExportedTask]:
    """Each task of a plan as it stands, in the order in which they were submitted."""
    tasks = list(backend.plans.all_tasks(plan))
    by_run = {task.run: task.id for task in tasks}
    runs = backend.read([task.run for task in tasks])
    for task, run in zip(tasks, runs, strict=True):
        if isinstance(run, AgentqError):
            raise run
        spec = run.spec
        needs = [by_run[run] for run in spec.after if run in by_run]
        yield ExportedTask(task.id, spec, needs, task.state.value, task.run)
