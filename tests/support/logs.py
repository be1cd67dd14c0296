"""Short ways to write, read and follow the logs of runs."""

from __future__ import annotations

import threading

from support.servers import until
from support.world import World

from agentq.coordinator.bounds import LOG_CHUNK_CHARACTERS
from agentq.coordinator.runs.logs import LogChunk, Logs, RunLogEntry
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.storage.store import NamespaceStore

NEVER_MS = 600_000
"""A block that no test waits for: what ends it sooner is that something was heard."""
FULL = LogChunk("out", "x" * LOG_CHUNK_CHARACTERS)


def say(world: World, claim: Claim, number: int, *lines: str) -> None:
    world.queue.log(claim, number, [LogChunk("out", line) for line in lines])


def read(world: World, run: str, after: str = "0-0") -> list[RunLogEntry]:
    return list(Logs(world.store).read(run, after))


def texts(world: World, run: str) -> list[str]:
    return [entry.text for entry in read(world, run)]


class Follower(threading.Thread):
    """Follows a run in a thread of its own, which ends when the following does."""

    def __init__(self, store: NamespaceStore, run: str, after: str = "0-0", block_ms: int = NEVER_MS) -> None:
        super().__init__(daemon=True)
        self.heard: list[RunLogEntry] = []
        self.logs = Logs(store)
        self._entries = self.logs.follow(run, after, block_ms)
        self.start()

    def run(self) -> None:
        for entry in self._entries:
            self.heard.append(entry)

    def hears(self, *lines: str) -> None:
        until(lambda: self.texts()[-len(lines) :] == list(lines), f"{lines} to be heard")

    def texts(self) -> list[str]:
        return [entry.text for entry in self.heard]

    def ends(self) -> list[str]:
        self.join(timeout=60)
        assert not self.is_alive(), "the run has ended and the follower has not"
        return self.texts()
