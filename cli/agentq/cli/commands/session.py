"""`agentq session`: holds conversations with agents, turn by turn."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentq.cli.commands.submit import check_folder, submit
from agentq.cli.connect import connect_backend, print_note
from agentq.cli.options import TYPER_SETTINGS, Json, with_options_of
from agentq.cli.parse.agent_options import FLAGS_BY_FIELD, parse_budgets
from agentq.cli.parse.option_errors import translate_errors
from agentq.cli.parse.option_groups import GroupedCommand
from agentq.cli.parse.prompt import read_prompt
from agentq.cli.parse.run_spec import absolute_folder, build_spec, parse_spec_fields
from agentq.cli.render import on_terminal, print_json, print_row, print_table
from agentq.cli.show.conversation import print_conversation
from agentq.cli.show.session import print_session, session_table
from agentq.cli.submission_check import check_agent_name, check_specs
from agentq.coordinator.bounds import LIST_PER_CALL
from agentq.coordinator.errors import Invalid, WrongState
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.public_json.runs import run_json
from agentq.coordinator.public_json.sessions import session_json
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.sessions.verbs import SessionRecord
from agentq.sdk.backend import Backend

Opt = typer.Option
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the session.")]
Names = Annotated[list[str], typer.Argument(metavar="NAME", help="Names of the sessions.")]
NewName = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Name of the session; generated if not given.")]
PromptWords = Annotated[list[str] | None, typer.Argument(metavar="PROMPT", help="The message; - reads it from stdin.")]
ModelOption = Annotated[str | None, Opt(metavar="NAME", help="The model; the agent's default if not given.")]
FolderOption = Annotated[str | None, Opt(metavar="FOLDER", help="Working directory; this one if not given.")]

EXCLUDED_OPTIONS = {
    *("command", "agent", "session", "function", "from_jsonl", "stdin", "cwd"),
    *("plan", "task", "needs", "after", "on_failed", "parent", "child", "children", "wait", "follow", "json"),
}
"""Options of a submit that a session answers, or that are not of a conversation."""

session = typer.Typer(**TYPER_SETTINGS, no_args_is_help=True, help="Hold conversations with agents, turn by turn.")


@session.callback(epilog='Example: agentq session send SESSION "Now fix it."')
def _session() -> None:
    """Hold conversations with agents, turn by turn."""


@session.command("new")
def new(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Name of the session; generated if not given.")
    ] = None,
    agent: Annotated[str | None, Opt(metavar="NAME", help="The agent, such as claude; see `agentq agents`.")] = None,
    cwd: FolderOption = None,
    model: ModelOption = None,
    max_cost: Annotated[str | None, Opt(metavar="USD", help="Cost limit of all turns together, in US dollars.")] = None,
    max_tokens: Annotated[str | None, Opt(metavar="N", help="Token limit of all turns together, such as 500k.")] = None,
    max_turns: Annotated[int | None, Opt(metavar="N", help="Limit of model requests of all turns together.")] = None,
    fork: Annotated[str | None, Opt(metavar="SESSION", help="Continue from the current point of that session.")] = None,
    json: Json = False,
) -> None:
    """Start a conversation with an agent. Prints its name; `agentq session send` sends it a message.

    \b
    Example: agentq session new parser --agent claude --max-cost 5
    Example: agentq session new other --fork SESSION
    """
    asked = {"max_cost": max_cost, "max_tokens": max_tokens, "max_turns": max_turns}
    with translate_errors(FLAGS_BY_FIELD):
        budgets = parse_budgets({option: value for option, value in asked.items() if value is not None})
    if agent is None and fork is None:
        raise Invalid("Say which agent, as in `agentq session new --agent claude`; `agentq agents` lists them.")
    folder = None if cwd is None and fork is not None else absolute_folder(cwd)
    check_folder(ctx, folder, asked=cwd is not None)
    backend = connect_backend(ctx, start=True)
    sessions = backend.sessions
    if agent is None:
        agent = sessions.get(fork or "").agent
    check_agent_name(backend, agent)
    made = sessions.new(name, agent, cwd=folder, model=model, budgets=budgets, fork=fork)
    _print_session(made, json=json)


@session.command("fork")
def fork(
    ctx: typer.Context,
    name: Name,
    new: Annotated[str | None, typer.Argument(metavar="[NEW]", help="Name of the new session.")] = None,
    json: Json = False,
) -> None:
    """Fork a conversation: the new one continues from the current point, independent of the first.

    \b
    Example: agentq session fork SESSION second-try
    """
    sessions = connect_backend(ctx).sessions
    _print_session(sessions.new(new, sessions.get(name).agent, fork=name), json=json)


@session.command("send", cls=GroupedCommand)
@with_options_of(submit, without=EXCLUDED_OPTIONS)
def send(
    ctx: typer.Context,
    name: Name,
    words: PromptWords = None,
    wait: Annotated[bool, Opt("--wait", help="Wait for the end; the exit code is 1 if it failed.")] = False,
    follow: Annotated[bool, Opt("--follow", "-f", help="Wait, and print its messages and actions.")] = False,
    json: Json = False,
    **run: Any,
) -> None:
    """Send a message to a conversation. Prints the id of the turn, which is a run; turns run one at a time.

    \b
    Example: agentq session send SESSION "Why does tests/test_parser.py fail?"
    Example: agentq session send SESSION --wait -- "-v prints nothing. Fix it."
    """
    if follow and json:
        raise Invalid("--follow and --json contradict each other: one prints what it says, one the run's record.")
    given = {option: value for option, value in run.items() if value is not None and value is not False}
    durable = given.pop("durable", False)
    prompt = read_prompt(words or [], given.pop("prompt_file", None))
    backend = connect_backend(ctx)
    into = backend.sessions.get(name)
    if into.state == "closed":
        raise WrongState(f"The session {name} is closed; `agentq session fork {name}` goes on from where it is.")
    turn = build_spec(parse_spec_fields({**given, "command": [prompt], "agent": into.agent, "session": name}))
    receipt = backend.submit(turn, durable=durable)
    told = backend.get(receipt.id)
    if receipt.created:
        _note_queue_position(backend, into, told)
    else:
        print_note(f"{receipt.id} has this dedupe key; nothing new was submitted.")
    if not follow and not (wait and json):
        _print_turn(told, json=json)
    if not (wait or follow):
        raise typer.Exit
    from agentq.cli.follow import follow_runs

    raise typer.Exit(follow_runs(backend, [told.id], follow=follow, json=json))


@session.command("ls")
def ls(
    ctx: typer.Context,
    limit: Annotated[int, Opt(metavar="N", min=1, max=LIST_PER_CALL, help="The most entries.")] = 20,
    cursor: Annotated[str | None, Opt(metavar="PLACE", help="Continue after this one, the last of a page.")] = None,
    json: Json = False,
) -> None:
    """List conversations, the last used first.

    \b
    Example: agentq session ls
    """
    page = connect_backend(ctx).sessions.list(limit=limit, cursor=cursor)
    if json:
        for each in page.sessions:
            print_json(session_json(each))
        return
    print_table(*session_table(page.sessions))
    if on_terminal() and not page.sessions:
        print_note("there are no sessions; `agentq session new --agent claude` begins one.")
    if on_terminal() and page.cursor:
        print_note(f"there may be more: --cursor {page.cursor!r}, or a larger --limit.")


@session.command("show")
def show(ctx: typer.Context, names: Names, json: Json = False) -> None:
    """Show conversations in full.

    \b
    Example: agentq session show SESSION
    """
    backend = connect_backend(ctx)
    for place, found in enumerate([backend.sessions.get(name) for name in names]):
        if json:
            print_json(session_json(found))
        else:
            if place:
                print()
            print_session(backend, found)


@session.command("log")
def log(
    ctx: typer.Context,
    name: Name,
    follow: Annotated[bool, Opt("--follow", "-f", help="Continue until no turn is queued.")] = False,
    everything: Annotated[bool, Opt("--all", help="Actions as well, as `agentq logs` shows them.")] = False,
    json: Json = False,
) -> None:
    """Print a conversation: prompts and answers, in order.

    \b
    Example: agentq session log SESSION
    Example: agentq session log SESSION -f --all
    """
    if json and everything:
        raise Invalid("--json tells turns; `agentq logs RUN --json` tells all that was done in one.")
    print_conversation(connect_backend(ctx), name, follow=follow, everything=everything, json=json)


@session.command("close")
def close(
    ctx: typer.Context,
    names: Names,
    cancel: Annotated[bool, Opt("--cancel", help="Cancel its queued turns instead of executing them.")] = False,
    json: Json = False,
) -> None:
    """Close conversations to new turns. For a week they can still be read and forked.

    \b
    Example: agentq session close SESSION
    """
    sessions = connect_backend(ctx).sessions
    for found in [sessions.get(name) for name in names]:
        closed = sessions.close(found.name, cancel=cancel)
        if json:
            print_json(session_json(closed))
            continue
        print_row(closed.name, "closed", _describe_queued_turns(closed.turns, cancel=cancel))


def _describe_queued_turns(turns: int, *, cancel: bool) -> str:
    """What becomes of the turns in the line of a session that was closed."""
    one = turns == 1
    does = ("is being stopped" if one else "are being stopped") if cancel else ("goes on" if one else "go on")
    return f"{turns} turn{'' if one else 's'} {does}" if turns else ""


def _print_session(made: SessionRecord, *, json: bool) -> None:
    if json:
        print_json(session_json(made))
    else:
        print(made.name)


def _print_turn(run: RunRecord, *, json: bool) -> None:
    if json:
        print_json(run_json(run))
    else:
        print(run.id, flush=True)


def _note_queue_position(backend: Backend, into: SessionRecord, run: RunRecord) -> None:
    """What there is to know of a turn that does not begin at once."""
    if run.state is State.BLOCKED:
        line = backend.sessions.line(into.name, LIST_PER_CALL)
        place = line.index(run.id) if run.id in line else 0
        if place:
            print_note(f"turn {_count_turns(backend, into.name)} of {into.name}, after {line[place - 1]}.")
    elif run.state is State.PENDING:
        found = check_specs(backend, [run.spec])
        if found is not None and found.unmet:
            print_note(" ".join(backend.explain(run.id).because[:2]))


def _count_turns(backend: Backend, name: str) -> int:
    """How many turns a session has that are kept."""
    number, cursor = 0, None
    while True:
        page = backend.sessions.turns(name, limit=LIST_PER_CALL, cursor=cursor)
        number, cursor = number + len(page.runs), page.cursor
        if cursor is None:
            return number
