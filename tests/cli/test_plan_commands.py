"""`agentq plan`: plans as files and as they are carried out, said in this process."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest
from cli.conftest import Cli, sentence
from support.world import World

from agentq.cli.plans.graph import GraphNode, draw_graph
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.plans.source import PlanHeader
from agentq.coordinator.plans.verbs import Plans
from agentq.coordinator.runs.wait import list_signals
from agentq.planning.compiler import CompiledTask
from agentq.planning.submit import submit_plan

PLAN = """
name: shop
max_parallel: 3
defaults: {timeout: 5m}
tasks:
- {id: a, command: make}
- {id: b, foreach: [x, y], needs: a, command: "make {{ item }}", labels: {team: z}, retries: 2}
- {id: c, needs: [b, a], function: "m:f", args: [1], priority: 7}
"""


@pytest.fixture
def shop(cli: Cli, here: Path) -> str:
    """A plan that was submitted; its id."""
    (here / "plan.yaml").write_text(PLAN)
    return cli("plan", "submit", "plan.yaml").out.strip()


def finish(world: World, **outcomes: str) -> None:
    """Let tasks end: `ok`, or with a class of failure."""
    worker = world.worker(f"w{len(outcomes)}{world.store.nonce()}", slots=50, labels={"host": socket.gethostname()})
    plans = Plans(world.queue)
    names = {task.run: task.id for task in plans.all_tasks(plans.ls()[0][0].id)}
    while outcomes:
        claims = worker.claim(50)
        assert claims, f"nobody gives out {outcomes}"
        for claim in claims:
            how = outcomes.pop(names[claim.id].replace("-", "_"))
            if how == "ok":
                assert world.queue.finish([(claim, Outcome(exit_code=0, result={"n": 1}))]) == [None]
            else:
                world.queue.fail(claim, Outcome(class_=OutcomeClass(how), error="it broke"))


def test_a_plan_that_is_fine_is_said_to_be(cli: Cli, here: Path) -> None:
    (here / "plan.yaml").write_text(PLAN)

    assert cli("plan", "validate", "plan.yaml").out == "shop is fine: 4 tasks.\n"
    assert json.loads(cli("plan", "validate", "plan.yaml", "--json").out) == {"name": "shop", "tasks": 4, "valid": True}


@pytest.mark.parametrize(
    "others",
    [
        {},
        {"needs: [tset]": "there is no task 'tset'", "promt: x": "there is no key 'promt'"},
        {"needs: [tset]": "there is no task 'tset'"},
        {"env: {A: '{{ tasks.b.result }}'}": "tasks.b"},
    ],
    ids=["alone", "beside a key", "beside a need", "beside an expression"],
)
def test_a_repository_that_is_not_there_is_told_with_the_other_faults(
    cli: Cli, here: Path, others: dict[str, str]
) -> None:
    task = ", ".join(["id: a", "command: make", *others])
    (here / "plan.yaml").write_text(f"repository: ./nowhere\ntasks: [{{{task}}}, {{id: b, command: make}}]\n")

    answer = cli("plan", "validate", "plan.yaml")

    assert answer.code == 2
    assert len(answer.err.splitlines()) == 1 + len(others)
    assert f"plan.yaml:1:13: repository: {here / 'nowhere'}: there is no such folder." in answer.err
    assert [part for part in others.values() if part not in answer.err] == []


@pytest.mark.parametrize("said", ["none", "https://example.com/nowhere.git", "git@example.com:nowhere"])
def test_a_repository_that_is_no_folder_is_not_looked_for(cli: Cli, here: Path, said: str) -> None:
    (here / "plan.yaml").write_text(f"repository: '{said}'\ntasks: [{{id: a, command: make}}]\n")

    assert cli("plan", "validate", "plan.yaml").out == "plan is fine: 1 task.\n"


def test_each_fault_is_a_line_and_in_json_an_object(cli: Cli, here: Path) -> None:
    (here / "plan.yaml").write_text("tasks:\n- {id: a, comand: make}\n- {id: b, command: make, timeout: 5}\n")
    answer = cli("plan", "validate", "plan.yaml")
    told = [json.loads(line) for line in cli("plan", "validate", "plan.yaml", "--json").lines]

    assert answer.code == 2
    assert answer.err.splitlines() == [
        "plan.yaml:2:11: tasks[0].comand: there is no key 'comand' here. Did you mean 'command'?",
        "plan.yaml:3:35: tasks[1].timeout: 5 has no unit; write a duration like 90s, 5m, 1h30m or 2d.",
    ]
    assert told[0] == {
        "file": "plan.yaml",
        "line": 2,
        "column": 11,
        "path": "tasks[0].comand",
        "error": "there is no key 'comand' here",
        "suggestion": "Did you mean 'command'?",
    }


WRONG = {
    "no such file": (["plan", "submit", "none.yaml"], "none.yaml cannot be read: no such file or directory."),
    "an unknown variable": (["plan", "submit", "plan.yaml", "--var", "x=1"], "--var x: the plan has no such variable."),
    "no value": (["run", "plan.yaml", "--var", "x"], "--var takes a name and a value"),
    "both ways": (
        ["run", "plan.yaml", "--fail-fast", "--keep-going"],
        "--fail-fast and --keep-going contradict each other",
    ),
    "nobody to leave it to": (["run", "plan.yaml", "--detach", "--workers", "0"], "use `agentq plan submit`."),
    "no plan": (["plan", "show", "none"], "There is no plan 'none'; `agentq plan ls` shows those that there are."),
    "nothing to resume": (["resume"], "There is no plan that has not ended"),
    "a format": (
        ["plan", "graph", "plan.yaml", "--format", "svg"],
        "--format takes text, dot, mermaid, json, not 'svg'.",
    ),
    "a task of no plan": (["submit", "--task", "x", "--", "make"], "--task means nothing without --plan."),
    "no task": (["submit", "--plan", "x", "--", "make"], "--plan means nothing without --task."),
    "a base without a repository": (
        ["run", "none.yml", "--base", "main"],
        "--base, --target and --update-checkout are for",
    ),
    "an agent that nobody knows": (["run", "agent.yaml"], "There is no agent 'clade'"),
}


@pytest.mark.parametrize(("words", "said"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_a_sentence_and_changes_nothing(
    cli: Cli, real: World, here: Path, words: list[str], said: str
) -> None:
    (here / "plan.yaml").write_text(PLAN)
    (here / "none.yml").write_text("repository: none\ntasks: [{id: a, command: make}]")
    (here / "agent.yaml").write_text("repository: none\ntasks: [{id: a, agent: clade, prompt: x}]")
    real.submit()
    with real.unchanged():
        answer = cli(*words)

    assert answer.code == 2
    assert said in sentence(answer)


def test_a_submitted_plan_is_listed_and_shown(cli: Cli, real: World, shop: str) -> None:
    finish(real, a="ok")
    (listed,) = [json.loads(line) for line in cli("plan", "ls", "--json").lines]
    shown = json.loads(cli("plan", "show", "shop", "--json").out)

    assert listed["id"] == shop
    assert (listed["state"], listed["counts"]) == ("running", {"completed": 1, "pending": 2, "blocked": 1})
    assert [task["id"] for task in shown["tasks"]] == ["a", "b-x", "b-y", "c"]
    assert shown["file"].endswith("/plan.yaml")
    assert cli("plan", "ls").lines[0].split("\t")[:3] == [shop, "running", "1/4"]
    assert f"{shop}  running" in cli("plan", "show", shop[:8]).out
    assert "did you mean shop?" in cli("plan", "show", "shup").err


def test_what_is_said_of_a_plan_holds_on_the_server(real: World, shop: str) -> None:
    limits = {each.key: each.max for each in real.limits.all()}
    tasks = {task.id: task.run for task in Plans(real.queue).all_tasks(shop)}

    assert limits[f"plan:{shop}"] == 3
    assert real.get(tasks["b-x"]).spec.after == (tasks["a"],)
    assert real.get(tasks["b-x"]).spec.timeout_ms == 300_000


@pytest.mark.parametrize(("flag", "on_failed"), [("--fail-fast", "fail-plan"), ("--keep-going", "skip")])
def test_what_becomes_of_a_plan_is_said_on_the_command_line(
    cli: Cli, real: World, here: Path, flag: str, on_failed: str
) -> None:
    (here / "plan.yaml").write_text(f"on_failed: run\n{PLAN}")
    plan = cli("plan", "submit", "plan.yaml", flag).out.strip()

    assert json.loads(cli("plan", "show", plan, "--json").out)["on_failed"] == on_failed
    runs = Plans(real.queue).runs(plan, ["c"])
    assert real.get(runs["c"]).spec.on_failed == "skip"


def test_a_failed_plan_is_retried_and_goes_on(cli: Cli, real: World, shop: str) -> None:
    finish(real, a="rejected")
    assert json.loads(cli("plan", "show", shop, "--json").out)["state"] == "failed"

    again = cli("plan", "retry", shop)
    finish(real, a="ok", b_x="ok", b_y="ok")

    assert again.out == f"{shop}\trunning\n"
    assert f"`agentq resume {shop}` works on it here" in again.err
    assert json.loads(cli("plan", "show", shop, "--json").out)["counts"] == {"completed": 3, "pending": 1}


def test_a_plan_is_cancelled_with_a_reason(cli: Cli, shop: str) -> None:
    told = json.loads(cli("plan", "cancel", shop, "--reason", "enough", "--json").out)

    assert (told["state"], told["counts"]) == ("cancelled", {"cancelled": 1, "skipped": 3}) or told["counts"] == {
        "cancelled": 4
    }
    assert "enough" in told["stopped_why"]


def test_the_export_of_a_plan_is_a_plan_again(cli: Cli, real: World, here: Path, shop: str) -> None:
    finish(real, a="ok", b_x="rejected", b_y="ok")
    text = cli("plan", "export", shop).out
    (here / "again.yaml").write_text(text)
    lines = [json.loads(line) for line in cli("plan", "export", shop, "--format", "jsonl").lines]

    assert [line.get("state") for line in lines] == [None, "completed", "failed", "completed", "skipped"]
    assert lines[0] == {"plan": {"name": "shop", "repository": "none", "max_parallel": 3}}
    assert lines[2] == {
        "id": "b-x",
        "state": "failed",
        "command": ["make", "x"],
        "cwd": str(here),
        "needs": ["a"],
        "timeout": "5m",
        "labels": {"team": "z"},
        "retry": {"failures": 2},
    }
    assert cli("plan", "graph", "again.yaml", "--format", "json").out == (
        '{"tasks": [{"id": "b-x", "state": null, "agent": null, "needs": []}, '
        '{"id": "c", "state": null, "agent": null, "needs": ["b-x"]}]}\n'
    )


def test_a_list_of_tasks_is_imported(cli: Cli, here: Path) -> None:
    (here / "TASKS.md").write_text("# Big\n1. [ ] One\n2. [ ] Two\n")
    (here / "plan.yaml").write_text(cli("plan", "import", "TASKS.md", "--agent", "standin", "--name", "big").out)
    answer = cli("plan", "import", "-", stdin='{"id": "a", "needs": ["b"]}')

    assert cli("plan", "graph", "plan.yaml").lines == ["one     standin", "└─ two  standin"]
    assert "is not in a git repository" in cli("run", "plan.yaml", "--dry-run").err
    assert "name: big\ndefaults:\n  agent: standin\ntasks:\n  - id: one\n" in (here / "plan.yaml").read_text()
    assert answer.err == "stdin:1:23: a: it waits for 'b', which is not in this file.\n"


NODES = [
    GraphNode("a", "completed", ()),
    GraphNode("b", "running", ("a",)),
    GraphNode("c", "", ("a", "b")),
    GraphNode("d", "", ("a",)),
]


def test_without_an_id_the_newest_plan_is_meant(cli: Cli, here: Path) -> None:
    (here / "plan.yaml").write_text(
        "repository: none\ntasks:\n- {id: one, command: make}\n- {id: two, command: make, needs: one}\n"
    )
    assert "There is no plan; `agentq run plan.yaml` begins one." in cli("plan", "show").err
    cli("plan", "submit", "plan.yaml")
    newest = cli("plan", "submit", "plan.yaml").lines[0]

    assert cli("plan", "show").lines[0].startswith(newest)
    assert [line.split()[0] for line in cli("plan", "graph").lines] == ["one", "└─"]


def test_the_graph_is_drawn_as_a_tree_with_each_task_once() -> None:
    assert draw_graph(NODES, "text").splitlines() == [
        "a        completed",
        "├─ b     running",
        "│  └─ c  also needs a",
        "└─ d",
    ]


def test_the_graph_tells_the_agent_of_each_task() -> None:
    nodes = [
        GraphNode("a", "completed", (), "codex"),
        GraphNode("b", "running", ("a",)),
        GraphNode("c", "", ("b",), "claude"),
    ]

    assert draw_graph(nodes, "text").splitlines() == [
        "a        completed   codex",
        "└─ b     running",
        "   └─ c  claude",
    ]
    assert '"a" [label="a\\ncodex\\ncompleted"' in draw_graph(nodes, "dot")
    assert '["c<br/>claude"]' in draw_graph(nodes, "mermaid")
    assert json.loads(draw_graph(nodes, "json"))["tasks"][2]["agent"] == "claude"


def test_show_says_the_agent_and_not_the_name_of_the_task(cli: Cli, real: World, here: Path) -> None:
    (here / "plan.yaml").write_text("name: big\nrepository: none\ntasks:\n- {id: one, agent: claude, prompt: Do it}\n")
    plan = cli("plan", "submit", "plan.yaml").out.strip()
    (task,) = Plans(real.queue).all_tasks(plan)

    assert json.loads(cli("show", "big/one", "--json").out)["spec"]["agent"] == "claude"
    assert re.search(r"^ *agent\s+claude$", cli("show", task.run).out, re.M)
    assert re.search(r"^one\s.*\bclaude\b", cli("plan", "show", plan).out, re.M)


@pytest.mark.parametrize(
    ("format_", "lines"),
    [
        ("dot", ['  "a" [label="a\\ncompleted", fillcolor="#b7e4c7"];', '  "a" -> "b";', '  "b" -> "c";']),
        ("mermaid", ['  t0["a<br/>completed"]:::completed', "  t0 --> t1", "  t1 --> t2", "graph LR"]),
    ],
)
def test_the_graph_is_drawn_for_programs(format_: str, lines: list[str]) -> None:
    drawn = draw_graph(NODES, format_).splitlines()

    assert [line for line in lines if line not in drawn] == []


def test_a_task_is_added_to_a_plan_that_has_begun(cli: Cli, real: World, shop: str) -> None:
    finish(real, a="ok")
    answer = cli("submit", "--plan", shop, "--task", "late", "--needs", "a", "--", "echo", "{{ tasks.b-x.result }}")
    tasks = {task.id: task.run for task in Plans(real.queue).all_tasks(shop)}
    spec = real.get(tasks["late"]).spec

    assert answer.out.strip() == tasks["late"]
    assert set(spec.after) == {tasks["a"], tasks["b-x"]}
    assert spec.inputs == {"b-x": tasks["b-x"]}
    assert spec.limits == {f"plan:{shop}": 1}
    assert "exists already" in cli("submit", "--plan", shop, "--task", "late", "--", "x").err


def test_a_hint_is_left_for_an_agent_and_for_nobody_else(cli: Cli, real: World) -> None:
    run = real.submit(kind="agent", agent="claude", argv=(), prompt="x")
    assert cli("hint", run, "Look", "in docs/.").out == f"{run}\tpending\n"
    assert [(each.name, each.data) for each in list_signals(real.store, run)] == [("hint", "Look in docs/.")]

    refused = cli("hint", real.submit(), "Look.")
    assert refused.code == 2
    assert "is a command; only runs of agents take hints" in refused.err

    real.queue.cancel(run)
    assert cli("hint", run, "Look.").code == 5
    assert cli("hint", run, "Look again.", "--retry").out == f"{run}\tpending\n"
    assert [each.data for each in list_signals(real.store, run)] == ["Look again."]


def test_a_plan_is_resumed_where_its_folders_are(cli: Cli, real: World) -> None:
    head = PlanHeader(name="far", host="elsewhere")
    submit_plan(Plans(real.queue), "far-1", head, [CompiledTask("a", RunSpec(kind="command", argv=["make"]), (), ())])
    refused = cli("resume", "far-1")

    assert refused.code == 5
    assert "The plan far-1 works in folders of elsewhere, and this is" in sentence(refused)


def test_a_dry_run_does_nothing(cli: Cli, real: World, here: Path) -> None:
    (here / "plan.yaml").write_text(PLAN)
    with real.unchanged():
        answer = cli("run", "plan.yaml", "--dry-run")

    assert answer.lines == ["a\tmake", "b-x\tmake x\tafter a", "b-y\tmake y\tafter a", "c\tm:f(1)\tafter b-x, b-y, a"]
