"""A conversation as it went: for each turn what was asked, and what the agent said to that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentq.cli.doings import Teller
from agentq.cli.record import ending
from agentq.cli.render import bold, clean, clean_lines, dim, paint, print_json
from agentq.cli.server import Server, note
from agentq.coordinator.doings import Concluded, Denied, Limited, Said, Sleeps, Spent, cut
from agentq.coordinator.errors import NotFound
from agentq.coordinator.life import Run
from agentq.coordinator.lifecycle import TERMINAL, State
from agentq.coordinator.limits import LIST_A_CALL
from agentq.coordinator.logs import Logs
from agentq.coordinator.outcomes import Outcomes
from agentq.coordinator.sessions import Sessions
from agentq.coordinator.shapes import turn_record
from agentq.coordinator.story import Story, Told

TO_THE_USER = (Said, Concluded, Spent, Denied, Limited, Sleeps)
"""What is said to whoever asked, and what they must know; the rest is how it was done."""


def print_conversation(server: Server, name: str, *, follow: bool, everything: bool, json: bool) -> None:
    """All turns that are kept, in order; with `follow`, also those that are in the line, and those that join it."""
    sessions = Sessions(server.store)
    sessions.get(name)
    last, number = "", 0
    while True:
        turns = list(_after(server, sessions, name, last))
        for run in turns:
            number += 1
            last = run.id
            if json:
                _print_record(server, run, number, follow=follow)
            else:
                _print_turn(server, run, number, follow=follow, everything=everything)
        line = sessions.line(name, 1) if follow else []
        if not line:
            break
        if not turns:
            _wait(server, line[0])  # an early turn that was told already, and began again
    if not number and not json:
        note(f'nothing was said yet; `agentq session send {name} "…"` does.')


def _after(server: Server, sessions: Sessions, name: str, last: str) -> Iterator[Run]:
    """The turns that were submitted after one, oldest first. Ids grow with time."""
    ids: list[str] = []
    cursor: str | None = None
    while True:
        page = sessions.turns(name, limit=LIST_A_CALL, cursor=cursor)
        ids += [run.id for run in page.runs if run.id > last]
        cursor = page.cursor
        if cursor is None or len(ids) % LIST_A_CALL:
            break
    for run_id in reversed(ids):
        try:
            yield server.records.get(run_id)
        except NotFound:
            continue  # it was forgotten meanwhile


def _wait(server: Server, run_id: str) -> None:
    outcomes = Outcomes(server.store)
    try:
        outcomes.wait(run_id)
    finally:
        outcomes.close()


def _print_turn(server: Server, run: Run, number: int, *, follow: bool, everything: bool) -> None:
    if number > 1:
        print()
    state = paint(run.state.value) + (f", {run.reason}" if run.state is State.BLOCKED else "")
    print(f"{bold(f'── turn {number}')}  {run.id}  {state}")
    for line in clean_lines(cut(run.spec.prompt or "")).rstrip("\n").split("\n"):
        print(f"{dim('>')} {line}".rstrip(), flush=True)
    teller = Teller()
    for told in _told(server, run, follow):
        if everything or isinstance(told.doing, TO_THE_USER):
            for line in teller.tell(told):
                print(line, flush=True)
    for line in teller.rest():
        print(line, flush=True)
    ended = server.records.get(run.id) if follow else run
    if ended.state in TERMINAL and ended.state is not State.COMPLETED:
        words = (ended.state.value, ending(ended), (ended.outcome and ended.outcome.error) or ended.reason)
        print(paint(clean(": ".join(dict.fromkeys(filter(None, words)))), like="fail"))


def _told(server: Server, run: Run, follow: bool) -> Iterator[Told]:
    story, log = Story(), Logs(server.store)
    try:
        for entry in log.follow(run.id) if follow else log.read(run.id):
            yield from story.read(entry)
    finally:
        log.close()


def _print_record(server: Server, run: Run, number: int, *, follow: bool) -> None:
    said: list[str] = []
    for told in _told(server, run, follow):
        if isinstance(told.doing, Said) or (isinstance(told.doing, Concluded) and told.doing.text not in said):
            said.append(told.doing.text)
    ended = server.records.get(run.id) if follow else run
    record: dict[str, Any] = {"turn": number, "run": run.id, "state": ended.state.value, "prompt": run.spec.prompt}
    print_json(record | {"said": list(filter(None, said)), "agent": turn_record(ended)})
