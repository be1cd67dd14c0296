"""A plan watched while it is carried out: the events of its tasks, and what is known of each.

The tasks are read once, page by page, and from then on the events tell; a run is read again when it ends. Whoever has
missed events, because the stream was trimmed or the server was away, reads all tasks anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from agentq.cli.plan_works import Works
from agentq.cli.planned import plans_of
from agentq.cli.server import Server
from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.events import BEGINNING, Event, Events
from agentq.coordinator.life import Run
from agentq.coordinator.lifecycle import TERMINAL, State
from agentq.coordinator.logs import LogEntry, Logs
from agentq.coordinator.plans import Plan, TaskRecord

LOG_A_LOOK = 200
PRICED_MS = 2_000
PRICED = 200
"""Running tasks of which it is read so often what they have cost."""
HELD_UP = (State.BLOCKED, State.SCHEDULED, State.WAITING)
"""Where the event that brought a task there says what it waits for."""
NEEDS = 5
"""Tasks that are named of those that one waits for."""


class Change(NamedTuple):
    """Something that happened to a task; `run` is there when it has ended."""

    task: TaskRecord
    event: str
    at_ms: int
    detail: str
    run: Run | None


@dataclass
class Watch:
    """What is known of a plan, and kept up to date."""

    server: Server
    plan: str

    def __post_init__(self) -> None:
        self._plans = plans_of(self.server)
        self._events = Events(self.server.store, self._plans.partition(self.plan))
        self._priced_ms = monotonic_ms()
        self.works = Works()
        self._read_all()

    def _read_all(self) -> list[Change]:
        """Every task, and what has changed since they were read before."""
        before: dict[str, TaskRecord] = getattr(self, "tasks", {})
        self._after = self._events.last_id()
        self.record: Plan = self._plans.get(self.plan)
        self.tasks: dict[str, TaskRecord] = {task.run: task for task in self._plans.all_tasks(self.plan)}
        changed = [task for run, task in self.tasks.items() if run in before and before[run].state != task.state]
        return [Change(task, task.state.value, 0, "", self._ended(task)) for task in changed]

    def needs(self, task: TaskRecord) -> list[str]:
        """Some of the tasks that one still waits for."""
        return [self.tasks[run].id for run in self.server.records.needs(task.run, NEEDS) if run in self.tasks]

    def look(self, wait_ms: int) -> list[Change]:
        """What has happened since the last look; waits for something to happen."""
        if self._events.missed(self._after):
            return self._read_all()
        changes = self._hear(self._events.follow(self._after, wait_ms))
        self.record = self._plans.get(self.plan)
        if self.record.ended is not None:
            # It may have ended after the look; there is no other.
            changes += self._hear(self._events.replay(self._after))
        if len(self.tasks) < self.record.tasks:
            self._read_all()
        if monotonic_ms() - self._priced_ms >= PRICED_MS:
            self._price()
        return changes

    def _price(self) -> None:
        """What the running tasks have cost up to now, of which no event tells."""
        self._priced_ms = monotonic_ms()
        for task in self._plans.tasks(self.plan, State.RUNNING, limit=PRICED)[0]:
            if task.run in self.tasks:
                self.tasks[task.run] = replace(self.tasks[task.run], spending=task.spending)

    def again(self) -> list[Change]:
        """After an outage: what has changed meanwhile."""
        return self._read_all()

    def _hear(self, events: Iterable[Event]) -> list[Change]:
        changes = []
        for event in events:
            self._after = event.id
            if (change := self._heard(event)) is not None:
                changes.append(change)
        return changes

    def _heard(self, event: Event) -> Change | None:
        task = self.tasks.get(event.run)
        if task is None:
            return None
        began_ms = event.at_ms if event.event == "started" else task.started_at_ms
        state, attempt = State(event.state), event.attempt or task.attempt
        reason = task.reason if state is task.state else event.detail if state in HELD_UP else ""
        task = replace(task, state=state, attempt=attempt, worker=event.worker, started_at_ms=began_ms, reason=reason)
        run = None
        if event.state in TERMINAL:
            run = self._ended(task)
            if run is not None:
                task = replace(task, finished_at_ms=run.finished_at_ms, spending=run.spending, reason=run.reason)
                task = replace(task, class_=run.outcome.class_ if run.outcome else None)
        self.tasks[event.run] = task
        return Change(task, event.event, event.at_ms, event.detail, run)

    def _ended(self, task: TaskRecord) -> Run | None:
        if task.state not in TERMINAL:
            return None
        run = self.server.records.get(task.run)
        self.works.note(run)
        return run

    def in_state(self, *states: State) -> list[TaskRecord]:
        """The tasks in some states, in the order of the plan."""
        return [task for task in self.tasks.values() if task.state in states]

    def close(self) -> None:
        self._events.close()


class LastLines:
    """The last line that each running task wrote, read on from where the last look ended."""

    def __init__(self, server: Server) -> None:
        self._records = server.records
        self._logs = Logs(server.store)
        self._places: dict[str, str] = {}
        self._told: dict[str, _Heard] = {}

    def of(self, tasks: Iterable[TaskRecord]) -> dict[str, str]:
        """By run."""
        found = {}
        for task in tasks:
            entries = self._logs.some(task.run, self._places.get(task.run, BEGINNING), LOG_A_LOOK)
            if (heard := self._told.get(task.run)) is None:
                agent = self._records.get(task.run).spec.kind == "agent"
                heard = self._told[task.run] = _Heard(("err",) if agent else ("out", "err"))
            for entry in entries:
                self._places[task.run] = entry.id
                heard.take(entry)
            found[task.run] = heard.line
        return found


class _Heard:
    """What one task has written last, in words. Of an agent's own lines that is what they tell."""

    def __init__(self, as_it_is: Sequence[str]) -> None:
        from agentq.cli.doings import Teller
        from agentq.coordinator.story import Story

        self.line = ""
        self._as_it_is = as_it_is
        self._story, self._teller = Story(), Teller(lambda: None)

    def take(self, entry: LogEntry) -> None:
        from rich.text import Text

        told = [line for told in self._story.read(entry) for line in self._teller.tell(told)]
        lines = [Text.from_ansi(line).plain for line in told]
        if entry.stream in self._as_it_is:
            lines += entry.text.splitlines()
        self.line = next((line.strip() for line in reversed(lines) if line.strip()), self.line)
