"""Plans as the command line takes them: files that are read, and ids that may be cut short."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from agentq.cli.pairs import pairs_of
from agentq.cli.server import Server
from agentq.cli.unknown_names import note_unknown_limits
from agentq.coordinator.errors import Invalid, NotFound

if TYPE_CHECKING:
    from agentq.coordinator.plans import Plan, Plans
    from agentq.planning.compiling import Compiled

Opt = typer.Option
File = Annotated[
    str, typer.Argument(metavar="FILE", help="A plan: YAML, JSON or JSON lines; - for what comes in here.")
]
PlanId = Annotated[str, typer.Argument(metavar="PLAN", help="Its id, or a beginning that only one id has.")]
AnyPlan = Annotated[
    str | None, typer.Argument(metavar="[PLAN]", help="Its id, or a beginning that only one id has; else the newest.")
]
Vars = Annotated[list[str] | None, Opt(metavar="K=V", help="The value of a variable. Repeat for more.")]
Base = Annotated[str | None, Opt(metavar="REF", help="What the work starts from, such as main.")]
Target = Annotated[str | None, Opt(metavar="BRANCH", help="The branch that the work goes to.")]
UpdateCheckout = Annotated[bool, Opt("--update-checkout", help="The checkout may follow, if it is clean and on it.")]
FailFast = Annotated[bool, Opt("--fail-fast", help="The first task that fails stops the plan.")]
KeepGoing = Annotated[bool, Opt("--keep-going", help="What does not need a task that failed goes on.")]


def in_plan(
    plan: Annotated[str | None, Opt(metavar="PLAN", help="Make it a task of this plan, which may have begun.")] = None,
    task: Annotated[str | None, Opt(metavar="ID", help="What it is called in that plan.")] = None,
    needs: Annotated[list[str] | None, Opt(metavar="ID", help="A task of the plan that it needs. Repeat.")] = None,
) -> None:
    """These are options of `agentq submit`, which takes them over by their names."""


@dataclass(frozen=True, slots=True)
class Wanted:
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
class Read:
    """A plan that was read from a file, with the id that it will have."""

    id: str
    compiled: Compiled
    file: str
    folder: str
    shapes: dict[str, str] = field(default_factory=dict)
    """What each task is, as a digest."""
    given: dict[str, str] = field(default_factory=dict)
    """Runs of earlier plans of the file that are not done again, by their tasks."""


def check(file: str, variables: Sequence[str] | None) -> Compiled:
    """Read a plan for its own sake, wherever that is done. Of a repository only that its folder is one is looked at."""
    from agentq.planning.compiling import compile_plan
    from agentq.planning.expanding import expand
    from agentq.planning.faults import Faulty
    from agentq.planning.site import Site, repository_faults, wants_worktrees

    whole = expand(file, pairs_of(variables or (), "--var"))
    said = whole.plan
    somewhere = Site("/somewhere", True, said.base or "HEAD", said.target or f"agentq/{whole.name}")
    faults = repository_faults(said, whole.table, whole.folder)
    try:
        compiled = compile_plan(whole, whole.name, somewhere if wants_worktrees(whole) else None)
    except Faulty as faulty:
        raise Faulty([*faulty.faults, *faults]) from None
    if faults:
        raise Faulty(faults)
    return compiled


def read(file: str, wanted: Wanted) -> Read:
    """Read a plan, and look at the repository that it is for."""
    from agentq.coordinator.plans import new_plan_id
    from agentq.planning.compiling import compile_plan
    from agentq.planning.expanding import expand
    from agentq.planning.site import Wishes, site_of
    from agentq.planning.unchanged import shapes_of

    on_failed = wanted.on_failed
    whole = expand(file, pairs_of(wanted.variables or (), "--var"))
    if on_failed is not None:
        whole = whole._replace(plan=whole.plan.model_copy(update={"on_failed": on_failed}))
    if (wanted.base or wanted.target or wanted.update_checkout) and whole.plan.repository == "none":
        raise Invalid("--base, --target and --update-checkout are for a plan with a repository; this one has none.")
    site = site_of(whole, Wishes(wanted.base, wanted.target, wanted.update_checkout))
    plan = new_plan_id(whole.name)
    compiled = compile_plan(whole, plan, site)
    if not compiled.tasks:
        raise Invalid(f"{file} has no task that is left to do.")
    path = "" if file == "-" else os.path.abspath(file)
    return Read(plan, compiled, path, str(whole.folder), shapes_of(compiled.tasks, plan))


def submit(server: Server, plan: Read, *, crewed: bool = False, durable: bool = False) -> str:
    """Submit a plan that was read; its id."""
    from agentq.cli.asking import check_agents
    from agentq.coordinator.plans import Plans
    from agentq.planning.submitting import PLAN_LIMIT, head_of, submit_plan

    specs = [task.spec for task in plan.compiled.tasks]
    check_agents(server, specs)
    note_unknown_limits(server, specs, but={f"{PLAN_LIMIT}{plan.id}"})
    head = head_of(plan.compiled, file=plan.file, folder=plan.folder, host=socket.gethostname(), crewed=crewed)
    head = head.model_copy(update={"shapes": plan.shapes, "given": plan.given})
    return submit_plan(Plans(server.queue), plan.id, head, plan.compiled.tasks, durable=durable)


def plans_of(server: Server) -> Plans:
    from agentq.coordinator.plans import Plans

    return Plans(server.queue)


def found_or_newest(server: Server, text: str | None) -> Plan:
    """The plan that is meant; the newest if none is named."""
    if text is not None:
        return find(server, text)
    page, _ = plans_of(server).ls(limit=1)
    if not page:
        raise NotFound("There is no plan; `agentq run plan.yaml` begins one.")
    return page[0]


def find(server: Server, text: str) -> Plan:
    """The plan of that id, or the newest of that name, rather one that goes on; or the only one that begins so."""
    return server.references.plan(text)
