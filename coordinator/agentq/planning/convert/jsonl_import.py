"""Imports tasks from JSON lines, as issue trackers write them (beads, and others with similar keys), into a plan.

A task that is done is left out, also as a dependency. Dependencies are given with the task that waits (`blocked_by`,
`depends_on`, `needs`, `after`), with the task that is waited for (`blocks`), or in `dependencies`, as beads does. An
epic becomes no task: a task that waits for it waits for all its children, and these wait for what it waits for. Any
other parent runs after its children.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from agentq.coordinator.bounds import NAME_LENGTH
from agentq.planning.convert.markdown_import import slug
from agentq.planning.errors import InvalidPlan, PlanProblem, SourcePosition, did_you_mean, quote_value
from agentq.planning.read.json_reader import read_json
from agentq.planning.read.source_tree import SourceList, SourceTable, source_text, strip_positions

DONE_STATES = {
    "closed",
    "done",
    "completed",
    "complete",
    "resolved",
    "cancelled",
    "canceled",
    "tombstone",
    "wontfix",
    "skipped",
}
NEEDS_KEYS = ("needs", "depends_on", "dependsOn", "blocked_by", "blockedBy", "blocked-by", "after", "deps")
BLOCKS_KEYS = ("blocks",)
DEPENDENCY_TYPES = {"blocks", "blocked-by", "blocked_by", "depends-on", "depends_on", "conditional-blocks", "waits-for"}
"""Types of dependencies in beads that delay a task; `related` and `discovered-from` do not."""
PARENT_TYPES = {"parent-child", "parent"}
TITLE_KEYS = ("title", "summary", "name")
TEXT_KEYS = ("prompt", "description", "body", "design", "acceptance_criteria", "notes")
PRIORITIES = (9, 7, 5, 3, 1)
"""The priorities for those of beads, of which 0 is the most urgent."""


class _TrackerTask(NamedTuple):
    id: str
    table: SourceTable
    waits: dict[str, SourcePosition]
    epic: bool
    done: bool


def import_jsonl(text: str, file: str) -> dict[str, Any]:
    """The plan for the tasks of a tracker."""
    lines = [
        _parse_line(read_json(line, file, line=number), SourcePosition(file, number, 1))
        for number, line in _numbered_lines(text)
    ]
    if not lines:
        raise InvalidPlan([PlanProblem(SourcePosition(file, 1, 1), "", "there is no task in this file")])
    by_id: dict[str, _TrackerTask] = {}
    for each in lines:
        if each.id in by_id:
            raise InvalidPlan(
                [
                    PlanProblem(
                        each.table.at,
                        "id",
                        f"the id {quote_value(each.id)} is taken in line {by_id[each.id].table.at.line}",
                    )
                ]
            )
        by_id[each.id] = each
    children = _link_tasks(lines, by_id)
    _check_needs(lines, by_id)
    names = {each.id: _task_id(each.id) for each in lines}
    open_ = [each for each in lines if not each.done and not (each.epic and children.get(each.id))]
    parents: dict[str, list[str]] = {}
    for parent, members in children.items():
        for child in members:
            parents.setdefault(child, []).append(parent)
    tasks = [_plan_task(each, names, _resolve_needs(each, by_id, children, parents)) for each in open_]
    if not tasks:
        raise InvalidPlan([PlanProblem(SourcePosition(file, 1, 1), "", "all tasks of this file are done already")])
    return {"tasks": tasks}


def _numbered_lines(text: str) -> list[tuple[int, str]]:
    return [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def _task_id(id_: str) -> str:
    return id_ if slug(id_, NAME_LENGTH) == id_.lower() else slug(id_, NAME_LENGTH)


def _parse_line(read: Any, position: SourcePosition) -> _TrackerTask:
    if not isinstance(read, SourceTable) or "id" not in read:
        raise InvalidPlan([PlanProblem(position, "", "each line is a task, which is an object with an id")])
    waits: dict[str, SourcePosition] = {}
    for key in NEEDS_KEYS:
        for number, each in enumerate(_as_list(read.get(key))):
            value = read[key]
            waits[source_text(each)] = value.positions[number] if isinstance(value, SourceList) else read.value_at(key)
    status = source_text(read.get("status", read.get("state", "open"))).lower()
    kind = source_text(read.get("issue_type", read.get("type", "")))
    return _TrackerTask(source_text(read["id"]), read, waits, kind.lower() == "epic", status in DONE_STATES)


def _as_list(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _link_tasks(lines: list[_TrackerTask], by_id: dict[str, _TrackerTask]) -> dict[str, list[str]]:
    """Record dependencies that are given with other tasks; returns the children of each task."""
    children: dict[str, list[str]] = {}
    for each in lines:
        for key in BLOCKS_KEYS:
            for number, other in enumerate(_as_list(each.table.get(key))):
                if (waiting := by_id.get(source_text(other))) is not None:
                    waiting.waits[each.id] = item_position(each.table, key, number)
        for number, dependency in enumerate(_as_list(each.table.get("dependencies"))):
            position = item_position(each.table, "dependencies", number)
            if not isinstance(dependency, dict):
                each.waits[source_text(dependency)] = position
                continue
            kind, other = (
                source_text(dependency.get("type", "blocks")),
                source_text(dependency.get("depends_on_id", dependency.get("id", ""))),
            )
            if kind in PARENT_TYPES:
                children.setdefault(other, []).append(each.id)
            elif kind in DEPENDENCY_TYPES:
                each.waits[other] = position
        if isinstance(parent := each.table.get("parent", each.table.get("parent_id")), str) and parent:
            children.setdefault(parent, []).append(each.id)
    return children


def item_position(table: SourceTable, key: str, number: int) -> SourcePosition:
    """The position of an item in a list, or of a single value."""
    value = table[key]
    return value.positions[number] if isinstance(value, SourceList) else table.value_at(key)


def _check_needs(lines: list[_TrackerTask], by_id: dict[str, _TrackerTask]) -> None:
    faults = [
        PlanProblem(
            position,
            each.id,
            f"it waits for {quote_value(other)}, which is not in this file",
            did_you_mean(other, by_id),
        )
        for each in lines
        if not each.done
        for other, position in each.waits.items()
        if other not in by_id
    ]
    if faults:
        raise InvalidPlan(faults)


def _resolve_needs(
    each: _TrackerTask, by_id: dict[str, _TrackerTask], children: dict[str, list[str]], parents: dict[str, list[str]]
) -> list[str]:
    """The tasks that a task waits for: its own dependencies, its children, and the dependencies of its epics; with
    epics replaced by their children."""
    direct = [*each.waits, *children.get(each.id, ())]
    above = {each.id}
    left = [each.id]
    while left:
        for parent in parents.get(left.pop(), ()):
            if parent not in above and parent in by_id and by_id[parent].epic:
                above.add(parent)
                left.append(parent)
                direct += by_id[parent].waits
    found: dict[str, None] = {}
    seen: set[str] = set()
    while direct:
        other = direct.pop(0)
        if other in seen or other not in by_id or by_id[other].done:
            continue
        seen.add(other)
        if by_id[other].epic and children.get(other):
            direct += children[other]
        elif other != each.id:
            found[other] = None
    return list(found)


def _plan_task(each: _TrackerTask, names: dict[str, str], waits: list[str]) -> dict[str, Any]:
    table = strip_positions(each.table)
    title = next((str(table[key]) for key in TITLE_KEYS if table.get(key)), each.id)
    texts = [str(table[key]).strip() for key in TEXT_KEYS if isinstance(table.get(key), str) and table[key].strip()]
    task: dict[str, Any] = {"id": names[each.id], "title": title[:128]}
    if "command" in table:
        task["command"] = table["command"]
    else:
        prompt = "\n\n".join(dict.fromkeys([*([] if "prompt" in table else [title]), *texts]))
        task["prompt"] = prompt + "\n" if "\n" in prompt else prompt
    task |= {key: table[key] for key in ("agent", "check", "timeout") if key in table}
    if isinstance(priority := table.get("priority"), int) and not isinstance(priority, bool):
        beads = "issue_type" in table or "dependencies" in table
        task["priority"] = PRIORITIES[min(max(priority, 0), 4)] if beads else min(max(priority, 0), 9)
    return task | ({"needs": [names[other] for other in waits]} if waits else {})
