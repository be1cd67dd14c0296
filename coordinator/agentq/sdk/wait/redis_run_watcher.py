"""Runs as Redis itself has them, looked at and listened to for those who wait for their ends."""

from __future__ import annotations

from collections.abc import Sequence

from agentq.coordinator.errors import AgentqError, TryLater, Unreachable
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.lifecycle import TERMINAL_STATES
from agentq.coordinator.runs.end_waiter import RunEndWaiter
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import RunVerbs


class RedisRunWatcher(RunEndWaiter):
    """Runs, for those who wait for them."""

    def __init__(self, queue: RunVerbs) -> None:
        super().__init__(queue.store)

    def get(self, run_id: str) -> RunRecord:
        return self.records.get(run_id)

    def looked_at(self, run_ids: Sequence[str], *, likely: bool) -> dict[str, RunRecord | AgentqError | None]:
        return {run_id: self._looked_at(run_id, likely=likely) for run_id in run_ids}

    def _looked_at(self, run_id: str, *, likely: bool) -> RunRecord | AgentqError | None:
        try:
            # The first look, at a run that has mostly not ended, costs a third of a whole record.
            if not likely and not self._may_have_ended(run_id):
                return None
            run = self.records.get(run_id)
        except (Unreachable, TryLater):
            raise
        except AgentqError as fault:
            return fault
        return run if run.state in TERMINAL_STATES else None

    def _may_have_ended(self, run_id: str) -> bool:
        state = self.store.connection.command("HGET", self.store.key(partition_of(run_id), "run", run_id), "state")
        return state is None or state in TERMINAL_STATES
