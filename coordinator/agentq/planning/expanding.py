"""From plan files to tasks that stand for themselves.

1. The files are gathered; variables get their values, from `--var` or the plan.
2. Each task gets the defaults of its file, of those that include it, and of the plan, as far as they concern it.
3. It is spread out by its matrix or foreach, what stands between `{{` and `}}` is filled in, and it is checked.

All faults are told at once; what comes of a plan with any is never used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentq.coordinator.errors import Invalid
from agentq.coordinator.limits import PLAN_BYTES, PLAN_TASKS
from agentq.planning.checking import checked
from agentq.planning.document import kind_of
from agentq.planning.expanded import Expanded, Instance
from agentq.planning.faults import Fault, Faulty, nearest, shown
from agentq.planning.filling import EXPRESSION, Filling
from agentq.planning.graph import Linked, Lookup, linked, links_of
from agentq.planning.including import Gathered, gather, read_prompt
from agentq.planning.model import FOR_AGENTS, Fragment, Plan, Task, Working
from agentq.planning.reading_yaml import resolved
from agentq.planning.site import repository_faults
from agentq.planning.spreading import Copy, copies, id_of
from agentq.planning.tree import Row, Table, text_of

NOT_FOR_FUNCTIONS = {"shell", "env", "cwd", "check", "setup", "workspace"}
COMPLETED = "completed"


def expand(path: str, given: Mapping[str, str] | None = None, *, format_: str | None = None) -> Expanded:
    """Read a plan, with these values for its variables."""
    files = gather(path, format_)
    faults: list[Fault] = []
    name = _name(path)
    _check_given(files, given or {})
    plan = _plan(files[0], given or {}, name, faults)
    found = _Tasks(files[0], plan.name or name, given or {}, faults)
    for file in files:
        found.read(file)
    if faults:
        known = (*(each.id for each in found.broken), *found.groups, *found.empty)
        tasks = [*linked(found.tasks), *found.broken]
        faults += links_of(tasks, Lookup(found.tasks, known, found.empty))[1]
        raise Faulty([*faults, *repository_faults(plan, files[0].table, files[0].folder)])
    live = [each for each in found.tasks if each.task.state != COMPLETED]
    done = frozenset(each.task.id for each in found.tasks if each.task.state == COMPLETED)
    empty = frozenset(found.empty)
    return Expanded(plan, files[0].table, live, files[0].folder, plan.name or name, done, empty, found.sample())


def _name(path: str) -> str:
    """A plan is called as its file is, unless it says otherwise."""
    stem = "".join(each if each.isascii() and (each.isalnum() or each in "_.+-") else "-" for each in Path(path).stem)
    return stem.strip("-._+")[:64] or "plan"


def _plan(file: Gathered, given: Mapping[str, str], name: str, faults: list[Fault]) -> Plan:
    """All but the tasks."""
    apart = {"$schema", "tasks", "vars", "defaults"}
    said = file.table.without(apart)
    filling = Filling({"vars": _variables(file, given, faults), "plan": {"name": name}}, faults)
    said = filling.table(said)
    said.put("tasks", Row(said.at, "tasks"), said.at, said.at)
    plan = checked(Plan, said, faults)
    return plan or Plan(tasks=[])


def _check_given(files: list[Gathered], given: Mapping[str, str]) -> None:
    known = [name for file in files for name in _own(file.table, "vars")]
    for name in given:
        if name not in known:
            hint = nearest(name, known) or (f"There is {', '.join(known)}." if known else "It has none.")
            raise Invalid(f"--var {name[:80]}: the plan has no such variable. {hint}")


def _own(table: Table, key: str) -> Table:
    """A mapping under a key; empty if there is none."""
    said = table.get(key)
    return said if isinstance(said, Table) else Table(table.at, table.path)


def _variables(file: Gathered, given: Mapping[str, str], faults: list[Fault]) -> dict[str, Any]:
    """What the variables are that a file sees: its own, and before them those of the files above it."""
    found: dict[str, Any] = {}
    for each in reversed(file.line()):
        table = _own(each.table, "vars")
        for name, value in table.items():
            if name in given:
                found[name] = _given(name, given[name], value, table)
            elif value is None:
                hint = f"Give it with --var {name}=…"
                faults.append(Fault(table.key_at(name), table.path_of(name), "this variable has no value", hint))
                found[name] = ""
            else:
                found[name] = value
    return found


def _given(name: str, text: str, default: Any, table: Table) -> Any:
    """What was given for a variable, as what its default is."""
    if isinstance(default, list):
        row = Row(table.value_at(name), table.path_of(name))
        for word in filter(None, text.split(",")):
            row.put(word, row.at)
        return row
    if isinstance(default, bool | int | float):
        value, kind = resolved(text), bool if isinstance(default, bool) else (int, float)
        if not isinstance(value, kind) or isinstance(value, bool) != isinstance(default, bool):
            raise Invalid(f"--var {name}: {text[:40]!r} is not {kind_of(default)}, as in the plan.")
        return value
    return text


class _Tasks:
    """Gathers the tasks of all files."""

    def __init__(self, first: Gathered, plan: str, given: Mapping[str, str], faults: list[Fault]) -> None:
        self._first, self._plan, self._given, self._faults = first, plan, given, faults
        self._places: dict[str, Any] = {}
        self._bytes = 0
        self.tasks: list[Instance] = []
        self.empty: list[str] = []
        self.broken: list[Linked] = []
        """Tasks with which something is wrong."""
        self.groups: list[str] = []
        """Their ids, as they are written."""

    def sample(self) -> Instance | None:
        """See `Expanded`; None if the defaults make no sense without a matrix."""
        at, faults = self._first.table.at, list[Fault]()
        table = Table(at, "")
        for key, value in (("id", "sample"), ("command", "true")):
            table.put(key, value, at, at)
        scope = {"vars": _variables(self._first, self._given, faults), "plan": {"name": self._plan}}
        filled = Filling(scope, faults).table(self._with_defaults(table, self._first, self._defaults(self._first)))
        task = checked(Task, filled, faults)
        return Instance(task, filled, "", ()) if task is not None and not faults else None

    def read(self, file: Gathered) -> None:
        """The tasks of one file."""
        table = file.table
        if not isinstance(table.get("vars", Table(table.at, "")), Table):
            sentence = f"it should be a mapping, not {kind_of(table['vars'])}"
            self._faults.append(Fault(table.value_at("vars"), table.path_of("vars"), sentence))
        if file is not self._first:
            checked(Fragment, table.without(["vars", "defaults"]), self._faults)
        self._check_defaults(table)
        said = table.get("tasks")
        if not isinstance(said, Row):
            what = "it needs the key 'tasks'" if "tasks" not in table else f"tasks are a list, not {kind_of(said)}"
            place = table.value_at("tasks") if "tasks" in table else table.at
            self._faults.append(Fault(place, "tasks", what))
            return
        scope = {"vars": _variables(file, self._given, self._faults), "plan": {"name": self._plan}}
        defaults = self._defaults(file)
        for number, task in enumerate(said):
            if isinstance(task, Table):
                self._spread(self._with_defaults(task, file, defaults), scope)
            else:
                path = f"{said.path}[{number}]"
                self._faults.append(Fault(said.places[number], path, f"a task is a mapping, not {kind_of(task)}"))

    def _check_defaults(self, table: Table) -> None:
        """Here, too, since no task may have a use for them; those with expressions, only there."""
        said = table.get("defaults")
        if isinstance(said, Table):
            loose = {key for key in said if key in Working.model_fields and EXPRESSION.search(str(said[key]))}
            checked(Working, said.without(loose), self._faults)
        elif said is not None:
            sentence = f"it should be a mapping, not {kind_of(said)}"
            self._faults.append(Fault(table.value_at("defaults"), table.path_of("defaults"), sentence))

    def _defaults(self, file: Gathered) -> Table:
        """Those of the file, of the files above it, and what the plan says of all its work."""
        whole = Table(file.table.at, "defaults")
        for each in reversed(file.line()):
            whole = merged(whole, _own(each.table, "defaults"))
        for key in ("check", "setup"):
            if key in self._first.table and key not in whole:
                whole.take(key, self._first.table)
        return whole

    def _with_defaults(self, task: Table, file: Gathered, defaults: Table) -> Table:
        task = read_prompt(task, file.folder, self._first.folder)
        apart = set() if "prompt" in task else set(FOR_AGENTS)
        if "function" in task:
            apart |= NOT_FOR_FUNCTIONS
        if task.get("workspace") is False:
            apart |= {"check", "setup"}
        return merged(task, defaults.without(apart & defaults.keys()) if apart else defaults)

    def _spread(self, task: Table, scope: dict[str, Any]) -> None:
        """All tasks that a task of the file stands for."""
        found = copies(task, Filling(scope, self._faults), self._faults)
        body = task.without(["matrix", "foreach"])
        if found == []:
            self.empty.append(text_of(task.get("id", "")))
        for copy in found or ():
            if len(self.tasks) >= PLAN_TASKS:
                raise Faulty([Fault(task.at, task.path, f"a plan has {PLAN_TASKS} tasks at the most")])
            self._add(Filling({**scope, **copy.scope}, self._faults).table(body), task, copy)

    def _add(self, filled: Table, task: Table, copy: Copy) -> None:
        group = text_of(task.get("id", ""))
        if copy.values and text_of(filled.get("id", "")) == group:
            filled["id"] = id_of(group, copy)
        made = checked(Task, filled, self._faults)
        if made is None:
            self.broken.append(Linked(text_of(filled.get("id", "")), filled, _needs(filled)))
            self.groups.append(group)
            return
        self._bytes += len(made.prompt or "")
        if self._bytes > PLAN_BYTES:
            raise Faulty([Fault(task.at, task.path, f"written out, the prompts have more than {PLAN_BYTES} bytes")])
        at = task.value_at("id")
        if made.id in self._places:
            hint = "Give one of them another id" if not copy.values else "Give it an `id` with an expression in it"
            sentence = f"the id {shown(made.id)} is taken by the task at {self._places[made.id]}"
            self._faults.append(Fault(at, task.path_of("id"), sentence, hint))
            return
        self._places[made.id] = at
        self.tasks.append(Instance(made, filled, group, copy.values))


def _needs(task: Table) -> list[str]:
    """What a task needs, as far as that can be read."""
    said = task.get("needs", [])
    return [each for each in said if isinstance(each, str)] if isinstance(said, Row) else []


def merged(table: Table, below: Table) -> Table:
    """A table, and what another says of which it says nothing."""
    if not below:
        return table
    whole = Table(table.at, table.path)
    for key in table:
        value = table[key]
        if isinstance(value, Table) and isinstance(below.get(key), Table):
            value = merged(value, below[key])
        whole.take(key, table, value)
    for key in below:
        if key not in whole:
            whole.take(key, below)
    return whole
