"""The identity of a worker, and the lanes that it serves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from agentq.coordinator import bounds
from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.agent_options import AGENT_LABEL
from agentq.coordinator.model.demands import demands_any_label, meets_demands
from agentq.coordinator.model.field_types import Label, Name
from agentq.coordinator.model.spec import is_front_lane, parse_lane


class WorkerIdentity(BaseModel):
    """The identity and capabilities of a worker. An id belongs to one process, never to a host."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    id: Name
    queues: Annotated[tuple[Name, ...], Field(min_length=1, fail_fast=True)]
    labels: dict[Label, Label] = {}
    slots: int = Field(default=1, ge=1)
    only_matching: bool = False
    """Take only runs that demand one of its labels, to keep slots free for them."""
    only_agents: bool = False
    """Take only runs of agents, for a worker that can execute nothing else."""
    about: dict[str, JsonValue] = {}
    """Host, pid, version, executors, for people; and `process`, by which other workers on its host detect its death."""

    def check_size(self) -> None:
        if len(self.model_dump_json()) > bounds.IDENTITY_BYTES:
            raise Invalid(f"A worker describes itself in {bounds.IDENTITY_BYTES} bytes at the most.")


def select_served_lanes(identity: WorkerIdentity, lanes: Iterable[str]) -> list[str]:
    """The lanes of a worker's queues whose demands its labels meet, by priority, then in the order of its queues."""
    rank = {queue: place for place, queue in enumerate(identity.queues)}
    mine: list[tuple[int, int, bool, str]] = []
    for lane in lanes:
        parts = parse_lane(lane)
        demands = parts["demands"]
        wanted = not identity.only_matching or demands_any_label(identity.labels, demands)
        wanted = wanted and not (identity.only_agents and not any(name.startswith(AGENT_LABEL) for name in demands))
        if parts["queue"] in rank and wanted and meets_demands(identity.labels, demands):
            mine.append((-parts["priority"], rank[parts["queue"]], not is_front_lane(lane), lane))
    return [lane for *_, lane in sorted(mine)]
