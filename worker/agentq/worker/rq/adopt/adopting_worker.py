"""A worker of agentq that adopts queues of RQ: `agentq worker --rq high,default`.

It is an ordinary worker that executes RQ's jobs among its function runs; a bridge (`queue_bridge`) brings them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

from redis.exceptions import RedisError
from rq.serializers import resolve_serializer

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import AgentqError, Invalid, Unreachable
from agentq.coordinator.storage.server_errors import translate_error
from agentq.coordinator.storage.url import parse_url
from agentq.worker.options import WorkerOptions
from agentq.worker.rq.adopt.queue_bridge import QueueBridge
from agentq.worker.server_backends import RedisWorkerBackend
from agentq.worker.settings_reload import SettingsReload
from agentq.worker.worker import WorkerProcess


class AdoptedQueues(NamedTuple):
    """RQ's queues, and the serializer of their jobs."""

    queues: tuple[str, ...]
    serializer: str = ""


class AdoptingWorker(WorkerProcess):
    """A worker with a bridge to RQ's queues."""

    def __init__(
        self,
        settings: Settings,
        options: WorkerOptions,
        home: Path,
        reload: SettingsReload | None,
        adopted: AdoptedQueues,
    ) -> None:
        super().__init__(RedisWorkerBackend(settings), options, home, reload)
        self.bridge = QueueBridge(
            self.queue.store, settings, self.id, self.slots, adopted.queues, adopted.serializer, self._bridge_failed
        )
        self.slots.on_take(self.bridge.on_take)
        self._was_quiet = False

    async def run(self) -> int:
        # It starts at the first wait, when signal handlers are set: RQ's tools may send a signal once they list it.
        adopting = asyncio.ensure_future(self._adopt())
        try:
            return await super().run()
        finally:
            await adopting
            await asyncio.to_thread(self.bridge.close)

    async def _adopt(self) -> None:
        try:
            await asyncio.to_thread(self.bridge.start)
        except RedisError as error:
            self._fail(Unreachable(f"RQ's queues cannot be adopted: {error}."))

    async def _drain(self) -> None:
        await asyncio.to_thread(self.bridge.drain)
        await super()._drain()

    def _on_nothing_claimed(self) -> None:
        """A burst ends when RQ's lists were empty before the lanes were: a job may move from one to the other."""
        if not self.options.burst:
            return
        was_quiet, self._was_quiet = self._was_quiet, self.slots.is_empty() and self.bridge.is_empty()
        if was_quiet and self._was_quiet:
            super()._on_nothing_claimed()
        elif self._was_quiet:
            self.claims.claim_again()

    def _bridge_failed(self, fault: AgentqError) -> None:
        self._on_loop(self._fail)(fault)


def check_serializer(name: str) -> None:
    """Refuse a serializer that RQ does not know before jobs fail by it."""
    try:
        resolve_serializer(name or None)
    except (ValueError, ImportError, AttributeError, RuntimeError) as error:
        raise Invalid(
            f"--rq-serializer: RQ has no serializer {name[:80]!r}; say pickle, json, or a path such as "
            "rq.serializers.JSONSerializer."
        ) from error


def serve_adopting(
    settings: Settings, options: WorkerOptions, home: Path, reload: SettingsReload | None, adopted: AdoptedQueues
) -> int:
    """Run such a worker in this process until it is stopped; returns the exit code."""

    async def work() -> int:
        try:
            worker = AdoptingWorker(settings, options, home, reload, adopted)
        except RedisError as error:
            # RQ's class for a worker greets the server before it is asked to.
            raise translate_error(error, str(parse_url(settings.url))) from error
        return await worker.run()

    return asyncio.run(work())
