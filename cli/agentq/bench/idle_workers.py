"""Idle workers, hundreds in one process, for `agentq bench`: `python -m agentq.bench.idle_workers`.

A seat says to the server all that an idle worker says, by the same code: its lease, its heartbeat, its blocking read
and its duties, each in a thread of its own. What it lacks is an executor: a run that it gets, it finishes. The seats of
a process share the connection for what does not block.

It takes settings and the seats' names as JSON, and prints `ready` once all are registered and wait, then the name of a
seat whenever it is woken. It ends with its stdin.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.duties.janitor import Janitor
from agentq.coordinator.duties.promoter import Promoter
from agentq.coordinator.duties.reaper import Reaper
from agentq.coordinator.duties.ticker import Duty, Ticker
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.runs.verbs import Claim, RunVerbs
from agentq.coordinator.workers.lease import WorkerIdentity, WorkerLease, WorkerOrder
from agentq.worker.claims import ClaimListener, ClaimLoop
from agentq.worker.heartbeat import Heartbeat, HeartbeatListener
from agentq.worker.slots import WorkerSlots

STACK_BYTES = 256 << 10


class IdleWorker:
    """One idle worker."""

    def __init__(self, queue: RunVerbs, settings: Settings, name: str) -> None:
        store = queue.store
        self.queue = queue
        self.name = name
        self.waiting = threading.Event()
        self.hands = WorkerSlots(1)
        self.lease = WorkerLease(store, WorkerIdentity(id=name, queues=("default",)), settings)
        self.heartbeat = Heartbeat(
            self.lease,
            self.hands,
            HeartbeatListener(self._obey, self.hands.drop, _do_nothing, _do_nothing, self._failed),
        )
        self.claims = ClaimLoop(
            self.lease, self.hands, ClaimListener(self._claimed, self._ordered, self.waiting.set, self._failed)
        )
        duties: list[Duty] = [Promoter(store, settings.tick_ms), Reaper(store, settings), Janitor(store)]
        self.ticker = Ticker(store, duties, settings.tick_ms, owner=name)

    def start(self) -> None:
        self.lease.register()
        for thread in (self.heartbeat, self.claims, self.ticker):
            thread.start()

    def _claimed(self, claim: Claim) -> None:
        _print_word(self.name)
        self.queue.finish([(claim, Outcome(exit_code=0))])
        self.hands.drop(claim)

    def _ordered(self) -> None:
        _print_word(self.name)
        self.heartbeat.beat_now()

    def _obey(self, order: WorkerOrder) -> None:
        self.ticker.wake()
        self.heartbeat.applied(order)

    def _failed(self, error: AgentqError) -> None:
        """Seats that do not all work would be measured as what they are not."""
        sys.stderr.write(f"{self.name}: {error}\n")
        os._exit(error.exit_code)


def run_idle_workers(settings: Settings, names: list[str]) -> None:
    """Have these seats wait for work until stdin ends."""
    threading.stack_size(STACK_BYTES)
    queue = RunVerbs.open(settings, client_name="agentq-seats")
    seats = [IdleWorker(queue, settings, name) for name in names]
    for seat in seats:
        seat.start()
    for seat in seats:
        seat.waiting.wait()
    _print_word("ready")
    sys.stdin.read()


def _do_nothing() -> None:
    """An idle worker has nothing to change, and nothing to stop."""


def _print_word(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    launch_arguments = json.loads(sys.argv[1])
    run_idle_workers(Settings(**launch_arguments["settings"]), launch_arguments["names"])
