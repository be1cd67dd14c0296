"""From and to files: what `agentq plan import` and `agentq plan export` do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentq.cli.planned import plans_of
from agentq.cli.server import Server
from agentq.coordinator.errors import Invalid
from agentq.planning.document import read_file
from agentq.planning.exporting import Standing, export_plan
from agentq.planning.importing_lines import import_lines
from agentq.planning.importing_markdown import import_markdown
from agentq.planning.submitting import head_in

KINDS = {".md": "markdown", ".markdown": "markdown", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}


def imported(file: str, kind: str | None, *, agent: str | None, name: str | None) -> dict[str, Any]:
    """The plan that a list of tasks makes."""
    text = read_file(file)
    kind = kind or KINDS.get(Path(file).suffix.lower()) or ("jsonl" if text.lstrip().startswith("{") else "markdown")
    shown = "stdin" if file == "-" else file
    if kind not in ("markdown", "jsonl", "beads"):
        raise Invalid(f"--from takes markdown or jsonl, not {kind[:40]!r}.")
    made = import_markdown(text, shown) if kind == "markdown" else import_lines(text, shown)
    head: dict[str, Any] = {"name": name} if name else {}
    if agent:
        head["defaults"] = {"agent": agent}
    return {
        **{key: value for key, value in made.items() if key not in (*head, "tasks")},
        **head,
        "tasks": made["tasks"],
    }


def exported(server: Server, plan: str) -> dict[str, Any]:
    """A plan that was submitted, as a document."""
    return export_plan(head_in(plans_of(server), plan), standing(server, plan))


def standing(server: Server, plan: str) -> Iterator[Standing]:
    """Each task of a plan as it stands, in the order in which they were submitted."""
    tasks = list(plans_of(server).all_tasks(plan))
    by_run = {task.run: task.id for task in tasks}
    for task in tasks:
        spec = server.records.get(task.run).spec
        needs = [by_run[run] for run in spec.after if run in by_run]
        yield Standing(task.id, spec, needs, task.state.value, task.run)
