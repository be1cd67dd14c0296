"""What many runners say at the same time, in calls that they share: one thread does for all what each would need one
for. Who comes alone waits for nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agentq.coordinator.errors import AgentqError
from agentq.dialects.agent_orchestrator.runners.poll_answer import EmptyPollAnswer, PollAnswer, PollDecider, PollRequest
from agentq.dialects.agent_orchestrator.runners.run_reports import RunReport, RunReports
from agentq.server.batching import Batcher
from agentq.server.thread_pool import CallInThread

BATCH_SIZE_MAX = 100
"""Polls or reports that share a call, at the most."""


class RunnerBatcher:
    """The polls and reports of this process."""

    def __init__(self, poll_decider: PollDecider, run_reports: RunReports, call_in_thread: CallInThread) -> None:
        self._call_in_thread = call_in_thread
        self._polls = self._make_batcher(poll_decider.decide_batch)
        self._woken_polls = self._make_batcher(poll_decider.decide_batch)
        self._starts = self._make_batcher(run_reports.started_of_all)
        self._ends = self._make_batcher(run_reports.completed_of_all)

    async def poll(self, request: PollRequest, *, woken: bool) -> PollAnswer | EmptyPollAnswer:
        """What a runner is to be told now. One that was called for something does not stand behind all who ask anew."""
        found: PollAnswer | EmptyPollAnswer = _raise_error(await (self._woken_polls if woken else self._polls)(request))
        return found

    async def started(self, report: RunReport) -> None:
        """A run's process has begun."""
        _raise_error(await self._starts(report))

    async def completed(self, report: RunReport) -> None:
        """A run is done."""
        _raise_error(await self._ends(report))

    def _make_batcher(self, act: Callable[[Sequence[Any]], Sequence[Any]]) -> Batcher[Any, Any]:
        async def together(items: list[Any]) -> Sequence[Any]:
            try:
                found: Sequence[Any] = await self._call_in_thread(act, items)
            except AgentqError as fault:
                # The store is away: it is so for all of them, and asking for each would take as long as for all.
                return [fault] * len(items)
            return found

        return Batcher(together, items_max=BATCH_SIZE_MAX)


def _raise_error(answer: Any) -> Any:
    if isinstance(answer, AgentqError):
        raise answer
    return answer
