"""A task that is added to a plan, which may have begun, or even have ended: then it goes on."""

from __future__ import annotations

import socket
from typing import Any

import typer

from agentq.cli.connect import connect_backend
from agentq.cli.parse.option_errors import flag_name
from agentq.cli.parse.run_spec import build_spec, parse_spec_fields
from agentq.cli.render import print_json
from agentq.cli.submission_check import check_specs
from agentq.coordinator.errors import Invalid
from agentq.coordinator.id_lookup import find_plan
from agentq.coordinator.model.demands import HOST_LABEL
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.plans.source import PlanHeader
from agentq.coordinator.plans.verbs import PLAN_LIMIT, TaskSubmission
from agentq.planning.expand.templates import OUTPUT_NAMES, OUTPUT_PATTERN
from agentq.planning.submit import reserve_for_plan

CONTRADICTING_OPTIONS = {
    "after": "--needs names tasks of the plan",
    "parent": "a task of a plan has no parent",
    "child": "a task of a plan has no parent",
    "session": "a task of a plan is no turn of a session",
    "from_jsonl": "submit the tasks one by one",
}


def add_task(ctx: typer.Context, given: dict[str, Any], how: dict[str, Any], *, wait: bool, json: bool) -> int:
    """Submit what was typed as a task of a plan; the exit code."""
    if "plan" not in given or "task" not in given:
        said, missing = ("task", "plan") if "task" in given else ("plan" if "plan" in given else "needs", "task")
        missing = "plan" if "plan" not in given else missing
        raise Invalid(f"{flag_name(said)} means nothing without {flag_name(missing)}.")
    for option, why in CONTRADICTING_OPTIONS.items():
        if option in given:
            raise Invalid(f"{flag_name(option)} and --plan contradict each other: {why}.")
    own = {name: given.pop(name, None) for name in ("plan", "task", "needs", "cwd")}
    backend = connect_backend(ctx)
    plans = backend.plans
    plan = find_plan(plans, own["plan"])
    head = plans.header(plan.id)
    typed = build_spec(parse_spec_fields({**given, "cwd": own["cwd"]} if own["cwd"] else given))
    spec = _place_in_plan(typed, plan.id, head, own["cwd"])
    check_specs(backend, [spec])
    inputs = _input_tasks(spec)
    needs = list(dict.fromkeys([*(own["needs"] or ()), *inputs]))
    if head.crewed and spec.queue not in head.queues:
        raise Invalid(f"--queue: the workers of {plan.id} serve {', '.join(head.queues)}, and not {spec.queue}.")
    run = plans.add(plan.id, [TaskSubmission(own["task"], spec, needs, inputs)])[own["task"]]
    if json and not wait:
        print_json({"id": run, "plan": plan.id, "task": own["task"]})
    elif not json and not how["follow"]:
        print(run, flush=True)
    if not wait:
        return 0
    from agentq.cli.follow import follow_runs

    return follow_runs(backend, [run], follow=how["follow"], json=json)


def _place_in_plan(spec: RunSpec, plan: str, head: PlanHeader, cwd: str | None) -> RunSpec:
    """The run, where the other tasks of its plan are."""
    fields = {name: getattr(spec, name) for name in spec.model_fields_set}
    demands = dict(spec.demands)
    if head.workspace is not None and spec.kind in ("command", "agent"):
        fields |= {"workspace": head.workspace, "cwd": cwd}
    elif spec.kind != "function" and head.folder and cwd is None:
        fields["cwd"] = head.folder
    if spec.kind != "function" and head.local:
        demands.setdefault(HOST_LABEL, head.host or socket.gethostname())
    limits = {**spec.limits, **({f"{PLAN_LIMIT}{plan}": 1} if head.max_parallel else {})}
    made = build_spec({**fields, "plan": plan, "demands": demands, "limits": limits})
    return reserve_for_plan(made, plan) if head.crewed else made


def _input_tasks(spec: RunSpec) -> list[str]:
    """The tasks whose outcomes stand in it; it needs them."""
    texts = [spec.prompt or "", *spec.argv, *spec.env.values()]
    found: dict[str, None] = {}
    for text in texts:
        for match in OUTPUT_PATTERN.finditer(text):
            task, _, output = match[2].strip().rpartition(".")
            if task and output in OUTPUT_NAMES and not match[1]:
                found[task] = None
    return list(found)
