"""RQ's descriptions of the jobs that are runs here, as long as RQ keeps them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from agentq.coordinator.errors import NotAllowed

if TYPE_CHECKING:
    from agentq.coordinator.runs.run_record import RunRecord
    from agentq.coordinator.storage.store import NamespaceStore

PERFORM_FUNCTION = "agentq.worker.rq.job:perform"
"""The function of such runs. It is not imported from there: that would import RQ."""


def is_rq_job(run: RunRecord) -> bool:
    """Whether a run is a job of RQ that has no name of its own."""
    return run.spec.function == PERFORM_FUNCTION and not run.spec.name and bool(run.spec.args)


def read_rq_titles(store: NamespaceStore, runs: Iterable[RunRecord]) -> dict[str, str]:
    """The descriptions that RQ has of these runs, by their ids."""
    jobs = [(run.id, f"rq:job:{run.spec.args[0]}") for run in runs if is_rq_job(run)]
    try:
        found = {run_id: store.connection.command("HGET", key, "description") for run_id, key in jobs}
    except NotAllowed:
        return {}  # this user may see agentq's keys alone
    return {run_id: str(title) for run_id, title in found.items() if title}
