"""A task that is added to a plan, which may have begun, or even have ended: then it goes on."""

from __future__ import annotations

import socket
from typing import Any

import typer

from agentq.cli.asking import check_agents
from agentq.cli.faults import flag
from agentq.cli.planned import find, plans_of
from agentq.cli.render import print_json
from agentq.cli.server import reach
from agentq.cli.specs import fields_of, spec_of
from agentq.coordinator.demands import HOST
from agentq.coordinator.errors import Invalid
from agentq.coordinator.plans import Task
from agentq.coordinator.run import RunSpec
from agentq.planning.filling import OUTPUT, OUTPUTS
from agentq.planning.submitting import PLAN_LIMIT, Head, bound, crewed, head_in

APART = {
    "after": "--needs names tasks of the plan",
    "parent": "a task of a plan is nobody's child",
    "child": "a task of a plan is nobody's child",
    "session": "a task of a plan is no turn of a session",
    "from_jsonl": "submit the tasks one by one",
}


def add(ctx: typer.Context, given: dict[str, Any], how: dict[str, Any], *, wait: bool, json: bool) -> int:
    """Submit what was typed as a task of a plan; the exit code."""
    if "plan" not in given or "task" not in given:
        said, missing = ("task", "plan") if "task" in given else ("plan" if "plan" in given else "needs", "task")
        missing = "plan" if "plan" not in given else missing
        raise Invalid(f"{flag(said)} means nothing without {flag(missing)}.")
    for option, why in APART.items():
        if option in given:
            raise Invalid(f"{flag(option)} and --plan contradict each other: {why}.")
    own = {name: given.pop(name, None) for name in ("plan", "task", "needs", "cwd")}
    server = reach(ctx)
    plan, plans = find(server, own["plan"]), plans_of(server)
    head = head_in(plans, plan.id)
    typed = spec_of(fields_of({**given, "cwd": own["cwd"]} if own["cwd"] else given))
    spec = _placed(typed, plan.id, head, own["cwd"])
    check_agents(server, [spec])
    inputs = _inputs(spec)
    needs = list(dict.fromkeys([*(own["needs"] or ()), *inputs]))
    if head.crewed and spec.queue not in head.queues:
        raise Invalid(f"--queue: the workers of {plan.id} serve {', '.join(head.queues)}, and not {spec.queue}.")
    bound(plans, plan.id, head)
    run = plans.add(plan.id, [Task(own["task"], spec, needs, inputs)])[own["task"]]
    if json and not wait:
        print_json({"id": run, "plan": plan.id, "task": own["task"]})
    elif not json and not how["follow"]:
        print(run, flush=True)
    if not wait:
        return 0
    from agentq.cli.submit import stay

    return stay(server, [run], follow=how["follow"], json=json)


def _placed(spec: RunSpec, plan: str, head: Head, cwd: str | None) -> RunSpec:
    """The run, where the other tasks of its plan are."""
    fields = {name: getattr(spec, name) for name in spec.model_fields_set}
    demands = dict(spec.demands)
    if head.workspace is not None and spec.kind in ("command", "agent"):
        fields |= {"workspace": head.workspace, "cwd": cwd}
    elif spec.kind != "function" and head.folder and cwd is None:
        fields["cwd"] = head.folder
    if spec.kind != "function" and head.local:
        demands.setdefault(HOST, head.host or socket.gethostname())
    limits = {**spec.limits, **({f"{PLAN_LIMIT}{plan}": 1} if head.max_parallel else {})}
    made = spec_of({**fields, "plan": plan, "demands": demands, "limits": limits})
    return crewed(made, plan) if head.crewed else made


def _inputs(spec: RunSpec) -> list[str]:
    """The tasks whose outcomes stand in it; it needs them."""
    texts = [spec.prompt or "", *spec.argv, *spec.env.values()]
    found: dict[str, None] = {}
    for text in texts:
        for match in OUTPUT.finditer(text):
            task, _, output = match[2].strip().rpartition(".")
            if task and output in OUTPUTS and not match[1]:
                found[task] = None
    return list(found)
