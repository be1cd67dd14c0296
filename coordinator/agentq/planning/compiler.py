"""Compiles the tasks of a plan into the specs of runs.

References to outputs of other tasks use task ids here, since runs get their ids with the submit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from agentq.coordinator.model.demands import HOST_LABEL
from agentq.coordinator.model.field_types import PATTERN_MESSAGES
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.model.workspace import WorkspaceSpec
from agentq.planning.errors import InvalidPlan, PlanProblem, did_you_mean, quote_value
from agentq.planning.expand.expanded_plan import ExpandedPlan, TaskInstance
from agentq.planning.expand.graph import TaskGraph, TaskLookup, build_graph, look_up_tasks
from agentq.planning.expand.templates import OUTPUT_NAMES, OUTPUT_PATTERN
from agentq.planning.model import CommandStep, TaskDefinition, WorktreeOptions
from agentq.planning.read.source_tree import find_position
from agentq.planning.repository import PlanRepository

ON_FAILED_VALUES = {
    "skip": "skip",
    "keep-going": "skip",
    "run": "run",
    "fail-plan": "fail-plan",
    "fail-fast": "fail-plan",
}
"""What happens to a plan when a task fails, with synonyms."""
OUTPUT_KEYS = {"prompt", "command", "stdin", "env"}
"""Keys of a task that may contain outputs of earlier tasks."""
KEYS_BY_FIELD = {
    "argv": "command",
    "name": "title",
    "failures": "retries",
    "cost_usd": "max_cost",
    "tokens": "max_tokens",
    "turns": "max_turns",
    "memory_bytes": "memory",
    "cpu_s": "cpu_time",
}
"""Keys of a task whose field in the spec has another name."""


@dataclass(frozen=True, slots=True)
class CompiledTask:
    """A task as it will be submitted."""

    id: str
    spec: RunSpec
    needs: tuple[str, ...]
    inputs: tuple[str, ...]
    """The tasks whose outputs are used in its prompt, arguments or environment."""


@dataclass(frozen=True, slots=True)
class CompiledPlan:
    """A plan that can be submitted."""

    name: str
    on_failed: str
    max_parallel: int | None
    budget_usd: float | None
    tasks: tuple[CompiledTask, ...]
    """In topological order."""
    graph: TaskGraph
    repository: PlanRepository | None
    workspace: WorkspaceSpec | None
    """The default workspace of a task that is added later."""


def compile_plan(
    expanded: ExpandedPlan, plan: str, repository: PlanRepository | None = None, live: Sequence[str] = ()
) -> CompiledPlan:
    """Compile the runs of a plan with that id. `live` are the ids of tasks that the plan already has."""
    lookup = look_up_tasks(expanded, live)
    graph, faults = build_graph(expanded, lookup)
    compiler = _Compiler(expanded, plan, repository, graph, lookup)
    compiled = {each.task.id: compiler.compile_task(each) for each in expanded.tasks}
    if faults := [*expanded.faults, *faults, *compiler.faults]:
        raise InvalidPlan(faults)
    definition = expanded.plan
    tasks = tuple(planned for task in graph.order() if (planned := compiled[task]) is not None)
    on_failed = ON_FAILED_VALUES[definition.on_failed or "skip"]
    workspace = compiler.build_default_workspace()
    return CompiledPlan(
        expanded.name, on_failed, definition.max_parallel, definition.budget, tasks, graph, repository, workspace
    )


class _Compiler:
    def __init__(
        self, expanded: ExpandedPlan, plan: str, repository: PlanRepository | None, graph: TaskGraph, lookup: TaskLookup
    ) -> None:
        self._expanded, self._plan, self._repository, self._graph, self._lookup = (
            expanded,
            plan,
            repository,
            graph,
            lookup,
        )
        self.faults: list[PlanProblem] = []

    def compile_task(self, each: TaskInstance) -> CompiledTask | None:
        """Compile a task; None if it is invalid, with the faults recorded."""
        before = len(self.faults)
        for key in each.table.keys() - OUTPUT_KEYS:
            self._refuse_outputs(each, each.table[key], (key,))
        fields, inputs = self._link_outputs(each, self._fields(each))
        if len(self.faults) > before:
            return None
        try:
            spec = RunSpec(**fields)
        except ValidationError as error:
            self.faults += [_to_problem(one, each) for one in error.errors(include_url=False)]
            return None
        return CompiledTask(each.task.id, spec, self._graph.needs[each.task.id], tuple(inputs))

    def build_default_workspace(self) -> WorkspaceSpec | None:
        """The workspace of a task without settings of its own."""
        sample = self._expanded.sample
        if self._repository is None or sample is None or not self._has_worktree(sample.task):
            return None
        return self._workspace(sample)

    def _fields(self, each: TaskInstance) -> dict[str, Any]:
        task, budget = each.task, self._expanded.plan.budget
        if task.agent is not None and budget is not None:
            # No client may be watching the plan's budget, and costs are reported in steps.
            task = task.model_copy(update={"max_cost": min(task.max_cost or budget, budget)})
        fields = {**_work_fields(task), **_queue_fields(task), "plan": self._plan, "task": task.id}
        fields["name"] = (task.title or task.id)[:128]
        fields["on_failed"] = task.on_failed or ("run" if self._expanded.plan.on_failed == "run" else "skip")
        limits = {**(task.limits or {}), **({f"plan:{self._plan}": 1} if self._expanded.plan.max_parallel else {})}
        if limits:
            fields["limits"] = limits
        where = self._location_fields(each)
        demands = {**where.pop("demands", {}), **(task.demands or {})}
        return fields | where | ({"demands": demands} if demands else {})

    def _location_fields(self, each: TaskInstance) -> dict[str, Any]:
        """The folder that a task works in, and a demand for the host that has it."""
        task = each.task
        if task.function is not None:
            return {}
        if self._repository is None or not self._has_worktree(task):
            for key in ("check", "setup", "workspace"):
                if isinstance(each.table.get(key), dict | str | list):
                    hint = "Say `repository` for the plan"
                    position, path = find_position(each.table, (key,))
                    self.faults.append(PlanProblem(position, path, f"{key} is for a task that has a worktree", hint))
            folder = Path(self._expanded.folder, task.cwd or ".")
            return {"cwd": str(folder.resolve()), "demands": {HOST_LABEL: _host_name()}}
        demands = {HOST_LABEL: _host_name()} if self._repository.local else {}
        cwd = {"cwd": task.cwd} if task.cwd not in (None, ".") else {}
        return {"workspace": self._workspace(each), "demands": demands, **cwd}

    def _has_worktree(self, task: TaskDefinition) -> bool:
        return task.workspace is not False and (
            task.workspace is not None or self._expanded.plan.workspace is not False
        )

    def _workspace(self, each: TaskInstance) -> WorkspaceSpec | None:
        repository, task, plan = self._repository, each.task, self._expanded.plan
        assert repository is not None, "a plan without a repository has no worktrees"
        fields: dict[str, Any] = {"merge": plan.merge} if plan.merge else {}
        for options in (plan.workspace, task.workspace):
            if isinstance(options, WorktreeOptions):
                fields |= options.model_dump(exclude_none=True)
        for name, step in (("check", task.check), ("setup", task.setup)):
            if isinstance(step, CommandStep):
                fields[name] = step.command
                fields |= {f"{name}_timeout_ms": step.timeout} if step.timeout is not None else {}
        fields["target"] = repository.target
        if fields.get("merge") == "none":
            if not (isinstance(task.workspace, WorktreeOptions) and task.workspace.update_checkout):
                fields.pop("update_checkout", None)
        elif repository.update_checkout:
            fields["update_checkout"] = True
        try:
            return WorkspaceSpec(repository=repository.repository, base=repository.base, **fields)
        except ValidationError as error:
            self.faults += [_to_problem(one, each, "workspace") for one in error.errors(include_url=False)]
            return None

    def _link_outputs(self, each: TaskInstance, fields: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Replace references to outputs with the ids of their tasks; also returns these ids."""
        ancestors: set[str] | None = None
        found: dict[str, None] = {}

        def link(text: str, *keys: Any) -> str:
            if "{{" not in text:
                return text

            def replace(match: re.Match[str]) -> str:
                nonlocal ancestors
                ancestors = self._graph.ancestors(each.task.id) if ancestors is None else ancestors
                task = self._resolve_output(match, each, keys, ancestors)
                if task is None:
                    return match[0]
                found[task] = None
                return f"{{{{ tasks.{task}.{match[2].rpartition('.')[2].strip()} }}}}"

            return OUTPUT_PATTERN.sub(replace, text)

        for key, name in (("prompt", "prompt"), ("stdin", "stdin")):
            if isinstance(fields.get(key), str):
                fields[key] = link(fields[key], name)
        if "argv" in fields:
            fields["argv"] = [link(word, "command") for word in fields["argv"]]
        if "env" in fields:
            fields["env"] = {name: link(value, "env", name) for name, value in fields["env"].items()}
        return fields, list(found)

    def _refuse_outputs(self, each: TaskInstance, value: Any, keys: tuple[Any, ...]) -> None:
        """Refuse references to outputs in keys where they are not filled in."""
        if isinstance(value, dict | list):
            for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
                self._refuse_outputs(each, inner, (*keys, key))
        elif isinstance(value, str) and (found := OUTPUT_PATTERN.search(value)) and not found[1]:
            sentence = f"{quote_value(found[0])} is not filled in here, but in {', '.join(sorted(OUTPUT_KEYS))}"
            self.faults.append(PlanProblem(*find_position(each.table, keys), sentence))

    def _resolve_output(
        self, match: re.Match[str], each: TaskInstance, keys: Sequence[Any], ancestors: set[str]
    ) -> str | None:
        """The task that a reference names, if this task waits for it; otherwise record the fault."""
        position, path = find_position(each.table, keys)
        task_reference, _, output = match[2].strip().rpartition(".")
        expression = quote_value(f"{{{{ tasks.{match[2].strip()} }}}}")
        if match[1]:
            return None

        def refuse(sentence: str, hint: str = "") -> None:
            self.faults.append(PlanProblem(position, path, f"in {expression}, {sentence}", hint))

        ids = self._lookup.find(task_reference)
        if keys[0] == "command" and each.task.shell:
            refuse("it would become a part of what the shell reads", "Say it under `env`, and use the variable")
        elif not task_reference:
            refuse("it needs the id of a task, as in tasks.ID.result")
        elif ids == [each.task.id]:
            refuse("a task cannot use its own output")
        elif ids and ids[0] in self._expanded.done:
            refuse(f"the output of {ids[0]} is not known here: it was completed before", "Write its value here")
        elif output not in OUTPUT_NAMES:
            refuse(
                f"{quote_value(output)} is not an output of a task",
                did_you_mean(output, OUTPUT_NAMES) or f"There is {_list_outputs()}",
            )
        elif ids is None:
            refuse(f"there is no task {quote_value(task_reference)}", self._lookup.nearest(task_reference))
        elif len(ids) != 1:
            refuse(
                f"{quote_value(task_reference)} is {len(ids)} tasks", f"Say which, such as {ids[0]!r}" if ids else ""
            )
        elif ids[0] not in ancestors and not self._graph.uncertain & {each.task.id, *ancestors}:
            refuse(f"{each.task.id} does not wait for {ids[0]}", f"Add {ids[0]!r} to its `needs`")
        else:
            return ids[0]
        return None


def _list_outputs() -> str:
    return ", ".join(OUTPUT_NAMES)


def _host_name() -> str:
    import socket

    return socket.gethostname()


def _work_fields(task: TaskDefinition) -> dict[str, Any]:
    """The fields of the work: function, command or prompt."""
    env: dict[str, Any] = {"env": dict(task.env)} if task.env else {}
    if task.function is not None:
        key = "kwargs" if isinstance(task.args, dict) else "args"
        return {"kind": "function", "function": task.function, **({key: task.args} if task.args else {}), **env}
    if task.command is not None:
        stdin = {"stdin": task.stdin} if task.stdin is not None else {}
        return {"kind": "command", "argv": list(task.command), **stdin, **env}
    budgets = _drop_missing(cost_usd=task.max_cost, tokens=task.max_tokens, turns=task.max_turns)
    names = ("model", "permissions", "trust", "account", "expects", "on_limit")
    turn = _drop_missing(**{name: getattr(task, name) for name in names})
    turn |= _drop_missing(startup_timeout_ms=task.startup_timeout, linger_timeout_ms=task.linger_timeout)
    turn |= {"budgets": budgets} if budgets else {}
    more = _drop_missing(turn=turn or None, context=task.context)
    return {"kind": "agent", "agent": task.agent, "prompt": task.prompt, **env, **more}


def _queue_fields(task: TaskDefinition) -> dict[str, Any]:
    """The fields of queueing, timeouts, limits and retries."""
    fields = _drop_missing(queue=task.queue, priority=task.priority, labels=task.labels, keep_ms=task.keep)
    fields |= _drop_missing(
        timeout_ms=task.timeout, silence_timeout_ms=task.silence_timeout, stop_grace_ms=task.stop_grace
    )
    fields |= _drop_missing(delay_ms=task.delay, expires_ms=task.expires)
    cpu_s = None if task.cpu_time is None else -(-task.cpu_time // 1000)
    caps = _drop_missing(memory_bytes=task.memory, cpu_s=cpu_s, nice=task.nice)
    return fields | _drop_missing(caps=caps or None, retry=_retry_fields(task) or None)


def _retry_fields(task: TaskDefinition) -> dict[str, Any]:
    fields = {} if task.retry is None else _rename_durations(task.retry)
    if task.retry is not None and task.retry.classes:
        fields["classes"] = {class_: _rename_durations(each) for class_, each in task.retry.classes.items()}
    return fields | _drop_missing(failures=task.retries)


_DURATION_FIELDS = {
    "delay": "delay_ms",
    "delay_max": "delay_ms_max",
    "delays": "delays_ms",
    "max_elapsed": "max_elapsed_ms",
}


def _rename_durations(retry: BaseModel) -> dict[str, Any]:
    fields = retry.model_dump(exclude_none=True)
    return {_DURATION_FIELDS.get(name, name): value for name, value in fields.items()}


def _drop_missing(**fields: Any) -> dict[str, Any]:
    """The fields that are set."""
    return {name: value for name, value in fields.items() if value is not None}


def _to_problem(error: Mapping[str, Any], each: TaskInstance, *parents: str) -> PlanProblem:
    """A validation error of the spec, at the key of the plan that caused it."""
    keys: list[Any] = list(parents)
    for part in error["loc"]:
        if part in ("turn", "budgets", "caps", "[key]"):
            continue
        name = KEYS_BY_FIELD.get(part, part) if isinstance(part, str) else part
        keys.append(_key_of_field(name) if isinstance(name, str) and name not in each.table else name)
    position, path = find_position(each.table, keys)
    if parents and keys[1:2] and keys[1] in each.table:
        position, path = find_position(each.table, keys[1:])
    sentence = PATTERN_MESSAGES.get(error.get("ctx", {}).get("pattern", "")) or error["msg"].removeprefix(
        "Value error, "
    )
    return PlanProblem(
        position, path, sentence.replace("Input should", "it should").replace("_ms means", " means").rstrip(".")
    )


def _key_of_field(field: str) -> str:
    """The key for a field whose name ends in a unit."""
    for name, spelled in _DURATION_FIELDS.items():
        if spelled == field:
            return name
    return field.removesuffix("_ms")
