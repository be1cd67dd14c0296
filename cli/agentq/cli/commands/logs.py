"""`agentq logs`: prints the output of a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentq.cli.connect import connect_backend, home_folder, print_note, read_settings, refuse_in_agent_run
from agentq.cli.options import Json, RunOrNewest
from agentq.cli.parse.option_errors import parse_duration_option
from agentq.cli.render import clean_lines, print_json
from agentq.cli.run_references import find_runs_or_newest
from agentq.cli.show.agent_events import AgentEventFormatter
from agentq.cli.show.log_lines import AGENT_STREAM, LineAssembler, LogLine, LogSelection, last_lines
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import Invalid, NotFound
from agentq.coordinator.events.stream import STREAM_START
from agentq.coordinator.public_json.logs import log_position_json
from agentq.coordinator.runs.agent_event_reader import AgentEventReader
from agentq.coordinator.runs.logs import RunLogEntry

if TYPE_CHECKING:
    from agentq.sdk.backend import Backend

Opt = typer.Option
CHUNK_BYTES = 1 << 20
WHOLE_LOG = LogSelection()


def logs(
    ctx: typer.Context,
    run: RunOrNewest = None,
    follow: Annotated[bool, Opt("--follow", "-f", help="Continue with new output until the run ends.")] = False,
    tail: Annotated[
        int | None, Opt("--tail", "-n", metavar="N", min=0, help="Only this many of the newest lines.")
    ] = None,
    since: Annotated[str | None, Opt(metavar="DURATION", help="Only output newer than this, such as 10m.")] = None,
    attempt: Annotated[int | None, Opt(metavar="N", min=1, help="Only the output of this attempt.")] = None,
    timestamps: Annotated[bool, Opt("--timestamps", "-t", help="Begin each line with its time.")] = False,
    full: Annotated[bool, Opt("--full", help="The whole output, from the worker's file on this machine.")] = False,
    raw: Annotated[bool, Opt("--raw", help="The agent's raw output lines, not interpreted.")] = False,
    json: Json = False,
) -> None:
    """Print the output of a run, of all its attempts: its stdout to stdout, its stderr and our notes to stderr.

    For an agent, its messages and actions are printed in place of its stdout, one line each.

    \b
    Example: agentq logs
    Example: agentq logs RUN
    Example: agentq logs RUN -f
    Example: agentq logs RUN -n 20 --timestamps
    Example: agentq logs RUN --raw
    Example: agentq logs RUN --json
    """
    since_ms = None if since is None else wall_ms() - parse_duration_option(since, "--since")
    wanted = LogSelection(tail, since_ms, attempt, timestamps)
    if full and (follow or json or raw or wanted != LogSelection()):
        raise Invalid(
            "--full prints a file as it is; leave --follow, --json, --raw, --tail, --since, --attempt and "
            "--timestamps away."
        )
    if json and timestamps:
        raise Invalid("--timestamps is for people; with --json each entry has its time.")
    if full:
        refuse_in_agent_run(ctx)
    backend = connect_backend(ctx)
    (run_id,) = find_runs_or_newest(backend, run)
    if full:
        _print_files(backend, home_folder(read_settings(ctx).settings), run_id)
        return
    print_log(backend, run_id, follow=follow, json=json, raw=raw, wanted=wanted)


def print_log(
    backend: Backend,
    run_id: str,
    *,
    follow: bool,
    json: bool = False,
    raw: bool = False,
    wanted: LogSelection = WHOLE_LOG,
) -> None:
    """What the server has of a run's output."""
    agent = not raw and backend.get(run_id).spec.kind == "agent"

    def read(after: str, go_on: bool) -> Iterator[RunLogEntry]:
        return backend.logs(run_id, after, follow=go_on)

    _print_selection(read, agent, wanted, follow=follow, json=json)


def _print_selection(
    read: Callable[[str, bool], Iterator[RunLogEntry]], agent: bool, wanted: LogSelection, *, follow: bool, json: bool
) -> None:
    """Print what there is, as far as it is wanted, and with `follow` what comes after it."""
    if wanted.tail is None:
        _show_entries(wanted.among(read(STREAM_START, follow)), agent, wanted, json=json)
        return
    before = list(read(STREAM_START, False))
    entries = list(wanted.among(before))
    if json:
        _show_entries(entries[len(entries) - min(wanted.tail, len(entries)) :], agent, wanted, json=True)
    else:
        shown = _LogLineFormatter(agent)
        lines = [line for entry in entries for line in shown.lines.of(entry)]
        if not follow:
            lines += shown.rest()
        _print_lines(last_lines(lines, wanted.tail), timestamps=wanted.timestamps)
    if follow:
        last = before[-1].id if before else STREAM_START
        after = wanted.among(read(last, True))
        _show_entries(after, agent, wanted, json=json) if json else _show_lines(after, shown, wanted)


def _show_entries(entries: Iterable[RunLogEntry], agent: bool, wanted: LogSelection, *, json: bool) -> None:
    if wanted.by_line and not json:
        _show_lines(entries, _LogLineFormatter(agent), wanted)
    elif agent:
        print_agent_events(entries, json=json)
    else:
        _print_entries(entries, json=json)


class _LogLineFormatter:
    """How entries become lines: as they are, or as what an agent said and did."""

    def __init__(self, agent: bool) -> None:
        self._teller = AgentEventFormatter() if agent else None
        story, teller = AgentEventReader(), self._teller
        self.lines = LineAssembler(
            None
            if teller is None
            else lambda entry: [line for told in story.read(entry) for line in teller.lines(told)]
        )

    def rest(self) -> list[LogLine]:
        """The last, incomplete lines."""
        told = [] if self._teller is None else list(self._teller.rest())
        return [*self.lines.rest(), *(LogLine(AGENT_STREAM, wall_ms(), text) for text in told)]


def _show_lines(entries: Iterable[RunLogEntry], shown: _LogLineFormatter, wanted: LogSelection) -> None:
    for entry in entries:
        _print_lines(shown.lines.of(entry), timestamps=wanted.timestamps)
    _print_lines(shown.rest(), timestamps=wanted.timestamps)


def _print_lines(lines: Iterable[LogLine], *, timestamps: bool) -> None:
    for line in lines:
        text = (line.stamped() if timestamps else line).text
        if line.stream == "note":
            print_note(clean_lines(text).strip())
        elif line.stream == AGENT_STREAM:
            print(text, flush=True)
        else:
            print(clean_lines(text), file=sys.stdout if line.stream == "out" else sys.stderr, flush=True)


def print_agent_events(entries: Iterable[RunLogEntry], *, json: bool = False) -> None:
    """What an agent said and did, beside what else was written."""
    story, teller = AgentEventReader(), AgentEventFormatter()
    for entry in entries:
        if entry.stream in ("err", "note"):
            _print_entries([entry], json=json)
        for told in story.read(entry):
            if json:
                print_json(log_position_json(entry) | {"doing": told.doing.model_dump(mode="json")})
            else:
                _print_event_lines(teller.lines(told))
    if not json:
        _print_event_lines(teller.rest())


def _print_event_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, flush=True)


def _print_entries(entries: Iterable[RunLogEntry], *, json: bool) -> None:
    """What was written, as it was; what an agent did is told by `print_agent_events`."""
    for entry in entries:
        if entry.stream == "event":
            continue
        if json:
            print_json(log_position_json(entry) | {"text": entry.text})
        elif entry.stream == "note":
            print_note(clean_lines(entry.text).strip())
        else:
            stream = sys.stdout if entry.stream == "out" else sys.stderr
            print(clean_lines(entry.text), end="", file=stream, flush=True)


def _print_files(backend: Backend, home: Path, run_id: str) -> None:
    """The worker's files, byte for byte; a terminal gets them without what it would obey."""
    attempts = backend.get(run_id).attempts
    files = list(_list_log_files(home / "logs" / run_id))
    if not files:
        where = f"; it ran on {attempts[-1].worker}" if attempts else ", which no worker has had yet"
        raise NotFound(f"This machine has no file of what {run_id} wrote{where}.")
    for path in files:
        with path.open("rb") as file:
            while piece := file.read(CHUNK_BYTES):
                if sys.stdout.isatty():
                    print(clean_lines(piece.decode(errors="replace")), end="")
                else:
                    sys.stdout.buffer.write(piece)
    sys.stdout.flush()


def _list_log_files(folder: Path) -> Iterator[Path]:
    """Attempt by attempt, and of one that goes on, part by part."""
    for path in sorted(folder.glob("*.log"), key=lambda path: int(path.stem.partition("-")[0])):
        for part in (path, *(path.with_name(path.name + end) for end in (".older", ".newer"))):
            if part.is_file():
                yield part
