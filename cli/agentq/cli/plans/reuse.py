"""A plan file that is run again after its plan failed: what completed and has not changed is not done again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.cli.connect import print_note
from agentq.cli.plans.plan_options import LoadedPlan
from agentq.coordinator.errors import NotFound
from agentq.coordinator.model.lifecycle import State
from agentq.sdk.backend import Backend

if TYPE_CHECKING:
    from agentq.coordinator.plans.source import PlanHeader

PLANS_SEARCHED = 100
"""Plans, the newest, among which the one is looked for that was made from the same file."""
TASKS_NAMED = 10


def skip_unchanged_tasks(backend: Backend, found: LoadedPlan) -> LoadedPlan:
    """The plan without the tasks that the newest plan of its file has done, if that one did not complete."""
    from agentq.planning.reuse import remove_done_tasks, unchanged_tasks

    earlier = _find_earlier_plan(backend, found.file)
    if earlier is None:
        return found
    plan, head = earlier
    completed = {task.id: task.run for task in backend.plans.all_tasks(plan, State.COMPLETED)}
    runs = {**head.given, **completed}
    there = {task: run for task, run in runs.items() if task in found.shapes and _is_reusable(backend, found, run)}
    tasks = found.compiled.tasks
    done = {task: there[task] for task in unchanged_tasks(tasks, found.shapes, head.shapes, there)}
    if not done:
        return found
    named = ", ".join(list(done)[:TASKS_NAMED]) + (
        f" and {len(done) - TASKS_NAMED} more" if len(done) > TASKS_NAMED else ""
    )
    print_note(
        f"not done again, since {plan} has done it and it did not change: {named}. --anew does everything again."
    )
    return replace(found, compiled=replace(found.compiled, tasks=remove_done_tasks(tasks, done)), given=done)


def _find_earlier_plan(backend: Backend, file: str) -> tuple[str, PlanHeader] | None:
    """The newest plan of a file, if it has ended and did not complete."""
    plans = backend.plans
    for plan in plans.ls(limit=PLANS_SEARCHED)[0]:
        head = plans.header(plan.id)
        if head.file == file:
            return (plan.id, head) if plan.ended not in (None, "completed") else None
    return None


def _is_reusable(backend: Backend, found: LoadedPlan, run: str) -> bool:
    """Whether a run is still known, and its work still in the branch that the plan goes to."""
    from agentq.planning.repository import run_git

    try:
        outcome = backend.get(run).outcome
    except NotFound:
        return False
    work, site = outcome.work if outcome is not None else None, found.compiled.repository
    if work is None or work.commit is None or not work.merged or site is None or not site.local:
        return True
    return (
        run_git(Path(site.repository), "merge-base", "--is-ancestor", work.commit, f"refs/heads/{site.target}")[0] == 0
    )
