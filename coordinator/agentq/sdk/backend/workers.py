"""The group of a backend for workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentq.coordinator.workers.registry import WorkerOverview


class WorkerVerbs(Protocol):
    """The workers, looked at and sent away."""

    def all(self, *, departed: bool = False) -> list[WorkerOverview]: ...
    def drain(self, worker: str, why: str = "", *, hurry: bool = False) -> None: ...
