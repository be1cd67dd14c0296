"""`agentq session`: conversations with agents, turn by turn."""

from __future__ import annotations

from typing import Annotated

import typer

from agentq.cli.conversation import print_conversation
from agentq.cli.faults import of_options
from agentq.cli.options import STYLE, Json
from agentq.cli.prompts import prompt_of
from agentq.cli.record import run_record
from agentq.cli.render import on_terminal, print_json, print_table
from agentq.cli.server import Server, note, reach
from agentq.cli.specs import folder_of
from agentq.cli.submit import check_folder, stay
from agentq.cli.talks import print_session, session_record, session_row
from agentq.coordinator.errors import Invalid, WrongState
from agentq.coordinator.life import Run
from agentq.coordinator.lifecycle import State
from agentq.coordinator.limits import LIST_A_CALL
from agentq.coordinator.run import RunSpec
from agentq.coordinator.sessions import Session, Sessions
from agentq.coordinator.turn import Budgets, Turn

Opt = typer.Option
Name = Annotated[str, typer.Argument(metavar="NAME", help="What the session is called.")]
Names = Annotated[list[str], typer.Argument(metavar="NAME", help="What the sessions are called.")]
Called = Annotated[str | None, typer.Argument(metavar="[NAME]", help="What to call it; it gets a name if none.")]
Words = Annotated[list[str] | None, typer.Argument(metavar="PROMPT", help="What to say; - for what comes in here.")]
Model = Annotated[str | None, Opt(metavar="NAME", help="The model; as the agent has it if not given.")]
Folder = Annotated[str | None, Opt(metavar="FOLDER", help="Where it works; this folder if not given.")]
MaxCost = Annotated[float | None, Opt(metavar="DOLLARS", help="What it may cost, in all.")]
MaxTokens = Annotated[int | None, Opt(metavar="N", help="How many tokens it may use, in all.")]
MaxTurns = Annotated[int | None, Opt(metavar="N", help="How often the model may be asked, in all.")]
May = Annotated[str | None, Opt(metavar="read|edit|full", help="What it may do without asking; edit.")]

BUDGETS = {"cost_usd": "--max-cost", "tokens": "--max-tokens", "turns": "--max-turns"}

session = typer.Typer(**STYLE, no_args_is_help=True, help="Talk with agents, turn by turn.")


@session.callback(epilog='Example: agentq session send SESSION "Now mend it."')
def _session() -> None:
    """Talk with agents, turn by turn."""


@session.command("new")
def new(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="What to call it; it gets a name if none.")
    ] = None,
    agent: Annotated[str | None, Opt(metavar="NAME", help="The agent, such as claude; see `agentq agents`.")] = None,
    cwd: Folder = None,
    model: Model = None,
    max_cost: MaxCost = None,
    max_tokens: MaxTokens = None,
    max_turns: MaxTurns = None,
    fork: Annotated[str | None, Opt(metavar="SESSION", help="Go on from where that one is.")] = None,
    json: Json = False,
) -> None:
    """Begin a conversation with an agent. Prints its name; `agentq session send` says something to it.

    \b
    Example: agentq session new parser --agent claude --max-cost 5
    Example: agentq session new other --fork SESSION
    """
    budgets = _budgets(max_cost, max_tokens, max_turns)
    if agent is None and fork is None:
        raise Invalid("Say which agent, as in `agentq session new --agent claude`; `agentq agents` lists them.")
    folder = None if cwd is None and fork is not None else folder_of(cwd)
    check_folder(ctx, folder, asked=cwd is not None)
    sessions = Sessions(reach(ctx, start=True).store)
    if agent is None:
        agent = sessions.get(fork or "").agent
    made = sessions.new(name, agent, cwd=folder, model=model, budgets=budgets, fork=fork)
    _tell(made, json=json)


@session.command("fork")
def fork(
    ctx: typer.Context,
    name: Name,
    new: Annotated[str | None, typer.Argument(metavar="[NEW]", help="What to call the other one.")] = None,
    json: Json = False,
) -> None:
    """Begin a second conversation that goes on from where another one is; both go on by themselves.

    \b
    Example: agentq session fork SESSION second-try
    """
    sessions = Sessions(reach(ctx).store)
    _tell(sessions.new(new, sessions.get(name).agent, fork=name), json=json)


@session.command("send")
def send(
    ctx: typer.Context,
    name: Name,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="PROMPT", help="What to say; - for what comes in.")
    ] = None,
    prompt_file: Annotated[str | None, Opt(metavar="FILE", help="Say what stands in this file.")] = None,
    model: Model = None,
    permissions: May = None,
    max_cost: MaxCost = None,
    max_tokens: MaxTokens = None,
    max_turns: MaxTurns = None,
    wait: Annotated[bool, Opt("--wait", help="Wait for the end; the exit code is 1 if it failed.")] = False,
    follow: Annotated[bool, Opt("--follow", "-f", help="The same, and print what it says and does.")] = False,
    json: Json = False,
) -> None:
    """Say something in a conversation. Prints the id of the turn, which is a run; turns go one after the other.

    \b
    Example: agentq session send SESSION "Why does tests/test_parser.py fail?"
    Example: agentq session send SESSION --wait -- "-v prints nothing. Mend it."
    """
    if follow and json:
        raise Invalid("--follow and --json contradict each other: one prints what it says, one the run's record.")
    prompt = prompt_of(words or [], prompt_file)
    asked = {"model": model, "permissions": permissions, "budgets": _budgets(max_cost, max_tokens, max_turns)}
    with of_options({}):
        turn = Turn(**{field: value for field, value in asked.items() if value is not None})  # type: ignore[arg-type]
    server = reach(ctx)
    into = Sessions(server.store).get(name)
    if into.state == "closed":
        raise WrongState(f"The session {name} is closed; `agentq session fork {name}` goes on from where it is.")
    said = RunSpec.checked(
        kind="agent", agent=into.agent, prompt=prompt, session=name, turn=None if turn == Turn() else turn
    )
    run = server.records.get(server.queue.submit(said).id)
    _say_where(server, into, run)
    if not follow and not (wait and json):
        _tell_turn(run, json=json)
    raise typer.Exit(stay(server, [run.id], follow=follow, json=json) if wait or follow else 0)


@session.command("ls")
def ls(
    ctx: typer.Context,
    limit: Annotated[int, Opt(metavar="N", min=1, max=LIST_A_CALL, help="At most so many.")] = 20,
    cursor: Annotated[str | None, Opt(metavar="PLACE", help="Go on after this one, the last of a page.")] = None,
    json: Json = False,
) -> None:
    """List conversations, the last used first.

    \b
    Example: agentq session ls
    """
    shelf = Sessions(reach(ctx).store).list(limit=limit, cursor=cursor)
    if json:
        for each in shelf.sessions:
            print_json(session_record(each))
        return
    print_table(*session_row(shelf.sessions))
    if on_terminal() and not shelf.sessions:
        note("there are no sessions; `agentq session new --agent claude` begins one.")
    if on_terminal() and shelf.cursor:
        note(f"there may be more: --cursor {shelf.cursor!r}, or a larger --limit.")


@session.command("show")
def show(ctx: typer.Context, names: Names, json: Json = False) -> None:
    """Show all that is known of conversations.

    \b
    Example: agentq session show SESSION
    """
    server = reach(ctx)
    sessions = Sessions(server.store)
    for place, found in enumerate([sessions.get(name) for name in names]):
        if json:
            print_json(session_record(found))
        else:
            if place:
                print()
            print_session(server, found)


@session.command("log")
def log(
    ctx: typer.Context,
    name: Name,
    follow: Annotated[bool, Opt("--follow", "-f", help="Go on until no turn is left in the line.")] = False,
    everything: Annotated[bool, Opt("--all", help="What it did as well, as `agentq logs` shows it.")] = False,
    json: Json = False,
) -> None:
    """Print a conversation: what was asked and what was answered, in order.

    \b
    Example: agentq session log SESSION
    Example: agentq session log SESSION -f --all
    """
    if json and everything:
        raise Invalid("--json tells turns; `agentq logs RUN --json` tells all that was done in one.")
    print_conversation(reach(ctx), name, follow=follow, everything=everything, json=json)


@session.command("close")
def close(
    ctx: typer.Context,
    names: Names,
    cancel: Annotated[bool, Opt("--cancel", help="Cancel what is in its line, instead of letting it go on.")] = False,
    json: Json = False,
) -> None:
    """Let conversations take no more turns. They can be looked up for a week, and gone on from with a fork.

    \b
    Example: agentq session close SESSION
    """
    sessions = Sessions(reach(ctx).store)
    for found in [sessions.get(name) for name in names]:
        closed = sessions.close(found.name, cancel=cancel)
        if json:
            print_json(session_record(closed))
            continue
        left = f"{closed.turns} turn{'' if closed.turns == 1 else 's'}" if closed.turns else ""
        print("  ".join(filter(None, (closed.name, "closed", left and f"{left} {'end' if cancel else 'go on'}"))))


def _budgets(cost: float | None, tokens: int | None, turns: int | None) -> Budgets | None:
    given = {"cost_usd": cost, "tokens": tokens, "turns": turns}
    given = {name: value for name, value in given.items() if value is not None}
    with of_options(BUDGETS):
        return Budgets(**given) if given else None  # type: ignore[arg-type]


def _tell(made: Session, *, json: bool) -> None:
    if json:
        print_json(session_record(made))
    else:
        print(made.name)


def _tell_turn(run: Run, *, json: bool) -> None:
    if json:
        print_json(run_record(run))
    else:
        print(run.id, flush=True)


def _say_where(server: Server, into: Session, run: Run) -> None:
    """What there is to know of a turn that does not begin at once."""
    if run.state is State.BLOCKED:
        line = Sessions(server.store).line(into.name, LIST_A_CALL)
        place = line.index(run.id) if run.id in line else 0
        if place:
            note(f"turn {_count(server, into.name)} of {into.name}, after {line[place - 1]}.")
    elif run.state is State.PENDING:
        from agentq.coordinator.explanation import Explanation
        from agentq.coordinator.fitting import lack_of

        if lack_of(server.records.workers(), run.spec.queue, run.spec.demands, run.spec.lane) is not None:
            _, sentences = Explanation(server.store, server.settings).of(run.id)
            note(" ".join(sentences[:2]))


def _count(server: Server, name: str) -> int:
    """How many turns a session has that are kept."""
    number, cursor = 0, None
    while True:
        page = Sessions(server.store).turns(name, limit=LIST_A_CALL, cursor=cursor)
        number, cursor = number + len(page.runs), page.cursor
        if cursor is None:
            return number
