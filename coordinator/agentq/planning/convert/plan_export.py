"""Exports a submitted plan as a file that can be submitted again: each task in the keys of a plan, with its state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from agentq.coordinator.model.demands import HOST_LABEL, PLAN_LABEL
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.model.workspace import WorkspaceSpec
from agentq.coordinator.plans.source import PlanHeader
from agentq.coordinator.plans.verbs import PLAN_LIMIT
from agentq.planning.model import WorktreeOptions
from agentq.planning.value_types import SHELL_COMMAND

DURATION_KEYS = {
    "timeout": "timeout_ms",
    "silence_timeout": "silence_timeout_ms",
    "stop_grace": "stop_grace_ms",
    "delay": "delay_ms",
    "expires": "expires_ms",
    "keep": "keep_ms",
}
_RETRY_FIELD_KEYS = {
    "delay_ms": "delay",
    "delay_ms_max": "delay_max",
    "max_elapsed_ms": "max_elapsed",
    "delays_ms": "delays",
}
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))


class ExportedTask(NamedTuple):
    """A task with its run and state."""

    id: str
    spec: RunSpec
    needs: Sequence[str]
    state: str
    run: str


def export_plan(head: PlanHeader, tasks: Iterable[ExportedTask]) -> dict[str, Any]:
    """The document of a plan."""
    document: dict[str, Any] = {"name": head.name}
    document["repository"] = head.repository or "none"
    document |= {key: value for key, value in (("base", head.base), ("target", head.target)) if value}
    if head.update_checkout:
        document["workspace"] = {"update_checkout": True}
    if head.on_failed != "skip":
        document["on_failed"] = head.on_failed
    document |= {
        key: value for key, value in (("max_parallel", head.max_parallel), ("budget", head.budget_usd)) if value
    }
    return document | {"tasks": [_task_record(head, task) for task in tasks]}


def _task_record(head: PlanHeader, task: ExportedTask) -> dict[str, Any]:
    spec = task.spec
    record: dict[str, Any] = {"id": task.id}
    if spec.name and spec.name != task.id:
        record["title"] = spec.name
    record |= {"state": task.state} | _work_keys(spec)
    if task.needs:
        record["needs"] = list(task.needs)
    if spec.workspace is not None:
        record |= _workspace_keys(spec.workspace, head)
    elif head.repository and spec.kind != "function":
        record["workspace"] = False
    return record | _queue_keys(spec, head)


def _work_keys(spec: RunSpec) -> dict[str, Any]:
    """The keys of the work: function, command or prompt."""
    env = {"env": dict(spec.env)} if spec.env else {}
    cwd = {"cwd": spec.cwd} if spec.cwd else {}
    if spec.kind == "function":
        args = dict(spec.kwargs) or list(spec.args)
        return {"function": spec.function, **({"args": args} if args else {})}
    if spec.kind == "command":
        stdin = {"stdin": spec.stdin} if spec.stdin is not None else {}
        return {**_command_keys("command", spec.argv), **stdin, **env, **cwd}
    fields: dict[str, Any] = {"agent": spec.agent, "prompt": spec.prompt}
    if spec.turn is not None:
        turn = spec.turn.model_dump(exclude_defaults=True, exclude={"budgets"})
        for key in ("startup_timeout", "linger_timeout"):
            if f"{key}_ms" in turn:
                turn[key] = format_duration(turn.pop(f"{key}_ms"))
        budgets = spec.turn.budgets.model_dump(exclude_none=True) if spec.turn.budgets else {}
        fields |= turn | {{"cost_usd": "max_cost"}.get(key, f"max_{key}"): value for key, value in budgets.items()}
    return fields | ({"context": spec.context} if spec.context != "none" else {}) | env | cwd


def _command_keys(key: str, argv: Sequence[str]) -> dict[str, Any]:
    """A command as a list, or as text if a shell reads it."""
    if list(argv[:-1]) == SHELL_COMMAND:
        return {"shell": True, key: argv[-1]} if key == "command" else {key: {"shell": True, "command": argv[-1]}}
    return {key: list(argv)}


def _workspace_keys(workspace: WorkspaceSpec, head: PlanHeader) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key in ("check", "setup"):
        argv, timeout_ms = getattr(workspace, key), getattr(workspace, f"{key}_timeout_ms")
        if argv:
            fields |= _command_keys(key, argv)
            if timeout_ms is not None:
                step = fields[key] if isinstance(fields[key], dict) else {"command": fields[key]}
                fields[key] = {**step, "timeout": format_duration(timeout_ms)}
    options = workspace.model_dump(mode="json", exclude_defaults=True, include=set(WorktreeOptions.model_fields))
    if head.update_checkout:
        options.pop("update_checkout", None)
    return fields | ({"workspace": options} if options else {})


def _queue_keys(spec: RunSpec, head: PlanHeader) -> dict[str, Any]:
    """The keys of queueing, timeouts, limits and retries."""
    plain = RunSpec(kind="command", argv=["x"])
    fields: dict[str, Any] = {
        key: format_duration(getattr(spec, field))
        for key, field in DURATION_KEYS.items()
        if getattr(spec, field) not in (None, getattr(plain, field))
    }
    fields |= {key: getattr(spec, key) for key in ("queue", "priority") if getattr(spec, key) != getattr(plain, key)}
    own_demands = {HOST_LABEL: head.host, PLAN_LABEL: spec.demands.get(PLAN_LABEL)}
    pairs: dict[str, dict[str, Any]] = {
        "labels": spec.labels,
        "demands": {name: each for name, each in spec.demands.items() if own_demands.get(name) != each},
        "limits": {key: units for key, units in spec.limits.items() if not key.startswith(PLAN_LIMIT)},
    }
    fields |= {key: dict(value) for key, value in pairs.items() if value}
    if spec.on_failed != "skip" and head.on_failed != "run":
        fields["on_failed"] = spec.on_failed
    if spec.caps is not None:
        caps: dict[str, Any] = spec.caps.model_dump(exclude_none=True)
        fields |= {key: caps[field] for key, field in (("memory", "memory_bytes"), ("nice", "nice")) if field in caps}
        fields |= {"cpu_time": f"{caps['cpu_s']}s"} if "cpu_s" in caps else {}
    if spec.retry is not None:
        fields |= {"retry": _retry_keys(spec.retry.model_dump(mode="json", exclude_defaults=True, exclude_none=True))}
    return fields


def _retry_keys(policy: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for field, value in policy.items():
        if field == "classes":
            fields[field] = {class_: _retry_keys(own) for class_, own in value.items()}
        elif field in _RETRY_FIELD_KEYS:
            fields[_RETRY_FIELD_KEYS[field]] = (
                [format_duration(each) for each in value] if isinstance(value, list) else format_duration(value)
            )
        else:
            fields[field] = value
    return fields


def format_duration(span_ms: int) -> str:
    """A duration in the format of a plan, exact to the millisecond."""
    words = []
    for unit, unit_ms in _UNITS:
        number, span_ms = divmod(span_ms, unit_ms)
        words += [f"{number}{unit}"] if number else []
    return "".join(words) or "0s"
