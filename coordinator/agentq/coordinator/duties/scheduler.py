"""Run what schedules say: for each that is due, compute what is to be done, and have one script do it.

Any number of schedulers may do so at once: the script takes only what was computed from the schedule as it is, and so
each tick is run once. A schedule that cannot be computed is told so in its own record, and the others go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pydantic import ValidationError

from agentq.coordinator.connection import Word
from agentq.coordinator.duties.duty import Round
from agentq.coordinator.fields import one_sentence
from agentq.coordinator.identity import tick_run_id
from agentq.coordinator.limits import DUE_A_CALL, ERROR_CHARACTERS
from agentq.coordinator.rule import Rule
from agentq.coordinator.store import Store

CALLS_A_ROUND = 100
PAUSE_TICKS = 6
"""The server tells of what is due sooner; now and then it looks for itself."""
ROUNDS_OF_CRON = 100
CROWDED_MS = 100
"""When to look again if all that was due was being done by others."""
DONE = ("made", "skipped", "missed", "forgotten", "damaged")


class Due(NamedTuple):
    """A schedule of which something is due, as it was read; its fields are empty if it is damaged."""

    name: str
    revision: str
    next_ms: str
    rule: str


class Scheduler:
    """Makes the runs of schedules."""

    name = "scheduler"
    hasty = True
    ticks = PAUSE_TICKS

    def __init__(self, store: Store, tick_ms: int) -> None:
        self.store = store
        self.tick_ms = tick_ms

    def run_once(self, partition: int) -> Round:
        """Do all that is due, in bounded calls; what is left after a hundred of them is for the next round, at once."""
        done = dict.fromkeys((*DONE, "faulty"), 0)
        for _ in range(CALLS_A_ROUND):
            told = self.store.call("schedule/list_due", partition, DUE_A_CALL)
            now_ms, next_ms = int(told[0]), float(told[1])
            due = [Due(*told[at : at + 4]) for at in range(2, len(told), 4)]
            if not due:
                wait_ms = int(next_ms) - now_ms if 0 < next_ms < float("inf") else PAUSE_TICKS * self.tick_ms
                return Round(done, max(0, wait_ms))
            before = sum(done.values())
            self.take(partition, due, now_ms, done)
            if sum(done.values()) == before:
                return Round(done, CROWDED_MS)
        return Round(done, 0)

    def run_fully(self) -> int:
        """All that is due in every partition, for cron; how many runs were made."""
        made, rounds = 0, 0
        for partition in self.store.partitions():
            done = self.run_once(partition)
            made += done.done["made"]
            while not done.next_ms and rounds < ROUNDS_OF_CRON:
                done, rounds = self.run_once(partition), rounds + 1
                made += done.done["made"]
        return made

    def take(self, partition: int, due: list[Due], now_ms: int, done: dict[str, int]) -> None:
        """One step of each of these schedules."""
        blamed: list[tuple[Due, str]] = []
        fired: list[Due] = []

        def calls() -> Iterator[tuple[int, tuple[Word, ...]]]:
            for each in due:
                try:
                    words = fire_words(partition, each, now_ms)
                except Exception as error:  # noqa: BLE001 - whatever it was, it concerns this one alone
                    said = one_sentence(error) if isinstance(error, ValidationError) else str(error)
                    blamed.append((each, f"its next tick cannot be computed: {said}"))
                else:
                    fired.append(each)
                    yield partition, words

        for place, reply in enumerate(self.store.call_many("schedule/fire", calls())):
            what = reply.removeprefix("ok ")
            if what == "damaged":
                blamed.append((fired[place], "its record is damaged"))
            elif what in done:
                done[what] += 1
        for each, why in blamed:
            self.store.call("schedule/record_fault", partition, each.name, each.revision, why[:ERROR_CHARACTERS])
            done["faulty"] += 1


def fire_words(partition: int, due: Due, now_ms: int) -> tuple[Word, ...]:
    """What the script is to do of a schedule, computed from it as it was read."""
    if due.revision and not due.next_ms:
        return (due.name, due.revision, "", "", "", "", "")
    rule = Rule.model_validate_json(due.rule)
    step = rule.step(due.name, int(due.next_ms), now_ms)
    words: list[Word] = [due.name, due.revision, due.next_ms]
    # The revision is known to nobody who may not see the schedule, so that its run's id cannot be taken before.
    made_by = f"{due.name} {due.revision}"
    words += ["", ""] if step.tick_ms is None else [step.tick_ms, tick_run_id(partition, step.tick_ms, made_by)]
    words += ["", ""] if step.next_ms is None else [step.next_ms, rule.wake_ms(due.name, step.next_ms)]
    return tuple(words)
