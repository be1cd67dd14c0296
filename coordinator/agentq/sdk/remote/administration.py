"""Schedules, limits, queues and dead letters, as a coordinator has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agentq.coordinator.limits import LIST_A_CALL
from agentq.coordinator.rule import Rule
from agentq.coordinator.run import RunSpec
from agentq.coordinator.schedules import Overlap
from agentq.sdk.administration import Record, WhenFull
from agentq.sdk.remote.wire import Wire


class Administration:
    """All of it, over HTTP."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.schedules = _Schedules(wire)
        self.limits = _Limits(wire)
        self.queues = _Queues(wire)

    def dead(self, queue: str | None) -> Iterator[str]:
        cursor: str | None = None
        while True:
            query = {"state": "failed", "queue": queue, "limit": LIST_A_CALL, "cursor": cursor}
            page = self._wire.get("/runs", query)
            yield from (run["id"] for run in page["runs"])
            cursor = page["next"]
            if cursor is None:
                return


class _Resource:
    """Things of one kind, each with a name below a path."""

    path: str
    """Which is also what a list of them is called."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def all(self) -> list[Record]:
        found: list[Record] = self._wire.get(self.path)[self.path[1:]]
        return found

    def _at(self, name: str, verb: str = "") -> str:
        return f"{self.path}/{name}{verb}"

    def _put(self, name: str, body: object) -> Any:
        return self._wire.say("PUT", self._at(name), json.dumps(body).encode())

    def _remove(self, name: str) -> None:
        self._wire.say("DELETE", self._at(name))


class _Schedules(_Resource):
    path = "/schedules"

    def put(self, name: str, spec: RunSpec, rule: Rule, overlap: Overlap) -> Record:
        run = spec.model_dump(mode="json", exclude_unset=True, by_alias=True)
        made: Record = self._put(name, {**rule.model_dump(exclude_none=True), "run": run, "overlap": overlap})
        return made

    def get(self, name: str) -> Record:
        found: Record = self._wire.get(self._at(name))
        return found

    def pause(self, name: str, why: str = "") -> Record:
        found: Record = self._wire.post(self._at(name, "/pause"), {"why": why})
        return found

    def resume(self, name: str) -> Record:
        found: Record = self._wire.post(self._at(name, "/resume"))
        return found

    def run(self, name: str) -> str:
        return str(self._wire.post(self._at(name, "/run"))["id"])

    def remove(self, name: str) -> None:
        self._remove(name)


class _Limits(_Resource):
    path = "/limits"

    def set(
        self, key: str, most: int | None = None, *, rate: str | None = None, when_full: WhenFull = "queue"
    ) -> Record:
        found: Record = self._put(key, {"max": most, "rate": rate, "when_full": when_full})
        return found

    def remove(self, key: str) -> None:
        self._remove(key)


class _Queues(_Resource):
    path = "/queues"

    def all(self) -> list[Record]:
        found, cursor = list[Record](), None
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
