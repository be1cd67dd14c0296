"""Schedules, limits, queues and dead letters, as a coordinator has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agentq.coordinator.bounds import LIST_PER_CALL
from agentq.coordinator.errors import Invalid, quote_input
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.schedules.cron import ScheduleRule
from agentq.coordinator.schedules.verbs import OverlapPolicy
from agentq.sdk.administration import JsonRecord, WhenFull
from agentq.sdk.http_backend.http_client import HttpClient


class HttpAdministration:
    """All of it, over HTTP."""

    def __init__(self, wire: HttpClient) -> None:
        self._wire = wire
        self.schedules = _HttpSchedules(wire)
        self.limits = _HttpLimits(wire)
        self.queues = _HttpQueues(wire)

    def dead(self, queue: str | None) -> Iterator[str]:
        cursor: str | None = None
        while True:
            query = {"state": "failed", "queue": queue, "limit": LIST_PER_CALL, "cursor": cursor}
            page = self._wire.get("/runs", query)
            yield from (run["id"] for run in page["runs"])
            cursor = page["next"]
            if cursor is None:
                return


class _HttpResource:
    """Things of one kind, each with a name below a path."""

    path: str
    """Which is also what a list of them is called."""

    def __init__(self, wire: HttpClient) -> None:
        self._wire = wire

    def all(self) -> list[JsonRecord]:
        found: list[JsonRecord] = self._wire.get(self.path)[self.path[1:]]
        return found

    def _at(self, name: object, verb: str = "") -> str:
        if not isinstance(name, str):
            raise Invalid(f"{quote_input(name)} is not a name of {self.path[1:]}: it should be a text.")
        return f"{self.path}/{name}{verb}"

    def _put(self, name: str, body: object) -> Any:
        return self._wire.say("PUT", self._at(name), json.dumps(body).encode())

    def _remove(self, name: str) -> None:
        self._wire.say("DELETE", self._at(name))


class _HttpSchedules(_HttpResource):
    path = "/schedules"

    def put(self, name: str, spec: RunSpec, rule: ScheduleRule, overlap: OverlapPolicy) -> JsonRecord:
        run = spec.model_dump(mode="json", exclude_unset=True, by_alias=True)
        made: JsonRecord = self._put(name, {**rule.model_dump(exclude_none=True), "run": run, "overlap": overlap})
        return made

    def get(self, name: str) -> JsonRecord:
        found: JsonRecord = self._wire.get(self._at(name))
        return found

    def pause(self, name: str, why: str = "") -> JsonRecord:
        found: JsonRecord = self._wire.post(self._at(name, "/pause"), {"why": why})
        return found

    def resume(self, name: str) -> JsonRecord:
        found: JsonRecord = self._wire.post(self._at(name, "/resume"))
        return found

    def run(self, name: str) -> str:
        return str(self._wire.post(self._at(name, "/run"))["id"])

    def remove(self, name: str) -> None:
        self._remove(name)


class _HttpLimits(_HttpResource):
    path = "/limits"

    def set(
        self, key: str, most: int | None = None, *, rate: str | None = None, when_full: WhenFull = "queue"
    ) -> JsonRecord:
        found: JsonRecord = self._put(key, {"max": most, "rate": rate, "when_full": when_full})
        return found

    def remove(self, key: str) -> None:
        self._remove(key)


class _HttpQueues(_HttpResource):
    path = "/queues"

    def all(self) -> list[JsonRecord]:
        found, cursor = list[JsonRecord](), None
        while True:
            page = self._wire.get(self.path, {"cursor": cursor})
            found += page["queues"]
            cursor = page.get("next")
            if cursor is None:
                return found

    def pause(self, queue: str, why: str = "") -> None:
        self._wire.post(self._at(queue, "/pause"), {"why": why})

    def resume(self, queue: str) -> None:
        self._wire.post(self._at(queue, "/resume"))

    def drain(self, queue: str, why: str = "") -> None:
        self._wire.post(self._at(queue, "/drain"), {"why": why})

    def move(self, queue: str, to: str) -> int:
        return int(self._wire.post(self._at(queue, "/move"), {"to": to})["moved"])

    def purge(self, queue: str) -> int:
        return int(self._wire.post(self._at(queue, "/purge"))["cancelled"])
