"""A session as the outside sees it: in JSON, in a list, and in pairs for people."""

from __future__ import annotations

from collections.abc import Iterator

from agentq.cli.render import bold, clean, on_terminal, paint, print_pairs
from agentq.cli.show.agent_run import format_budgets
from agentq.cli.show.cost import format_spending
from agentq.cli.show.run_summary import describe_end, first_words
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import AgentqError, NotFound
from agentq.coordinator.model.durations import format_duration, format_iso
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.sessions.verbs import SessionRecord
from agentq.sdk.backend import Backend

TURNS_SHOWN = 10
"""That are shown, the newest."""
PROMPT_CHARACTERS = 70
"""Characters of each prompt among them."""


def session_table(sessions: list[SessionRecord]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of a list."""
    now_ms, rows = wall_ms(), []
    for each in sessions:
        used = format_duration(now_ms - each.used_at_ms) if on_terminal() else format_iso(each.used_at_ms)
        line = str(each.turns) if each.turns else ""
        rows.append(
            [each.name, each.agent, _session_state(each), line, used, format_spending(each.spent), each.cwd or ""]
        )
    return ["session", "agent", "state", "line", "used", "spent", "in"], rows


def print_session(backend: Backend, session: SessionRecord) -> None:
    """All that is known of it, for people."""
    print(f"{bold(session.name)}  {paint(_session_state(session), like='running' if session.live else '')}")
    print_pairs(_session_pairs(session), indent=2)
    turns = list(_newest_turns(backend, session))
    if turns:
        print("  turns, the newest first")
        for run in turns:
            state = ", ".join(filter(None, (run.state.value, describe_end(run))))
            print(f"    {run.id}  {paint(run.state.value)}{state.removeprefix(run.state.value)}", end="  ")
            print(clean(first_words(run.spec.prompt or "", PROMPT_CHARACTERS)))


def _session_state(session: SessionRecord) -> str:
    return "busy" if session.live and session.state == "open" else session.state


def _session_pairs(session: SessionRecord) -> Iterator[tuple[str, str]]:
    now_ms = wall_ms()
    yield "agent", session.agent
    yield "model", session.model or ""
    yield "in", session.cwd or ""
    yield "account", session.account or ""
    yield "conversation", session.agent_session or ""
    yield "host", (session.host or "") + (", where it has to stay" if session.stays else "")
    yield "forked from", session.forked_from or ""
    yield "budgets", format_budgets(session.budgets)
    yield "spent", format_spending(session.spent)
    yield "begun", f"{format_iso(session.created_at_ms)}, {format_duration(now_ms - session.created_at_ms)} ago"
    yield "used", f"{format_iso(session.used_at_ms)}, {format_duration(now_ms - session.used_at_ms)} ago"
    yield "closed", "" if session.closed_at_ms is None else format_iso(session.closed_at_ms)
    yield "in its line", f"{session.turns}, first {session.live}" if session.live else ""


def _newest_turns(backend: Backend, session: SessionRecord) -> Iterator[RunRecord]:
    page = backend.sessions.turns(session.name, limit=TURNS_SHOWN)
    for run in backend.read([entry.id for entry in page.runs]):
        if isinstance(run, NotFound):
            continue  # it was forgotten meanwhile
        if isinstance(run, AgentqError):
            raise run
        yield run
