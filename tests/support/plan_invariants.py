"""What must be true of plans, and of the lines in which their work waits for its branch."""

from __future__ import annotations

from support.snapshot import Snapshot, runs

from agentq.coordinator.model.lifecycle import HELD_STATES, LIVE_STATES, TERMINAL_STATES, State


def check_merge_lines(snapshot: Snapshot) -> None:
    """Whoever stands in a merge line holds its run, and every run that says so stands in one."""
    standing = {run: line for (line,), members in snapshot.of("merge_queue").items() for run in members}
    told = {run: fields["merge_queue"] for run, fields in runs(snapshot).items() if "merge_queue" in fields}
    assert standing == told, f"lines say {standing}, runs say {told}"
    for run in standing:
        assert State(runs(snapshot)[run]["state"]) in HELD_STATES, f"{run} is not held, and stands in a merge line"


def check_plans(snapshot: Snapshot, *, healthy: bool = True) -> None:
    """The indexes of a plan say the same as its runs; it has ended if nothing of it lives and nothing is to come."""
    plans = {name: fields for (name,), fields in snapshot.of("plan").items()}
    timers = snapshot.one("timers")
    assert set(plans) == set(snapshot.one("plans")), "plans and their list differ"
    tasks = {run: fields for run, fields in runs(snapshot).items() if "task" in fields}
    if healthy:
        indexed = {
            (plan, run, state) for (plan, state), members in snapshot.of("plan_index").items() for run in members
        }
        told = {(fields["plan"], run, fields["state"]) for run, fields in tasks.items()}
        assert indexed == told, f"indexes say {indexed - told}, runs say {told - indexed}"
        lists = snapshot.of("plan_tasks").items()
        named = {(plan, task, run) for (plan,), each in lists for task, run in each.items()}
        assert named == {(fields["plan"], fields["task"], run) for run, fields in tasks.items()}
    for name, fields in plans.items():
        states = [State(task["state"]) for task in tasks.values() if task["plan"] == name]
        assert states or fields["sealed"] == "0", f"the plan {name} has no task and is sealed"
        closed = fields["sealed"] == "1" or "stop_state" in fields
        lives = bool(set(states) & set(LIVE_STATES))
        over = closed and "retry_scope" not in fields and not lives
        # While a retry goes through a plan that had ended, and has not found anything yet, it has its word still.
        assert over == ("end_state" in fields) or ("retry_scope" in fields and not lives), (
            f"{name} has {states}: {fields}"
        )
        if over:
            # Of an ended plan tasks are forgotten one by one; the word is of all of them.
            assert fields["end_state"] != "completed" or set(states) == {State.COMPLETED}, (
                f"{name} has {states}: {fields}"
            )
        going = "retry_scope" in fields or ("stop_state" in fields and not over and _is_left(name, tasks))
        assert not going or f"plan {name}" in timers, f"nothing goes on with the plan {name}: {fields}"


def _is_left(plan: str, tasks: dict[str, dict[str, str]]) -> bool:
    """Whether a plan that is stopped has tasks that were not told."""
    own = [task for task in tasks.values() if task["plan"] == plan and State(task["state"]) not in TERMINAL_STATES]
    return any(State(task["state"]) not in HELD_STATES or "stop_at_ms" not in task for task in own)
