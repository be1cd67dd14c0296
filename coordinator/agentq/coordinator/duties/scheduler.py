"""Fires due schedules: computes the next step of each, and calls one script that performs it.

Any number of schedulers may do so at once: the script takes only what was computed from the schedule as it is, and so
each tick is run once. A schedule that cannot be computed is told so in its own record, and the others go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pydantic import ValidationError

from agentq.coordinator.bounds import DUE_PER_CALL, ERROR_CHARACTERS
from agentq.coordinator.duties.ticker import DutyRound
from agentq.coordinator.model.field_types import describe_error
from agentq.coordinator.model.ids import make_tick_run_id
from agentq.coordinator.schedules.cron import ScheduleRule
from agentq.coordinator.storage.connection import CommandArgument
from agentq.coordinator.storage.store import NamespaceStore

CALLS_PER_ROUND = 100
ROUND_INTERVAL_TICKS = 6
"""The server tells of what is due sooner; now and then it looks for itself."""
ROUNDS_MAX = 100
CONTENTION_DELAY_MS = 100
"""When to look again if all that was due was being done by others."""
TICK_RESULTS = ("made", "skipped", "missed", "forgotten", "damaged")


class DueSchedule(NamedTuple):
    """A schedule of which something is due, as it was read; its fields are empty if it is damaged."""

    name: str
    revision: str
    next_ms: str
    rule: str


class Scheduler:
    """Makes the runs of schedules."""

    name = "scheduler"
    hasty = True
    ticks = ROUND_INTERVAL_TICKS

    def __init__(self, store: NamespaceStore, tick_ms: int) -> None:
        self.store = store
        self.tick_ms = tick_ms

    def run_once(self, partition: int) -> DutyRound:
        """Do all that is due, in bounded calls; what is left after a hundred of them is for the next round, at once."""
        done = dict.fromkeys((*TICK_RESULTS, "faulty"), 0)
        for _ in range(CALLS_PER_ROUND):
            told = self.store.call("schedule/list_due", partition, DUE_PER_CALL)
            now_ms, next_ms = int(told[0]), float(told[1])
            due = [DueSchedule(*told[at : at + 4]) for at in range(2, len(told), 4)]
            if not due:
                wait_ms = int(next_ms) - now_ms if 0 < next_ms < float("inf") else ROUND_INTERVAL_TICKS * self.tick_ms
                return DutyRound(done, max(0, wait_ms))
            before = sum(done.values())
            self.take(partition, due, now_ms, done)
            if sum(done.values()) == before:
                return DutyRound(done, CONTENTION_DELAY_MS)
        return DutyRound(done, 0)

    def run_fully(self) -> int:
        """All that is due in every partition, for cron; how many runs were made."""
        made, rounds = 0, 0
        for partition in self.store.partitions():
            done = self.run_once(partition)
            made += done.done["made"]
            while not done.next_ms and rounds < ROUNDS_MAX:
                done, rounds = self.run_once(partition), rounds + 1
                made += done.done["made"]
        return made

    def take(self, partition: int, due: list[DueSchedule], now_ms: int, done: dict[str, int]) -> None:
        """One step of each of these schedules."""
        blamed: list[tuple[DueSchedule, str]] = []
        fired: list[DueSchedule] = []

        def calls() -> Iterator[tuple[int, tuple[CommandArgument, ...]]]:
            for each in due:
                try:
                    words = fire_arguments(partition, each, now_ms)
                except Exception as error:  # noqa: BLE001 - whatever it was, it concerns this one alone
                    said = describe_error(error) if isinstance(error, ValidationError) else str(error)
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


def fire_arguments(partition: int, due: DueSchedule, now_ms: int) -> tuple[CommandArgument, ...]:
    """What the script is to do of a schedule, computed from it as it was read."""
    if due.revision and not due.next_ms:
        return (due.name, due.revision, "", "", "", "", "")
    rule = ScheduleRule.model_validate_json(due.rule)
    step = rule.step(due.name, int(due.next_ms), now_ms)
    words: list[CommandArgument] = [due.name, due.revision, due.next_ms]
    # The revision is known to nobody who may not see the schedule, so that its run's id cannot be taken before.
    made_by = f"{due.name} {due.revision}"
    words += ["", ""] if step.tick_ms is None else [step.tick_ms, make_tick_run_id(partition, step.tick_ms, made_by)]
    words += ["", ""] if step.next_ms is None else [step.next_ms, rule.wake_ms(due.name, step.next_ms)]
    return tuple(words)
