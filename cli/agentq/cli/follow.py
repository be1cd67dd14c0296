"""Waits for the ends of runs that were just submitted, and prints what they write."""

from __future__ import annotations

from agentq.cli.commands.logs import print_log
from agentq.cli.commands.wait import exit_code, wait_for_runs
from agentq.cli.connect import ServerConnection, print_note
from agentq.cli.render import clean
from agentq.cli.show.run_summary import describe_end
from agentq.cli.unknown_names import RUNS_CHECKED


def follow_runs(server: ServerConnection, ids: list[str], *, follow: bool, json: bool) -> int:
    """Wait for the ends of runs; they do not need us for that."""
    try:
        _note_unserved_queues(server, ids)
        if follow:
            print_note(ids[0])
            print_log(server, ids[0], follow=True)
            run = server.records.get(ids[0])
            why = run.outcome.error if run.outcome is not None and run.spec.kind == "agent" else None
            end = ", ".join(filter(None, (run.state.value, describe_end(run))))
            print_note(f"{ids[0]} {end}{': ' if why else '.'}{clean(why or '')}")
            return exit_code(run)
        return wait_for_runs(server, ids, json=json, submitted=True)
    except KeyboardInterrupt:
        print_note(f"{', '.join(ids[:3])} {'goes' if len(ids) == 1 else 'go'} on; `agentq cancel` ends a run.")
        raise


def _note_unserved_queues(server: ServerConnection, ids: list[str]) -> None:
    """Who waits for runs that nobody will begin should know."""
    served = {queue for worker in server.records.workers() for queue in worker.identity.queues}
    specs = [server.records.get(run_id).spec for run_id in ids[:RUNS_CHECKED]]
    # What no worker offers was said when these were submitted, and a run of an agent demands it.
    queues = {spec.queue for spec in specs if not spec.demands and spec.kind != "agent"}
    for queue in sorted(queues - served):
        print_note(f"no worker serves the queue {queue} yet; start one with `agentq worker --queue {queue}`.")
