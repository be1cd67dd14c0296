"""Tracks which servers are alive, so that the record of a poll held by a killed server is ignored.

While a server holds polls it sets a key with a short lifetime once a second. A runner process whose identity polls at a
dead server is allowed to register again.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.model.ids import new_nonce
from agentq.coordinator.storage.store import NamespaceStore
from agentq.server.thread_pool import CallInThread

LIVENESS_INTERVAL_MS = 1000
LIVENESS_TIMEOUT_MS = 4000
"""How long a server counts as alive after its last announcement: several intervals, one of which may be slow."""
LIVENESS_PARTITION = 0


class ServerLiveness:
    """Announces this server, and checks others."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store
        self.server = f"server-{new_nonce()}"
        self._announced_at_ms = -LIVENESS_INTERVAL_MS
        self._polls_held = 0
        self._task: asyncio.Task[None] | None = None

    def announce(self) -> None:
        """Announce this server, at most once per interval."""
        if monotonic_ms() - self._announced_at_ms >= LIVENESS_INTERVAL_MS:
            self.store.call(
                "dialect/set_fields", LIVENESS_PARTITION, "runner", LIVENESS_TIMEOUT_MS, self.server, "here", "1"
            )
            self._announced_at_ms = monotonic_ms()

    def is_alive(self, server: str) -> bool:
        """Whether a server has announced itself recently. This server always counts as alive."""
        if server == self.server:
            return True
        return bool(
            self.store.connection.command("EXISTS", self.store.key(LIVENESS_PARTITION, "dialect_runner", server))
        )

    async def begin_poll(self, call_in_thread: CallInThread) -> None:
        """Count a poll that is held here, and announce the server while there are any."""
        self._polls_held += 1
        if self._task is None:
            self._task = asyncio.create_task(self._announce_periodically(call_in_thread))
        with suppress(AgentqError):  # the store is away, and so are the records of polls
            await call_in_thread(self.announce)

    def end_poll(self) -> None:
        """Count the end of a poll."""
        self._polls_held -= 1

    async def _announce_periodically(self, call_in_thread: CallInThread) -> None:
        try:
            while self._polls_held:
                await asyncio.sleep(LIVENESS_INTERVAL_MS / 1000)
                with suppress(AgentqError):  # announced again a second later
                    await call_in_thread(self.announce)
        finally:
            self._task = None
