"""Tasks in JSON lines, as trackers write them, become a plan: those of beads, and whatever names its tasks similarly.

A line that is done is left out, and nobody waits for it. Dependencies stand with the one that waits (`blocked_by`,
`depends_on`, `needs`, `after`), with the one that is waited for (`blocks`), or as beads has them, in `dependencies`. An
epic is no task: who waits for it waits for all of its children, and these for what it waits for. Any other parent is
done after its children.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from agentq.coordinator.limits import NAME_LENGTH
from agentq.planning.faults import Fault, Faulty, Place, nearest, shown
from agentq.planning.importing_markdown import slug
from agentq.planning.reading_json import read_json
from agentq.planning.tree import Row, Table, plain, text_of

DONE = {
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
WAITS = ("needs", "depends_on", "dependsOn", "blocked_by", "blockedBy", "blocked-by", "after", "deps")
BLOCKS = ("blocks",)
BY_TYPE = {"blocks", "blocked-by", "blocked_by", "depends-on", "depends_on", "conditional-blocks", "waits-for"}
"""Dependencies of beads that must be waited for; `related` and `discovered-from` are none."""
PARENT = {"parent-child", "parent"}
TITLES = ("title", "summary", "name")
TEXTS = ("prompt", "description", "body", "design", "acceptance_criteria", "notes")
URGENCY = (9, 7, 5, 3, 1)
"""Of the priorities of beads, 0 being the most urgent."""


class _Line(NamedTuple):
    id: str
    table: Table
    waits: dict[str, Place]
    epic: bool
    done: bool


def import_lines(text: str, file: str) -> dict[str, Any]:
    """The plan that a tracker's tasks make."""
    lines = [_line(read_json(line, file, line=number), Place(file, number, 1)) for number, line in _numbered(text)]
    if not lines:
        raise Faulty([Fault(Place(file, 1, 1), "", "there is no task in this file")])
    by_id: dict[str, _Line] = {}
    for each in lines:
        if each.id in by_id:
            raise Faulty(
                [Fault(each.table.at, "id", f"the id {shown(each.id)} is taken in line {by_id[each.id].table.at.line}")]
            )
        by_id[each.id] = each
    children = _family(lines, by_id)
    _check(lines, by_id)
    names = {each.id: _name(each.id) for each in lines}
    open_ = [each for each in lines if not each.done and not (each.epic and children.get(each.id))]
    parents: dict[str, list[str]] = {}
    for parent, members in children.items():
        for child in members:
            parents.setdefault(child, []).append(parent)
    tasks = [_task(each, names, _waits_for(each, by_id, children, parents)) for each in open_]
    if not tasks:
        raise Faulty([Fault(Place(file, 1, 1), "", "all tasks of this file are done already")])
    return {"tasks": tasks}


def _numbered(text: str) -> list[tuple[int, str]]:
    return [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def _name(id_: str) -> str:
    return id_ if slug(id_, NAME_LENGTH) == id_.lower() else slug(id_, NAME_LENGTH)


def _line(read: Any, place: Place) -> _Line:
    if not isinstance(read, Table) or "id" not in read:
        raise Faulty([Fault(place, "", "each line is a task, which is an object with an id")])
    waits: dict[str, Place] = {}
    for key in WAITS:
        for number, each in enumerate(_several(read.get(key))):
            said = read[key]
            waits[text_of(each)] = said.places[number] if isinstance(said, Row) else read.value_at(key)
    status = text_of(read.get("status", read.get("state", "open"))).lower()
    kind = text_of(read.get("issue_type", read.get("type", "")))
    return _Line(text_of(read["id"]), read, waits, kind.lower() == "epic", status in DONE)


def _several(said: Any) -> list[Any]:
    return [] if said is None else said if isinstance(said, list) else [said]


def _family(lines: list[_Line], by_id: dict[str, _Line]) -> dict[str, list[str]]:
    """What stands with others is written down with those that wait; the children of each."""
    children: dict[str, list[str]] = {}
    for each in lines:
        for key in BLOCKS:
            for number, other in enumerate(_several(each.table.get(key))):
                if (waiting := by_id.get(text_of(other))) is not None:
                    waiting.waits[each.id] = place_in(each.table, key, number)
        for number, said in enumerate(_several(each.table.get("dependencies"))):
            place = place_in(each.table, "dependencies", number)
            if not isinstance(said, dict):
                each.waits[text_of(said)] = place
                continue
            kind, other = text_of(said.get("type", "blocks")), text_of(said.get("depends_on_id", said.get("id", "")))
            if kind in PARENT:
                children.setdefault(other, []).append(each.id)
            elif kind in BY_TYPE:
                each.waits[other] = place
        if isinstance(parent := each.table.get("parent", each.table.get("parent_id")), str) and parent:
            children.setdefault(parent, []).append(each.id)
    return children


def place_in(table: Table, key: str, number: int) -> Place:
    """Where one of several stands."""
    said = table[key]
    return said.places[number] if isinstance(said, Row) else table.value_at(key)


def _check(lines: list[_Line], by_id: dict[str, _Line]) -> None:
    faults = [
        Fault(place, each.id, f"it waits for {shown(other)}, which is not in this file", nearest(other, by_id))
        for each in lines
        if not each.done
        for other, place in each.waits.items()
        if other not in by_id
    ]
    if faults:
        raise Faulty(faults)


def _waits_for(
    each: _Line, by_id: dict[str, _Line], children: dict[str, list[str]], parents: dict[str, list[str]]
) -> list[str]:
    """The tasks that one waits for: its own, its children, and what the epics above it wait for; epics resolved."""
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


def _task(each: _Line, names: dict[str, str], waits: list[str]) -> dict[str, Any]:
    table = plain(each.table)
    title = next((str(table[key]) for key in TITLES if table.get(key)), each.id)
    texts = [str(table[key]).strip() for key in TEXTS if isinstance(table.get(key), str) and table[key].strip()]
    task: dict[str, Any] = {"id": names[each.id], "title": title[:128]}
    if "command" in table:
        task["command"] = table["command"]
    else:
        prompt = "\n\n".join(dict.fromkeys([*([] if "prompt" in table else [title]), *texts]))
        task["prompt"] = prompt + "\n" if "\n" in prompt else prompt
    task |= {key: table[key] for key in ("agent", "check", "timeout") if key in table}
    if isinstance(priority := table.get("priority"), int) and not isinstance(priority, bool):
        beads = "issue_type" in table or "dependencies" in table
        task["priority"] = URGENCY[min(max(priority, 0), 4)] if beads else min(max(priority, 0), 9)
    return task | ({"needs": [names[other] for other in waits]} if waits else {})
