"""An interrupted submit of a plan is completed from its stored source, which equals what was submitted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from planning.conftest import SITE, Plan
from support.world import World

from agentq.coordinator.plans.source import parse_source
from agentq.coordinator.plans.verbs import OnFailedPolicy, Plans, TaskSubmission
from agentq.planning.convert.plan_export import ExportedTask, export_plan
from agentq.planning.convert.plan_text import format_plan
from agentq.planning.submit import build_header, submit_plan

TEXT = """
max_parallel: 2
check: make
defaults: {agent: standin, retry: {delay: 5s, classes: {timeout: {retries: 2, delays: [1s, 1m30s]}}}}
tasks:
- {id: a, prompt: x, max_cost: 1.5, startup_timeout: 1m, workspace: {ports: PORT}, setup: {command: b, timeout: 2m}}
- {id: b, needs: a, command: "y | z", shell: true, demands: {gpu: a}, memory: 1G, cpu_time: 90s, expires: 1d12h}
- {id: c, needs: [b, a], prompt: "{{ tasks.a.result }}", on_failed: run, workspace: {merge: none}, priority: 1}
- {id: d, function: "m:f", args: {n: 1}, queue: other, limits: {db: 2}}
"""


class Cut(Plans):
    """Plans, of which a submit is cut: before the seal, or after some tasks."""

    tasks_left = 1000

    def _seal(self, plan: str, durable: bool = False) -> None:  # noqa: ARG002 - as it is called
        raise KeyboardInterrupt

    def _submit(
        self, plan: str, tasks: Sequence[TaskSubmission], ids: dict[str, str], on_failed: OnFailedPolicy
    ) -> None:
        super()._submit(plan, tasks[: self.tasks_left], ids, on_failed)


@pytest.mark.parametrize("tasks_left", [0, 2, 4])
def test_a_plan_that_was_cut_is_completed_without_its_file(world: World, plan: Plan, tasks_left: int) -> None:
    compiled = plan(TEXT, site=SITE)
    cut = Cut(world.queue)
    cut.tasks_left = tasks_left
    with pytest.raises(KeyboardInterrupt):
        submit_plan(cut, "plan-1", build_header(compiled, crewed=True), compiled.tasks)
    plans = Plans(world.queue)
    before = plans.get("plan-1")

    plans.complete("plan-1")

    after = plans.get("plan-1")
    assert (before.state, before.tasks, after.state, after.tasks) == ("open", tasks_left, "running", 4)
    assert world.get(plans.runs("plan-1", ["d"])["d"]).spec.demands == {"agentq.plan": "plan-1"}


def test_what_is_kept_of_a_plan_is_what_was_submitted(world: World, plan: Plan) -> None:
    compiled = plan(TEXT, site=SITE)
    plans = Plans(world.queue)
    submit_plan(plans, "plan-1", build_header(compiled, file="/plan.yaml"), compiled.tasks)
    head, tasks = parse_source(plans.source("plan-1"))

    assert [tuple(task) for task in tasks] == [(task.id, task.spec, task.needs, task.inputs) for task in compiled.tasks]
    for task, made in zip(tasks, compiled.tasks, strict=True):
        assert task.spec.model_fields_set == made.spec.model_fields_set, "what was said stays said"
    assert head == plans.header("plan-1")
    assert (head.file, head.max_parallel, head.queues, head.target) == (
        "/plan.yaml",
        2,
        ("default", "other"),
        "agentq/plan",
    )
    assert head.workspace is not None
    assert list(head.workspace.check) == ["make"]


def test_a_plan_that_somebody_else_made_has_a_head_as_well(world: World, plan: Plan) -> None:
    compiled = plan("tasks: [{id: a, command: x}]")
    made = [TaskSubmission(task.id, task.spec) for task in compiled.tasks]
    plans = Plans(world.queue)
    plans.create("theirs", made, plan="theirs-1", source="what they like")

    assert plans.header("theirs-1").name == "theirs-1"


def test_an_exported_plan_compiles_to_the_same_runs(plan: Plan) -> None:
    compiled = plan(TEXT, site=SITE)
    head = build_header(compiled)
    standing = [ExportedTask(task.id, task.spec, task.needs, "pending", "") for task in compiled.tasks]

    text = format_plan(export_plan(head, standing), "yaml")
    again = plan(text, name="again.yaml", site=SITE)

    assert [task.spec for task in again.tasks] == [task.spec for task in compiled.tasks]
    assert again.graph == compiled.graph
