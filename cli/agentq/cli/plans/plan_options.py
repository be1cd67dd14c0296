"""Plans as the command line takes them: files that are read, and ids that may be cut short."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from agentq.cli.parse.key_values import parse_key_values
from agentq.coordinator.errors import Invalid, NotFound

if TYPE_CHECKING:
    from agentq.coordinator.plans.verbs import PlanRecord
    from agentq.planning.compiler import CompiledPlan
    from agentq.sdk.backend import Backend
    from agentq.sdk.backend.plans import PlanVerbs

Opt = typer.Option
PlanFile = Annotated[str, typer.Argument(metavar="FILE", help="Plan in YAML, JSON or JSON lines; - for stdin.")]
PlanId = Annotated[str, typer.Argument(metavar="PLAN", help="Its id, or a unique beginning of it.")]
PlanOrNewest = Annotated[
    str | None, typer.Argument(metavar="[PLAN]", help="Its id, or a unique beginning of it; the newest if not given.")
]
Vars = Annotated[list[str] | None, Opt(metavar="K=V", help="Value of a variable. Repeatable.")]
Base = Annotated[str | None, Opt(metavar="REF", help="Commit or branch to start from, such as main.")]
Target = Annotated[str | None, Opt(metavar="BRANCH", help="Branch to merge the work into.")]
UpdateCheckout = Annotated[
    bool, Opt("--update-checkout", help="Update the checkout if it is clean and on that branch.")
]
FailFast = Annotated[bool, Opt("--fail-fast", help="Stop the plan when a task fails.")]
KeepGoing = Annotated[bool, Opt("--keep-going", help="Continue tasks that do not need a failed task.")]


def take_plan_options(
    plan: Annotated[str | None, Opt(metavar="PLAN", help="Add the run to this plan, which may have begun.")] = None,
    task: Annotated[str | None, Opt(metavar="ID", help="Task id in that plan.")] = None,
    needs: Annotated[list[str] | None, Opt(metavar="ID", help="Task of the plan that it needs. Repeatable.")] = None,
) -> None:
    """These are options of `agentq submit`, which takes them over by their names."""


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What was said on the command line of how a plan is to be carried out."""

    variables: Sequence[str] | None = None
    base: str | None = None
    target: str | None = None
    update_checkout: bool = False
    fail_fast: bool = False
    keep_going: bool = False

    @property
    def on_failed(self) -> str | None:
        if self.fail_fast and self.keep_going:
            raise Invalid("--fail-fast and --keep-going contradict each other; give one of them.")
        return "fail-plan" if self.fail_fast else "skip" if self.keep_going else None


@dataclass(frozen=True, slots=True)
class LoadedPlan:
    """A plan that was read from a file, with the id that it will have."""

    id: str
    compiled: CompiledPlan
    file: str
    folder: str
    shapes: dict[str, str] = field(default_factory=dict)
    """What each task is, as a digest."""
    given: dict[str, str] = field(default_factory=dict)
    """Runs of earlier plans of the file that are not done again, by their tasks."""


def check_plan(file: str, variables: Sequence[str] | None) -> CompiledPlan:
    """Read a plan for its own sake, wherever that is done. Of a repository only that its folder is one is looked at."""
    from agentq.planning.compiler import compile_plan
    from agentq.planning.errors import InvalidPlan
    from agentq.planning.expand.expander import read_plan
    from agentq.planning.repository import PlanRepository, find_repository_faults, needs_worktrees

    whole = read_plan(file, parse_key_values(variables or (), "--var"))
    said = whole.plan
    somewhere = PlanRepository("/somewhere", True, said.base or "HEAD", said.target or f"agentq/{whole.name}")
    faults = find_repository_faults(said, whole.table, whole.folder)
    try:
        compiled = compile_plan(whole, whole.name, somewhere if needs_worktrees(whole) else None)
    except InvalidPlan as faulty:
        raise InvalidPlan([*faulty.faults, *faults]) from None
    if faults:
        raise InvalidPlan(faults)
    return compiled


def load_plan(file: str, wanted: PlanOptions) -> LoadedPlan:
    """Read a plan, and look at the repository that it is for."""
    from agentq.coordinator.plans.verbs import make_plan_id
    from agentq.planning.compiler import compile_plan
    from agentq.planning.expand.expander import expand_plan
    from agentq.planning.repository import RepositoryOptions, find_repository
    from agentq.planning.reuse import digest_tasks

    on_failed = wanted.on_failed
    whole = expand_plan(file, parse_key_values(wanted.variables or (), "--var"))
    if on_failed is not None:
        whole = whole._replace(plan=whole.plan.model_copy(update={"on_failed": on_failed}))
    if (wanted.base or wanted.target or wanted.update_checkout) and whole.plan.repository == "none":
        raise Invalid("--base, --target and --update-checkout are for a plan with a repository; this one has none.")
    site = find_repository(whole, RepositoryOptions(wanted.base, wanted.target, wanted.update_checkout))
    plan = make_plan_id(whole.name)
    compiled = compile_plan(whole, plan, site)
    if not compiled.tasks:
        raise Invalid(f"{file} has no task that is left to do.")
    path = "" if file == "-" else os.path.abspath(file)
    return LoadedPlan(plan, compiled, path, str(whole.folder), digest_tasks(compiled.tasks, plan))


def submit_loaded_plan(backend: Backend, plan: LoadedPlan, *, crewed: bool = False, durable: bool = False) -> str:
    """Submit a plan that was read; its id."""
    from agentq.cli.submission_check import check_specs, note_unset_limits
    from agentq.coordinator.plans.verbs import PLAN_LIMIT
    from agentq.planning.submit import build_header, submit_plan

    specs = [task.spec for task in plan.compiled.tasks]
    note_unset_limits(check_specs(backend, specs), but={f"{PLAN_LIMIT}{plan.id}"})
    head = build_header(plan.compiled, file=plan.file, folder=plan.folder, host=socket.gethostname(), crewed=crewed)
    head = head.model_copy(update={"shapes": plan.shapes, "given": plan.given})
    return submit_plan(backend.plans, plan.id, head, plan.compiled.tasks, durable=durable)


def find_plan_or_newest(plans: PlanVerbs, text: str | None) -> PlanRecord:
    """The plan that is meant; the newest if none is named."""
    if text is not None:
        from agentq.coordinator.id_lookup import find_plan

        return find_plan(plans, text)
    page, _ = plans.ls(limit=1)
    if not page:
        raise NotFound("There is no plan; `agentq run plan.yaml` begins one.")
    return page[0]
