"""What must be true of plans, and of the lines in which their work waits for its branch."""

from __future__ import annotations

from snapshot import Snapshot, runs

from agentq.coordinator.lifecycle import HELD, State


def check_merge_lines(snapshot: Snapshot) -> None:
    """Whoever stands in a merge line holds its run, and every run that says so stands in one."""
    standing = {run: line for (line,), members in snapshot.of("merge").items() for run in members}
    told = {run: fields["merging"] for run, fields in runs(snapshot).items() if "merging" in fields}
    assert standing == told, f"lines say {standing}, runs say {told}"
    for run in standing:
        assert State(runs(snapshot)[run]["state"]) in HELD, f"{run} is not held, and stands in a merge line"
