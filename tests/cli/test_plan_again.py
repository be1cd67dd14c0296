"""A plan file that is run again after its plan failed."""

from __future__ import annotations

from pathlib import Path

from cli.conftest import Cli
from cli.test_plan_commands import finish
from support.world import World

from agentq.cli.plans.plan_options import LoadedPlan, PlanOptions, load_plan, submit_loaded_plan
from agentq.cli.plans.reuse import skip_unchanged_tasks
from agentq.sdk.backend import Backend

PLAN = """
repository: none
tasks:
- {id: good, command: make good}
- {id: other, command: make other}
- {id: bad, needs: good, command: make bad}
- {id: told, needs: good, command: "echo {{ tasks.good.result }}"}
- {id: late, needs: [bad, other], command: make late}
"""


def again(reached: Backend, text: str) -> LoadedPlan:
    """What of a plan file is to be done now."""
    Path("plan.yaml").write_text(text)
    return skip_unchanged_tasks(reached, load_plan("plan.yaml", PlanOptions()))


def submitted(reached: Backend, plan: LoadedPlan) -> dict[str, str]:
    """The runs of a plan, by task."""
    made = submit_loaded_plan(reached, plan)
    return {task.id: task.run for task in reached.plans.all_tasks(made)}


def left(plan: LoadedPlan) -> list[str]:
    return [task.id for task in plan.compiled.tasks]


def test_what_completed_and_did_not_change_is_not_done_again(cli: Cli, real: World, reached: Backend) -> None:
    assert cli("plan", "ls").code == 0
    first = submitted(reached, again(reached, PLAN))
    finish(real, good="ok", other="ok", bad="exit", told="exit")

    found = again(reached, PLAN.replace("make bad", "make better"))

    assert left(found) == ["bad", "told", "late"]
    assert [task.needs for task in found.compiled.tasks] == [(), (), ("bad",)]
    second = submitted(reached, found)
    assert real.get(second["told"]).spec.inputs == {"good": first["good"]}
    finish(real, bad="ok", told="exit", late="exit")
    assert left(again(reached, PLAN.replace("make bad", "make better"))) == ["told", "late"], "the third time"


def test_what_needs_a_task_that_changed_is_done_again(real: World, reached: Backend, here: Path) -> None:
    submitted(reached, again(reached, PLAN))
    finish(real, good="ok", other="ok", bad="exit", told="ok")

    assert left(again(reached, PLAN.replace("make good", "make good twice"))) == ["good", "bad", "told", "late"]
    assert here.name == "work"


def test_a_plan_that_completed_is_done_again_as_a_whole(real: World, reached: Backend, here: Path) -> None:
    submitted(reached, again(reached, PLAN))
    finish(real, good="ok", other="ok", bad="ok", told="ok", late="ok")

    assert left(again(reached, PLAN)) == ["good", "other", "bad", "told", "late"]
    assert here.name == "work"
