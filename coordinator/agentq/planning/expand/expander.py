"""Expands plan files into complete tasks.

1. Collect the files; set the variables, from `--var` or the plan.
2. Merge each task with the defaults of its file, of the files that include it, and of the plan, as far as they apply.
3. Expand its matrix or foreach, fill in the text between `{{` and `}}`, and validate it.

All faults are reported at once; a plan with faults is never used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentq.coordinator.bounds import PLAN_BYTES, PLAN_TASKS
from agentq.coordinator.errors import Invalid
from agentq.planning.errors import InvalidPlan, PlanProblem, did_you_mean, quote_value
from agentq.planning.expand.expanded_plan import ExpandedPlan, TaskInstance, TaskNeeds
from agentq.planning.expand.graph import build_graph, look_up_tasks
from agentq.planning.expand.includes import IncludedFile, gather_files, read_prompt
from agentq.planning.expand.matrix import MatrixCell, expand_matrix, matrix_task_id
from agentq.planning.expand.templates import EXPRESSION_PATTERN, TemplateFiller
from agentq.planning.model import AGENT_KEYS, PlanDefinition, PlanFragment, TaskDefinition, TaskSettings
from agentq.planning.read.plan_file import describe_type
from agentq.planning.read.source_tree import SourceList, SourceTable, source_text
from agentq.planning.read.validation import validate_table
from agentq.planning.read.yaml_reader import parse_scalar
from agentq.planning.repository import find_repository_faults

NOT_FOR_FUNCTIONS = {"shell", "env", "cwd", "check", "setup", "workspace"}
COMPLETED_STATE = "completed"


def expand_plan(path: str, given: Mapping[str, str] | None = None, *, format_: str | None = None) -> ExpandedPlan:
    """Read and expand a plan, with these values of its variables."""
    expanded = read_plan(path, given, format_=format_)
    if expanded.faults:
        raise InvalidPlan(_list_faults(expanded))
    return expanded


def read_plan(path: str, given: Mapping[str, str] | None = None, *, format_: str | None = None) -> ExpandedPlan:
    """Expand a plan without raising for faults of tasks, which are in the result."""
    files = gather_files(path, format_)
    faults: list[PlanProblem] = []
    name = _plan_name(path)
    _check_variables(files, given or {})
    plan = _build_plan(files[0], given or {}, name, faults)
    definition = plan or PlanDefinition(tasks=[])
    expander = _TaskExpander(files[0], definition.name or name, given or {}, faults)
    for file in files:
        expander.read(file)
    live = [each for each in expander.tasks if each.task.state != COMPLETED_STATE]
    done = frozenset(each.task.id for each in expander.tasks if each.task.state == COMPLETED_STATE)
    empty = frozenset(expander.empty)
    first, sample = files[0], expander.sample()
    named = definition.name or name
    expanded = ExpandedPlan(
        definition, first.table, live, first.folder, named, done, empty, sample, expander.broken, faults
    )
    if plan is None:
        raise InvalidPlan(_list_faults(expanded))
    return expanded


def _list_faults(expanded: ExpandedPlan) -> list[PlanProblem]:
    """The faults of a plan that cannot be expanded, including its needs and its repository."""
    needs = build_graph(expanded, look_up_tasks(expanded))[1]
    return [*expanded.faults, *needs, *find_repository_faults(expanded.plan, expanded.table, expanded.folder)]


def _plan_name(path: str) -> str:
    """The default name of a plan: that of its file."""
    stem = "".join(each if each.isascii() and (each.isalnum() or each in "_.+-") else "-" for each in Path(path).stem)
    return stem.strip("-._+")[:64] or "plan"


def _build_plan(
    file: IncludedFile, given: Mapping[str, str], name: str, faults: list[PlanProblem]
) -> PlanDefinition | None:
    """The settings of a plan; None if they are invalid."""
    other_keys = {"$schema", "tasks", "vars", "defaults"}
    settings = file.table.without(other_keys)
    filler = TemplateFiller({"vars": _visible_variables(file, given, faults), "plan": {"name": name}}, faults)
    settings = filler.table(settings)
    settings.put("tasks", SourceList(settings.at, "tasks"), settings.at, settings.at)
    return validate_table(PlanDefinition, settings, faults)


def _check_variables(files: list[IncludedFile], given: Mapping[str, str]) -> None:
    known = [name for file in files for name in _sub_table(file.table, "vars")]
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or (f"There is {', '.join(known)}." if known else "It has none.")
            raise Invalid(f"--var {name[:80]}: the plan has no such variable. {hint}")


def _sub_table(table: SourceTable, key: str) -> SourceTable:
    """The mapping under a key; empty if there is none."""
    value = table.get(key)
    return value if isinstance(value, SourceTable) else SourceTable(table.at, table.path)


def _visible_variables(file: IncludedFile, given: Mapping[str, str], faults: list[PlanProblem]) -> dict[str, Any]:
    """The variables of a file: its own, overridden by those of the files that include it."""
    found: dict[str, Any] = {}
    for each in reversed(file.include_chain()):
        table = _sub_table(each.table, "vars")
        for name, value in table.items():
            if name in given:
                found[name] = _parse_variable(name, given[name], value, table)
            elif value is None:
                hint = f"Give it with --var {name}=…"
                faults.append(PlanProblem(table.key_at(name), table.path_of(name), "this variable has no value", hint))
                found[name] = ""
            else:
                found[name] = value
    return found


def _parse_variable(name: str, text: str, default: Any, table: SourceTable) -> Any:
    """Parse the value of a variable as the type of its default."""
    if isinstance(default, list):
        row = SourceList(table.value_at(name), table.path_of(name))
        for word in filter(None, text.split(",")):
            row.put(word, row.at)
        return row
    if isinstance(default, bool | int | float):
        value, kind = parse_scalar(text), bool if isinstance(default, bool) else (int, float)
        if not isinstance(value, kind) or isinstance(value, bool) != isinstance(default, bool):
            raise Invalid(f"--var {name}: {text[:40]!r} is not {describe_type(default)}, as in the plan.")
        return value
    return text


class _TaskExpander:
    """Collects the tasks of all files."""

    def __init__(self, first: IncludedFile, plan: str, given: Mapping[str, str], faults: list[PlanProblem]) -> None:
        self._first, self._plan, self._given, self._faults = first, plan, given, faults
        self._positions: dict[str, Any] = {}
        self._bytes = 0
        self.tasks: list[TaskInstance] = []
        self.empty: list[str] = []
        self.broken: list[TaskNeeds] = []
        """Tasks with which something is wrong."""

    def sample(self) -> TaskInstance | None:
        """See `ExpandedPlan`; None if the defaults are invalid without a matrix."""
        at, faults = self._first.table.at, list[PlanProblem]()
        table = SourceTable(at, "")
        for key, value in (("id", "sample"), ("command", "true")):
            table.put(key, value, at, at)
        scope = {"vars": _visible_variables(self._first, self._given, faults), "plan": {"name": self._plan}}
        filled = TemplateFiller(scope, faults).table(
            self._with_defaults(table, self._first, self._defaults(self._first))
        )
        task = validate_table(TaskDefinition, filled, faults)
        return TaskInstance(task, filled, "", ()) if task is not None and not faults else None

    def read(self, file: IncludedFile) -> None:
        """Add the tasks of one file."""
        table = file.table
        if not isinstance(table.get("vars", SourceTable(table.at, "")), SourceTable):
            sentence = f"it should be a mapping, not {describe_type(table['vars'])}"
            self._faults.append(PlanProblem(table.value_at("vars"), table.path_of("vars"), sentence))
        if file is not self._first:
            validate_table(PlanFragment, table.without(["vars", "defaults"]), self._faults)
        self._check_defaults(table)
        tasks = table.get("tasks")
        if not isinstance(tasks, SourceList):
            what = (
                "it needs the key 'tasks'" if "tasks" not in table else f"tasks are a list, not {describe_type(tasks)}"
            )
            position = table.value_at("tasks") if "tasks" in table else table.at
            self._faults.append(PlanProblem(position, "tasks", what))
            return
        scope = {"vars": _visible_variables(file, self._given, self._faults), "plan": {"name": self._plan}}
        defaults = self._defaults(file)
        for number, task in enumerate(tasks):
            if isinstance(task, SourceTable):
                self._expand_task(self._with_defaults(task, file, defaults), scope)
            else:
                path = f"{tasks.path}[{number}]"
                self._faults.append(
                    PlanProblem(tasks.positions[number], path, f"a task is a mapping, not {describe_type(task)}")
                )

    def _check_defaults(self, table: SourceTable) -> None:
        """Validate defaults that no task may use; those with expressions are validated only in tasks."""
        defaults = table.get("defaults")
        if isinstance(defaults, SourceTable):
            with_expressions = {
                key
                for key in defaults
                if key in TaskSettings.model_fields and EXPRESSION_PATTERN.search(str(defaults[key]))
            }
            validate_table(TaskSettings, defaults.without(with_expressions), self._faults)
        elif defaults is not None:
            sentence = f"it should be a mapping, not {describe_type(defaults)}"
            self._faults.append(PlanProblem(table.value_at("defaults"), table.path_of("defaults"), sentence))

    def _defaults(self, file: IncludedFile) -> SourceTable:
        """The defaults of a file and of the files that include it, and the plan's check and setup."""
        merged = SourceTable(file.table.at, "defaults")
        for each in reversed(file.include_chain()):
            merged = merge_tables(merged, _sub_table(each.table, "defaults"))
        for key in ("check", "setup"):
            if key in self._first.table and key not in merged:
                merged.copy_key(key, self._first.table)
        return merged

    def _with_defaults(self, task: SourceTable, file: IncludedFile, defaults: SourceTable) -> SourceTable:
        task = read_prompt(task, file.folder, self._first.folder)
        ignored_keys = set() if "prompt" in task else set(AGENT_KEYS)
        if "function" in task:
            ignored_keys |= NOT_FOR_FUNCTIONS
        if task.get("workspace") is False:
            ignored_keys |= {"check", "setup"}
        return merge_tables(task, defaults.without(ignored_keys & defaults.keys()) if ignored_keys else defaults)

    def _expand_task(self, task: SourceTable, scope: dict[str, Any]) -> None:
        """Add all tasks into which a task of the file expands."""
        found = expand_matrix(task, TemplateFiller(scope, self._faults), self._faults)
        body = task.without(["matrix", "foreach"])
        if found == []:
            self.empty.append(source_text(task.get("id", "")))
        for copy in found or ():
            if len(self.tasks) >= PLAN_TASKS:
                raise InvalidPlan([PlanProblem(task.at, task.path, f"a plan has {PLAN_TASKS} tasks at most")])
            self._add_task(TemplateFiller({**scope, **copy.scope}, self._faults).table(body), task, copy)

    def _add_task(self, filled: SourceTable, task: SourceTable, copy: MatrixCell) -> None:
        group = source_text(task.get("id", ""))
        if copy.values and source_text(filled.get("id", "")) == group:
            filled["id"] = matrix_task_id(group, copy)
        definition = validate_table(TaskDefinition, filled, self._faults)
        if definition is None:
            task_id = source_text(filled.get("id", ""))
            self._positions.setdefault(task_id, task.value_at("id") if "id" in task else task.at)
            self.broken.append(TaskNeeds(task_id, filled, _declared_needs(filled), group))
            return
        self._bytes += len(definition.prompt or "")
        if self._bytes > PLAN_BYTES:
            raise InvalidPlan(
                [PlanProblem(task.at, task.path, f"written out, the prompts have more than {PLAN_BYTES} bytes")]
            )
        at = task.value_at("id")
        if definition.id in self._positions:
            hint = "Give one of them another id" if not copy.values else "Give it an `id` with an expression in it"
            sentence = f"the id {quote_value(definition.id)} is taken by the task at {self._positions[definition.id]}"
            self._faults.append(PlanProblem(at, task.path_of("id"), sentence, hint))
            return
        self._positions[definition.id] = at
        self.tasks.append(TaskInstance(definition, filled, group, copy.values))


def _declared_needs(task: SourceTable) -> list[str]:
    """The needs of a task, as far as they are valid."""
    needs = task.get("needs", [])
    return [each for each in needs if isinstance(each, str)] if isinstance(needs, SourceList) else []


def merge_tables(table: SourceTable, defaults: SourceTable) -> SourceTable:
    """A table, with missing keys from the defaults."""
    if not defaults:
        return table
    merged = SourceTable(table.at, table.path)
    for key in table:
        value = table[key]
        if isinstance(value, SourceTable) and isinstance(defaults.get(key), SourceTable):
            value = merge_tables(value, defaults[key])
        merged.copy_key(key, table, value)
    for key in defaults:
        if key not in merged:
            merged.copy_key(key, defaults)
    return merged
