"""Runs that are jobs of RQ, as people see them: by RQ's own description of the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentq.coordinator.runs.rq_titles import is_rq_job

if TYPE_CHECKING:
    from agentq.coordinator.runs.run_record import RunRecord
    from agentq.sdk.backend import Backend


def with_job_titles(backend: Backend, runs: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs; those that are jobs of RQ with the description as their name."""
    jobs = [run for run in runs if is_rq_job(run)]
    titles = backend.rq_titles(jobs) if jobs else {}
    return [_named(run, titles[run.id]) if run.id in titles else run for run in runs]


def _named(run: RunRecord, name: str) -> RunRecord:
    return run.model_copy(update={"spec": run.spec.model_copy(update={"name": name})})
