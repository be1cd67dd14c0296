"""Fires due schedules: computes the next step of each, and calls one script that performs it.

Any number of schedulers may run at once: the script accepts a step only if it was computed from the current revision,
so each tick is run once. If a step cannot be computed, the schedule's record gets the fault, and the others continue.
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
"""How often the scheduler checks by itself; the scripts wake it for earlier deadlines."""
ROUNDS_MAX = 100
CONTENTION_DELAY_MS = 100
"""The delay of the next round if other schedulers fired everything that was due."""
TICK_RESULTS = ("made", "skipped", "missed", "forgotten", "damaged")


class DueSchedule(NamedTuple):
    """A due schedule, as it was read; its fields are empty if it is damaged."""

    name: str
    revision: str
    next_ms: str
    rule: str


class Scheduler:
    """Fires the ticks of schedules."""

    name = "scheduler"
    hasty = True
    ticks = ROUND_INTERVAL_TICKS

    def __init__(self, store: NamespaceStore, tick_ms: int) -> None:
        self.store = store
        self.tick_ms = tick_ms

    def run_once(self, partition: int) -> DutyRound:
        """Do all due work in bounded calls; after a hundred of them, the next round continues at once."""
        done = dict.fromkeys((*TICK_RESULTS, "faulty"), 0)
        for _ in range(CALLS_PER_ROUND):
            reply = self.store.call("schedule/list_due", partition, DUE_PER_CALL)
            now_ms, next_ms = int(reply[0]), float(reply[1])
            due = [DueSchedule(*reply[at : at + 4]) for at in range(2, len(reply), 4)]
            if not due:
                wait_ms = int(next_ms) - now_ms if 0 < next_ms < float("inf") else ROUND_INTERVAL_TICKS * self.tick_ms
                return DutyRound(done, max(0, wait_ms))
            before = sum(done.values())
            self.fire(partition, due, now_ms, done)
            if sum(done.values()) == before:
                return DutyRound(done, CONTENTION_DELAY_MS)
        return DutyRound(done, 0)

    def run_fully(self) -> int:
        """Do all due work in every partition, for cron; returns how many runs were made."""
        made, rounds = 0, 0
        for partition in self.store.partitions():
            done = self.run_once(partition)
            made += done.done["made"]
            while not done.next_ms and rounds < ROUNDS_MAX:
                done, rounds = self.run_once(partition), rounds + 1
                made += done.done["made"]
        return made

    def fire(self, partition: int, due: list[DueSchedule], now_ms: int, done: dict[str, int]) -> None:
        """Do one step of each of these schedules."""
        faulty: list[tuple[DueSchedule, str]] = []
        fired: list[DueSchedule] = []

        def calls() -> Iterator[tuple[int, tuple[CommandArgument, ...]]]:
            for each in due:
                try:
                    arguments = fire_arguments(partition, each, now_ms)
                except Exception as error:  # noqa: BLE001 - any error concerns this schedule only
                    reason = describe_error(error) if isinstance(error, ValidationError) else str(error)
                    faulty.append((each, f"its next tick cannot be computed: {reason}"))
                else:
                    fired.append(each)
                    yield partition, arguments

        for place, reply in enumerate(self.store.call_many("schedule/fire", calls())):
            result = reply.removeprefix("ok ")
            if result == "damaged":
                faulty.append((fired[place], "its record is damaged"))
            elif result in done:
                done[result] += 1
        for each, why in faulty:
            self.store.call("schedule/record_fault", partition, each.name, each.revision, why[:ERROR_CHARACTERS])
            done["faulty"] += 1


def fire_arguments(partition: int, due: DueSchedule, now_ms: int) -> tuple[CommandArgument, ...]:
    """The arguments of the script that does the next step of a schedule, computed from it as it was read."""
    if due.revision and not due.next_ms:
        return (due.name, due.revision, "", "", "", "", "")
    rule = ScheduleRule.model_validate_json(due.rule)
    step = rule.step(due.name, int(due.next_ms), now_ms)
    arguments: list[CommandArgument] = [due.name, due.revision, due.next_ms]
    # Only callers that may read the schedule know its revision, so no other can take the id of its run first.
    revision = f"{due.name} {due.revision}"
    arguments += (
        ["", ""] if step.tick_ms is None else [step.tick_ms, make_tick_run_id(partition, step.tick_ms, revision)]
    )
    arguments += ["", ""] if step.next_ms is None else [step.next_ms, rule.wake_ms(due.name, step.next_ms)]
    return tuple(arguments)
