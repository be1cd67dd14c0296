"""The published schema accepts what the reader accepts, and describes each key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator
from support.generated_docs import ROOT, plan_schema_file

from agentq.coordinator.model.retry_policy import RetryPolicy
from agentq.coordinator.model.workspace import WorkspaceSpec
from agentq.planning.compiler import compile_plan
from agentq.planning.expand.expander import expand_plan
from agentq.planning.read.plan_file import read_plan
from agentq.planning.read.source_tree import strip_positions
from agentq.planning.repository import PlanRepository
from agentq.planning.schema import plan_schema

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
SITE = PlanRepository("/repository", True, "main", "agentq/plan")


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    return Draft202012Validator(plan_schema())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_fit_the_schema_and_can_be_submitted(path: Path, validator: Draft202012Validator) -> None:
    tree = strip_positions(read_plan(str(path)))
    given = {"version": "1.2"} if "version" in tree.get("vars", {}) else {}

    assert [error.message for error in validator.iter_errors(tree)] == []
    assert compile_plan(expand_plan(str(path), given), "plan-1", SITE).tasks


def test_the_schema_beside_the_examples_is_the_present_one() -> None:
    """If this fails: python tests/support/generated_docs.py."""
    assert (ROOT / "examples/plan.schema.json").read_text() == plan_schema_file()


GOOD = [
    {"id": "a", "command": "make", "check": "make test", "setup": {"command": "x | y", "shell": True, "timeout": "5m"}},
    {"id": "a", "command": ["make", 3.1], "env": {"A": 1, "B": True}, "limits": ["a"], "workspace": False},
    {"id": "a", "prompt": "x", "agent": "y", "priority": "{{ vars.p }}", "workspace": {"ports": "PORT"}, "needs": "b"},
    {"id": "a", "function": "a:b", "args": {"x": [1]}, "matrix": {"a": [1, "b"]}, "memory": "512M", "max_cost": 0.5},
    {"id": "a", "command": "x", "foreach": "{{ vars.all }}", "retry": {"classes": {"timeout": {"retries": 1}}}},
]
BAD: list[dict[str, Any]] = [
    {"command": "make"},
    {"id": "a", "comand": "make"},
    {"id": "a", "command": "make", "priority": 10},
    {"id": "a", "command": "make", "timeout": 5},
    {"id": "a", "command": "make", "workspace": {"merge": "octopus"}},
    {"id": "a", "command": "make", "workspace": True},
    {"id": "a", "command": "make", "retry": {"classes": {"bad": {}}}},
]


@pytest.mark.parametrize("task", GOOD)
def test_the_schema_takes_it(task: dict[str, Any], validator: Draft202012Validator) -> None:
    assert [error.message for error in validator.iter_errors({"tasks": [task]})] == []


@pytest.mark.parametrize("task", BAD)
def test_the_schema_refuses_it(task: dict[str, Any], validator: Draft202012Validator) -> None:
    assert not validator.is_valid({"tasks": [task]})


def test_every_key_says_what_it_is_for() -> None:
    schema = plan_schema()

    def nameless(part: dict[str, Any], path: str) -> Iterator[str]:
        for name, said in part.get("properties", {}).items():
            if "description" not in said and path != "TaskClassRetry":
                yield f"{path}.{name}"

    found = [name for part, body in [("Plan", schema), *schema["$defs"].items()] for name in nameless(body, part)]
    assert found == []


def test_the_tables_tell_how_often_a_task_is_tried_again_if_it_does_not_say() -> None:
    parts, policy = plan_schema()["$defs"], RetryPolicy()

    def told(part: str, key: str) -> list[str]:
        return re.findall(r"\d+", parts[part]["properties"][key]["description"])

    assert told("TaskDefinition", "retries") == told("TaskRetry", "failures") == [str(policy.failures)]
    assert told("TaskRetry", "crashes") == [str(policy.crashes)]
    assert told("TaskRetry", "deferrals") == [str(policy.deferrals)]
    assert told("WorktreeOptions", "rounds") == [str(WorkspaceSpec.model_fields["rounds"].default)]


BLOCKS = [
    (page, block)
    for page in ("README.md", "coordinator/agentq/planning/README.md")
    for block in re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    if "tasks:" in block
]


@pytest.mark.parametrize(("page", "block"), BLOCKS)
def test_a_plan_in_the_docs_is_one(page: str, block: str, tmp_path: Path, validator: Draft202012Validator) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(block)

    assert [error.message for error in validator.iter_errors(strip_positions(read_plan(str(path))))] == [], page
    assert compile_plan(expand_plan(str(path)), "plan-1", SITE).tasks
