"""`agentq run`: executes a plan with workers on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from agentq.cli.connect import home_folder, print_note, read_settings
from agentq.cli.options import Json
from agentq.cli.parse.command_line import is_plan_file, not_a_plan_message
from agentq.cli.plans.plan_host import connect_plan_host
from agentq.cli.plans.plan_options import (
    Base,
    FailFast,
    KeepGoing,
    LoadedPlan,
    PlanFile,
    PlanOptions,
    Target,
    UpdateCheckout,
    Vars,
    load_plan,
    submit_loaded_plan,
)
from agentq.cli.render import print_json, print_row
from agentq.coordinator.errors import Invalid, Refused

if TYPE_CHECKING:
    from agentq.coordinator.config.settings import Settings
    from agentq.coordinator.plans.verbs import PlanRecord
    from agentq.sdk.backend import Backend
    from agentq.sdk.backend.plans import PlanVerbs

Opt = typer.Option
WORKERS_DEFAULT = 4
WORKERS_MAX = 1000
PLANS_SEARCHED = 100
"""Plans, the newest, among which one is looked for that was begun from the same file."""
Workers = Annotated[
    int | None, Opt(metavar="N", min=0, max=WORKERS_MAX, help="Tasks at the same time here; 4 if not given.")
]


def run(
    ctx: typer.Context,
    file: PlanFile,
    workers: Workers = None,
    var: Vars = None,
    base: Base = None,
    target: Target = None,
    update_checkout: UpdateCheckout = False,
    fail_fast: FailFast = False,
    keep_going: KeepGoing = False,
    dry_run: Annotated[bool, Opt("--dry-run", help="Print what would be done, and do nothing.")] = False,
    detach: Annotated[bool, Opt("--detach", help="Continue in the background, and print the plan's id.")] = False,
    anew: Annotated[bool, Opt("--anew", help="Repeat every task, also completed and unchanged ones.")] = False,
    yes: Annotated[bool, Opt("--yes", help="Start even if a plan of this file has not ended.")] = False,
    json: Json = False,
) -> None:
    """Execute a plan with workers of its own; each task starts when the tasks it needs have completed.

    `agentq run -- COMMAND` submits a command instead and follows it, as `agentq submit --follow -- COMMAND` does.

    If no address is set, it also starts a server. Ctrl-C lets running tasks finish and starts no others; a second one
    stops them at once. `agentq resume` continues the plan, also after a crash. With --workers 0, workers that already
    run execute the tasks. The exit code is 0 if every task completed, 1 if not, 130 if it was interrupted.

    After a plan has failed, running its file again, edited or not, repeats only the tasks that did not complete, the
    tasks that changed, and the tasks that need them. A plan that completed runs again in full.

    \b
    Example: agentq run plan.yaml --workers 2
    Example: agentq run plan.yaml --dry-run
    Example: agentq run -- make test
    """
    if not is_plan_file(file):
        raise Invalid(f"{not_a_plan_message([file])}.")
    found = load_plan(file, PlanOptions(var, base, target, update_checkout, fail_fast, keep_going))
    if dry_run:
        _print_dry_run(found, json=json)
        return
    slots = WORKERS_DEFAULT if workers is None else workers
    if detach and not slots:
        raise Invalid("--detach leaves workers in the background; with --workers 0, use `agentq plan submit`.")
    if slots:
        _refuse_missing_agents(found)
    host = connect_plan_host(ctx)
    plans = host.backend.plans
    if not yes and found.file:
        _refuse_second_plan(plans, found)
    found = found if anew or not found.file else _skip_completed(host.backend, found)
    if not found.compiled.tasks:
        print_note("nothing of it is left to do.")
        return
    plan = submit_loaded_plan(host.backend, found, crewed=slots > 0)
    if detach:
        _run_in_background(host.settings, plan, slots)
        print_json({"id": plan}) if json else print(plan)
        return
    from agentq.cli.plans.run_loop import PlanRunner

    carrying = PlanRunner(host, plan, plans.header(plan), read_settings(ctx))
    raise typer.Exit(carrying.carry_out(slots, json=json))


def _skip_completed(backend: Backend, found: LoadedPlan) -> LoadedPlan:
    """The plan without what an earlier run of its file has completed."""
    from agentq.cli.plans.reuse import skip_unchanged_tasks

    return skip_unchanged_tasks(backend, found)


def _refuse_missing_agents(found: LoadedPlan) -> None:
    """The workers are here, and nobody else does its tasks: those of other agents would wait for ever."""
    wanted = {task.spec.agent for task in found.compiled.tasks if task.spec.agent}
    if not wanted:
        return
    from agentq.worker.agents.profiles.installed import InstalledAgents
    from agentq.worker.agents.profiles.registry import ProfileRegistry

    profiles = ProfileRegistry.load()
    missing = sorted(wanted & set(profiles.names()) - InstalledAgents.detect(profiles).programs.keys())
    if missing:
        raise Refused(
            f"The plan is for {' and '.join(missing)}, and there is no such program here; `agentq agents` shows what "
            "is here. With --workers 0, workers elsewhere do it."
        )


def _refuse_second_plan(plans: PlanVerbs, found: LoadedPlan) -> None:
    """Refuse a second plan of a file whose last plan has not ended; usually it should be resumed."""
    other = find_unfinished_plan(plans, found.file)
    if other is not None:
        raise Refused(
            f"The plan {other.id} was made from this file, and has not ended; `agentq resume {other.id}` goes on with "
            "it, --yes begins another beside it."
        )


def find_unfinished_plan(plans: PlanVerbs, file: str) -> PlanRecord | None:
    """The newest plan that has not ended, of a file, if one is named."""
    page, _ = plans.ls(limit=PLANS_SEARCHED)
    live = [plan for plan in page if plan.ended is None]
    return next((plan for plan in live if not file or plans.header(plan.id).file == file), None)


def _run_in_background(settings: Settings, plan: str, workers: int) -> None:
    """Continue in a detached process."""
    folder = home_folder(settings) / "plans" / plan
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    argv = [sys.executable, "-m", "agentq.cli.main", "resume", plan, "--workers", str(workers)]
    with (folder / "run.log").open("ab") as log:
        subprocess.Popen(
            argv,
            env={**os.environ, **_server_variables(settings)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    look = f"`agentq resume {plan} --workers 0` looks on"
    print_note(f"it goes on in the background; {look}, {folder / 'run.log'} has its words.")


def _server_variables(settings: Settings) -> dict[str, str]:
    """How another process gets to the same server; one that we bring is found, and started again, by its folder."""
    said = settings.to_environment()
    if settings.url.startswith("unix:") and "AGENTQ_URL" not in os.environ:
        said.pop("AGENTQ_URL", None)
    return said


def _print_dry_run(found: LoadedPlan, *, json: bool) -> None:
    compiled = found.compiled
    if json:
        tasks = [{"id": task.id, "needs": list(task.needs), "kind": task.spec.kind} for task in compiled.tasks]
        where = (
            {"repository": compiled.repository.repository, "target": compiled.repository.target}
            if compiled.repository
            else {}
        )
        print_json({"name": compiled.name, **where, "tasks": tasks})
        return
    from agentq.cli.show.run_summary import describe_spec

    for task in compiled.tasks:
        needs = f"after {', '.join(task.needs)}" if task.needs else ""
        does = describe_spec(task.spec.model_copy(update={"name": None}))
        print_row(task.id, does, needs)
    if (repository := compiled.repository) is not None:
        print_note(f"the work would go to {repository.target}, from {repository.base}, in {repository.repository}.")
