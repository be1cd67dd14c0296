"""Reads a plan file as YAML, JSON or JSON lines, by its suffix.

In JSON lines each line is a task. The first line may be `{"plan": {…}}` instead, with everything but the tasks.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from agentq.coordinator.bounds import PLAN_BYTES, PLAN_TASKS
from agentq.coordinator.errors import Invalid
from agentq.planning.errors import SourcePosition, plan_error
from agentq.planning.read.json_reader import read_json
from agentq.planning.read.source_tree import SourceList, SourceTable

STDIN = "-"
FORMATS = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def read_plan(path: str, format_: str | None = None) -> SourceTable:
    """Parse a plan file, or standard input with `-`."""
    file = "stdin" if path == STDIN else path
    text = read_file(path)
    kind = format_ or FORMATS.get(Path(path).suffix.lower()) or _guess_format(text)
    if kind == "jsonl":
        return _read_lines(text, file)
    if kind == "json":
        tree = read_json(text, file)
    else:
        from agentq.planning.read.yaml_reader import read_yaml

        tree = read_yaml(text, file)
    if not isinstance(tree, SourceTable):
        raise plan_error(
            SourcePosition(file, 1, 1), "", "a plan is a mapping with the key 'tasks', not " + describe_type(tree)
        )
    return tree


def read_file(path: str) -> str:
    """The text of a file, which must be UTF-8 and not too long."""
    try:
        if path == STDIN:
            body = sys.stdin.buffer.read(PLAN_BYTES + 1)
        else:
            with open(path, "rb") as file:
                body = file.read(PLAN_BYTES + 1)
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {(error.strerror or str(error)).lower()}.") from error
    name = "stdin" if path == STDIN else path
    if len(body) > PLAN_BYTES:
        raise Invalid(f"{name} has more than {PLAN_BYTES} bytes, which is the most.")
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = body[: error.start]
        position = SourcePosition(name, before.count(b"\n") + 1, error.start - before.rfind(b"\n"))
        raise plan_error(position, "", "a plan is text in UTF-8, and this is something else") from None


def describe_type(tree: Any) -> str:
    """The type of a value, in a word."""
    if tree is None:
        return "nothing"
    names = {SourceTable: "a mapping", SourceList: "a list", str: "text", bool: "true or false"}
    return next((name for kind, name in names.items() if isinstance(tree, kind)), "a number")


def _guess_format(text: str) -> str:
    """The format of a file without a known suffix."""
    if not text.lstrip().startswith("{"):
        return "yaml"
    lines = [line for line in text.splitlines() if line.strip()]
    is_jsonl = len(lines) > 1 and all(line.startswith("{") and line.rstrip().endswith("}") for line in lines[:50])
    return "jsonl" if is_jsonl else "json"


def _read_lines(text: str, file: str) -> SourceTable:
    """Parse JSON lines: optionally the plan, then one task per line."""
    start = SourcePosition(file, 1, 1)
    plan, tasks = SourceTable(start, ""), SourceList(start, "tasks")
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        position = SourcePosition(file, number, 1)
        if len(tasks) >= PLAN_TASKS:
            raise plan_error(position, "tasks", f"a plan has {PLAN_TASKS} tasks at most")
        read = read_json(line, file, line=number, path=f"tasks[{len(tasks)}]")
        if not isinstance(read, SourceTable):
            raise plan_error(position, "", f"each line is a task, which is an object, not {describe_type(read)}")
        if list(read) == ["plan"] and not tasks and not plan and isinstance(read["plan"], SourceTable):
            plan = read_json(line, file, line=number)["plan"]
            plan.path = ""
            if "tasks" in plan:
                raise plan_error(plan.key_at("tasks"), "plan.tasks", "in JSON lines, tasks stand on lines of their own")
        else:
            tasks.put(read, position)
    plan.put("tasks", tasks, start, start)
    return plan


def short_path(path: str) -> str:
    """A path for messages: relative if that is shorter."""
    return min(path, os.path.relpath(path), key=len)
