"""How a plan goes on, shown: on a terminal a picture that is drawn over itself, in a pipe a line for each thing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import Any

from agentq.cli.connect import print_note
from agentq.cli.plans.view import format_cost, format_counts, format_run_time
from agentq.cli.plans.watch import LastLines, PlanWatch, TaskChange
from agentq.cli.plans.work_warnings import changed_nothing
from agentq.cli.render import clean, on_terminal
from agentq.cli.show.run_summary import describe_end
from agentq.coordinator.clock import monotonic_ms, wall_ms
from agentq.coordinator.model.durations import format_duration, format_iso
from agentq.coordinator.model.lifecycle import TERMINAL_STATES, State
from agentq.coordinator.plans.source import PlanHeader
from agentq.coordinator.plans.verbs import PLAN_LIMIT, TaskRecord
from agentq.sdk.backend import Backend

DRAW_MS = 300
WAITING_SHOWN = 5
ENDED_SHOWN = 4
LIMIT_REASON = "limit "
"""How the reason begins of a task that finds no room under a limit."""
BAR_WIDTH = 24
ECHO_WIDTH = len("^C")
"""Room for the `^C` that a terminal writes behind the last line on Ctrl-C; without it the display moves."""
MARKS = {"running": "●", "claimed": "○", "completed": "✓", "failed": "✗", "cancelled": "⊘", "skipped": "⊘"}
RUNNING_STATES = (State.RUNNING, State.CLAIMED, State.WAITING)
HIDDEN_EVENTS = ("submitted", "unblocked", "promoted", "claimed", "reported")
"""Events that a line in a log would only lengthen."""


class PlanProgress:
    """Prints nothing: for `--json`, which prints one object at the end."""

    def __init__(self, backend: Backend, watch: PlanWatch, head: PlanHeader) -> None:
        self.backend, self.watch, self.head = backend, watch, head

    def show(self, changes: Iterable[TaskChange]) -> None:
        """Show what has happened."""

    def say(self, sentence: str) -> None:
        """Say something that is not of a task."""
        print_note(sentence)

    def close(self) -> None:
        """That was it."""


class LineProgress(PlanProgress):
    """A line for each thing that happens."""

    def __init__(self, backend: Backend, watch: PlanWatch, head: PlanHeader) -> None:
        super().__init__(backend, watch, head)
        record = watch.record
        print(
            f"{record.id}  {record.tasks} task{'' if record.tasks == 1 else 's'}, {format_counts(record.counts)}",
            flush=True,
        )

    def show(self, changes: Iterable[TaskChange]) -> None:
        for change in changes:
            if change.event not in HIDDEN_EVENTS:
                at = format_iso(change.at_ms or wall_ms())[11:19]
                print(f"{at}  {change.task.id}  {clean(describe_change(change))}", flush=True)


def describe_change(change: TaskChange) -> str:
    """What happened to a task, in words."""
    if change.event == "progressed":
        return progress_note(change.detail)
    if change.run is None:
        started = change.event == "started"
        where = f"on {change.task.worker}" if started and change.task.worker else ""
        who = f"by {change.task.agent}" if started and change.task.agent else ""
        detail = f"({change.detail})" if change.detail and not started else ""
        return " ".join(filter(None, [change.event, where, who, detail]))
    outcome, work = change.run.outcome, None
    if change.task.state is State.SKIPPED:
        return "skipped"
    words = [change.task.state.value, describe_end(change.run)]
    if outcome is not None:
        work = outcome.work
        words.append(outcome.error or "")
    if work is not None and work.merged and work.commit:
        files = f"{work.files} file{'' if work.files == 1 else 's'} +{work.insertions} -{work.deletions}"
        words.append(f"merged as {work.commit[:10]}, {files}")
    elif changed_nothing(change.run):
        words.append("changed nothing")
    return ", ".join(filter(None, [*words, format_run_time(change.task), format_cost([change.task])]))


def progress_note(progress: str) -> str:
    """What a task said of how far it is."""
    try:
        said = json.loads(progress)
    except ValueError:
        return progress
    return str(said.get("note") or said.get("message") or progress) if isinstance(said, dict) else str(said)


class LiveProgress(PlanProgress):
    """A picture of the whole, drawn over itself."""

    def __init__(self, backend: Backend, watch: PlanWatch, head: PlanHeader) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(backend, watch, head)
        self._last_lines = LastLines(backend)
        self._needs: dict[str, list[str]] = {}
        self._seen: dict[str, str] = {}
        self._doing: dict[str, str] = {}
        """By run: the last line that it wrote, or what was noted of it since."""
        self._drawn_ms = 0
        self._live = Live(
            console=Console(highlight=False, markup=False, emoji=False), auto_refresh=False, transient=True
        )
        self._live.start()
        self.show(())

    def show(self, changes: Iterable[TaskChange]) -> None:
        changes = list(changes)
        for change in changes:
            if change.event == "progressed":
                self._doing[change.task.run] = progress_note(change.detail)
            if change.run is not None:
                self._live.console.print(
                    self._cut(f"{MARKS[change.task.state]} {change.task.id}  {clean(describe_change(change))}")
                )
        now_ms = monotonic_ms()
        if changes or now_ms - self._drawn_ms >= DRAW_MS:
            if any(change.task.state in TERMINAL_STATES for change in changes):
                self._needs.clear()
            self._drawn_ms = now_ms
            self._live.update(self._drawing(), refresh=True)

    def say(self, sentence: str) -> None:
        self._live.console.print(self._cut(f"agentq: {sentence}"))

    def close(self) -> None:
        self._live.stop()

    def _drawing(self) -> Any:
        from rich.text import Text

        lines = [self._first(), *self._running(), *self._waiting()]
        return Text("\n".join(self._cut(line) for line in lines), no_wrap=True)

    def _first(self) -> str:
        """How far it is, what it has cost, how long it takes."""
        record = self.watch.record
        ended = sum(count for state, count in record.counts.items() if state in TERMINAL_STATES)
        filled = BAR_WIDTH * ended // max(1, record.tasks)
        lasted = format_duration(wall_ms() - record.created_at_ms)
        words = [
            f"{ended}/{record.tasks}",
            format_counts(record.counts),
            format_cost(self.watch.tasks.values()),
            lasted,
        ]
        return f"{record.name}  {'━' * filled}{'╌' * (BAR_WIDTH - filled)}  {'  ·  '.join(filter(None, words))}"

    def _running(self) -> Iterator[str]:
        running = self.watch.in_state(*RUNNING_STATES)
        shown = running[: max(3, get_terminal_size().lines - WAITING_SHOWN - ENDED_SHOWN - 4)]
        lines = self._last_lines.of(task for task in shown if task.state is not State.CLAIMED)
        width = max((len(task.id) for task in shown), default=0)
        agents = max((len(task.agent or "") for task in shown), default=0)
        for task in shown:
            doing = self._now_doing(task, lines.get(task.run, ""))
            agent = f"  {clean(task.agent or ''):{agents}}" if agents else ""
            yield f"  {MARKS.get(task.state, '◷')} {task.id:{width}}{agent}  {format_run_time(task):>9}  {clean(doing)}"
        if len(running) > len(shown):
            yield f"    and {len(running) - len(shown)} more"

    def _now_doing(self, task: TaskRecord, line: str) -> str:
        if line and line != self._seen.get(task.run):
            self._seen[task.run] = line
            self._doing[task.run] = line.removeprefix(f"{MARKS[State.RUNNING]} ")
        waits = task.reason if task.state is State.WAITING else ""
        return waits or self._doing.get(task.run) or task.state.value

    def _waiting(self) -> Iterator[str]:
        waiting = self.watch.in_state(State.PENDING, State.SCHEDULED, State.BLOCKED)
        for task in waiting[:WAITING_SHOWN]:
            yield f"  · {task.id}  {clean(self._why(task))}"
        if len(waiting) > WAITING_SHOWN:
            yield f"    and {len(waiting) - WAITING_SHOWN} more that wait"

    def _why(self, task: TaskRecord) -> str:
        if task.state is State.PENDING:
            return "waits for a worker"
        if task.reason.startswith(LIMIT_REASON):
            limit = task.reason.removeprefix(LIMIT_REASON)
            own = limit == f"{PLAN_LIMIT}{self.watch.plan}"
            return "waits for one that runs to end" if own else f"waits for room under the limit {limit}"
        if task.state is State.BLOCKED:
            needs = self._needs.get(task.id)
            if needs is None:
                needs = self._needs[task.id] = self.watch.needs(task)
            if needs:
                return f"needs {', '.join(needs)}"
        return task.reason or task.state.value

    def _cut(self, line: str) -> str:
        from rich.cells import cell_len, set_cell_size

        width = get_terminal_size().columns - ECHO_WIDTH
        return line if cell_len(line) < width else set_cell_size(line, max(0, width - 2)).rstrip() + "…"


@contextmanager
def open_progress(backend: Backend, watch: PlanWatch, head: PlanHeader, *, quiet: bool) -> Iterator[PlanProgress]:
    """The way that fits to where it is shown."""
    kind: Sequence[type[PlanProgress]] = (
        [PlanProgress] if quiet else [LiveProgress] if on_terminal() else [LineProgress]
    )
    shown = kind[0](backend, watch, head)
    try:
        yield shown
    finally:
        shown.close()
