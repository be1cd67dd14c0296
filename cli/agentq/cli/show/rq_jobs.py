"""Runs that are jobs of RQ, as people see them: by RQ's own description of the job, as long as RQ keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.cli.connect import ServerConnection
from agentq.coordinator.errors import NotAllowed

if TYPE_CHECKING:
    from agentq.coordinator.runs.run_record import RunRecord

PERFORM_FUNCTION = "agentq.worker.rq.job:perform"
"""The function of such runs. It is not imported from there: that would import RQ."""


def with_job_title(server: ServerConnection, run: RunRecord) -> RunRecord:
    """The run; of a job of RQ's with the description as its name."""
    spec = run.spec
    if spec.function != PERFORM_FUNCTION or spec.name or not spec.args:
        return run
    try:
        said = server.store.connection.command("HGET", f"rq:job:{spec.args[0]}", "description")
    except NotAllowed:
        return run  # this user may see agentq's keys alone
    return run.model_copy(update={"spec": spec.model_copy(update={"name": said})}) if said else run
