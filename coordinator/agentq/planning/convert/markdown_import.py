"""Imports a Markdown task list into a plan.

    # Spring cleaning                the plan's name
    - [ ] Mend the parser            a task; indented text below it belongs to its prompt
      - [ ] Write a failing test     a part, which runs before the task above it
    - [ ] Release (after: mend-the-parser)
    1. [ ] First                     numbered tasks run in order; others run concurrently
    2. [ ] Then
    - [x] Done already               is not run again

A task's id is made from its title, or given by `(id: name)`. `(after: …)` takes ids or titles, separated by commas.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from agentq.planning.errors import InvalidPlan, PlanProblem, SourcePosition, did_you_mean, quote_value

ID_LENGTH = 48

_ITEM = re.compile(r"^(?P<indent>[ \t]*)(?P<mark>[-*+]|[0-9]{1,9}[.)])[ \t]+\[(?P<box>[ xX~-])\][ \t]+(?P<title>.*\S)")
_HEADING = re.compile(r"^#{1,6}[ \t]+(.*\S)")
_ANNOTATION = re.compile(r"\s*\((after|needs|id):\s*([^()]*)\)", re.IGNORECASE)
_FENCE = re.compile(r"^[ \t]*(```|~~~)")


@dataclass
class _ListItem:
    title: str
    line: int
    column: int
    indent: int
    numbered: bool
    done: bool
    id: str = ""
    after: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    parts: list[_ListItem] = field(default_factory=list)
    before: _ListItem | None = None


def import_markdown(text: str, file: str) -> dict[str, Any]:
    """The plan for a task list."""
    name, items = _read_items(text)
    if not items:
        hint = "Write tasks like `- [ ] Mend the parser`"
        raise InvalidPlan([PlanProblem(SourcePosition(file, 1, 1), "", "there is no task in this text", hint)])
    _assign_ids(items, file)
    by_word = {word.casefold(): item for item in items for word in (item.title, item.id)}
    faults: list[PlanProblem] = []
    tasks = [_plan_task(item, by_word, file, faults) for item in items]
    if faults:
        raise InvalidPlan(faults)
    return {**({"name": slug(name)} if name else {}), "tasks": tasks}


def slug(text: str, length_max: int = ID_LENGTH) -> str:
    """A text as an id: lower case, with hyphens."""
    words = re.sub(r"[^a-z0-9_.@+]+", "-", text.lower()).strip("-._+@")
    return words[:length_max].rstrip("-._+@") or "task"


def _read_items(text: str) -> tuple[str, list[_ListItem]]:
    name, fenced = "", False
    items: list[_ListItem] = []
    line_of: list[_ListItem] = []
    for number, line in enumerate(text.expandtabs(4).split("\n"), 1):
        fenced ^= bool(_FENCE.match(line))
        found = None if fenced else _ITEM.match(line)
        if found:
            item = _parse_item(found, number)
            while line_of and line_of[-1].indent >= item.indent:
                line_of.pop()
            _attach_item(item, line_of, items)
            items.append(item)
            line_of.append(item)
        elif not fenced and (heading := _HEADING.match(line)):
            name = name or heading[1]
            line_of.clear()
        elif line_of and (not line.strip() or len(line) - len(line.lstrip()) > line_of[-1].indent):
            line_of[-1].body.append(line)
    return name, items


def _parse_item(found: re.Match[str], number: int) -> _ListItem:
    title, column = found["title"], found.start("title") + 1
    indent, numbered = len(found["indent"]), found["mark"][0].isdigit()
    item = _ListItem(title, number, column, indent, numbered, found["box"] in "xX")
    for what, annotation in _ANNOTATION.findall(title):
        if what.lower() == "id":
            item.id = annotation.strip()
        else:
            item.after += [word.strip() for word in annotation.split(",") if word.strip()]
    item.title = _ANNOTATION.sub("", title).strip()
    return item


def _attach_item(item: _ListItem, line_of: list[_ListItem], items: list[_ListItem]) -> None:
    """Attach an item to its parent, and to the numbered item before it."""
    above = line_of[-1] if line_of else None
    siblings = above.parts if above else [each for each in items if each.indent == item.indent]
    if (
        item.numbered
        and siblings
        and siblings[-1].numbered
        and (above or siblings[-1] is _last_item(items, item.indent))
    ):
        item.before = siblings[-1]
    if above:
        above.parts.append(item)


def _last_item(items: list[_ListItem], indent: int) -> _ListItem | None:
    return next((each for each in reversed(items) if each.indent <= indent), None)


def _assign_ids(items: list[_ListItem], file: str) -> None:
    """Give each item a unique id."""
    taken = {item.id: item for item in items if item.id}
    for item in items:
        if item.id and taken[item.id] is not item:
            position = SourcePosition(file, taken[item.id].line, taken[item.id].column)
            raise InvalidPlan(
                [PlanProblem(position, "", f"the id {quote_value(item.id)} is taken in line {item.line}")]
            )
    for item in items:
        if not item.id:
            words, number = slug(item.title), 1
            item.id = words
            while item.id in taken:
                number += 1
                item.id = f"{words}-{number}"
            taken[item.id] = item


def _plan_task(item: _ListItem, by_word: dict[str, _ListItem], file: str, faults: list[PlanProblem]) -> dict[str, Any]:
    needs = {part.id: None for part in item.parts}
    if item.before is not None:
        needs[item.before.id] = None
    for word in item.after:
        other = by_word.get(word.casefold())
        if other is None:
            position = SourcePosition(file, item.line, item.column)
            hint = did_you_mean(word, [each.id for each in by_word.values()])
            faults.append(
                PlanProblem(position, item.id, f"there is no task {quote_value(word)} for it to come after", hint)
            )
        else:
            needs[other.id] = None
    prompt = "\n".join([item.title, *_dedent_body(item)]).strip()
    task: dict[str, Any] = {"id": item.id, "title": item.title, "prompt": prompt + "\n" if "\n" in prompt else prompt}
    if needs:
        task["needs"] = list(needs)
    return task | ({"state": "completed"} if item.done else {})


def _dedent_body(item: _ListItem) -> list[str]:
    depth = min((len(line) - len(line.lstrip()) for line in item.body if line.strip()), default=0)
    lines = [line[depth:].rstrip() for line in item.body]
    return ["", *lines] if any(lines) else []
