"""`agentq logs`: what a run wrote."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from agentq.cli.afar import Afar, afar
from agentq.cli.doings import Teller
from agentq.cli.options import Json, RunId
from agentq.cli.render import clean_lines, print_json
from agentq.cli.server import Server, home_of, note, reach
from agentq.coordinator.errors import Invalid, NotFound
from agentq.coordinator.logs import LogEntry, Logs
from agentq.coordinator.shapes import log_place
from agentq.coordinator.story import Story

PIECE_BYTES = 1 << 20


def logs(
    ctx: typer.Context,
    run: RunId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what it writes, until it ends.")] = False,
    full: Annotated[bool, typer.Option("--full", help="All, from the worker's file on this machine.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Of an agent, its own lines instead of what they say.")] = False,
    json: Json = False,
) -> None:
    """Print what a run wrote, in all its attempts: its stdout to stdout, its stderr and our notes to stderr.

    Of an agent, in the place of its stdout: what it says and does, a line for each.

    \b
    Example: agentq logs RUN
    Example: agentq logs RUN -f
    Example: agentq logs RUN --raw
    Example: agentq logs RUN --json
    """
    if full and (follow or json or raw):
        raise Invalid("--full prints a file as it is; leave --follow, --json and --raw away.")
    if there := afar(ctx):
        if full:
            raise Invalid("--full prints a file of the worker's, which is for those who reach its server.")
        print_at(there, run, follow=follow, raw=raw, json=json)
        return
    server = reach(ctx)
    (run_id,) = server.find([run])
    if full:
        _print_files(server, run_id)
    else:
        print_log(server, run_id, follow=follow, json=json, raw=raw)


def print_at(there: Afar, run_id: str, *, follow: bool, raw: bool = False, json: bool = False) -> None:
    """The same, where the server is not reached itself."""
    entries = there.log(run_id, follow=follow)
    if not raw and there.get(run_id).spec.kind == "agent":
        print_doings(entries, json=json)
    else:
        _print_entries(entries, json=json)


def print_log(server: Server, run_id: str, *, follow: bool, json: bool = False, raw: bool = False) -> None:
    """What the server has of a run's output."""
    agent = not raw and server.records.get(run_id).spec.kind == "agent"
    log = Logs(server.store)
    try:
        entries = log.follow(run_id) if follow else log.read(run_id)
        if agent:
            print_doings(entries, json=json)
        else:
            _print_entries(entries, json=json)
    finally:
        log.close()


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
                _print_lines(teller.tell(told))
    if not json:
        _print_lines(teller.rest())


def _print_lines(lines: Iterable[str]) -> None:
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
