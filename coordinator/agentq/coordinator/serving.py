"""Who a worker is, and which lanes it serves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from agentq.coordinator import limits
from agentq.coordinator.demands import is_asked_for, meets
from agentq.coordinator.errors import Invalid
from agentq.coordinator.fields import Label, Name
from agentq.coordinator.run import is_front, lane_parts
from agentq.coordinator.turn import AGENT_LABEL


class Identity(BaseModel):
    """Who a worker is and what it can do. The id is a process's, never a host's alone."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    id: Name
    queues: Annotated[tuple[Name, ...], Field(min_length=1, fail_fast=True)]
    labels: dict[Label, Label] = {}
    slots: int = Field(default=1, ge=1)
    only_matching: bool = False
    """Take only runs that demand something it has, so that it is not filled with those that could run anywhere."""
    only_agents: bool = False
    """Take only runs of agents, where nothing else can be executed."""
    about: dict[str, JsonValue] = {}
    """Host, pid, version, executors, for people; and `process`, by which others on its host know it for dead."""

    def check_size(self) -> None:
        if len(self.model_dump_json()) > limits.IDENTITY_BYTES:
            raise Invalid(f"A worker describes itself in {limits.IDENTITY_BYTES} bytes at the most.")


def serves(identity: Identity, lanes: Iterable[str]) -> list[str]:
    """The lanes of a worker's queues whose demands its labels meet, by priority, then in the order of its queues."""
    rank = {queue: place for place, queue in enumerate(identity.queues)}
    mine: list[tuple[int, int, bool, str]] = []
    for lane in lanes:
        parts = lane_parts(lane)
        demands = parts["demands"]
        wanted = not identity.only_matching or is_asked_for(identity.labels, demands)
        wanted = wanted and not (identity.only_agents and not any(name.startswith(AGENT_LABEL) for name in demands))
        if parts["queue"] in rank and wanted and meets(identity.labels, demands):
            mine.append((-parts["priority"], rank[parts["queue"]], not is_front(lane), lane))
    return [lane for *_, lane in sorted(mine)]
