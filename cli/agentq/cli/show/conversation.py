"""A conversation as it went: for each turn what was asked, and what the agent said to that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentq.cli.connect import print_note
from agentq.cli.render import bold, clean, clean_lines, dim, paint, print_json
from agentq.cli.show.agent_events import AgentEventFormatter
from agentq.cli.show.run_summary import describe_end
from agentq.coordinator.bounds import LIST_PER_CALL
from agentq.coordinator.errors import AgentqError, NotFound
from agentq.coordinator.events.stream import STREAM_START
from agentq.coordinator.model.agent_events import (
    AccountLimitEvent,
    ResultEvent,
    SleepRequestEvent,
    SpendingEvent,
    TextEvent,
    ToolDeniedEvent,
    truncate_text,
)
from agentq.coordinator.model.lifecycle import TERMINAL_STATES, State
from agentq.coordinator.public_json.runs import agent_json
from agentq.coordinator.runs.agent_event_reader import AgentEventReader, LoggedAgentEvent
from agentq.coordinator.runs.run_record import RunRecord
from agentq.sdk.backend import Backend

CONVERSATION_EVENTS = (TextEvent, ResultEvent, SpendingEvent, ToolDeniedEvent, AccountLimitEvent, SleepRequestEvent)
"""Events that are part of the conversation; all others are activity."""


def print_conversation(backend: Backend, name: str, *, follow: bool, everything: bool, json: bool) -> None:
    """All turns that are kept, in order; with `follow`, also those that are in the line, and those that join it."""
    sessions = backend.sessions
    sessions.get(name)
    last, number = "", 0
    while True:
        turns = list(_turns_after(backend, name, last))
        for run in turns:
            number += 1
            last = run.id
            if json:
                _print_turn_json(backend, run, number, follow=follow)
            else:
                _print_turn(backend, run, number, follow=follow, everything=everything)
        line = sessions.line(name, 1) if follow else []
        if not line:
            break
        if not turns:
            backend.wait(line[0])  # an early turn that was told already, and began again
    if not number and not json:
        print_note(f'nothing was said yet; `agentq session send {name} "…"` does.')


def _turns_after(backend: Backend, name: str, last: str) -> Iterator[RunRecord]:
    """The turns that were submitted after one, oldest first. Ids grow with time."""
    ids: list[str] = []
    cursor: str | None = None
    while True:
        page = backend.sessions.turns(name, limit=LIST_PER_CALL, cursor=cursor)
        ids += [run.id for run in page.runs if run.id > last]
        cursor = page.cursor
        if cursor is None or len(ids) % LIST_PER_CALL:
            break
    for run in backend.read(ids[::-1]):
        if isinstance(run, NotFound):
            continue  # it was forgotten meanwhile
        if isinstance(run, AgentqError):
            raise run
        yield run


def _print_turn(backend: Backend, run: RunRecord, number: int, *, follow: bool, everything: bool) -> None:
    if number > 1:
        print()
    state = paint(run.state.value) + (f", {run.reason}" if run.state is State.BLOCKED else "")
    print(f"{bold(f'── turn {number}')}  {run.id}  {state}")
    for line in clean_lines(truncate_text(run.spec.prompt or "")).rstrip("\n").split("\n"):
        print(f"{dim('>')} {line}".rstrip(), flush=True)
    teller = AgentEventFormatter()
    for told in _read_agent_events(backend, run, follow):
        if everything or isinstance(told.doing, CONVERSATION_EVENTS):
            for line in teller.lines(told):
                print(line, flush=True)
    for line in teller.rest():
        print(line, flush=True)
    ended = backend.get(run.id) if follow else run
    if ended.state in TERMINAL_STATES and ended.state is not State.COMPLETED:
        words = (ended.state.value, describe_end(ended), (ended.outcome and ended.outcome.error) or ended.reason)
        print(paint(clean(": ".join(dict.fromkeys(filter(None, words)))), like="fail"))


def _read_agent_events(backend: Backend, run: RunRecord, follow: bool) -> Iterator[LoggedAgentEvent]:
    story, entries = AgentEventReader(), backend.logs(run.id, STREAM_START, follow=follow)
    try:
        for entry in entries:
            yield from story.read(entry)
    finally:
        entries.close()


def _print_turn_json(backend: Backend, run: RunRecord, number: int, *, follow: bool) -> None:
    said: list[str] = []
    for told in _read_agent_events(backend, run, follow):
        if isinstance(told.doing, TextEvent) or (isinstance(told.doing, ResultEvent) and told.doing.text not in said):
            said.append(told.doing.text)
    ended = backend.get(run.id) if follow else run
    record: dict[str, Any] = {"turn": number, "run": run.id, "state": ended.state.value, "prompt": run.spec.prompt}
    print_json(record | {"said": list(filter(None, said)), "agent": agent_json(ended)})
