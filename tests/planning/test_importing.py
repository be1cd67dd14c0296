"""Lists of tasks from elsewhere become plans, and plans are written so that they can be read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from planning.conftest import Plan

from agentq.coordinator.errors import Invalid
from agentq.planning.convert.jsonl_import import import_jsonl
from agentq.planning.convert.markdown_import import import_markdown
from agentq.planning.convert.plan_text import format_plan
from agentq.planning.read.plan_file import read_plan
from agentq.planning.read.source_tree import strip_positions

MARKDOWN = """
# Spring cleaning

Some words.

- [ ] Mend the parser
  It drops empty fields.

  ```
  - [ ] not a task
  ```
  - [ ] Write a failing test
  - [x] Look at it
* [ ] Docs

## Then

1. [ ] Tag
2. [ ] Ship (after: docs, mend the parser) (id: ship)
   - nothing but a line
3. [ ] Tell
- [ ] Docs
"""


def needs(plan: dict[str, Any]) -> dict[str, list[str]]:
    return {task["id"]: task.get("needs", []) for task in plan["tasks"]}


def test_a_markdown_list_becomes_a_plan() -> None:
    plan = import_markdown(MARKDOWN, "tasks.md")
    parser = plan["tasks"][0]

    assert plan["name"] == "spring-cleaning"
    assert needs(plan) == {
        "mend-the-parser": ["write-a-failing-test", "look-at-it"],
        "write-a-failing-test": [],
        "look-at-it": [],
        "docs": [],
        "tag": [],
        "ship": ["tag", "docs-2", "mend-the-parser"],
        "tell": ["ship"],
        "docs-2": [],
    }
    assert parser["prompt"] == "Mend the parser\n\nIt drops empty fields.\n\n```\n- [ ] not a task\n```\n"
    assert [task["id"] for task in plan["tasks"] if task.get("state") == "completed"] == ["look-at-it"]
    assert plan["tasks"][5]["prompt"] == "Ship\n\n- nothing but a line\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no task", "tasks.md:1:1: there is no task in this text. Write tasks like"),
        ("- [ ] A\n- [ ] B (after: C)", "tasks.md:2:7: b: there is no task 'C' for it to come after"),
        ("- [ ] Parser\n- [ ] B (after: parsr)", "Did you mean 'parser'?"),
        ("- [ ] A (id: x)\n- [ ] B (id: x)", "tasks.md:2:7: the id 'x' is taken in line 1."),
    ],
)
def test_a_markdown_list_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        import_markdown(text, "tasks.md")

    assert said in str(refused.value)


BEADS = [
    {"id": "bd-1", "title": "Parser", "issue_type": "epic", "status": "open", "priority": 1,
     "dependencies": [{"depends_on_id": "bd-6", "type": "blocks"}]},
    {"id": "bd-2", "title": "Test", "description": "Write it.", "issue_type": "task", "status": "open", "priority": 0,
     "dependencies": [{"issue_id": "bd-2", "depends_on_id": "bd-1", "type": "parent-child"}]},
    {"id": "bd-3", "title": "Old", "issue_type": "task", "status": "closed"},
    {"id": "bd-4", "title": "Ship", "issue_type": "bug", "status": "open", "priority": 4, "dependencies": [
        {"depends_on_id": "bd-1", "type": "blocks"}, {"depends_on_id": "bd-3", "type": "blocks"},
        {"depends_on_id": "bd-2", "type": "discovered-from"}]},
    {"id": "bd-5", "title": "Tell", "issue_type": "task", "status": "in_progress", "dependencies": [
        {"depends_on_id": "bd-4", "type": "blocked-by"}]},
    {"id": "bd-6", "title": "Look", "issue_type": "task", "status": "open"},
]  # fmt: skip


def test_beads_become_a_plan_without_what_is_closed() -> None:
    plan = import_jsonl("\n".join(map(json.dumps, BEADS)), "issues.jsonl")

    assert needs(plan) == {"bd-2": ["bd-6"], "bd-4": ["bd-2"], "bd-5": ["bd-4"], "bd-6": []}
    assert plan["tasks"][0]["prompt"] == "Test\n\nWrite it.\n"
    assert [task.get("priority") for task in plan["tasks"]] == [9, 1, None, None]


def test_any_lines_with_dependencies_become_a_plan() -> None:
    lines = [
        {"id": 1, "title": "A", "command": "make", "blocks": ["b c"]},
        {"id": "b c", "summary": "B", "body": "Do b.", "agent": "claude"},
        {"id": "d", "prompt": "Do d.", "depends_on": "1", "blocked_by": ["b c"], "status": "todo"},
        {"id": "e", "prompt": "Do e.", "after": ["d"], "status": "done"},
    ]
    plan = import_jsonl("\n".join(map(json.dumps, lines)), "tasks.jsonl")

    assert needs(plan) == {"1": [], "b-c": ["1"], "d": ["1", "b-c"]}
    assert [task.get("prompt", task.get("command")) for task in plan["tasks"]] == ["make", "B\n\nDo b.\n", "Do d."]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('{"id": "a", "needs": ["b"]}', "x.jsonl:1:23: a: it waits for 'b', which is not in this file."),
        ('{"id": "a"}\n{"id": "a"}', "x.jsonl:2:1: id: the id 'a' is taken in line 1."),
        ('{"title": "a"}', "x.jsonl:1:1: each line is a task, which is an object with an id."),
        ('{"id": "a", "status": "closed"}', "all tasks of this file are done already."),
        ("\n", "there is no task in this file."),
        ("{", "x.jsonl:1:2: this is not JSON"),
    ],
)
def test_lines_are_refused_with_their_place(lines: str, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        import_jsonl(lines, "x.jsonl")

    assert said in str(refused.value)


ODD = [
    "yes",
    "on",
    "3.10",
    "1e3",
    "null",
    "~",
    "a: b",
    "# a",
    "- a",
    "2026-01-01",
    "x\ny\n",
    " x ",
    "{{ a }}",
    "é\u2028",
]


@pytest.mark.parametrize("format_", ["yaml", "json", "jsonl"])
def test_what_is_written_is_read_again_as_it_was(tmp_path: Path, format_: str) -> None:
    tasks = [{"id": f"t{n}", "title": text, "command": ["x", text, text]} for n, text in enumerate(ODD)]
    plan = {"name": "odd", "max_parallel": 2, "tasks": tasks}
    path = tmp_path / f"plan.{format_}"
    path.write_text(format_plan(plan, format_))

    assert strip_positions(read_plan(str(path))) == plan


def test_an_imported_plan_can_be_submitted(plan: Plan) -> None:
    text = format_plan(import_markdown(MARKDOWN, "tasks.md"), "yaml")
    compiled = plan(f"defaults: {{agent: standin}}\nrepository: none\n{text}")

    assert len(compiled.tasks) == 7
    assert compiled.name == "spring-cleaning"
