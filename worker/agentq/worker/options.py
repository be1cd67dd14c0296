"""What a worker is told when it is started."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from agentq.coordinator.demands import BUILT_IN
from agentq.coordinator.fields import Label, Name


class WorkerOptions(BaseModel):
    """How one worker works."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slots: Annotated[int, Field(ge=1, le=10_000)] = 1
    queues: Annotated[tuple[Name, ...], Field(min_length=1)] = ("default",)
    labels: Annotated[dict[Label, Label], AfterValidator(lambda labels: _own(labels))] = {}
    only_matching: bool = False
    """Take only runs that demand something of it."""
    name: Name | None = None
    """The beginning of the worker's id; the host's name without one."""
    burst: bool = False
    """End when there is nothing left to claim."""
    max_runs: Annotated[int, Field(ge=1)] | None = None
    """End after so many runs."""
    drain_grace_ms: Annotated[int, Field(ge=0)] = 30_000
    """How long runs may go on after a drain began, before they are handed back."""


def _own(labels: dict[str, str]) -> dict[str, str]:
    for name in BUILT_IN:
        if name in labels:
            raise ValueError(f"every worker has the label {name!r} by itself, and it cannot be set")
    return labels
