"""Whether the server that holds a runner's poll is still there: after `kill -9` its note of that poll means nothing.

Each server says so with a key that lives for some seconds, once a second as long as it holds polls. The process of a
runner that polls at a server which is gone is refused at the next one, and registers again: it is let in.
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
"""How long a server counts as there after it last said so: several beats, one of which may be slow."""
LIVENESS_PARTITION = 0


class ServerLiveness:
    """Says that this server is there, and tells whether another is."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store
        self.server = f"server-{new_nonce()}"
        self._announced_at_ms = -LIVENESS_INTERVAL_MS
        self._polls_held = 0
        self._task: asyncio.Task[None] | None = None

    def announce(self) -> None:
        """Say that this server is there, unless it has just been said."""
        if monotonic_ms() - self._announced_at_ms >= LIVENESS_INTERVAL_MS:
            self.store.call(
                "dialect/set_fields", LIVENESS_PARTITION, "runner", LIVENESS_TIMEOUT_MS, self.server, "here", "1"
            )
            self._announced_at_ms = monotonic_ms()

    def is_alive(self, server: str) -> bool:
        """Whether a server was there some seconds ago. This one always is."""
        if server == self.server:
            return True
        return bool(
            self.store.connection.command("EXISTS", self.store.key(LIVENESS_PARTITION, "dialect_runner", server))
        )

    async def begin_poll(self, call_in_thread: CallInThread) -> None:
        """A poll begins to be held here."""
        self._polls_held += 1
        if self._task is None:
            self._task = asyncio.create_task(self._announce_periodically(call_in_thread))
        with suppress(AgentqError):  # the store is away, and with it every note
            await call_in_thread(self.announce)

    def end_poll(self) -> None:
        """A poll has ended."""
        self._polls_held -= 1

    async def _announce_periodically(self, call_in_thread: CallInThread) -> None:
        try:
            while self._polls_held:
                await asyncio.sleep(LIVENESS_INTERVAL_MS / 1000)
                with suppress(AgentqError):  # said again a second later
                    await call_in_thread(self.announce)
        finally:
            self._task = None
