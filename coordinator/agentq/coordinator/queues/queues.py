"""Queues: what stands in each, and what an operator says of them while everything runs.

How long runs have stood there and how fast they come and go is only read: rates are counted from the events of the last
minute, or of the newest so many if there were more, and nothing is written for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from pydantic import TypeAdapter

from agentq.coordinator.bounds import ERROR_CHARACTERS
from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import Invalid, NotFound
from agentq.coordinator.events.stream import PartitionEvents
from agentq.coordinator.model.field_types import Label, Name, check_name
from agentq.coordinator.model.ids import id_created_ms
from agentq.coordinator.model.lifecycle import LIVE_STATES, QUEUED_STATES, State
from agentq.coordinator.queues.stats import QueuePause, QueueStats, QueueStatsPage
from agentq.coordinator.runs.queries import RunQueries
from agentq.coordinator.storage.connection import CommandArgument
from agentq.coordinator.storage.socket_link import pairs_to_dict
from agentq.coordinator.storage.store import NamespaceStore

ALL_QUEUES = "*"
RATE_WINDOW_MS = 60_000
RATE_EVENTS_MAX = 2000
LOOK_AGAIN_MS = 1000
"""How long a wait for an empty queue goes on without an event before it looks again."""
PURGE_REASON = "its queue was purged"

_queue_adapter: TypeAdapter[str] = TypeAdapter(Name)
_label_adapter: TypeAdapter[str] = TypeAdapter(Label)


class Queues:
    """The queues of one namespace. Each verb is said in every partition, and holds in each by itself."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store
        self.records = RunQueries(store)

    # ---- verbs

    def pause(self, queue: str, why: str = "") -> None:
        """Claim nothing from a queue, or with `*` from any; what is held goes on."""
        self._call("queue/pause", check_queue_or_all(queue), why[:ERROR_CHARACTERS])

    def resume(self, queue: str) -> None:
        """Let a queue go on, or with `*` all that were not paused by name."""
        if "ok" not in self._call("queue/resume", check_queue_or_all(queue)):
            what = "All queues together are" if queue == ALL_QUEUES else f"The queue {queue} is"
            raise NotFound(f"{what} not paused; `agentq queue ls` shows what is.")

    def drain(self, queue: str, why: str = "") -> None:
        """Let no new runs into a queue until it is resumed; what is there goes on."""
        self._call("queue/close_intake", check_queue_name(queue), why[:ERROR_CHARACTERS])

    def paused(self) -> dict[str, QueuePause]:
        """What is paused, by queue; `*` is all of them."""
        return self._noted("paused")

    def drained(self) -> dict[str, QueuePause]:
        """The queues that take no new runs."""
        return self._noted("intake_closed")

    def purge(self, queue: str, states: Iterable[State] = QUEUED_STATES, *, why: str = PURGE_REASON) -> int:
        """Cancel what waits in a queue, in calls of bounded size; returns how many runs that were."""
        return sum(self._work_off("queue/purge", check_queue_name(queue), state, why) for state in states)

    def move(self, queue: str, target: str) -> int:
        """Move what waits in a queue to another; returns how many runs that were."""
        check_move(queue, target)
        return sum(self._work_off("queue/move_runs", queue, state, target) for state in QUEUED_STATES)

    def _work_off(self, script: str, queue: str, state: State, word: str) -> int:
        done = 0
        for partition in self.store.partitions():
            more = True
            while more:
                number, more = self.store.call(script, partition, queue, state.value, word)
                done += number
        return done

    def _noted(self, key: str) -> dict[str, QueuePause]:
        found: dict[str, QueuePause] = {}
        for partition in self.store.partitions():
            flat = self.store.connection.command("HGETALL", self.store.key(partition, key))
            for queue, text in pairs_to_dict(flat).items():
                found[queue] = _parse_pause(queue, text)
        return found

    def weigh(self, queue: str, fair_key: str, weight: float) -> None:
        """Give a key so many turns in a queue where others get one; for the runs that come from now on."""
        check_fair_weight(fair_key, weight)
        self._call("queue/set_weight", check_queue_name(queue), fair_key, f"{weight:g}")

    def _call(self, script: str, *words: CommandArgument) -> list[str]:
        replies = [str(self.store.call(script, partition, *words)) for partition in self.store.partitions()]
        for reply in replies:
            assert reply in ("ok", "not_paused"), reply
        return replies

    # ---- reading

    def all(self) -> list[QueueStats]:
        """Every queue that has a run, or was told something."""
        return self._read_stats(self._names())

    def page(self, limit: int, cursor: str | None = None, only: Collection[str] = ()) -> QueueStatsPage:
        """So many of them, by name; `only` of these, if any are named."""
        names = [name for name in self._names() if name > (cursor or "") and (not only or name in only)]
        return QueueStatsPage(self._read_stats(names[:limit]), names[limit - 1] if len(names) > limit else None)

    def get(self, name: str) -> QueueStats | None:
        """One queue; None if it has no run and was told nothing."""
        return next(iter(self._read_stats([name])), None)

    def wait_until_empty(self, queue: str, timeout_ms: int | None = None) -> int:
        """Wait until all runs of a queue have ended; returns how many have not when the time is over."""
        check_queue_name(queue)
        deadline_ms = None if timeout_ms is None else monotonic_ms() + timeout_ms
        followed = [PartitionEvents(self.store, partition) for partition in self.store.partitions()]
        places = [events.last_id() for events in followed]
        while left := sum(number for _, _, number, _ in self.records.depths([queue], LIVE_STATES)):
            rest_ms = LOOK_AGAIN_MS if deadline_ms is None else min(LOOK_AGAIN_MS, deadline_ms - monotonic_ms())
            if rest_ms <= 0:
                return left
            for at, events in enumerate(followed):
                heard = events.follow(places[at], max(1, rest_ms // len(followed)))
                places[at] = heard[-1].id if heard else places[at]
        return 0

    def _names(self) -> list[str]:
        return sorted({*self.records.queues(), *self.paused(), *self.drained()} - {ALL_QUEUES})

    def _read_stats(self, names: Sequence[str]) -> list[QueueStats]:
        found = {name: QueueStats(name) for name in names}
        for name, state, number, oldest in self.records.depths(names):
            found[name].counts[state] = found[name].counts.get(state, 0) + number
            if state is State.PENDING:
                found[name].note(id_created_ms(oldest))
        paused, drained = self.paused(), self.drained()
        visible = {name: record for name, record in found.items() if record.counts or name in paused or name in drained}
        for name, record in visible.items():
            record.paused = paused.get(name) or paused.get(ALL_QUEUES)
            record.drained = drained.get(name)
        for partition in self.store.partitions():
            self._add_rates(partition, visible)
        for record in visible.values():
            record.submitted_a_minute = round(record.submitted_a_minute, 1)
            record.ended_a_minute = round(record.ended_a_minute, 1)
        return list(visible.values())

    def _add_rates(self, partition: int, found: dict[str, QueueStats]) -> None:
        window_ms, *flat = self.store.call("queue/get_rates", partition, RATE_WINDOW_MS, RATE_EVENTS_MAX)
        for at in range(0, len(flat), 3):
            queue, submitted, ended = flat[at : at + 3]
            if queue in found:
                found[queue].submitted_a_minute += submitted * 60_000 / window_ms
                found[queue].ended_a_minute += ended * 60_000 / window_ms


def check_queue_name(name: str) -> str:
    """The name of a queue, or what is wrong with it in one sentence."""
    return check_name(_queue_adapter, name, "queue")


def check_queue_or_all(name: str) -> str:
    return name if name == ALL_QUEUES else check_queue_name(name)


def check_move(queue: str, target: str) -> None:
    """Refuse names that are none, and one queue for both."""
    if check_queue_name(queue) == check_queue_name(target):
        raise Invalid(f"Runs of {queue} are in that queue already; name another.")


def check_fair_weight(fair_key: str, weight: float) -> None:
    """Refuse a key that is none, and a weight that is too small or too large."""
    check_name(_label_adapter, fair_key, "fair key")
    if not 0.01 <= weight <= 1000:
        raise Invalid(f"A weight is a number from 0.01 to 1000, not {weight}.")


def _parse_pause(queue: str, text: str) -> QueuePause:
    """One that is damaged holds all the same."""
    at_ms, _, why = text.partition(" ")
    if not at_ms.isdecimal():
        return QueuePause(queue, 0, "its record is damaged; resume the queue")
    return QueuePause(queue, int(at_ms), why)
