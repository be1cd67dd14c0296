"""Schedules in a world: made in a line, driven, and what became of their ticks."""

from __future__ import annotations

from typing import Any

from support.world import World

from agentq.coordinator.bounds import DUE_PER_CALL
from agentq.coordinator.duties.scheduler import DueSchedule, Scheduler
from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.schedules.verbs import OverlapPolicy, ScheduleRecord, make_schedule_rule
from agentq.coordinator.workers.lease import WorkerLease

MINUTE = 60_000
HOUR = 60 * MINUTE
KINDS = {"cron", "every_ms", "at_ms"}
RULE = ("cron", "tz", "every_ms", "at_ms", "until_ms", "jitter_ms", "missed", "catch_up_ms")


class Timetable:
    """The schedules of a world, one of them called `s`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.schedules = world.schedules
        self._lease: WorkerLease | None = None

    def add(self, name: str = "s", *, overlap: str = "allow", replace: bool = False, **fields: Any) -> ScheduleRecord:
        """A schedule, by default one of every minute, of a command that does nothing."""
        rule = {field: fields.pop(field) for field in RULE if field in fields}
        rule |= {} if KINDS & rule.keys() else {"every_ms": MINUTE}
        spec = RunSpec.checked(**({"kind": "command", "argv": ["true"]} | fields))
        return self.schedules.add(
            name, make_schedule_rule(**rule), spec, overlap=OverlapPolicy(overlap), replace=replace
        )

    def get(self, name: str = "s") -> ScheduleRecord:
        return self.schedules.get(name)

    def fire(self) -> None:
        """All that is due, to the last."""
        for _ in range(1000):
            self.world.fire()
            if not any(self.due_in(partition) for partition in self.world.store.partitions()):
                return
        raise AssertionError("something is due for ever")

    def pass_ms(self, milliseconds: int) -> None:
        """Let time pass, and the scheduler look at the end of it."""
        self.world.pass_ms(milliseconds)
        self.fire()

    def due(self, name: str = "s") -> list[DueSchedule]:
        """What any scheduler finds due in a partition."""
        return self.due_in(self.schedules.partition(name))

    def due_in(self, partition: int) -> list[DueSchedule]:
        told = self.world.store.call("schedule/list_due", partition, DUE_PER_CALL)
        return [DueSchedule(*told[at : at + 4]) for at in range(2, len(told), 4)]

    def take(self, due: list[DueSchedule], scheduler: Scheduler | None = None, name: str = "s") -> int:
        """A scheduler does what it found due; how many runs it made."""
        done: dict[str, int] = dict.fromkeys(("made", "skipped", "missed", "forgotten", "faulty"), 0)
        (scheduler or self.world.scheduler).fire(self.schedules.partition(name), due, self.world.now_ms, done)
        return done["made"]

    def told(self, name: str = "s") -> list[tuple[str, int | None]]:
        """What became of the ticks, oldest first; a tick is told in minutes since the world began."""
        happened = reversed(self.schedules.history(name, 100))
        return [(each.what, None if each.tick_ms is None else self.minute(each.tick_ms)) for each in happened]

    def minute(self, at_ms: int) -> int:
        return (at_ms - 1_900_000_000_000) // MINUTE

    def runs(self, name: str = "s") -> list[str]:
        """The runs made, oldest first."""
        return [each.run or "" for each in reversed(self.schedules.history(name, 100)) if each.what == "made"]

    def states(self, name: str = "s") -> list[str]:
        return self.world.states(self.runs(name))

    def claim(self, number: int = 1) -> list[Claim]:
        """A worker takes runs, and begins them."""
        if self._lease is None:
            self._lease = self.world.worker("hand")
        self._lease.heartbeat(self._held())
        claims = self._lease.claim(number)
        assert self.world.queue.start(claims) == [None] * len(claims)
        return claims

    def _held(self) -> list[Claim]:
        records = [record for record in self.world.records.workers() if record.id == "hand"]
        return [self.claim_of(run) for record in records for run in record.runs]

    def claim_of(self, run: str) -> Claim:
        found = self.world.get(run)
        return Claim(run, found.fence, found.spec.lane, "")

    def finish(self, *runs: str) -> None:
        claims = [self.claim_of(run) for run in runs]
        assert self.world.queue.finish([(claim, Outcome(exit_code=0)) for claim in claims]) == [None] * len(runs)
