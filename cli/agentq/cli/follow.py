"""Waits for the ends of runs that were just submitted, and prints what they write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.cli.commands.logs import print_log
from agentq.cli.commands.wait import exit_code, wait_for_runs
from agentq.cli.connect import print_note
from agentq.cli.render import clean
from agentq.cli.show.run_summary import describe_end
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.model.spec import RunSpec

if TYPE_CHECKING:
    from agentq.sdk.backend import Backend

RUNS_CHECKED = 20
"""Submitted runs whose queues are checked for workers."""


def follow_runs(backend: Backend, ids: list[str], *, follow: bool, json: bool) -> int:
    """Wait for the ends of runs; they do not need us for that."""
    try:
        _note_unserved_queues(backend, ids)
        if follow:
            print_note(ids[0])
            print_log(backend, ids[0], follow=True)
            run = backend.get(ids[0])
            why = run.outcome.error if run.outcome is not None and run.spec.kind == "agent" else None
            end = ", ".join(filter(None, (run.state.value, describe_end(run))))
            print_note(f"{ids[0]} {end}{': ' if why else '.'}{clean(why or '')}")
            return exit_code(run)
        return wait_for_runs(backend, ids, json=json, submitted=True)
    except KeyboardInterrupt:
        print_note(f"{', '.join(ids[:3])} {'goes' if len(ids) == 1 else 'go'} on; `agentq cancel` ends a run.")
        raise


def _note_unserved_queues(backend: Backend, ids: list[str]) -> None:
    """Note runs that no worker will claim."""
    specs = [run.spec for run in backend.read(ids[:RUNS_CHECKED]) if not isinstance(run, AgentqError)]
    # What no worker offers was said when these were submitted, and a run of an agent demands it.
    queues = {spec.queue for spec in specs if not spec.demands and spec.kind != "agent"}
    if not queues:
        return
    for queue in backend.check(
        RunSpec(kind="command", argv=("true",), queue=queue) for queue in queues
    ).unserved_queues:
        print_note(f"no worker serves the queue {queue} yet; start one with `agentq worker --queue {queue}`.")
