"""Schedules, through a coordinator. Names are checked here as they are on Redis."""

from __future__ import annotations

from agentq.coordinator.bounds import ERROR_CHARACTERS
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.public_json.schedules import read_schedule, read_schedule_history
from agentq.coordinator.runs.verbs import SubmitReceipt
from agentq.coordinator.schedules.cron import ScheduleRule
from agentq.coordinator.schedules.verbs import (
    OverlapPolicy,
    ScheduleHistoryEntry,
    ScheduleRecord,
    check_schedule_name,
)
from agentq.sdk.http_backend.http_client import HttpClient, new_request_key


class HttpSchedules:
    """What is run again and again, or at a time."""

    def __init__(self, wire: HttpClient) -> None:
        self._wire = wire

    def add(
        self,
        name: str,
        rule: ScheduleRule,
        spec: RunSpec,
        *,
        overlap: OverlapPolicy = OverlapPolicy.SKIP,
        replace: bool = False,
    ) -> ScheduleRecord:
        run = spec.model_dump(mode="json", exclude_unset=True, by_alias=True) | {"kind": spec.kind}
        body = {**rule.model_dump(exclude_none=True), "run": run, "overlap": overlap}
        return read_schedule(self._wire.put(_path(name), body, key=new_request_key(), only_new=not replace))

    def get(self, name: str) -> ScheduleRecord:
        return read_schedule(self._wire.get(_path(name)))

    def all(self) -> list[ScheduleRecord]:
        return list(map(read_schedule, self._wire.get("/schedules")["schedules"]))

    def pause(self, name: str, why: str = "") -> ScheduleRecord:
        return read_schedule(self._wire.post(f"{_path(name)}/pause", {"why": why[:ERROR_CHARACTERS]}))

    def resume(self, name: str) -> ScheduleRecord:
        return read_schedule(self._wire.post(f"{_path(name)}/resume"))

    def run(self, name: str) -> SubmitReceipt:
        told = self._wire.post(f"{_path(name)}/run", key=new_request_key())
        return SubmitReceipt(told["id"], told["created"])

    def remove(self, name: str) -> None:
        self._wire.delete(_path(name))

    def history(self, name: str, most: int = 20) -> list[ScheduleHistoryEntry]:
        told = self._wire.get(f"{_path(name)}/history", {"limit": most})
        return list(map(read_schedule_history, told["history"]))


def _path(name: str) -> str:
    return f"/schedules/{check_schedule_name(name)}"
