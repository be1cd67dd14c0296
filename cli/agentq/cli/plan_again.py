"""A plan file that is run again after its plan failed: what completed and has not changed is not done again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.cli.planned import Read, plans_of
from agentq.cli.server import Server, note
from agentq.coordinator.errors import NotFound
from agentq.coordinator.lifecycle import State

if TYPE_CHECKING:
    from agentq.planning.submitting import Head

SOUGHT = 100
"""Plans, the newest, among which the one is looked for that was made from the same file."""
NAMED = 10


def without_done(server: Server, found: Read) -> Read:
    """The plan without the tasks that the newest plan of its file has done, if that one did not complete."""
    from agentq.planning.unchanged import unchanged, without

    earlier = _earlier(server, found.file)
    if earlier is None:
        return found
    plan, head = earlier
    completed = {task.id: task.run for task in plans_of(server).all_tasks(plan, State.COMPLETED)}
    runs = {**head.given, **completed}
    there = {task: run for task, run in runs.items() if task in found.shapes and _is_there(server, found, run)}
    tasks = found.compiled.tasks
    done = {task: there[task] for task in unchanged(tasks, found.shapes, head.shapes, there)}
    if not done:
        return found
    named = ", ".join(list(done)[:NAMED]) + (f" and {len(done) - NAMED} more" if len(done) > NAMED else "")
    note(f"not done again, since {plan} has done it and it did not change: {named}. --anew does everything again.")
    return replace(found, compiled=replace(found.compiled, tasks=without(tasks, done)), given=done)


def _earlier(server: Server, file: str) -> tuple[str, Head] | None:
    """The newest plan of a file, if it has ended and did not complete."""
    from agentq.planning.submitting import head_in

    plans = plans_of(server)
    for plan in plans.ls(limit=SOUGHT)[0]:
        head = head_in(plans, plan.id)
        if head.file == file:
            return (plan.id, head) if plan.ended not in (None, "completed") else None
    return None


def _is_there(server: Server, found: Read, run: str) -> bool:
    """Whether a run is still known, and its work still in the branch that the plan goes to."""
    from agentq.planning.site import git

    try:
        outcome = server.records.get(run).outcome
    except NotFound:
        return False
    work, site = outcome.work if outcome is not None else None, found.compiled.site
    if work is None or work.commit is None or not work.merged or site is None or not site.local:
        return True
    return git(Path(site.repository), "merge-base", "--is-ancestor", work.commit, f"refs/heads/{site.target}")[0] == 0
