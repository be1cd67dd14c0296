"""A session as the outside sees it: in JSON, in a list, and in pairs for people."""

from __future__ import annotations

from collections.abc import Iterator

from agentq.cli.record import ending, first_words
from agentq.cli.render import bold, clean, on_terminal, paint, print_pairs
from agentq.cli.server import Server
from agentq.cli.spending import spent_words
from agentq.cli.turns import budget_words
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import NotFound
from agentq.coordinator.life import Run
from agentq.coordinator.moments import iso, spelled
from agentq.coordinator.sessions import Session, Sessions

TURNS = 10
"""That are shown, the newest."""
WORDS = 70
"""Characters of each prompt among them."""


def session_row(sessions: list[Session]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of a list."""
    now_ms, rows = wall_ms(), []
    for each in sessions:
        used = spelled(now_ms - each.used_at_ms) if on_terminal() else iso(each.used_at_ms)
        line = str(each.turns) if each.turns else ""
        rows.append([each.name, each.agent, _state(each), line, used, spent_words(each.spent), each.cwd or ""])
    return ["session", "agent", "state", "line", "used", "spent", "in"], rows


def print_session(server: Server, session: Session) -> None:
    """All that is known of it, for people."""
    print(f"{bold(session.name)}  {paint(_state(session), like='running' if session.live else '')}")
    print_pairs(_pairs(session), indent=2)
    turns = list(_newest(server, session))
    if turns:
        print("  turns, the newest first")
        for run in turns:
            state = ", ".join(filter(None, (run.state.value, ending(run))))
            print(f"    {run.id}  {paint(run.state.value)}{state.removeprefix(run.state.value)}", end="  ")
            print(clean(first_words(run.spec.prompt or "", WORDS)))


def _state(session: Session) -> str:
    return "busy" if session.live and session.state == "open" else session.state


def _pairs(session: Session) -> Iterator[tuple[str, str]]:
    now_ms = wall_ms()
    yield "agent", session.agent
    yield "model", session.model or ""
    yield "in", session.cwd or ""
    yield "account", session.account or ""
    yield "conversation", session.agent_session or ""
    yield "host", (session.host or "") + (", where it has to stay" if session.stays else "")
    yield "forked from", session.forked_from or ""
    yield "budgets", budget_words(session.budgets)
    yield "spent", spent_words(session.spent)
    yield "begun", f"{iso(session.created_at_ms)}, {spelled(now_ms - session.created_at_ms)} ago"
    yield "used", f"{iso(session.used_at_ms)}, {spelled(now_ms - session.used_at_ms)} ago"
    yield "closed", "" if session.closed_at_ms is None else iso(session.closed_at_ms)
    yield "in its line", f"{session.turns}, first {session.live}" if session.live else ""


def _newest(server: Server, session: Session) -> Iterator[Run]:
    for summary in Sessions(server.store).turns(session.name, limit=TURNS).runs:
        try:
            yield server.records.get(summary.id)
        except NotFound:
            continue  # it was forgotten meanwhile
