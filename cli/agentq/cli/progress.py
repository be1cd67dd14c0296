"""How a plan goes on, shown: on a terminal a picture that is drawn over itself, in a pipe a line for each thing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import Any

from agentq.cli.plan_view import cost_of, counted, took
from agentq.cli.plan_works import changed_nothing
from agentq.cli.record import ending
from agentq.cli.render import clean, on_terminal
from agentq.cli.server import Server, note
from agentq.cli.watching import Change, LastLines, Watch
from agentq.coordinator.clock import monotonic_ms, wall_ms
from agentq.coordinator.lifecycle import TERMINAL, State
from agentq.coordinator.moments import iso, spelled
from agentq.coordinator.plans import TaskRecord
from agentq.planning.submitting import PLAN_LIMIT, Head

DRAW_MS = 300
WAITING_SHOWN = 5
ENDED_SHOWN = 4
FULL = "limit "
"""How the reason begins of a task that finds no room under a limit."""
BAR = 24
ECHOED = len("^C")
"""What a terminal writes behind the last line when somebody presses Ctrl-C; without room for it the picture slips."""
MARKS = {"running": "●", "claimed": "○", "completed": "✓", "failed": "✗", "cancelled": "⊘", "skipped": "⊘"}
RUNS = (State.RUNNING, State.CLAIMED, State.WAITING)
QUIET = ("submitted", "unblocked", "promoted", "claimed", "reported")
"""Events that a line in a log would only lengthen."""


class Progress:
    """Tells nothing: for those who want one answer at the end."""

    def __init__(self, server: Server, watch: Watch, head: Head) -> None:
        self.server, self.watch, self.head = server, watch, head

    def tell(self, changes: Iterable[Change]) -> None:
        """Show what has happened."""

    def say(self, sentence: str) -> None:
        """Say something that is not of a task."""
        note(sentence)

    def close(self) -> None:
        """That was it."""


class Lines(Progress):
    """A line for each thing that happens."""

    def __init__(self, server: Server, watch: Watch, head: Head) -> None:
        super().__init__(server, watch, head)
        record = watch.record
        print(
            f"{record.id}  {record.tasks} task{'' if record.tasks == 1 else 's'}, {counted(record.counts)}", flush=True
        )

    def tell(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if change.event not in QUIET:
                at = iso(change.at_ms or wall_ms())[11:19]
                print(f"{at}  {change.task.id}  {clean(told(change))}", flush=True)


def told(change: Change) -> str:
    """What happened to a task, in words."""
    if change.event == "progressed":
        return noted(change.detail)
    if change.run is None:
        started = change.event == "started"
        where = f"on {change.task.worker}" if started and change.task.worker else ""
        who = f"by {change.task.agent}" if started and change.task.agent else ""
        detail = f"({change.detail})" if change.detail and not started else ""
        return " ".join(filter(None, [change.event, where, who, detail]))
    outcome, work = change.run.outcome, None
    if change.task.state is State.SKIPPED:
        return "skipped"
    words = [change.task.state.value, ending(change.run)]
    if outcome is not None:
        work = outcome.work
        words.append(outcome.error or "")
    if work is not None and work.merged and work.commit:
        files = f"{work.files} file{'' if work.files == 1 else 's'} +{work.insertions} -{work.deletions}"
        words.append(f"merged as {work.commit[:10]}, {files}")
    elif changed_nothing(change.run):
        words.append("changed nothing")
    return ", ".join(filter(None, [*words, took(change.task), cost_of([change.task])]))


def noted(progress: str) -> str:
    """What a task said of how far it is."""
    try:
        said = json.loads(progress)
    except ValueError:
        return progress
    return str(said.get("note") or said.get("message") or progress) if isinstance(said, dict) else str(said)


class Picture(Progress):
    """A picture of the whole, drawn over itself."""

    def __init__(self, server: Server, watch: Watch, head: Head) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(server, watch, head)
        self._last_lines = LastLines(server)
        self._needs: dict[str, list[str]] = {}
        self._seen: dict[str, str] = {}
        self._doing: dict[str, str] = {}
        """By run: the last line that it wrote, or what was noted of it since."""
        self._drawn_ms = 0
        self._live = Live(
            console=Console(highlight=False, markup=False, emoji=False), auto_refresh=False, transient=True
        )
        self._live.start()
        self.tell(())

    def tell(self, changes: Iterable[Change]) -> None:
        changes = list(changes)
        for change in changes:
            if change.event == "progressed":
                self._doing[change.task.run] = noted(change.detail)
            if change.run is not None:
                self._live.console.print(
                    self._cut(f"{MARKS[change.task.state]} {change.task.id}  {clean(told(change))}")
                )
        now_ms = monotonic_ms()
        if changes or now_ms - self._drawn_ms >= DRAW_MS:
            if any(change.task.state in TERMINAL for change in changes):
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
        ended = sum(count for state, count in record.counts.items() if state in TERMINAL)
        filled = BAR * ended // max(1, record.tasks)
        lasted = spelled(wall_ms() - record.created_at_ms)
        words = [f"{ended}/{record.tasks}", counted(record.counts), cost_of(self.watch.tasks.values()), lasted]
        return f"{record.name}  {'━' * filled}{'╌' * (BAR - filled)}  {'  ·  '.join(filter(None, words))}"

    def _running(self) -> Iterator[str]:
        running = self.watch.in_state(*RUNS)
        shown = running[: max(3, get_terminal_size().lines - WAITING_SHOWN - ENDED_SHOWN - 4)]
        lines = self._last_lines.of(task for task in shown if task.state is not State.CLAIMED)
        width = max((len(task.id) for task in shown), default=0)
        agents = max((len(task.agent or "") for task in shown), default=0)
        for task in shown:
            doing = self._now_doing(task, lines.get(task.run, ""))
            agent = f"  {clean(task.agent or ''):{agents}}" if agents else ""
            yield f"  {MARKS.get(task.state, '◷')} {task.id:{width}}{agent}  {took(task):>9}  {clean(doing)}"
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
        if task.reason.startswith(FULL):
            limit = task.reason.removeprefix(FULL)
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

        width = get_terminal_size().columns - ECHOED
        return line if cell_len(line) < width else set_cell_size(line, max(0, width - 2)).rstrip() + "…"


@contextmanager
def progress(server: Server, watch: Watch, head: Head, *, quiet: bool) -> Iterator[Progress]:
    """The way that fits to where it is shown."""
    kind: Sequence[type[Progress]] = [Progress] if quiet else [Picture] if on_terminal() else [Lines]
    shown = kind[0](server, watch, head)
    try:
        yield shown
    finally:
        shown.close()
