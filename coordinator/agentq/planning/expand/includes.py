"""Reads the files of a plan: included plans and prompts. All are in the plan's folder.

A file's variables and defaults apply to its own tasks, unless the plan sets them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from agentq.coordinator.bounds import PLAN_FILES
from agentq.coordinator.errors import Invalid
from agentq.planning.errors import InvalidPlan, SourcePosition, plan_error, quote_value
from agentq.planning.read.plan_file import read_file, read_plan, short_path
from agentq.planning.read.source_tree import SourceList, SourceTable, source_text


@dataclass
class IncludedFile:
    """One file with its tasks and defaults."""

    table: SourceTable
    folder: Path
    included_by: IncludedFile | None = None
    file: str = ""

    def include_chain(self) -> list[IncludedFile]:
        """The files from the plan down to this one."""
        return [*(self.included_by.include_chain() if self.included_by else []), self]


def gather_files(path: str, format_: str | None = None) -> list[IncludedFile]:
    """A plan file and all files that it includes, the plan first."""
    table = read_plan(path, format_)
    folder = Path(path).resolve().parent if path != "-" else Path.cwd()
    first = IncludedFile(table, folder, file=str(Path(path).resolve()))
    found = [first]
    _add_includes(first, folder, found)
    return found


def _add_includes(including: IncludedFile, root: Path, found: list[IncludedFile]) -> None:
    included_names = including.table.get("include")
    for number, name in enumerate(
        included_names if isinstance(included_names, SourceList) else [] if included_names is None else [included_names]
    ):
        at, where = including.table.value_at("include"), including.table.path_of("include")
        if isinstance(included_names, SourceList):
            at, where = included_names.positions[number], f"{where}[{number}]"
        path = resolve_in_folder(source_text(name), including.folder, root, at, where)
        chain = [each.file for each in including.include_chain()]
        if str(path) in chain:
            names = [short_path(each) for each in [*chain[chain.index(str(path)) :], str(path)]]
            raise plan_error(at, where, f"the files include each other: {' → '.join(names)}")
        if any(each.file == str(path) for each in found):
            raise plan_error(
                at, where, f"{quote_value(source_text(name))} is included twice", "Take one of the two away"
            )
        if len(found) >= PLAN_FILES:
            raise plan_error(at, where, f"a plan is made of {PLAN_FILES} files at most")
        included = IncludedFile(_read_included(path, at, where), path.parent, including, str(path))
        found.append(included)
        _add_includes(included, root, found)


def _read_included(path: Path, at: SourcePosition, where: str) -> SourceTable:
    try:
        return read_plan(short_path(str(path)))
    except InvalidPlan:
        raise
    except Invalid as invalid:
        raise plan_error(at, where, str(invalid).rstrip(".")) from None


def resolve_in_folder(name: str, folder: Path, root: Path, at: SourcePosition, where: str) -> Path:
    """The file of that name, which must be in the plan's folder or below it, also after following links."""
    path = Path(os.path.realpath(folder / name))
    if not name or not path.is_relative_to(os.path.realpath(root)):
        raise plan_error(at, where, f"{quote_value(name)} does not lie in the plan's folder", "Move it there")
    if path.exists() and not path.is_file() and not path.is_dir():
        # Reading a pipe could block for ever.
        raise plan_error(at, where, f"{quote_value(name)} is not a regular file")
    return path


def read_prompt(task: SourceTable, folder: Path, root: Path) -> SourceTable:
    """A task with the prompt read from its `prompt_file`."""
    if "prompt_file" not in task:
        return task
    at, where = task.value_at("prompt_file"), task.path_of("prompt_file")
    if "prompt" in task:
        raise plan_error(at, where, "a task has either prompt or prompt_file, not both")
    name = source_text(task["prompt_file"])
    path = resolve_in_folder(name, folder, root, at, where)
    try:
        text = read_file(str(path))
    except InvalidPlan:
        raise plan_error(at, where, f"{quote_value(name)} is not text in UTF-8") from None
    except Invalid as invalid:
        raise plan_error(at, where, str(invalid).rstrip(".")) from None
    with_prompt = task.without(["prompt_file"])
    with_prompt["prompt"] = text
    with_prompt.positions["prompt"] = task.positions["prompt_file"]
    return with_prompt
