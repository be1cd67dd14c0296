"""Ways in which others fail that work through plans. Each is tried here; the numbers are those of a list of twenty."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from plans.conftest import MORTAL, Desk
from support.servers import Server, until

from agentq.coordinator.errors import Invalid
from agentq.planning.compiler import compile_plan
from agentq.planning.convert.jsonl_import import import_jsonl
from agentq.planning.convert.plan_text import format_plan
from agentq.planning.expand.expander import expand_plan

LONG = 300 << 10
"""Of a prompt: Linux takes 128 KiB in one argument."""


@pytest.fixture(scope="module")
def evening(valkey: Server) -> Iterator[tuple[Desk, dict[str, Any]]]:
    """A plan of which some tasks fail, some wait and one has much to read; and how it ended."""
    folder = Path(tempfile.mkdtemp(prefix="aq"))
    desk = Desk(folder, valkey.url)
    prompt = "Read this.\n" + "words words words words\n" * (LONG // 24) + "WRITE read.txt yes\n"
    (desk.depot.path / "prompt.md").write_text(prompt)
    desk.plan(
        """
repository: .
tasks:
- {id: bad, command: "false"}
- {id: after-bad, needs: bad, command: "touch never.txt"}
- {id: after-that, needs: after-bad, command: "touch never.txt"}
- {id: read, agent: standin, prompt_file: prompt.md}
- {id: second, needs: read, command: "cp read.txt second.txt"}
- {id: third, needs: second, command: "cp second.txt third.txt"}
"""
    )
    said = desk.run(code=1)
    yield desk, said
    desk.close()
    rmtree(folder, ignore_errors=True)


Evening = tuple[Desk, dict[str, Any]]


def states(said: dict[str, Any]) -> dict[str, str]:
    return {task["id"]: task["state"] for task in said["tasks"]}


def test_04_the_command_returns_when_the_last_task_has_ended_and_leaves_no_worker(evening: Evening) -> None:
    desk, said = evening

    assert said["ended_at"] is not None
    assert desk.workers() == []


@pytest.mark.full("takes 2 s")
def test_11_tasks_that_need_others_are_carried_out_and_have_their_work(evening: Evening) -> None:
    desk, said = evening

    assert [states(said)[name] for name in ("read", "second", "third")] == ["completed"] * 3
    assert desk.depot.read("agentq/plan", "third.txt") == "yes"


@pytest.mark.full("takes 1 s")
def test_12_what_needs_a_failed_task_ends_by_name_and_nobody_calls_that_success(evening: Evening) -> None:
    """The command's exit code is 1, which the fixture asks for."""
    _, said = evening

    assert [states(said)[name] for name in ("bad", "after-bad", "after-that")] == ["failed", "skipped", "skipped"]
    assert {task["id"]: task["because"] for task in said["tasks"]}["after-that"] == "needs after-bad (skipped)"


@pytest.mark.full("takes 3 s")
def test_18_a_prompt_that_no_argument_could_hold_reaches_the_agent(evening: Evening) -> None:
    desk, _ = evening

    assert desk.depot.read("agentq/plan", "read.txt") == "yes"


def test_12_an_import_cannot_bring_a_cycle_into_the_world(tmp_path: Path) -> None:
    lines = [{"id": "a", "title": "A", "blocked_by": ["b"]}, {"id": "b", "title": "B", "blocked_by": ["a"]}]
    plan = import_jsonl("\n".join(map(json.dumps, lines)), "issues.jsonl")
    path = tmp_path / "plan.yaml"
    path.write_text(format_plan({"defaults": {"agent": "standin"}, "repository": "none", **plan}, "yaml"))

    with pytest.raises(Invalid, match="these tasks wait for each other: a → b → a"):
        compile_plan(expand_plan(str(path)), "plan-1")


def test_20_an_import_knows_who_is_blocked_and_how_urgent_it_is() -> None:
    lines = [
        {"id": "a", "title": "A", "priority": 0, "issue_type": "task"},
        {"id": "b", "title": "B", "priority": 4, "issue_type": "task", "blocked_by": ["a"]},
    ]
    first, second = import_jsonl("\n".join(map(json.dumps, lines)), "issues.jsonl")["tasks"]

    assert (first["priority"], second["priority"], second["needs"]) == (9, 1, ["a"])


@pytest.mark.full("takes 6 s")
def test_07_a_task_that_kills_its_worker_each_time_has_an_end(make_desk: Any, valkey: Server) -> None:
    desk = make_desk(valkey)
    desk.times = MORTAL
    log = desk.folder / "log"
    desk.plan(
        f"""
repository: none
tasks:
- id: killer
  shell: true
  command: "echo killer >> {log}; kill -9 $PPID; sleep 30"
  retry: {{crashes: 1, delay: 100ms}}
"""
    )
    said = desk.run(code=1)

    assert said["tasks"][0]["class"] == "lost"
    assert desk.began("killer") == 2


@pytest.mark.full("takes 1 s")
def test_08_a_plan_that_is_cancelled_has_its_processes_stopped_and_stays_cancelled(desk: Desk) -> None:
    pids = desk.folder / "pids"
    desk.plan(f'repository: .\ntasks: [{{id: a, shell: true, command: "echo $$ > {pids}; exec sleep 60"}}]')
    program = desk.begin("run", "plan.yaml", "--workers", "1", "--json")
    until(lambda: pids.exists() and pids.read_text().strip(), "the task to begin", 60)
    plan = desk.newest()
    assert plan is not None
    desk.say("plan", "cancel", plan.id, "--reason", "changed my mind")
    out, _ = program.communicate(timeout=60)

    assert program.returncode == 1
    assert json.loads(out)["state"] == "cancelled"
    assert desk.tasks()["a"].state.value == "cancelled"
    assert not Path(f"/proc/{pids.read_text().strip()}").exists()


@pytest.mark.full("takes 1 s")
def test_09_as_many_tasks_run_at_once_as_there_are_workers(desk: Desk) -> None:
    """Each of them waits until it has seen all eight."""
    meeting = desk.folder / "meeting"
    meeting.mkdir()
    wait = f"touch {meeting}/{{{{ item }}}}; until [ $(ls {meeting} | wc -l) = 8 ]; do sleep 0.05; done"
    desk.plan(
        f"""
repository: none
tasks:
- id: guest
  foreach: [1, 2, 3, 4, 5, 6, 7, 8]
  shell: true
  timeout: 60s
  command: "{wait}"
"""
    )
    said = json.loads(desk.say("run", "plan.yaml", "--workers", "8", "--json"))

    assert said["counts"] == {"completed": 8}
    assert len(os.listdir(meeting)) == 8
