"""Idle workers, hundreds in one process, for `agentq bench`: `python -m agentq.worker.seats`.

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

from agentq.coordinator.duties.duty import Duty, Ticker
from agentq.coordinator.duties.janitor import Janitor
from agentq.coordinator.duties.promoter import Promoter
from agentq.coordinator.duties.reaper import Reaper
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.lease import Identity, Lease, Order
from agentq.coordinator.queue import Claim, Queue
from agentq.coordinator.run import Outcome
from agentq.coordinator.settings import Settings
from agentq.worker.claims import Claims, Takers
from agentq.worker.hands import Hands
from agentq.worker.pulse import Listener, Pulse

STACK_BYTES = 256 << 10


class Seat:
    """One idle worker."""

    def __init__(self, queue: Queue, settings: Settings, name: str) -> None:
        store = queue.store
        self.queue = queue
        self.name = name
        self.waiting = threading.Event()
        self.hands = Hands(1)
        self.lease = Lease(store, Identity(id=name, queues=("default",)), settings)
        self.pulse = Pulse(
            self.lease, self.hands, Listener(self._obey, self.hands.drop, _nothing, _nothing, self._failed)
        )
        self.claims = Claims(
            self.lease, self.hands, Takers(self._claimed, self._ordered, self.waiting.set, self._failed)
        )
        duties: list[Duty] = [Promoter(store, settings.tick_ms), Reaper(store, settings), Janitor(store)]
        self.ticker = Ticker(store, duties, settings.tick_ms, owner=name)

    def start(self) -> None:
        self.lease.register()
        for thread in (self.pulse, self.claims, self.ticker):
            thread.start()

    def _claimed(self, claim: Claim) -> None:
        _say(self.name)
        self.queue.finish([(claim, Outcome(exit_code=0))])
        self.hands.drop(claim)

    def _ordered(self) -> None:
        _say(self.name)
        self.pulse.beat_now()

    def _obey(self, order: Order) -> None:
        self.ticker.wake()
        self.pulse.applied(order)

    def _failed(self, error: AgentqError) -> None:
        """Seats that do not all work would be measured as what they are not."""
        sys.stderr.write(f"{self.name}: {error}\n")
        os._exit(error.exit_code)


def main(settings: Settings, names: list[str]) -> None:
    """Have these seats wait for work until stdin ends."""
    threading.stack_size(STACK_BYTES)
    queue = Queue.open(settings, client_name="agentq-seats")
    seats = [Seat(queue, settings, name) for name in names]
    for seat in seats:
        seat.start()
    for seat in seats:
        seat.waiting.wait()
    _say("ready")
    sys.stdin.read()


def _nothing() -> None:
    """An idle worker has nothing to change, and nothing to stop."""


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    main(Settings(**told["settings"]), told["names"])
