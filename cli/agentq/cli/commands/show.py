"""`agentq show`: shows runs in full."""

from __future__ import annotations

import json as json_text
import shlex
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from agentq.cli.connect import connect_backend
from agentq.cli.options import Json, RunsOrNewest
from agentq.cli.render import bold, clean, clean_lines, paint, print_json, print_pairs
from agentq.cli.run_references import find_runs_or_newest
from agentq.cli.show.agent_events import AgentEventFormatter, terminal_width
from agentq.cli.show.agent_run import agent_run_pairs, format_denied_tools
from agentq.cli.show.rq_jobs import with_job_titles
from agentq.cli.show.run_summary import describe_end, describe_work, first_words
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import NotFound
from agentq.coordinator.events.stream import STREAM_START
from agentq.coordinator.model.agent_options import AGENT_LABEL
from agentq.coordinator.model.demands import format_demands as written
from agentq.coordinator.model.durations import format_duration, format_iso
from agentq.coordinator.model.workspace import DeliveredWork
from agentq.coordinator.public_json.runs import last_agent_outcome, run_json
from agentq.coordinator.runs.agent_event_reader import AgentEventReader
from agentq.coordinator.runs.run_record import AttemptRecord, RunRecord
from agentq.coordinator.runs.wait import SignalMessage

if TYPE_CHECKING:
    from agentq.sdk.backend import Backend

TAIL_LINES = 10
SHOWN_CHARACTERS = 200
MARGIN = 4


def show(ctx: typer.Context, run: RunsOrNewest = None, json: Json = False) -> None:
    """Show runs in full: their spec, state and each attempt.

    \b
    Example: agentq show
    Example: agentq show RUN
    Example: agentq show RUN --json
    """
    backend = connect_backend(ctx)
    for place, found in enumerate([backend.get(run_id) for run_id in find_runs_or_newest(backend, run)]):
        messages = backend.signals(found.id)
        if json:
            told = {"mail": [message.record() for message in messages]} if messages else {}
            print_json(run_json(found) | told)
        else:
            if place:
                print()
            (titled,) = with_job_titles(backend, [found])
            print_run(titled, messages, _recent_agent_events(backend, found))


def _recent_agent_events(backend: Backend, run: RunRecord) -> list[str]:
    """The last that an agent said and did, as far as the server keeps it."""
    if run.spec.kind != "agent":
        return []
    story, teller = AgentEventReader(), AgentEventFormatter(lambda: terminal_width(MARGIN))
    told: deque[str] = deque(maxlen=TAIL_LINES)
    try:
        for entry in backend.logs(run.id, STREAM_START, follow=False):
            for each in story.read(entry):
                told.extend(teller.lines(each))
    except NotFound:
        return []  # it was forgotten meanwhile
    return [*told, *teller.rest()]


def print_run(run: RunRecord, messages: Sequence[SignalMessage] = (), story: Sequence[str] = ()) -> None:
    """All that is known of it, for people."""
    end = describe_end(run)
    reason = f": {clean(run.reason)}" if run.reason else ""
    print(f"{bold(run.id)}  {paint(run.state.value)}{f', {end}' if end else ''}{reason}")
    print_pairs(_run_pairs(run), indent=2)
    if refused := format_denied_tools(last_agent_outcome(run)):
        print("  " + paint(f"It was not allowed to use {clean(refused)}.", like="warn"))
    if messages:
        print("  mail that it has not taken")
        for message in messages:
            print(f"    {_message_line(message)}")
    if run.attempts:
        print("  attempts")
        for attempt in run.attempts:
            print(f"    {_attempt_line(attempt, run.progress)}")
    tail = run.outcome.tail if run.outcome is not None else None
    if story:
        print("  the last it said and did")
        for line in story:
            print(f"{'':{MARGIN}}{line}".rstrip())
    elif tail:
        print("  the last it wrote")
        for line in clean_lines(tail).rstrip("\n").split("\n")[-TAIL_LINES:]:
            print(f"    {line}")


def _run_pairs(run: RunRecord) -> Iterator[tuple[str, str]]:
    spec, outcome = run.spec, run.outcome
    yield "name", spec.name or ""
    if spec.kind == "agent":
        yield "agent", spec.agent or ""
        yield "prompt", first_words(spec.prompt or "")
        yield from agent_run_pairs(run)
    else:
        yield spec.kind, shlex.join(spec.argv) if spec.kind == "command" else describe_work(spec)
    yield "in", spec.cwd or ""
    yield "environment", ", ".join(sorted(spec.env))
    yield "queue", f"{spec.queue}, priority {spec.priority}"
    yield "demands", ", ".join(written(_explicit_demands(run)))
    yield "labels", _format_pairs(spec.labels)
    yield "plan", spec.plan or ""
    yield "session", spec.session or ""
    yield "schedule", run.schedule
    yield "after", ", ".join(spec.after[:5]) + (f" and {len(spec.after) - 5} more" if len(spec.after) > 5 else "")
    yield "parent", spec.parent or ""
    yield "dedupe key", spec.dedupe_key or ""
    yield from _time_pairs(run)
    if run.progress is not None:
        yield "progress", _format_progress(run.progress)
    if outcome is not None:
        yield "work", "" if outcome.work is None else _describe_delivery(outcome.work)
        yield "error", outcome.error or ""
        yield "result", "" if outcome.result is None else str(outcome.result)


def _format_progress(progress: object) -> str:
    """In words, where it has nothing else."""
    told = progress if isinstance(progress, dict) else {}
    return str(told["note"]) if told.keys() == {"note"} else str(progress)


def _describe_delivery(work: DeliveredWork) -> str:
    """What became of what it did."""
    if work.commit is None:
        return "nothing was changed"
    sums = f"{work.files} file{'' if work.files == 1 else 's'}, +{work.insertions} -{work.deletions}"
    if not work.merged:
        return f"on the branch {work.branch}, at {work.commit[:12]}: {sums}"
    also = [word for word, so in (("pushed", work.pushed), ("the checkout follows", work.checkout_updated)) if so]
    return ", ".join([f"merged into {work.target} as {work.commit[:12]}: {sums}", *also])


def _time_pairs(run: RunRecord) -> Iterator[tuple[str, str]]:
    now_ms = wall_ms()
    yield "submitted", f"{format_iso(run.submitted_at_ms)}, {format_duration(now_ms - run.submitted_at_ms)} ago"
    if run.due_at_ms is not None and run.state == "scheduled":
        yield "due", format_iso(run.due_at_ms)
    if run.started_at_ms is not None:
        yield "started", format_iso(run.started_at_ms)
    if run.finished_at_ms is not None:
        took = (
            f", after {format_duration(run.finished_at_ms - run.started_at_ms)}"
            if run.started_at_ms is not None
            else ""
        )
        yield "ended", f"{format_iso(run.finished_at_ms)}{took}"


def _message_line(message: SignalMessage) -> str:
    by = f"by {clean(message.by)}" if message.by else ""
    data = "" if message.data is None else json_text.dumps(message.data, ensure_ascii=False)[:SHOWN_CHARACTERS]
    return "  ".join(filter(None, (message.name, f"at {format_iso(message.at_ms)}", by, clean(data))))


def _attempt_line(attempt: AttemptRecord, progress: object) -> str:
    outcome = attempt.outcome
    ended = attempt.ended_at_ms is not None
    words = [f"{attempt.attempt}", f"on {attempt.worker}" if attempt.worker else ""]
    began_ms = attempt.started_at_ms or attempt.claimed_at_ms
    if ended and began_ms is not None and attempt.ended_at_ms is not None:
        words.append(f"for {format_duration(attempt.ended_at_ms - began_ms)}")
    if outcome is not None:
        words.append(paint(outcome.class_.value, like="ok" if outcome.class_.value == "ok" else "fail"))
        words.append("" if outcome.exit_code is None else f"exit {outcome.exit_code}")
        words.append("" if outcome.signal is None else f"signal {outcome.signal}")
        words.append(clean(outcome.error or ""))
    elif not ended:
        words.append("goes on" + (f", {clean(_format_progress(progress))}" if progress is not None else ""))
    else:
        words.append({"release": "handed back", "park": "parked"}.get(attempt.verb or "", attempt.verb or ""))
    return "  ".join(filter(None, words))


def _explicit_demands(run: RunRecord) -> dict[str, str]:
    """Those that somebody asked for; what follows from its agent and its conversation is told as such."""
    follows = {f"{AGENT_LABEL}{run.spec.agent}", "host" if run.is_host_pinned else ""}
    return {name: value for name, value in run.spec.demands.items() if name not in follows}


def _format_pairs(pairs: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(pairs.items()))
