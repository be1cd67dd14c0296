"""Faults of a plan are reported with position, path, sentence and suggestion, and nothing is compiled."""

# Over 400 lines: one table of wrong plans, each with the sentence that it gets.

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from planning.conftest import SITE, Plan

from agentq.coordinator.errors import Invalid
from agentq.planning.errors import did_you_mean
from agentq.planning.expand.expander import expand_plan
from agentq.planning.expand.templates import EXPRESSION_PATTERN, OUTPUT_PATTERN
from agentq.planning.read import plan_file

TASK = "{id: a, command: make}"
REFUSED = {
    "an unknown key": (
        "tasks: [{id: a, comand: make}]",
        "1:17: tasks[0].comand: there is no key 'comand' here. Did you mean 'command'?",
    ),
    "an unknown key of the plan": (
        f"target_branch: x\ntasks: [{TASK}]",
        "1:1: target_branch: there is no key 'target_branch' here",
    ),
    "an unknown key in defaults": (
        f"defaults:\n  promt: x\ntasks: [{TASK}]",
        "2:3: defaults.promt: there is no key 'promt' here",
    ),
    "an unknown key below": (
        "tasks:\n- id: a\n  command: make\n  retry:\n    dely: 5s",
        "5:5: tasks[0].retry.dely: there is no key 'dely' here. Did you mean 'delay'?",
    ),
    "an unknown id": (
        "tasks:\n- {id: build, command: make}\n- {id: b, command: make, needs: [biuld]}",
        "3:34: tasks[1].needs[0]: there is no task 'biuld'. Did you mean 'build'?",
    ),
    "an id that is taken": (
        f"tasks: [{TASK}, {TASK}]",
        "1:38: tasks[1].id: the id 'a' is taken by the task at plan.yaml:1:14",
    ),
    "a key that is there twice": (
        "tasks:\n- id: a\n  id: b",
        "3:3: tasks[0].id: the key 'id' is already in line 2.",
    ),
    "an id that is none": (
        "tasks: [{id: a b, command: make}]",
        "1:14: tasks[0].id: 'a b' cannot stand here: use up to 128 letters",
    ),
    "an id of several words": (
        "name: Spring cleaning\ntasks: [{id: a, command: make}]",
        "and _ . @ + -, beginning with a letter or digit. Did you mean 'Spring-cleaning'?",
    ),
    "no id": ("tasks: [{command: make}]", "1:9: tasks[0]: it needs the key 'id'."),
    "a wrong kind": (
        "tasks: [{id: a, command: make, priority: high}]",
        "1:42: tasks[0].priority: it should be a whole number.",
    ),
    "a number that is too large": (
        "tasks: [{id: a, command: make, priority: 10}]",
        "tasks[0].priority: it should be less than or equal to 9.",
    ),
    "a wrong choice": (
        "tasks: [{id: a, agent: x, prompt: y, permissions: ful}]",
        "tasks[0].permissions: it should be 'read', 'edit' or 'full', not 'ful'. Did you mean 'full'?",
    ),
    "a duration without a unit": (
        "tasks: [{id: a, command: make, timeout: 5}]",
        "1:41: tasks[0].timeout: 5 has no unit",
    ),
    "nothing to do": ("tasks: [{id: a}]", "1:9: tasks[0]: a task needs one of prompt, command or function."),
    "two things to do": (
        "tasks: [{id: a, command: make, function: 'a:b'}]",
        "tasks[0]: a task has either command or function, not both.",
    ),
    "a prompt for nobody": ("tasks: [{id: a, prompt: Do it.}]", "tasks[0]: a task with a prompt needs an agent"),
    "a model for a command": (
        "tasks: [{id: a, command: make, model: big}]",
        "tasks[0]: model is for an agent, and this is a command.",
    ),
    "no tasks": ("name: a", "1:1: tasks: it needs the key 'tasks'."),
    "tasks that are none": ("tasks: {a: b}", "1:8: tasks: tasks are a list, not a mapping."),
    "a task that is none": ("tasks: [make]", "1:9: tasks[0]: a task is a mapping, not text."),
    "a plan that is none": ("- a", "1:1: a plan is a mapping with the key 'tasks', not a list."),
    "nothing": ("", "1:1: a plan is a mapping with the key 'tasks', not nothing."),
    "what a shell does": (
        "tasks: [{id: a, command: make && make test}]",
        "'&&' means something to a shell only; say `shell: true`",
    ),
    "what a shell fills in": ("tasks: [{id: a, command: echo $HOME}]", "'$HOME' means something to a shell only"),
    "what a shell sets": (
        "tasks: [{id: a, command: A=1 make}]",
        "'A=1' before a command means something to a shell only",
    ),
    "a quote that does not end": (
        'tasks: [{id: a, command: "echo \'a"}]',
        "tasks[0].command: the command cannot be split into words: no closing quotation.",
    ),
    "an alias": (
        f"tasks: &all [{TASK}]\nname: *all",
        "1:8: tasks: a plan has no anchors and aliases such as '&all'. Put what several",
    ),
    "a merge key": ("tasks: [{<<: {a: b}, id: a}]", "1:10: tasks[0]: a plan has no merge keys. Put what several"),
    "a tag": (
        "tasks: [{id: !!python/object:os.system a}]",
        "1:14: tasks[0].id: a plan has no tags such as '!!python/object:os.system'",
    ),
    "two documents": (f"tasks: [{TASK}]\n---\ntasks: []", "2:1: a plan is one document, and here begins another."),
    "a tab": (f"tasks:\n\t- {TASK}", "2:1: this is not YAML: while scanning for the next token found character"),
    "a bracket too few": ("tasks: [", "this is not YAML: "),
    "a control character": ("name: \x07\ntasks: []", "1:7: "),
    "a list as a key": (f"tasks: [{TASK}]\n? [a]\n: b", "2:3: a key is a word, not a list or a mapping."),
    "depth": (f"vars: {'[' * 40}{']' * 40}", "this is nested more than 32 levels deep."),
    "an unknown variable": (
        "vars: {python: 3}\ntasks: [{id: a, command: 'echo {{ vars.pyton }}'}]",
        "in '{{ vars.pyton }}', there is no 'pyton'. Did you mean 'python'?",
    ),
    "a variable without a value": (
        f"vars: {{python: }}\ntasks: [{TASK}]",
        "1:8: vars.python: this variable has no value. Give it with --var python=….",
    ),
    "a matrix that is none": (
        "tasks: [{id: a, command: make, matrix: [a]}]",
        "tasks[0].matrix: a matrix is a mapping of names to lists of values, not a list.",
    ),
    "a matrix of a word": (
        "tasks: [{id: a, command: make, matrix: {a: b}}]",
        "tasks[0].matrix.a: it should be a list of single values.",
    ),
    "a large matrix": (
        f"tasks: [{{id: a, command: make, matrix: {{a: {list(range(101))}, b: {list(range(101))}}}}}]",
        "this makes more than 10000 tasks",
    ),
    "an exclusion of nothing": (
        "tasks: [{id: a, command: make, matrix: {os: [b], exclude: [{oss: b}]}}]",
        "tasks[0].matrix.exclude[0].oss: the matrix has no 'oss'. Did you mean 'os'?",
    ),
    "a matrix and a foreach": (
        "tasks: [{id: a, command: make, matrix: {a: [b]}, foreach: [c]}]",
        "a task has either matrix or foreach, not both",
    ),
    "a matrix of nothing": (
        "tasks: [{id: a, command: make, matrix: {}}]",
        "tasks[0].matrix: a matrix needs a name with a list of values.",
    ),
    "variables that are none": (f"vars: [a]\ntasks: [{TASK}]", "1:7: vars: it should be a mapping, not a list."),
    "a file that is none": (
        f"include: 5\ntasks: [{TASK}]",
        "1:10: include: 5 cannot be read: no such file or directory.",
    ),
    "a function that is none": (
        "tasks: [{id: a, function: price}]",
        "1:27: tasks[0].function: 'price' is not a function; write it module:name, such as shop:price.",
    ),
    "a command that is none": (
        "tasks: [{id: a, command: {x: y}}]",
        "1:26: tasks[0].command: a command is a line, or a list of words.",
    ),
    "an empty prompt": ("tasks: [{id: a, agent: b, prompt: ' '}]", "tasks[0]: the prompt is empty; write what"),
    "what a task gives itself": (
        "tasks: [{id: a, command: 'echo {{ tasks.a.result }}'}]",
        "in '{{ tasks.a.result }}', a task cannot use its own output.",
    ),
    "what no task at all gives": (
        "tasks: [{id: a, command: 'echo {{ tasks.result }}'}]",
        "in '{{ tasks.result }}', it needs the id of a task, as in tasks.ID.result.",
    ),
    "a checkout that follows nothing": (
        "repository: .\ntasks: [{id: a, command: x, workspace: {merge: none, update_checkout: true}}]",
        "2:40: tasks[0].workspace: with merge 'none' the work goes nowhere, so it has no update_checkout.",
    ),
    "what a task gives where it cannot": (
        "tasks:\n- {id: a, command: make}\n- {id: b, needs: a, function: 'm:f', args: [{x: '{{ tasks.a.result }}'}]}",
        "3:49: tasks[1].args[0].x: '{{ tasks.a.result }}' is not filled in here, but in command, env, prompt, stdin.",
    ),
    "a foreach that is none": (
        "tasks: [{id: a, command: make, foreach: b}]",
        "tasks[0].foreach: foreach is a list, not text.",
    ),
    "a value of no matrix": (
        "tasks: [{id: a, command: 'echo {{ matrix.a }}'}]",
        "in '{{ matrix.a }}', this task has no matrix.",
    ),
    "an unknown value of a matrix": (
        "tasks:\n- {id: a, command: make, matrix: {os: [linux]}}\n- {id: b, command: make, needs: 'a[mac]'}",
        "3:33: tasks[1].needs: there is no task 'a[mac]'. There is a[linux].",
    ),
    "what a task gives to one that does not wait": (
        "tasks:\n- {id: a, command: make}\n- {id: b, command: 'echo {{ tasks.a.result }}'}",
        "3:20: tasks[1].command: in '{{ tasks.a.result }}', b does not wait for a. Add 'a' to its `needs`.",
    ),
    "what no task gives": (
        "tasks:\n- {id: a, command: make}\n- {id: b, needs: a, command: 'echo {{ tasks.a.reslt }}'}",
        "'reslt' is not an output of a task. Did you mean 'result'?",
    ),
    "what several tasks give": (
        "tasks:\n- {id: a, command: make, foreach: [x, y]}\n- {id: b, needs: a, command: 'echo {{ tasks.a.result }}'}",
        "'a' is 2 tasks. Say which, such as 'a-x'.",
    ),
    "a check without a worktree": (
        "tasks: [{id: a, command: make, check: make}]",
        "1:39: tasks[0].check: check is for a task that has a worktree. Say `repository`",
    ),
    "a check that needs a shell": (
        "check: a | b\nrepository: .\ntasks: [{id: a, command: make}]",
        "1:8: check: '|' means something to a shell only",
    ),
    "args for a command": ("tasks: [{id: a, command: make, args: [b]}]", "args are for a function."),
    "a class that is none": (
        "tasks: [{id: a, command: make, retry: {only: [bad]}}]",
        "tasks[0].retry.only[0]: it should be ",
    ),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED)
def test_a_plan_is_refused_with_its_place_and_a_sentence(plan: Plan, text: str, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        plan(text, site=SITE if "repository" in text else None)

    first = str(refused.value).splitlines()[0]
    assert first.startswith("plan.yaml:")
    assert said in first
    assert first.endswith((".", "?"))


@pytest.mark.parametrize(
    ("needs", "path"),
    [
        ({"a": ["a"]}, "a → a"),
        ({"a": ["b"], "b": ["c"], "c": ["a"]}, "a → b → c → a"),
        ({"a": [], "b": ["a", "d"], "c": ["b"], "d": ["c"]}, "b → d → c → b"),
    ],
)
def test_a_cycle_is_shown_as_a_path(plan: Plan, needs: dict[str, list[str]], path: str) -> None:
    tasks = "\n".join(f"- {{id: {task}, command: make, needs: {of}}}" for task, of in needs.items())

    with pytest.raises(Invalid, match=f"these tasks wait for each other: {path}. Take one of these needs away"):
        plan(f"tasks:\n{tasks}")


def test_a_long_cycle_is_found_without_recursion_and_shown_in_part(plan: Plan) -> None:
    tasks = "\n".join(f'- {{"id": "t{n}", "command": "make", "needs": "t{(n + 1) % 5000}"}}' for n in range(5000))

    with pytest.raises(Invalid, match=r"t0 → t1 → t2 .* → … → t0"):
        plan(f"tasks:\n{tasks}")


def test_all_faults_are_told_at_once_and_each_once(plan: Plan) -> None:
    text = "check: a | b\nbase: main\ntasks:\n- {id: a, command: make, x: 1}\n- {id: b, command: make, timeout: 5}"

    with pytest.raises(Invalid) as refused:
        plan(text, site=SITE)

    assert [line.split(" ")[0] for line in str(refused.value).splitlines()] == [
        "plan.yaml:1:8:", "plan.yaml:4:26:", "plan.yaml:5:35:",
    ]  # fmt: skip


def test_many_faults_are_counted(plan: Plan) -> None:
    with pytest.raises(Invalid, match=r"\nand 480 more\.$"):
        plan("tasks:\n" + "- {id: a b}\n" * 500)


JSON = {
    "a comma too few": ('{"tasks": [{"id": "a" "command": "x"}]}', "1:23: tasks[0]: this is not JSON: ',' is expected"),
    "a key twice": ('{"tasks": [],\n "tasks": []}', "2:2: tasks: the key 'tasks' is already in line 1."),
    "something after": ('{"tasks": []} x', "1:15: here the JSON has ended"),
    "half a character": ('{"name": "\\ud83d", "tasks": []}', "1:10: name: this text has half a character in it."),
    "a text that does not end": ('{"name": "a', "1:10: name: this is not JSON: Unterminated string starting at"),
    "a word": ('{"name": yes}', "1:10: name: this is not JSON: a value is expected, not 'yes}'"),
    "depth": ('{"vars": ' + "[" * 2000, "this is nested more than 32 levels deep."),
    "no key": ("{1: 2}", "1:2: this is not JSON: a key between double quotes is expected."),
    "an unknown key": (
        '{"tasks": [\n\t{"id": "a", "comand": "x"}]}',
        "2:14: tasks[0].comand: there is no key 'comand'",
    ),
}


@pytest.mark.parametrize(("text", "said"), JSON.values(), ids=JSON)
def test_json_is_refused_with_its_place_as_well(plan: Plan, text: str, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        plan(text, name="plan.json")

    assert said in str(refused.value)


LINES = {
    "a list": ("[1]", "1:1: each line is a task, which is an object, not a list."),
    "an unknown key": (
        '{"plan": {"name": "x"}}\n\n{"id": "a", "comand": "x"}',
        "3:13: tasks[0].comand: there is no key",
    ),
    "tasks in the head": (
        '{"plan": {"tasks": []}}',
        "1:11: plan.tasks: in JSON lines, tasks stand on lines of their own",
    ),
    "no JSON": ('{"id": "a", "command": "x"}\n{', "2:2: tasks[1]: this is not JSON"),
}


@pytest.mark.parametrize(("text", "said"), LINES.values(), ids=LINES)
def test_json_lines_are_refused_by_line(plan: Plan, text: str, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        plan(text, name="plan.jsonl")

    assert f"plan.jsonl:{said}" in str(refused.value)


def test_what_is_not_utf8_is_refused_by_place(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_bytes(b"name: a\ntasks: \xff")

    with pytest.raises(Invalid, match=r"plan\.yaml:2:8: a plan is text in UTF-8, and this is something else"):
        expand_plan(str(tmp_path / "plan.yaml"))


def test_a_file_that_is_too_large_is_not_read(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_file, "PLAN_BYTES", 100)

    with pytest.raises(Invalid, match=r"plan\.yaml has more than 100 bytes, which is the most"):
        plan("# " + "x" * 100)


def test_a_bomb_of_aliases_costs_nothing(plan: Plan) -> None:
    bomb = "a: &a [x]\n" + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{f'*{chr(97 + n)},' * 9}]\n" for n in range(9))

    with pytest.raises(Invalid, match="a plan has no anchors and aliases"):
        plan(bomb)


@pytest.mark.parametrize("path", ["missing.yaml", "."])
def test_a_file_that_cannot_be_read_is_named(path: str) -> None:
    with pytest.raises(Invalid, match=r"cannot be read: (no such file|is a directory)"):
        expand_plan(path)


INCLUDES = {
    "one outside": (
        "../x.yaml",
        {},
        "plan.yaml:1:10: include: '../x.yaml' does not lie in the plan's folder. Move it there.",
    ),
    "an absolute one": ("/etc/passwd", {}, "'/etc/passwd' does not lie in the plan's folder"),
    "one that is not there": (
        "x.yaml",
        {},
        "plan.yaml:1:10: include: x.yaml cannot be read: no such file or directory.",
    ),
    "itself": ("plan.yaml", {}, "the files include each other: plan.yaml → plan.yaml."),
    "one that includes it": (
        "a.yaml",
        {"a.yaml": "include: plan.yaml\ntasks: []"},
        "a.yaml:1:10: include: the files include each other: plan.yaml → a.yaml → plan.yaml.",
    ),
    "one twice": (
        "[a.yaml, ./a.yaml]",
        {"a.yaml": "tasks: []"},
        "plan.yaml:1:19: include[1]: './a.yaml' is included twice.",
    ),
    "one with a fault": ("a.yaml", {"a.yaml": "tasks:\n- {id: a}"}, "a.yaml:2:3: tasks[0]: a task needs one of prompt"),
    "one that says what a plan says": (
        "a.yaml",
        {"a.yaml": "base: main\ntasks: []"},
        "a.yaml:1:1: base: there is no key 'base' here.",
    ),
}


@pytest.mark.parametrize(("include", "files", "said"), INCLUDES.values(), ids=INCLUDES)
def test_an_include_is_refused(plan: Plan, include: str, files: dict[str, str], said: str) -> None:
    with pytest.raises(Invalid) as refused:
        plan(f"include: {include}\ntasks: []", files=files)

    assert said in str(refused.value)


def test_a_link_out_of_the_folder_is_no_way_out(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc")

    with pytest.raises(Invalid, match="'out/hostname' does not lie in the plan's folder"):
        plan("tasks: [{id: a, agent: x, prompt_file: out/hostname}]")


@pytest.mark.parametrize(
    "words", ["include: pipe.yaml\ntasks: []", "tasks: [{id: a, agent: x, prompt_file: pipe.yaml}]"]
)
def test_a_file_that_is_a_pipe_is_not_waited_for(plan: Plan, tmp_path: Path, words: str) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")

    with pytest.raises(Invalid, match=r"'pipe\.yaml' is not a regular file"):
        plan(words)


@pytest.mark.parametrize("pattern", [EXPRESSION_PATTERN, OUTPUT_PATTERN])
@pytest.mark.parametrize("text", ["{{ vars", "{{ vars.a b", "{{ tasks.", "{{ tasks.a b"])
def test_a_long_placeholder_takes_no_longer_than_its_length(pattern: re.Pattern[str], text: str) -> None:
    """Each takes minutes where the time goes by the square of the length."""
    assert pattern.search(text + " " * 300_000) is None
    assert pattern.search(text + " x" * 100_000) is None
    assert did_you_mean(text * 10_000, ["x" * 30_000] * 1_000) == ""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pyton": "3"}, "--var pyton: the plan has no such variable. Did you mean 'python'?"),
        ({"python": "x"}, "--var python: 'x' is not a number, as in the plan."),
        ({"fast": "1"}, "--var fast: '1' is not true or false, as in the plan."),
    ],
)
def test_a_variable_that_is_given_is_one_that_the_plan_has(plan: Plan, given: dict[str, str], said: str) -> None:
    with pytest.raises(Invalid) as refused:
        plan("vars: {python: 3.12, fast: true}\ntasks: []", given=given)

    assert said in str(refused.value)
