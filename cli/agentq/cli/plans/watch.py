"""Watches a running plan: the events of its tasks, and the state of each.

The tasks are read once, page by page, and from then on the events tell; a run is read again when it ends. Whoever has
missed events, because the stream was trimmed or the server was away, reads all tasks anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from agentq.cli.plans.work_warnings import WorkWarnings
from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.events.stream import STREAM_START, Event
from agentq.coordinator.model.lifecycle import TERMINAL_STATES, State
from agentq.coordinator.plans.verbs import PlanRecord, TaskRecord
from agentq.coordinator.runs.logs import RunLogEntry
from agentq.coordinator.runs.run_record import RunRecord
from agentq.sdk.backend import Backend

LOG_ENTRIES_MAX = 200
COST_INTERVAL_MS = 2_000
COSTED_RUNS_MAX = 200
"""Running tasks of which it is read so often what they have cost."""
LAST_EVENTS_MS = 1_000
"""How long the last events of a plan that has ended are waited for; after that its tasks are read."""
WAITING_STATES = (State.BLOCKED, State.SCHEDULED, State.WAITING)
"""Where the event that brought a task there says what it waits for."""
NEEDS_SHOWN = 5
"""Tasks that are named of those that one waits for."""


class TaskChange(NamedTuple):
    """Something that happened to a task; `run` is there when it has ended."""

    task: TaskRecord
    event: str
    at_ms: int
    detail: str
    run: RunRecord | None


@dataclass
class PlanWatch:
    """The state of a plan, kept up to date by its events."""

    backend: Backend
    plan: str

    def __post_init__(self) -> None:
        self._plans = self.backend.plans
        self._events = self._plans.watch(self.plan)
        self._priced_ms = monotonic_ms()
        self.works = WorkWarnings()
        self._read_all()

    def _read_all(self) -> list[TaskChange]:
        """Every task, and what has changed since they were read before."""
        before: dict[str, TaskRecord] = getattr(self, "tasks", {})
        self._events.skip()
        self.record: PlanRecord = self._plans.get(self.plan)
        self.tasks: dict[str, TaskRecord] = {task.run: task for task in self._plans.all_tasks(self.plan)}
        changed = [task for run, task in self.tasks.items() if run in before and before[run].state != task.state]
        return [TaskChange(task, task.state.value, 0, "", self._ended(task)) for task in changed]

    def needs(self, task: TaskRecord) -> list[str]:
        """Some of the tasks that one still waits for."""
        needs = [self.tasks[run] for run in self.backend.get(task.run).spec.after if run in self.tasks]
        return [need.id for need in needs if need.state not in TERMINAL_STATES][:NEEDS_SHOWN]

    def look(self, wait_ms: int) -> list[TaskChange]:
        """What has happened since the last look; waits for something to happen."""
        events = self._events.read(wait_ms)
        if events is None:
            return self._read_all()
        changes = self._hear(events)
        self.record = self._plans.get(self.plan)
        if self.record.ended is not None:
            changes += self._last_changes()
        if len(self.tasks) < self.record.tasks:
            self._read_all()
        if monotonic_ms() - self._priced_ms >= COST_INTERVAL_MS:
            self._price()
        return changes

    def _last_changes(self) -> list[TaskChange]:
        """What happened between the last events and the end of the plan; there is no other look."""
        changes: list[TaskChange] = []
        until_ms = monotonic_ms() + LAST_EVENTS_MS
        while not self._is_up_to_date() and (left_ms := until_ms - monotonic_ms()) > 0:
            changes += self._hear(self._events.read(left_ms) or [])
        return changes if self._is_up_to_date() else changes + self._read_all()

    def _is_up_to_date(self) -> bool:
        """Whether the tasks are in the states that the record of the plan counts."""
        return Counter(task.state for task in self.tasks.values()) == self.record.counts

    def _price(self) -> None:
        """What the running tasks have cost up to now, of which no event tells."""
        self._priced_ms = monotonic_ms()
        for task in self._plans.tasks(self.plan, State.RUNNING, limit=COSTED_RUNS_MAX)[0]:
            if task.run in self.tasks:
                self.tasks[task.run] = replace(self.tasks[task.run], spending=task.spending)

    def again(self) -> list[TaskChange]:
        """After an outage: what has changed meanwhile."""
        return self._read_all()

    def _hear(self, events: Iterable[Event]) -> list[TaskChange]:
        return [change for event in events if (change := self._heard(event)) is not None]

    def _heard(self, event: Event) -> TaskChange | None:
        task = self.tasks.get(event.run)
        if task is None:
            return None
        began_ms = event.at_ms if event.event == "started" else task.started_at_ms
        state, attempt = State(event.state), event.attempt or task.attempt
        reason = task.reason if state is task.state else event.detail if state in WAITING_STATES else ""
        task = replace(task, state=state, attempt=attempt, worker=event.worker, started_at_ms=began_ms, reason=reason)
        run = None
        if event.state in TERMINAL_STATES:
            run = self._ended(task)
            if run is not None:
                task = replace(task, finished_at_ms=run.finished_at_ms, spending=run.spending, reason=run.reason)
                task = replace(task, class_=run.outcome.class_ if run.outcome else None)
        self.tasks[event.run] = task
        return TaskChange(task, event.event, event.at_ms, event.detail, run)

    def _ended(self, task: TaskRecord) -> RunRecord | None:
        if task.state not in TERMINAL_STATES:
            return None
        run = self.backend.get(task.run)
        self.works.note(run)
        return run

    def in_state(self, *states: State) -> list[TaskRecord]:
        """The tasks in some states, in the order of the plan."""
        return [task for task in self.tasks.values() if task.state in states]

    def close(self) -> None:
        self._events.close()


class LastLines:
    """The last line that each running task wrote, read on from where the last look ended."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._places: dict[str, str] = {}
        self._told: dict[str, _LastLine] = {}

    def of(self, tasks: Iterable[TaskRecord]) -> dict[str, str]:
        """By run."""
        found = {}
        for task in tasks:
            entries = self._backend.logs(task.run, self._places.get(task.run, STREAM_START), follow=False)
            if (heard := self._told.get(task.run)) is None:
                agent = self._backend.get(task.run).spec.kind == "agent"
                heard = self._told[task.run] = _LastLine(("err",) if agent else ("out", "err"))
            for entry in islice(entries, LOG_ENTRIES_MAX):
                self._places[task.run] = entry.id
                heard.take(entry)
            found[task.run] = heard.line
        return found


class _LastLine:
    """What one task has written last, in words. Of an agent's own lines that is what they tell."""

    def __init__(self, as_it_is: Sequence[str]) -> None:
        from agentq.cli.show.agent_events import AgentEventFormatter
        from agentq.coordinator.runs.agent_event_reader import AgentEventReader

        self.line = ""
        self._as_it_is = as_it_is
        self._story, self._teller = AgentEventReader(), AgentEventFormatter(lambda: None)

    def take(self, entry: RunLogEntry) -> None:
        from rich.text import Text

        told = [line for told in self._story.read(entry) for line in self._teller.lines(told)]
        lines = [Text.from_ansi(line).plain for line in told]
        if entry.stream in self._as_it_is:
            lines += entry.text.splitlines()
        self.line = next((line.strip() for line in reversed(lines) if line.strip()), self.line)
