"""Files that a plan is made of: those that it includes, and those with prompts. All lie in the plan's folder.

A file's own variables and defaults hold for its own tasks, where the plan says nothing of the kind.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from agentq.coordinator.errors import Invalid
from agentq.coordinator.limits import PLAN_FILES
from agentq.planning.document import read_file, read_plan, shown_path
from agentq.planning.faults import Faulty, Place, refuse, shown
from agentq.planning.tree import Row, Table, text_of


@dataclass
class Gathered:
    """The tasks of one file, and what holds for them."""

    table: Table
    folder: Path
    above: Gathered | None = None
    file: str = ""

    def line(self) -> list[Gathered]:
        """This file and those that include it, the plan first."""
        return [*(self.above.line() if self.above else []), self]


def gather(path: str, format_: str | None = None) -> list[Gathered]:
    """A plan file and all that it includes, the plan first."""
    table = read_plan(path, format_)
    folder = Path(path).resolve().parent if path != "-" else Path.cwd()
    first = Gathered(table, folder, file=str(Path(path).resolve()))
    found = [first]
    _include(first, folder, found)
    return found


def _include(of: Gathered, root: Path, found: list[Gathered]) -> None:
    said = of.table.get("include")
    for number, name in enumerate(said if isinstance(said, Row) else [] if said is None else [said]):
        at, where = of.table.value_at("include"), of.table.path_of("include")
        if isinstance(said, Row):
            at, where = said.places[number], f"{where}[{number}]"
        path = confined(text_of(name), of.folder, root, at, where)
        line = [each.file for each in of.line()]
        if str(path) in line:
            names = [shown_path(each) for each in [*line[line.index(str(path)) :], str(path)]]
            raise refuse(at, where, f"the files include each other: {' → '.join(names)}")
        if any(each.file == str(path) for each in found):
            raise refuse(at, where, f"{shown(text_of(name))} is included twice", "Take one of the two away")
        if len(found) >= PLAN_FILES:
            raise refuse(at, where, f"a plan is made of {PLAN_FILES} files at the most")
        included = Gathered(_read(path, at, where), path.parent, of, str(path))
        found.append(included)
        _include(included, root, found)


def _read(path: Path, at: Place, where: str) -> Table:
    try:
        return read_plan(shown_path(str(path)))
    except Faulty:
        raise
    except Invalid as invalid:
        raise refuse(at, where, str(invalid).rstrip(".")) from None


def confined(name: str, folder: Path, root: Path, at: Place, where: str) -> Path:
    """The file of that name, which lies in the plan's folder or below it, also when links are followed."""
    path = Path(os.path.realpath(folder / name))
    if not name or not path.is_relative_to(os.path.realpath(root)):
        raise refuse(at, where, f"{shown(name)} does not lie in the plan's folder", "Move it there")
    if path.exists() and not path.is_file() and not path.is_dir():
        # To read a pipe could take for ever.
        raise refuse(at, where, f"{shown(name)} is not a regular file")
    return path


def read_prompt(task: Table, folder: Path, root: Path) -> Table:
    """A task whose prompt stands in a file, with the prompt."""
    if "prompt_file" not in task:
        return task
    at, where = task.value_at("prompt_file"), task.path_of("prompt_file")
    if "prompt" in task:
        raise refuse(at, where, "a task has either prompt or prompt_file, not both")
    name = text_of(task["prompt_file"])
    path = confined(name, folder, root, at, where)
    try:
        text = read_file(str(path))
    except Faulty:
        raise refuse(at, where, f"{shown(name)} is not text in UTF-8") from None
    except Invalid as invalid:
        raise refuse(at, where, str(invalid).rstrip(".")) from None
    whole = task.without(["prompt_file"])
    whole["prompt"] = text
    whole.places["prompt"] = task.places["prompt_file"]
    return whole
