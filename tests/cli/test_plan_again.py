"""A plan file that is run again after its plan failed."""

from __future__ import annotations

from pathlib import Path

from cli.conftest import Cli
from cli.test_plan_commands import finish
from support.world import World

from agentq.cli.connect import ServerConnection
from agentq.cli.plans.plan_options import LoadedPlan, PlanOptions, load_plan, submit_loaded_plan
from agentq.cli.plans.reuse import skip_unchanged_tasks
from agentq.coordinator.plans.verbs import Plans

PLAN = """
repository: none
tasks:
- {id: good, command: make good}
- {id: other, command: make other}
- {id: bad, needs: good, command: make bad}
- {id: told, needs: good, command: "echo {{ tasks.good.result }}"}
- {id: late, needs: [bad, other], command: make late}
"""


def again(real: World, text: str) -> LoadedPlan:
    """What of a plan file is to be done now."""
    Path("plan.yaml").write_text(text)
    return skip_unchanged_tasks(ServerConnection(real.settings, real.queue), load_plan("plan.yaml", PlanOptions()))


def submitted(real: World, plan: LoadedPlan) -> dict[str, str]:
    """The runs of a plan, by task."""
    made = submit_loaded_plan(ServerConnection(real.settings, real.queue), plan)
    return {task.id: task.run for task in Plans(real.queue).all_tasks(made)}


def left(plan: LoadedPlan) -> list[str]:
    return [task.id for task in plan.compiled.tasks]


def test_what_completed_and_did_not_change_is_not_done_again(cli: Cli, real: World) -> None:
    assert cli("plan", "ls").code == 0
    first = submitted(real, again(real, PLAN))
    finish(real, good="ok", other="ok", bad="exit", told="exit")

    found = again(real, PLAN.replace("make bad", "make better"))

    assert left(found) == ["bad", "told", "late"]
    assert [task.needs for task in found.compiled.tasks] == [(), (), ("bad",)]
    second = submitted(real, found)
    assert real.get(second["told"]).spec.inputs == {"good": first["good"]}
    finish(real, bad="ok", told="exit", late="exit")
    assert left(again(real, PLAN.replace("make bad", "make better"))) == ["told", "late"], "the third time"


def test_what_needs_a_task_that_changed_is_done_again(real: World, here: Path) -> None:
    submitted(real, again(real, PLAN))
    finish(real, good="ok", other="ok", bad="exit", told="ok")

    assert left(again(real, PLAN.replace("make good", "make good twice"))) == ["good", "bad", "told", "late"]
    assert here.name == "work"


def test_a_plan_that_completed_is_done_again_as_a_whole(real: World, here: Path) -> None:
    submitted(real, again(real, PLAN))
    finish(real, good="ok", other="ok", bad="ok", told="ok", late="ok")

    assert left(again(real, PLAN)) == ["good", "other", "bad", "told", "late"]
    assert here.name == "work"
