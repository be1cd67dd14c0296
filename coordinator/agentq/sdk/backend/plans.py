"""What a backend does with plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentq.coordinator.events.stream import Event
    from agentq.coordinator.model.lifecycle import State
    from agentq.coordinator.plans.source import PlanHeader, TaskSubmission
    from agentq.coordinator.plans.verbs import PlanRecord, RetrySelection, TaskRecord


class PlanWatcher(Protocol):
    """Hears what happens to a plan, from when it was opened. Not thread-safe."""

    def skip(self) -> None:
        """Pass over what has happened up to now: the caller is about to read all tasks."""

    def read(self, wait_ms: int) -> list[Event] | None:
        """What has happened since the last call; waits for something to happen. None if some of it is lost."""

    def close(self) -> None: ...


class PlanVerbs(Protocol):
    """Submits, reads and steers plans."""

    def submit(
        self, plan: str, header: PlanHeader, tasks: Sequence[TaskSubmission], *, durable: bool = False
    ) -> PlanRecord:
        """Create a plan with this id; said again, it completes it."""

    def complete(self, plan: str) -> PlanRecord:
        """Submit what is missing of a plan whose submit was cut."""

    def add(self, plan: str, tasks: Sequence[TaskSubmission]) -> dict[str, str]:
        """Add tasks to a plan, which goes on if it had ended; returns their runs."""

    def get(self, plan: str) -> PlanRecord: ...

    def ls(self, *, limit: int = 100, cursor: str | None = None) -> tuple[list[PlanRecord], str | None]:
        """A page of plans, the newest first, and where the next one goes on."""

    def header(self, plan: str) -> PlanHeader:
        """What holds for a plan as a whole."""

    def tasks(
        self, plan: str, *states: State, limit: int = 100, cursor: str | None = None
    ) -> tuple[list[TaskRecord], str | None]:
        """A page of its tasks in the order of the plan, or of those in some states, and where the next one goes on."""

    def all_tasks(self, plan: str, *states: State) -> Iterator[TaskRecord]: ...

    def cancel(self, plan: str, why: str = "cancelled on request") -> PlanRecord: ...

    def retry(self, plan: str, which: RetrySelection = "failed", *, task: str | None = None) -> PlanRecord: ...

    def remove_limit(self, plan: str) -> None:
        """Forget how many tasks of an ended plan may run at once."""

    def watch(self, plan: str) -> PlanWatcher:
        """What happens to a plan from now on; the caller closes it."""
