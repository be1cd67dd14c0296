"""`agentq logs`: what a run wrote."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from agentq.cli.afar import Afar, afar
from agentq.cli.doings import Teller
from agentq.cli.faults import duration_of
from agentq.cli.log_lines import TOLD, LineAssembler, LogLine, LogSelection, newest
from agentq.cli.options import Json, RunOrNewest
from agentq.cli.references import chosen
from agentq.cli.render import clean_lines, print_json
from agentq.cli.server import Server, home_of, note, reach
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import Invalid, NotFound
from agentq.coordinator.events import BEGINNING
from agentq.coordinator.logs import LogEntry, Logs
from agentq.coordinator.shapes import log_place
from agentq.coordinator.story import Story

Opt = typer.Option
PIECE_BYTES = 1 << 20
ALL = LogSelection()


def logs(
    ctx: typer.Context,
    run: RunOrNewest = None,
    follow: Annotated[bool, Opt("--follow", "-f", help="Go on with what it writes, until it ends.")] = False,
    tail: Annotated[int | None, Opt("--tail", "-n", metavar="N", min=0, help="Only the newest so many lines.")] = None,
    since: Annotated[str | None, Opt(metavar="DURATION", help="Only what is as new as this, such as 10m.")] = None,
    attempt: Annotated[int | None, Opt(metavar="N", min=1, help="Only what this attempt wrote.")] = None,
    timestamps: Annotated[bool, Opt("--timestamps", "-t", help="Begin each line with its time.")] = False,
    full: Annotated[bool, Opt("--full", help="All, from the worker's file on this machine.")] = False,
    raw: Annotated[bool, Opt("--raw", help="Of an agent, its own lines instead of what they say.")] = False,
    json: Json = False,
) -> None:
    """Print what a run wrote, in all its attempts: its stdout to stdout, its stderr and our notes to stderr.

    Of an agent, in the place of its stdout: what it says and does, a line for each.

    \b
    Example: agentq logs
    Example: agentq logs RUN
    Example: agentq logs RUN -f
    Example: agentq logs RUN -n 20 --timestamps
    Example: agentq logs RUN --raw
    Example: agentq logs RUN --json
    """
    since_ms = None if since is None else wall_ms() - duration_of(since, "--since")
    wanted = LogSelection(tail, since_ms, attempt, timestamps)
    if full and (follow or json or raw or wanted != LogSelection()):
        raise Invalid(
            "--full prints a file as it is; leave --follow, --json, --raw, --tail, --since, --attempt and "
            "--timestamps away."
        )
    if json and timestamps:
        raise Invalid("--timestamps is for people; with --json each entry has its time.")
    there = afar(ctx)
    if there and full:
        raise Invalid("--full prints a file of the worker's, which is for those who reach its server.")
    place = there or reach(ctx)
    (run_id,) = chosen(place, run)
    if not isinstance(place, Server):
        print_at(place, run_id, follow=follow, raw=raw, json=json, wanted=wanted)
    elif full:
        _print_files(place, run_id)
    else:
        print_log(place, run_id, follow=follow, json=json, raw=raw, wanted=wanted)


def print_at(
    there: Afar, run_id: str, *, follow: bool, raw: bool = False, json: bool = False, wanted: LogSelection = ALL
) -> None:
    """The same, where the server is not reached itself."""
    agent = not raw and there.get(run_id).spec.kind == "agent"
    _print(lambda after, go_on: there.log(run_id, follow=go_on, after=after), agent, wanted, follow=follow, json=json)


def print_log(
    server: Server, run_id: str, *, follow: bool, json: bool = False, raw: bool = False, wanted: LogSelection = ALL
) -> None:
    """What the server has of a run's output."""
    agent = not raw and server.records.get(run_id).spec.kind == "agent"
    log = Logs(server.store)

    def read(after: str, go_on: bool) -> Iterator[LogEntry]:
        return log.follow(run_id, after) if go_on else log.read(run_id, after)

    try:
        _print(read, agent, wanted, follow=follow, json=json)
    finally:
        log.close()


def _print(
    read: Callable[[str, bool], Iterator[LogEntry]], agent: bool, wanted: LogSelection, *, follow: bool, json: bool
) -> None:
    """Print what there is, as far as it is wanted, and with `follow` what comes after it."""
    if wanted.tail is None:
        _show(wanted.among(read(BEGINNING, follow)), agent, wanted, json=json)
        return
    before = list(read(BEGINNING, False))
    entries = list(wanted.among(before))
    if json:
        _show(entries[len(entries) - min(wanted.tail, len(entries)) :], agent, wanted, json=True)
    else:
        shown = _Shown(agent)
        lines = [line for entry in entries for line in shown.lines.of(entry)]
        if not follow:
            lines += shown.rest()
        _print_lines(newest(lines, wanted.tail), timestamps=wanted.timestamps)
    if follow:
        last = before[-1].id if before else BEGINNING
        after = wanted.among(read(last, True))
        _show(after, agent, wanted, json=json) if json else _show_lines(after, shown, wanted)


def _show(entries: Iterable[LogEntry], agent: bool, wanted: LogSelection, *, json: bool) -> None:
    if wanted.by_line and not json:
        _show_lines(entries, _Shown(agent), wanted)
    elif agent:
        print_doings(entries, json=json)
    else:
        _print_entries(entries, json=json)


class _Shown:
    """How entries become lines: as they are, or as what an agent said and did."""

    def __init__(self, agent: bool) -> None:
        self._teller = Teller() if agent else None
        story, teller = Story(), self._teller
        self.lines = LineAssembler(
            None if teller is None else lambda entry: [line for told in story.read(entry) for line in teller.tell(told)]
        )

    def rest(self) -> list[LogLine]:
        """What is left at the end."""
        told = [] if self._teller is None else list(self._teller.rest())
        return [*self.lines.rest(), *(LogLine(TOLD, wall_ms(), text) for text in told)]


def _show_lines(entries: Iterable[LogEntry], shown: _Shown, wanted: LogSelection) -> None:
    for entry in entries:
        _print_lines(shown.lines.of(entry), timestamps=wanted.timestamps)
    _print_lines(shown.rest(), timestamps=wanted.timestamps)


def _print_lines(lines: Iterable[LogLine], *, timestamps: bool) -> None:
    for line in lines:
        text = (line.stamped() if timestamps else line).text
        if line.stream == "note":
            note(clean_lines(text).strip())
        elif line.stream == TOLD:
            print(text, flush=True)
        else:
            print(clean_lines(text), file=sys.stdout if line.stream == "out" else sys.stderr, flush=True)


def print_doings(entries: Iterable[LogEntry], *, json: bool = False) -> None:
    """What an agent said and did, beside what else was written."""
    story, teller = Story(), Teller()
    for entry in entries:
        if entry.stream in ("err", "note"):
            _print_entries([entry], json=json)
        for told in story.read(entry):
            if json:
                print_json(log_place(entry) | {"doing": told.doing.model_dump(mode="json")})
            else:
                _print_told(teller.tell(told))
    if not json:
        _print_told(teller.rest())


def _print_told(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, flush=True)


def _print_entries(entries: Iterable[LogEntry], *, json: bool) -> None:
    """What was written, as it was; what an agent did is told by `print_doings`."""
    for entry in entries:
        if entry.stream == "event":
            continue
        if json:
            print_json(log_place(entry) | {"text": entry.text})
        elif entry.stream == "note":
            note(clean_lines(entry.text).strip())
        else:
            stream = sys.stdout if entry.stream == "out" else sys.stderr
            print(clean_lines(entry.text), end="", file=stream, flush=True)


def _print_files(server: Server, run_id: str) -> None:
    """The worker's files, byte for byte; a terminal gets them without what it would obey."""
    attempts = server.records.get(run_id).attempts
    files = list(_files(home_of(server.settings) / "logs" / run_id))
    if not files:
        where = f"; it ran on {attempts[-1].worker}" if attempts else ", which no worker has had yet"
        raise NotFound(f"This machine has no file of what {run_id} wrote{where}.")
    for path in files:
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                if sys.stdout.isatty():
                    print(clean_lines(piece.decode(errors="replace")), end="")
                else:
                    sys.stdout.buffer.write(piece)
    sys.stdout.flush()


def _files(folder: Path) -> Iterator[Path]:
    """Attempt by attempt, and of one that goes on, part by part."""
    for path in sorted(folder.glob("*.log"), key=lambda path: int(path.stem.partition("-")[0])):
        for part in (path, *(path.with_name(path.name + end) for end in (".older", ".newer"))):
            if part.is_file():
                yield part
