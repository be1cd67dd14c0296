"""The group of a backend for schedules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentq.coordinator.model.spec import RunSpec
    from agentq.coordinator.runs.verbs import SubmitReceipt
    from agentq.coordinator.schedules.cron import ScheduleRule
    from agentq.coordinator.schedules.verbs import OverlapPolicy, ScheduleHistoryEntry, ScheduleRecord


class ScheduleVerbs(Protocol):
    """What is run again and again, or at a time."""

    def add(
        self, name: str, rule: ScheduleRule, spec: RunSpec, *, overlap: OverlapPolicy = ..., replace: bool = False
    ) -> ScheduleRecord: ...
    def get(self, name: str) -> ScheduleRecord: ...
    def all(self) -> Iterable[ScheduleRecord]: ...
    def pause(self, name: str, why: str = "") -> ScheduleRecord: ...
    def resume(self, name: str) -> ScheduleRecord: ...
    def run(self, name: str) -> SubmitReceipt: ...
    def remove(self, name: str) -> None: ...
    def history(self, name: str, most: int = 20) -> list[ScheduleHistoryEntry]: ...
