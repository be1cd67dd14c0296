"""What many runners say at the same time, in calls that they share: one thread does for all what each would need one
for. Who comes alone waits for nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agentq.coordinator.errors import AgentqError
from agentq.coordinator.server.foreign.follower import Elsewhere
from agentq.coordinator.server.foreign.orders import Ask, Nothing, Orders, Told
from agentq.coordinator.server.foreign.reports import Ended, Reports
from agentq.coordinator.server.gathering import Gathering

TOGETHER = 100
"""Polls or reports that share a call, at the most."""


class Rush:
    """The polls and reports of this process."""

    def __init__(self, orders: Orders, reports: Reports, elsewhere: Elsewhere) -> None:
        self._elsewhere = elsewhere
        self._polls = self._gathering(orders.next_of_all)
        self._called = self._gathering(orders.next_of_all)
        self._starts = self._gathering(reports.started_of_all)
        self._ends = self._gathering(reports.completed_of_all)

    async def poll(self, ask: Ask, *, called: bool) -> Told | Nothing:
        """What a runner is to be told now. One that was called for something does not stand behind all who ask anew."""
        found: Told | Nothing = _good(await (self._called if called else self._polls)(ask))
        return found

    async def started(self, told: Ended) -> None:
        """A run's process has begun."""
        _good(await self._starts(told))

    async def completed(self, told: Ended) -> None:
        """A run is done."""
        _good(await self._ends(told))

    def _gathering(self, act: Callable[[Sequence[Any]], Sequence[Any]]) -> Gathering[Any, Any]:
        async def together(items: list[Any]) -> Sequence[Any]:
            try:
                found: Sequence[Any] = await self._elsewhere(act, items)
            except AgentqError as fault:
                # The store is away: it is so for all of them, and asking for each would take as long as for all.
                return [fault] * len(items)
            return found

        return Gathering(together, most=TOGETHER)


def _good(answer: Any) -> Any:
    if isinstance(answer, AgentqError):
        raise answer
    return answer
