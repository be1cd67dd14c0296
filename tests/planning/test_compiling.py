"""Compiled specs match the plan."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from planning.conftest import SITE, Plan

from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.durations import parse_duration_ms
from agentq.planning.compiler import CompiledPlan

HOST = {"host": socket.gethostname()}


def only(compiled: CompiledPlan) -> dict[str, Any]:
    """The spec of the only task, without defaults."""
    (task,) = compiled.tasks
    return task.spec.model_dump(mode="json", exclude_defaults=True)


def ids(compiled: CompiledPlan) -> list[str]:
    return [task.id for task in compiled.tasks]


KEYS = {
    "command: make -k 'a b'": {"argv": ["make", "-k", "a b"]},
    "command: [make, 3.10]": {"argv": ["make", "3.10"]},
    "{command: 'make && true', shell: true}": {"argv": ["/bin/sh", "-euc", "make && true"]},
    "{command: grep 'a$' '&&'}": {"argv": ["grep", "a$", "&&"]},
    "{command: cat, stdin: text}": {"argv": ["cat"], "stdin": "text"},
    "{function: 'shop:price', args: [1, tea]}": {"kind": "function", "function": "shop:price", "args": [1, "tea"]},
    "{function: 'shop:price', args: {n: 1.5}}": {"kind": "function", "function": "shop:price", "kwargs": {"n": 1.5}},
    "{command: x, title: on}": {"name": "on"},
    "{command: x, title: 2026-11-19}": {"name": "2026-11-19"},
    "{command: x, env: {A: yes, B: 1.50, C: true, D: 2026-01-01}}": {
        "env": {"A": "yes", "B": "1.50", "C": "true", "D": "2026-01-01"}
    },
    "{command: x, queue: builds, priority: 9}": {"queue": "builds", "priority": 9},
    "{command: x, labels: {team: a}, demands: {gpu: a100}}": {"labels": {"team": "a"}, "demands": {"gpu": "a100"}},
    "{command: x, limits: db}": {"limits": {"db": 1}},
    "{command: x, limits: {tokens: 500}}": {"limits": {"tokens": 500}},
    "{command: x, timeout: 1h30m, silence_timeout: 10s, stop_grace: 500ms, delay: 1m, expires: 2d, keep: 30d}": {
        "timeout_ms": 5_400_000,
        "silence_timeout_ms": 10_000,
        "stop_grace_ms": 500,
        "delay_ms": 60_000,
        "expires_ms": 172_800_000,
        "keep_ms": parse_duration_ms("30d"),
    },
    "{command: x, memory: 512M, cpu_time: 90s, nice: 5}": {"caps": {"memory_bytes": 512 << 20, "cpu_s": 90, "nice": 5}},
    "{command: x, retries: 2, retry: {delay: 5s, delay_max: 1m, only: [exit], classes: {timeout: {retries: 1}}}}": {
        "retry": {
            "failures": 2,
            "delay_ms": 5000,
            "delay_ms_max": 60_000,
            "only": ["exit"],
            "classes": {"timeout": {"retries": 1}},
        },
    },
    "{command: x, on_failed: run}": {"on_failed": "run"},
    "{agent: claude, prompt: Do it., model: big, permissions: full, max_cost: 2.5, max_tokens: 500k, max_turns: 9}": {
        "kind": "agent",
        "agent": "claude",
        "prompt": "Do it.",
        "turn": {"model": "big", "permissions": "full", "budgets": {"cost_usd": 2.5, "tokens": 500_000, "turns": 9}},
    },
    "{agent: a, prompt: x, trust: repo, account: me, expects: changes, on_limit: fail, context: plan}": {
        "turn": {
            "trust": "repo",
            "account": "me",
            "expects": "changes",
            "on_limit": "fail",
        },
        "context": "plan",
    },
}


@pytest.mark.parametrize(("task", "fields"), KEYS.items())
def test_a_key_of_a_task_fills_a_field_of_its_run(plan: Plan, task: str, fields: dict[str, Any]) -> None:
    body = task[1:-1] if task.startswith("{") else task
    spec = only(plan(f"tasks: [{{id: a, {body}}}]"))

    assert {name: spec[name] for name in fields if name != "demands"} == {
        name: value for name, value in fields.items() if name != "demands"
    }
    assert fields.get("demands", {}).items() <= spec.get("demands", {}).items()
    assert spec["plan"], spec["task"] == ("plan-1", "a")


def test_a_task_without_a_worktree_works_in_the_plans_folder_on_this_host(plan: Plan, tmp_path: Path) -> None:
    spec = only(plan("tasks: [{id: a, command: make, cwd: web}]"))

    assert spec["cwd"] == str(tmp_path / "web")
    assert spec["demands"] == HOST


def test_a_function_may_run_anywhere(plan: Plan) -> None:
    assert only(plan("tasks: [{id: a, function: 'm:f'}]")).keys().isdisjoint(("demands", "cwd", "workspace"))


WORK = """
repository: .
merge: rebase
check: make test
setup: {command: npm ci && true, shell: true, timeout: 5m}
workspace: {copy_files: .env, ports: [PORT], keep: always}
tasks:
- id: a
  agent: standin
  prompt: Do it.
  cwd: web
  check: [make, quick]
  workspace: {merge: none, keep: never}
"""


def test_what_is_said_of_worktrees_is_said_by_the_plan_and_then_by_the_task(plan: Plan) -> None:
    spec = only(plan(WORK, site=SITE))

    assert spec["cwd"] == "web"
    assert spec["demands"] == HOST
    assert spec["workspace"] == {
        "repository": "/repository",
        "base": "main",
        "target": "agentq/plan",
        "merge": "none",
        "check": ["make", "quick"],
        "setup": ["/bin/sh", "-euc", "npm ci && true"],
        "setup_timeout_ms": 300_000,
        "copy_files": [".env"],
        "ports": ["PORT"],
        "keep": "never",
    }


def test_the_work_goes_to_the_target_of_the_site(plan: Plan) -> None:
    text = "repository: .\ntasks: [{id: a, command: make}, {id: b, command: make, workspace: false}]"
    merged, beside = plan(text, site=SITE).tasks

    assert merged.spec.workspace is not None
    assert (merged.spec.workspace.base, merged.spec.workspace.target) == ("main", "agentq/plan")
    assert beside.spec.workspace is None


def test_defaults_are_of_those_whom_they_concern(plan: Plan) -> None:
    text = """
    repository: .
    defaults: {agent: standin, model: small, timeout: 5m, env: {A: 1, B: 2}, retry: {delay: 1s}, check: make}
    tasks:
    - {id: a, prompt: x, env: {B: 3}, retry: {failures: 1}}
    - {id: b, command: make, timeout: 1m}
    - {id: c, function: 'm:f'}
    """
    a, b, c = (task.spec for task in plan(text, site=SITE).tasks)

    assert (a.env, a.timeout_ms) == ({"A": "1", "B": "3"}, 300_000)
    assert a.turn is not None
    assert a.turn.model == "small"
    assert a.retry is not None
    assert (a.retry.failures, a.retry.delay_ms) == (1, 1000)
    assert (b.agent, b.turn, b.timeout_ms) == (None, None, 60_000)
    assert (c.env, c.workspace, c.timeout_ms) == ({}, None, 300_000)


MATRIX = """
vars: {pythons: [3.10, 3.12]}
tasks:
- {id: all, command: make, needs: build}
- {id: linux, command: make, needs: "build[linux]"}
- {id: one, command: make, needs: "build[3.12,linux]"}
- {id: same, matrix: {py: "{{ vars.pythons }}"}, command: make, needs: "build[{{ matrix.py }}]"}
- id: build
  title: Build on {{ matrix.os }}
  matrix: {py: "{{ vars.pythons }}", os: [linux, mac], exclude: [{py: 3.10, os: mac}]}
  command: make py={{ matrix.py }}
"""


def test_a_matrix_makes_a_task_for_each_combination(plan: Plan) -> None:
    compiled = plan(MATRIX)
    needs = compiled.graph.needs
    build = ["build-3.10-linux", "build-3.12-linux", "build-3.12-mac"]

    assert ids(compiled) == [*build, "all", "linux", "one", "same-3.10", "same-3.12"]
    assert list(needs["all"]) == build
    assert list(needs["linux"]) == build[:2]
    assert list(needs["one"]) == build[1:2]
    assert (list(needs["same-3.10"]), list(needs["same-3.12"])) == (build[:1], build[1:])
    assert [task.spec.argv[1] for task in compiled.tasks[:3]] == ["py=3.10", "py=3.12", "py=3.12"]
    assert compiled.tasks[2].spec.name == "Build on mac"


def test_a_foreach_makes_a_task_for_each_value(plan: Plan) -> None:
    text = """
    tasks:
    - {id: lint, foreach: [src/a.py, b], command: [ruff, "{{ item }}"]}
    - id: ship
      foreach: [{name: eu, n: 1}, {name: us, n: 2}]
      command: "ship {{ item.name }}"
      priority: "{{ item.n }}"
    - {id: none, foreach: [], command: make}
    - {id: last, command: make, needs: [lint, none, "ship[eu]"]}
    """
    compiled = plan(text)

    assert ids(compiled) == ["lint-src-a.py", "lint-b", "ship-eu", "ship-us", "last"]
    assert [list(task.spec.argv) for task in compiled.tasks[:3]] == [
        ["ruff", "src/a.py"],
        ["ruff", "b"],
        ["ship", "eu"],
    ]
    assert [task.spec.priority for task in compiled.tasks[2:4]] == [1, 2]
    assert compiled.graph.needs["last"] == ("lint-src-a.py", "lint-b", "ship-eu")


def test_variables_are_what_was_given_or_what_the_plan_says(plan: Plan) -> None:
    text = """
    vars: {python: 3.10, fast: false, names: [a], level: 1, who: }
    tasks:
    - id: a
      priority: "{{ vars.level }}"
      command: ["{{ vars.python }}{{ vars.fast }}", "{{vars.names}}x", "{{ vars.who }}"]
    """
    given = {"level": "7", "fast": "true", "names": "b,c", "who": "me"}
    (task,) = plan(text, given=given).tasks

    assert list(task.spec.argv) == ["3.10true", '["b", "c"]x', "me"]
    assert task.spec.priority == 7


def test_braces_of_others_and_escaped_ones_stay(plan: Plan) -> None:
    text = r"""
    tasks:
    - {id: a, agent: x, prompt: 'Use {{ user.name }}, ${{ env.X }}, {% if %} and \{{ vars.x }} in {{ plan.name }}.'}
    """

    assert only(plan(text))["prompt"] == "Use {{ user.name }}, ${{ env.X }}, {% if %} and {{ vars.x }} in plan."


def test_what_a_task_gives_is_told_by_the_ids_of_those_it_waits_for(plan: Plan) -> None:
    text = """
    tasks:
    - {id: a, foreach: [x], command: make}
    - {id: b, command: make, needs: a}
    - id: c
      needs: b
      agent: s
      prompt: "See {{tasks.a[x].tail}}, {{ tasks.b.commit }}."
      env: {R: "{{ tasks.b.result }}"}
    - {id: d, needs: b, command: "cat {{ tasks.b.result }} -"}
    """
    _, _, c, d = plan(text).tasks

    assert c.spec.prompt == "See {{ tasks.a-x.tail }}, {{ tasks.b.commit }}."
    assert c.spec.env == {"R": "{{ tasks.b.result }}"}
    assert c.inputs == ("a-x", "b")
    assert list(d.spec.argv) == ["cat", "{{ tasks.b.result }}", "-"]


def test_what_others_wrote_never_becomes_a_part_of_a_shells_program(plan: Plan) -> None:
    text = """
    tasks:
    - {id: a, command: make}
    - {id: b, needs: a, shell: true, command: "echo {{ tasks.a.result }}"}
    """
    with pytest.raises(Invalid, match="it would become a part of what the shell reads"):
        plan(text)


def test_included_files_bring_tasks_with_defaults_and_variables_of_their_own(plan: Plan) -> None:
    files = {
        "parts/web.yaml": """
            vars: {port: 80, who: web}
            defaults: {timeout: 1m, env: {A: web}}
            include: deeper.yaml
            tasks: [{id: web, agent: s, prompt_file: web.md, needs: core}]
        """,
        "parts/deeper.yaml": "tasks: [{id: deep, command: 'echo {{ vars.who }} {{ vars.port }}'}]",
        "parts/web.md": "Listen on {{ vars.port }}, {{ vars.who }}.\n",
    }
    text = """
    vars: {who: plan}
    defaults: {timeout: 2m, priority: 3, env: {A: plan, B: plan}}
    include: [parts/web.yaml]
    tasks: [{id: core, command: make}]
    """
    core, web, deep = (task.spec for task in plan(text, files=files).tasks)

    assert web.prompt == "Listen on 80, plan.\n"
    assert (web.timeout_ms, web.priority, web.env) == (60_000, 3, {"A": "web", "B": "plan"})
    assert list(deep.argv) == ["echo", "plan", "80"]
    assert (deep.timeout_ms, core.timeout_ms) == (60_000, 120_000)


def test_what_is_written_down_as_completed_is_not_done_again(plan: Plan) -> None:
    text = """
    tasks:
    - {id: a, command: make, state: completed}
    - {id: b, command: make, needs: a, state: failed}
    """
    (task,) = plan(text).tasks

    assert (task.id, task.needs) == ("b", ())


def test_no_task_may_cost_more_than_its_whole_plan(plan: Plan) -> None:
    text = """
    budget: 3
    defaults: {agent: s}
    tasks: [{id: a, prompt: x}, {id: b, prompt: x, max_cost: 1}, {id: c, prompt: x, max_cost: 9}, {id: d, command: y}]
    """
    turns = [task.spec.turn for task in plan(text).tasks]

    assert [turn and turn.budgets and turn.budgets.cost_usd for turn in turns] == [3, 1, 3, None]


def test_what_was_completed_before_gives_nothing_here(plan: Plan) -> None:
    text = """
    tasks:
    - {id: a, command: x, state: completed}
    - {id: b, needs: a, command: "echo {{ tasks.a.result }}"}
    """
    with pytest.raises(Invalid, match="the output of a is not known here: it was completed before"):
        plan(text)


def test_json_json_lines_and_yaml_say_the_same(plan: Plan) -> None:
    tasks = [{"id": "a", "command": ["x", "\u00e9\U0001f600"]}, {"id": "b", "needs": ["a"], "command": "y"}]
    head = {"name": "same", "max_parallel": 2}
    texts = {
        "plan.yaml": json.dumps({**head, "tasks": tasks}, ensure_ascii=False),
        "plan.json": json.dumps({**head, "tasks": tasks}, indent="\t"),
        "plan.jsonl": "\n".join(map(json.dumps, [{"plan": head}, *tasks])) + "\n",
        "stdin": json.dumps({**head, "tasks": tasks}),
    }
    made = [plan(text, name=name) for name, text in texts.items()]

    assert all(each == made[0] for each in made)
    assert made[0].tasks[0].spec.limits == {"plan:plan-1": 1}


def test_a_large_plan_is_read_in_time_that_grows_with_it(plan: Plan) -> None:
    tasks = [
        {"id": f"t{n}", "command": "true", "needs": [f"t{m}" for m in range(max(0, n - 3), n)]} for n in range(3000)
    ]
    compiled = plan("\n".join(map(json.dumps, tasks)), name="plan.jsonl")

    assert ids(compiled) == [task["id"] for task in tasks]


def test_reading_a_submit_imports_nothing_of_plans() -> None:
    found = "[m for m in sys.modules if 'yaml' in m or 'planning' in m]"
    program = f"import sys, agentq.cli.commands.submit, agentq.cli.main; print({found})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
