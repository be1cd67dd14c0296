"""`agentq run`: carry out a plan, from here."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from agentq.cli.command_lines import is_plan_file, not_a_plan
from agentq.cli.options import Json
from agentq.cli.planned import (
    Base,
    FailFast,
    File,
    KeepGoing,
    Read,
    Target,
    UpdateCheckout,
    Vars,
    Wanted,
    plans_of,
    read,
    submit,
)
from agentq.cli.render import print_json, print_row
from agentq.cli.server import Server, home_of, note, reach, settings_of
from agentq.coordinator.errors import Invalid, Refused

if TYPE_CHECKING:
    from agentq.coordinator.plans import Plan

Opt = typer.Option
WORKERS = 4
WORKERS_MOST = 1000
SOUGHT = 100
"""Plans, the newest, among which one is looked for that was begun from the same file."""
Workers = Annotated[
    int | None, Opt(metavar="N", min=0, max=WORKERS_MOST, help="Tasks at the same time here; 4 if not given.")
]


def run(
    ctx: typer.Context,
    file: File,
    workers: Workers = None,
    var: Vars = None,
    base: Base = None,
    target: Target = None,
    update_checkout: UpdateCheckout = False,
    fail_fast: FailFast = False,
    keep_going: KeepGoing = False,
    dry_run: Annotated[bool, Opt("--dry-run", help="Say what would be done, and do nothing.")] = False,
    detach: Annotated[bool, Opt("--detach", help="Leave it to the background, and print its id.")] = False,
    anew: Annotated[bool, Opt("--anew", help="Do everything again, also what completed and did not change.")] = False,
    yes: Annotated[bool, Opt("--yes", help="Begin anew, though a plan of this file has not ended.")] = False,
    json: Json = False,
) -> None:
    """Carry out a plan: its tasks, as soon as what they need has completed, with workers of its own.

    `agentq run -- COMMAND` submits a command instead and follows it, as `agentq submit --follow -- COMMAND` does.

    Without an address set it brings a server, too. Ctrl-C lets what runs finish and begins nothing more; a second one
    does not wait. `agentq resume` goes on, also after a crash of anything. With --workers 0, the workers that serve the
    server do it. The exit code is 0 if every task completed, 1 if not, 130 if it was interrupted.

    After a plan has failed, running its file again, edited or not, does only what did not complete, what changed, and
    what needs either.

    \b
    Example: agentq run plan.yaml --workers 2
    Example: agentq run plan.yaml --dry-run
    Example: agentq run -- make test
    """
    if not is_plan_file(file):
        raise Invalid(f"{not_a_plan([file])}.")
    found = read(file, Wanted(var, base, target, update_checkout, fail_fast, keep_going))
    if dry_run:
        _say_what_would_be_done(found, json=json)
        return
    slots = WORKERS if workers is None else workers
    if detach and not slots:
        raise Invalid("--detach leaves workers in the background; with --workers 0, use `agentq plan submit`.")
    if slots:
        _refuse_what_is_not_here(found)
    server = reach(ctx, start=True)
    if not yes and found.file:
        _refuse_a_second(server, found)
    found = found if anew or not found.file else _left_to_do(server, found)
    if not found.compiled.tasks:
        note("nothing of it is left to do.")
        return
    plan = submit(server, found, crewed=slots > 0)
    if detach:
        _leave(server, plan, slots)
        print_json({"id": plan}) if json else print(plan)
        return
    from agentq.cli.carrying import Carrying
    from agentq.planning.submitting import head_in

    carrying = Carrying(server, plan, head_in(plans_of(server), plan), settings_of(ctx))
    raise typer.Exit(carrying.carry_out(slots, json=json))


def _left_to_do(server: Server, found: Read) -> Read:
    """The plan without what an earlier run of its file has completed."""
    from agentq.cli.plan_again import without_done

    return without_done(server, found)


def _refuse_what_is_not_here(found: Read) -> None:
    """The workers are here, and nobody else does its tasks: those of other agents would wait for ever."""
    wanted = {task.spec.agent for task in found.compiled.tasks if task.spec.agent}
    if not wanted:
        return
    from agentq.worker.agents.installed import Installed
    from agentq.worker.agents.profiles import Profiles

    profiles = Profiles.found()
    missing = sorted(wanted & set(profiles.names()) - Installed.found(profiles).programs.keys())
    if missing:
        raise Refused(
            f"The plan is for {' and '.join(missing)}, and there is no such program here; `agentq agents` shows what "
            "is here. With --workers 0, workers elsewhere do it."
        )


def _refuse_a_second(server: Server, found: Read) -> None:
    """Whoever has been interrupted wants to go on, most of the time, and not to do everything twice."""
    other = unfinished(server, found.file)
    if other is not None:
        raise Refused(
            f"The plan {other.id} was made from this file, and has not ended; `agentq resume {other.id}` goes on with "
            "it, --yes begins another beside it."
        )


def unfinished(server: Server, file: str) -> Plan | None:
    """The newest plan that has not ended, of a file, if one is named."""
    from agentq.planning.submitting import head_in

    plans = plans_of(server)
    page, _ = plans.ls(limit=SOUGHT)
    live = [plan for plan in page if plan.ended is None]
    return next((plan for plan in live if not file or head_in(plans, plan.id).file == file), None)


def _leave(server: Server, plan: str, workers: int) -> None:
    """Go on with it in a process of its own, which nobody waits for."""
    folder = home_of(server.settings) / "plans" / plan
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    argv = [sys.executable, "-m", "agentq.cli.main", "resume", plan, "--workers", str(workers)]
    with (folder / "run.log").open("ab") as log:
        subprocess.Popen(
            argv,
            env={**os.environ, **_address(server)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    look = f"`agentq resume {plan} --workers 0` looks on"
    note(f"it goes on in the background; {look}, {folder / 'run.log'} has its words.")


def _address(server: Server) -> dict[str, str]:
    """How another process gets to the same server; one that we bring is found, and started again, by its folder."""
    said = server.settings.to_environment()
    if server.settings.url.startswith("unix:") and "AGENTQ_URL" not in os.environ:
        said.pop("AGENTQ_URL", None)
    return said


def _say_what_would_be_done(found: Read, *, json: bool) -> None:
    compiled = found.compiled
    if json:
        tasks = [{"id": task.id, "needs": list(task.needs), "kind": task.spec.kind} for task in compiled.tasks]
        where = {"repository": compiled.site.repository, "target": compiled.site.target} if compiled.site else {}
        print_json({"name": compiled.name, **where, "tasks": tasks})
        return
    from agentq.cli.record import what

    for task in compiled.tasks:
        needs = f"after {', '.join(task.needs)}" if task.needs else ""
        does = what(task.spec.model_copy(update={"name": None}))
        print_row(task.id, does, needs)
    if compiled.site:
        note(f"the work would go to {compiled.site.target}, from {compiled.site.base}, in {compiled.site.repository}.")
