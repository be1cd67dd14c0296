"""The workers of a coordinator, looked at and sent away."""

from __future__ import annotations

from agentq.coordinator.bounds import ERROR_CHARACTERS
from agentq.coordinator.public_json.workers import read_worker
from agentq.coordinator.workers.registry import WorkerOverview
from agentq.sdk.http_backend.http_client import HttpClient


class HttpWorkers:
    """The workers, looked at and sent away."""

    def __init__(self, wire: HttpClient) -> None:
        self._wire = wire

    def all(self, *, departed: bool = False) -> list[WorkerOverview]:
        told = self._wire.get("/workers", {"all": "true" if departed else None})
        return list(map(read_worker, told["workers"]))

    def drain(self, worker: str, why: str = "", *, hurry: bool = False) -> None:
        self._wire.post(f"/workers/{worker}/{'stop' if hurry else 'drain'}", {"why": why[:ERROR_CHARACTERS]})
