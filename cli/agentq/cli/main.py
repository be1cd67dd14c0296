"""The command `agentq`: finds the command that was asked for, runs it, and turns what goes wrong into a sentence.

1. A command lives in the file of its name, which is imported when it is called or its own help is asked for. The list
   of commands stands here, so that `agentq --help` imports nothing else.
2. An error is one sentence on stderr and an exit code; wrong input never prints a traceback.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from agentq.cli.options import TYPER_SETTINGS
from agentq.cli.parse.command_line import COMMAND_CLASSES, UsageError, is_command_line, prepare_command, set_config_file
from agentq.coordinator.errors import AgentqError, Unreachable
from agentq.coordinator.security.environment_memory import hide_environment

PARSER_MESSAGES = {
    "Input should be a valid integer.*": "it should be a whole number",
    "Input should be a valid number.*": "it should be a number",
    "Input should": "it should",
}
"""What the parser says of a value, and what we say."""
INTERRUPTED = 130
PIPE_CLOSED = 141

COMMANDS = {
    "Runs": {
        "submit": "Submit a run: a command with all that follows, a function, or a prompt for an agent.",
        "ls": "List runs, newest first.",
        "show": "Show runs in full.",
        "logs": "Print the output of a run.",
        "why": "Explain why a run is in its state.",
        "wait": "Wait until runs have ended.",
        "signal": "Send a signal to a run. A run that waits for it continues.",
        "approve": "Approve the requests of runs.",
        "deny": "Deny the requests of runs.",
        "park": "Within a run: park it, to wait without a slot.",
        "declare": "Within an agent's run: declare that no change is needed, and why.",
        "cancel": "Cancel runs.",
        "retry": "Requeue ended runs with fresh retry budgets.",
        "dead": "List, show, retry and purge runs that failed for good.",
        "events": "Print events in order.",
    },
    "Agents": {
        "agents": "List and check the coding agents on this machine.",
        "session": "Hold conversations with agents, turn by turn.",
    },
    "Plans": {
        "run": "Execute a plan with workers of its own; each task starts when the tasks it needs have completed.",
        "resume": "Continue a plan that was interrupted by Ctrl-C or a crash.",
        "plan": "Validate, submit, show and manage plans.",
        "hint": "Pass a hint to the next attempt of an agent's run.",
    },
    "Schedules": {
        "schedule": "Run commands and agents on a schedule.",
    },
    "Work": {
        "up": "Run a worker here, with the embedded server.",
        "down": "Stop the embedded server.",
        "worker": "Run a worker here, or, with a command, manage running workers.",
        "worktree": "Manage the worktrees of runs on this machine.",
        "queue": "List, pause, drain, purge and move queues.",
        "limit": "Limit concurrency or rate under a key.",
        "rq": "Manage queues adopted from RQ.",
        "serve": "Serve the HTTP API, until Ctrl-C.",
        "token": "Manage access tokens of the HTTP server.",
        "webhook": "Send events to webhook addresses.",
        "reap": "Requeue the runs of lost workers and start due runs, for cron.",
    },
    "Help": {
        "demo": "Run a small graph, kill a worker in the middle, and lose nothing.",
        "doctor": "Check the server and the workers.",
        "bench": "Measure the overhead of agentq on this machine, against the same work done without it.",
        "help": "Show the help of a command.",
        "config": "Show every setting, its value and where it comes from.",
        "completion": "Print the shell code that completes commands and options.",
        "debug": "Print internals of agentq: its Lua scripts.",
        "version": "Show the version of agentq.",
    },
}


def load_command(name: str) -> Any:
    """A command, imported now: the function that its file is named by, or the commands below it."""
    command = getattr(import_module(f"agentq.cli.commands.{name}"), name)
    if isinstance(command, typer.Typer):
        return prepare_command(typer.main.get_command(command))
    app = typer.Typer(**TYPER_SETTINGS)
    # What follows a command to be run is the command's, not ours.
    settings = {**TYPER_SETTINGS["context_settings"], "allow_interspersed_args": name != "submit"}
    app.command(name, cls=COMMAND_CLASSES.get(name, TyperCommand), context_settings=settings)(command)
    return prepare_command(typer.main.get_command(app))


class CommandGroup(TyperGroup):
    """All commands, of which only the one that is called gets imported."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for section in COMMANDS.values():
            for name, line in section.items():
                self.add_command(TyperCommand(name, help=line, rich_markup_mode=None))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args[0] == "run" and is_command_line(args[1:]):
            args = ["submit", "--follow", *args[1:]]
        name, known, rest = super().resolve_command(ctx, args)
        loaded = known and load_command(name or "")
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # see `entry`: from here on a command tidies up
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        return name, loaded, rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - as it is called
        for title, section in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:10}", line) for name, line in section.items()])


commands = typer.Typer(cls=CommandGroup, invoke_without_command=True, **TYPER_SETTINGS)


@commands.callback(epilog="`agentq COMMAND --help` shows the details. Start with `agentq demo`.")
def agentq(
    ctx: typer.Context,
    url: Annotated[str | None, typer.Option(metavar="URL", help="Server address; or set AGENTQ_URL.")] = None,
    namespace: Annotated[
        str | None, typer.Option(metavar="NAME", help="Namespace on the server, isolated from others.")
    ] = None,
    config: Annotated[str | None, typer.Option(metavar="FILE", help="Settings file; or set AGENTQ_CONFIG.")] = None,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Run commands, functions and agents on any number of machines, and lose none of them."""
    ctx.obj = {"url": url, "namespace": namespace}
    set_config_file(ctx, config)
    if version:
        typer.echo(f"agentq {import_module('agentq.coordinator.package_version').installed_version()}")
    elif ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; what goes wrong is one sentence and an exit code."""
    try:
        if "_AGENTQ_COMPLETE" in os.environ:
            typer.main.get_install_completion_arguments()  # which registers the shells
        code = _run_command(typer.main.get_command(commands), sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except AgentqError as error:
        why = _describe_server_death() if isinstance(error, Unreachable) else ""
        return _print_error(f"{error}{why}", error.exit_code, "" if error.by_place else "agentq: ")
    except UsageError as error:
        return _print_error(_usage_message(error), 2)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader, such as `head`, closed the pipe; Python must not try to flush to it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Exception as error:
        if not _is_interrupt(error):
            raise
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _run_command(root: Any, argv: Sequence[str]) -> Any:
    """Parse and call. The parser's own `main` would make exit code 1 of a closed pipe, so it only completes words."""
    if "_AGENTQ_COMPLETE" in os.environ:
        return root.main(argv, prog_name="agentq", standalone_mode=False)
    try:
        with root.make_context("agentq", list(argv)) as ctx:
            return root.invoke(ctx)
    except typer.Exit as exited:
        return exited.exit_code


def _is_interrupt(error: Exception) -> bool:
    """Whether it is what pydantic makes of a Ctrl-C that comes while it builds a model."""
    return type(error).__name__ == "SchemaError" and "KeyboardInterrupt" in str(error)


def _describe_server_death() -> str:
    """Only a command that has looked for a server can have met it."""
    server = sys.modules.get("agentq.cli.connect")
    return server.describe_server_death() if server is not None else ""


def _print_error(sentence: str, code: int, who: str = "agentq: ") -> int:
    """Some of it may be a coordinator's words, which the terminal must not obey."""
    render = import_module("agentq.cli.render")
    print(f"{who}{(render.clean if who else render.clean_lines)(sentence)}", file=sys.stderr)
    return code


def _usage_message(error: Any) -> str:
    """The fault of the command line, and the help to read."""
    text = " ".join(error.format_message().split()).rstrip(".")
    for pattern, words in PARSER_MESSAGES.items():
        text = re.sub(pattern, words, text)
    path = error.ctx.command_path if error.ctx is not None else "agentq"
    below = getattr(error.ctx and error.ctx.command, "commands", {})
    if below and text.startswith("Usage:"):
        return f"`{path}` needs a command after it: {', '.join(below)}. See `{path} --help`."
    return f"{text}{'' if text.endswith('?') else '.'} See `{path} --help`."


def app() -> None:
    """The entry point. Until the command is loaded, there is no garbage, and the collector would look at it all."""
    hide_environment()
    gc.disable()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    code = main()
    gc.freeze()  # nor at the end, where it would take 20 ms to look at the modules again
    sys.exit(code)


if __name__ == "__main__":
    app()
