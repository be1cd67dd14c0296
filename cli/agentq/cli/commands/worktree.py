"""`agentq worktree`: the worktrees of runs on this machine."""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentq.cli.connect import connect_server, home_folder, print_note, read_settings
from agentq.cli.options import TYPER_SETTINGS, Json
from agentq.cli.render import on_terminal, print_json, print_table
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import Invalid, NotFound
from agentq.coordinator.id_lookup import matches_id
from agentq.coordinator.model.durations import format_duration, format_iso, parse_duration_ms

if TYPE_CHECKING:
    from agentq.worker.workspace.worktree.retention import FoundWorktree

Opt = typer.Option
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run: its id, the beginning or end of it, or PLAN/TASK.")
]

worktree = typer.Typer(**TYPER_SETTINGS, no_args_is_help=True, help="Manage the worktrees of runs on this machine.")


@worktree.callback(epilog="Example: agentq worktree ls")
def _worktree(ctx: typer.Context) -> None:
    """Manage the worktrees of runs on this machine."""
    if "AGENTQ_AGENT_SOCKET" in os.environ:
        from agentq.cli.connect import refuse_in_agent_run

        refuse_in_agent_run(ctx)


@worktree.command("ls")
def ls(
    ctx: typer.Context,
    size: Annotated[bool, Opt("--size", help="Show the disk space of each, which takes a while.")] = False,
    json: Json = False,
) -> None:
    """List the worktrees, oldest first, with the reason each is kept.

    \b
    Example: agentq worktree ls
    """
    from agentq.worker.workspace.worktree.retention import find_unrecorded

    found = _list_worktrees(ctx, sizes=size)
    unknown = [str(path) for path in find_unrecorded(home_folder(read_settings(ctx).settings))]
    if json:
        for each in found:
            print_json(_worktree_record(each))
        for path in unknown:
            print_json({"run": None, "is": "unknown", "path": path})
        return
    rows = []
    for each in found:
        row = [each.record.run or "-", each.kind, _format_age(each), each.record.repository or str(each.record.common)]
        rows.append([*row, *([_format_size(each.bytes)] if size else []), str(each.record.path), each.why])
    rows += [["-", "unknown", "", "", *([""] if size else []), path, "not recorded: yours"] for path in unknown]
    heads = ["run", "is", "since", "repository", *(["size"] if size else []), "path", "why"]
    print_table(heads, rows)
    if not rows and on_terminal():
        print_note("there are no worktrees of runs on this machine.")


@worktree.command("open")
def open_(
    ctx: typer.Context,
    run: RunArgument,
    shell: Annotated[bool, Opt("--shell", help="Start your $SHELL in it.")] = False,
    editor: Annotated[bool, Opt("--editor", help="Start your $VISUAL or $EDITOR in it.")] = False,
) -> None:
    """Print the path of a run's worktree, or start a shell or editor there.

    \b
    Example: cd "$(agentq worktree open RUN)"
    Example: agentq worktree open RUN --shell
    """
    if shell and editor:
        raise Invalid("--shell and --editor do not go together.")
    each = _find_worktree(_list_worktrees(ctx), connect_server(ctx).find(run) if "/" in run else run)
    if not shell and not editor:
        print(each.record.path)
        return
    if each.kind == "running":
        print_note("its run works in it at this moment.")
    raise typer.Exit(_start_program(_program_command("editor" if editor else "shell"), each))


@worktree.command("prune")
def prune(
    ctx: typer.Context,
    older: Annotated[
        str | None, Opt(metavar="DURATION", help="Worktrees unused for this long; worktree_keep_ms.")
    ] = None,
    everything: Annotated[bool, Opt("--all", help="All worktrees that no run uses.")] = False,
    yes: Annotated[bool, Opt("--yes", "-y", help="Do it.")] = False,
    json: Json = False,
) -> None:
    """Show which worktrees would be removed and why; with --yes, remove them.

    No work is lost: unmerged work stays in the repository, as refs/agentq/RUN.

    \b
    Example: agentq worktree prune --older 2d
    Example: agentq worktree prune --all --yes
    """
    from agentq.worker.workspace.worktree.retention import RetentionPolicy, remove_found, select_removals

    if everything and older is not None:
        raise Invalid("--all takes away the new ones, too; it does not go with --older.")
    layered = read_settings(ctx)
    keep_ms = -1 if everything else layered.worker.worktree_keep_ms if older is None else parse_duration_ms(older)
    going = list(
        select_removals(_list_worktrees(ctx, sizes=True), RetentionPolicy(keep_ms, layered.worker.worktree_disk))
    )
    home = home_folder(layered.settings)
    for each, why in going:
        why = "no run works in it" if everything else why
        done = remove_found(each, home) if yes else None
        if json:
            print_json({**_worktree_record(each), "because": why, "done": done})
        elif done is not None:
            print(done)
        else:
            print(f"would remove {each.record.path}  {_format_size(each.bytes)}  {each.record.run or 'idle'}: {why}")
    if going and not yes:
        print_note("nothing was changed; --yes removes them. Unmerged work stays as refs/agentq/RUN.")
    elif not going and on_terminal():
        print_note("there is nothing to take away; --all takes away all that no run works in.")


def _list_worktrees(ctx: typer.Context, *, sizes: bool = False) -> list[FoundWorktree]:
    from agentq.worker.workspace.worktree.retention import list_worktrees

    return list_worktrees(home_folder(read_settings(ctx).settings), sizes=sizes)


def _find_worktree(found: list[FoundWorktree], text: str) -> FoundWorktree:
    """The worktree of a run, by its id, or by the beginning or end of it."""
    there = [each for each in found if each.record.run and each.record.run == text]
    there = there or [each for each in found if each.record.run and matches_id(each.record.run, text)]
    if not there:
        raise NotFound(
            f"There is no worktree of {text[:80]!r} on this machine; `agentq worktree ls` shows those that there are. "
            "What it did that is not merged is kept in its repository as refs/agentq/RUN."
        )
    names = {each.record.run for each in there}
    if len(names) > 1:
        raise Invalid(
            f"{text[:80]!r} begins or ends the ids of several runs: {', '.join(sorted(names)[:10])}; write more."
        )
    return there[-1]


def _program_command(what: str) -> list[str]:
    names = ("VISUAL", "EDITOR") if what == "editor" else ("SHELL",)
    said = next((os.environ[name] for name in names if os.environ.get(name)), "" if what == "editor" else "/bin/sh")
    if not said:
        raise Invalid("Neither VISUAL nor EDITOR says which editor to start.")
    return [*shlex.split(said), *(["."] if what == "editor" else [])]


def _start_program(argv: list[str], found: FoundWorktree) -> int:
    try:
        return subprocess.run(argv, cwd=found.record.path).returncode
    except OSError as error:
        raise Invalid(f"{argv[0]} cannot be started: {error.strerror}.") from error


def _format_age(found: FoundWorktree) -> str:
    return f"{format_duration(wall_ms() - found.since_ms)} ago" if on_terminal() else format_iso(found.since_ms)


def _format_size(size: int | None) -> str:
    return "" if size is None else f"{size / 2**20:,.1f} MiB"


def _worktree_record(found: FoundWorktree) -> dict[str, Any]:
    return {
        "run": found.record.run or None,
        "is": found.kind,
        "path": str(found.record.path),
        "repository": found.record.repository or str(found.record.common),
        "branch": found.record.branch,
        "base": found.record.base or None,
        "since": format_iso(found.since_ms),
        "worker": found.record.worker or None,
        "why": found.why or None,
        "bytes": found.bytes,
    }
