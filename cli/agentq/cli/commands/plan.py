"""`agentq plan`: validates, submits, shows and manages plans."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentq.cli.connect import connect_backend, print_note
from agentq.cli.options import TYPER_SETTINGS, Json
from agentq.cli.parse.command_line import is_plan_file
from agentq.cli.plans.plan_options import (
    Base,
    FailFast,
    KeepGoing,
    PlanFile,
    PlanId,
    PlanOptions,
    PlanOrNewest,
    Target,
    UpdateCheckout,
    Vars,
    check_plan,
    find_plan_or_newest,
    load_plan,
)
from agentq.cli.plans.plan_options import submit_loaded_plan as submit_read
from agentq.cli.render import on_terminal, print_json, print_row, print_table
from agentq.coordinator.errors import Invalid
from agentq.coordinator.id_lookup import find_plan

Opt = typer.Option

plan = typer.Typer(**TYPER_SETTINGS, no_args_is_help=True, help="Validate, submit, show and manage plans.")


@plan.callback(epilog="Example: agentq plan validate plan.yaml")
def _plan() -> None:
    """Validate, submit, show and manage plans. `agentq run` executes a plan here."""


@plan.command("validate")
def validate(file: PlanFile, var: Vars = None, json: Json = False) -> None:
    """Validate a plan file and print the position of each fault; the exit code is 2 if there is a fault.

    Checks the file, and that its `repository` exists; `agentq run --dry-run` also checks the branches of the
    repository.

    \b
    Example: agentq plan validate plan.yaml
    """
    from agentq.planning.errors import InvalidPlan

    try:
        compiled = check_plan(file, var)
    except InvalidPlan as faulty:
        if not json:
            raise
        for fault in faulty.faults:
            print_json(fault.to_json())
        raise typer.Exit(2) from None
    if json:
        print_json({"name": compiled.name, "tasks": len(compiled.tasks), "valid": True})
        return
    print(f"{compiled.name} is fine: {_format_count(len(compiled.tasks), 'task')}.")


@plan.command("schema")
def schema() -> None:
    """Print the JSON schema of plan files, with which editors complete and document keys.

    \b
    Example: agentq plan schema
    """
    from json import dumps

    from agentq.planning.schema import plan_schema

    print(dumps(plan_schema(), indent=2, ensure_ascii=False))


@plan.command("import")
def import_plan(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Markdown, beads or other JSON lines; - for stdin.")],
    from_: Annotated[
        str | None, Opt("--from", metavar="markdown|jsonl", help="Format, if the file's name does not tell it.")
    ] = None,
    agent: Annotated[str | None, Opt(metavar="NAME", help="The agent for the tasks.")] = None,
    name: Annotated[str | None, Opt(metavar="NAME", help="Name of the plan.")] = None,
    format_: Annotated[
        str, Opt("--format", metavar="yaml|json|jsonl", help="Output format; yaml if not given.")
    ] = "yaml",
) -> None:
    """Write a plan from a list of tasks: Markdown, the issues of beads, or other JSON lines.

    \b
    Example: agentq plan import TASKS.md --agent claude
    """
    from agentq.cli.plans.import_export import import_tasks
    from agentq.planning.convert.plan_text import format_plan

    print(format_plan(import_tasks(file, from_, agent=agent, name=name), _check_format(format_)), end="")


@plan.command("submit")
def submit(
    ctx: typer.Context,
    file: PlanFile,
    var: Vars = None,
    base: Base = None,
    target: Target = None,
    update_checkout: UpdateCheckout = False,
    fail_fast: FailFast = False,
    keep_going: KeepGoing = False,
    durable: Annotated[bool, Opt("--durable", help="Return only when the plan is on the server's disk.")] = False,
    json: Json = False,
) -> None:
    """Submit a plan to the running workers. Prints its id.

    \b
    Example: agentq plan submit plan.yaml
    """
    found = load_plan(file, PlanOptions(var, base, target, update_checkout, fail_fast, keep_going))
    backend = connect_backend(ctx, start=True)
    made = submit_read(backend, found, durable=durable)
    if json:
        print_json({"id": made, "tasks": len(found.compiled.tasks)})
    else:
        print(made)
    specs = [task.spec for task in found.compiled.tasks]
    if {spec.queue for spec in specs} == set(backend.check(specs).unserved_queues):
        print_note(f"no worker serves it yet; `agentq resume {made}` works on it here.")


@plan.command("ls")
def ls(
    ctx: typer.Context,
    limit: Annotated[int, Opt(metavar="N", min=1, max=1000, help="The most entries.")] = 20,
    cursor: Annotated[str | None, Opt(metavar="PLACE", help="Continue after the last page.")] = None,
    json: Json = False,
) -> None:
    """List plans, newest first.

    \b
    Example: agentq plan ls
    """
    from agentq.cli.plans.view import plan_row
    from agentq.coordinator.public_json.plans import plan_json

    found, more = connect_backend(ctx).plans.ls(limit=limit, cursor=cursor)
    if json:
        for each in found:
            print_json(plan_json(each))
        return
    print_table(["plan", "state", "done", "made", "tasks"], [plan_row(each) for each in found])
    if on_terminal() and not found:
        print_note("there are no plans; `agentq run plan.yaml` begins one.")
    if on_terminal() and more:
        print_note(f"there may be more: --cursor {more!r}, or a larger --limit.")


@plan.command("show")
def show(ctx: typer.Context, plan: PlanOrNewest = None, json: Json = False) -> None:
    """Show a plan in full, the newest if none is named: its progress, each task and its target branch.

    \b
    Example: agentq plan show PLAN
    """
    from agentq.cli.plans.summary import incomplete_reason, incomplete_task_lines
    from agentq.cli.plans.view import print_plan
    from agentq.cli.plans.work_warnings import WorkWarnings
    from agentq.coordinator.public_json.plans import plan_json, task_json

    backend = connect_backend(ctx)
    plans = backend.plans
    found = find_plan_or_newest(plans, plan)
    head = plans.header(found.id)
    by_run = {task.run: task for task in plans.all_tasks(found.id)}
    if json:
        tasks = [{**task_json(task), "because": incomplete_reason(backend, by_run, task)} for task in by_run.values()]
        said = head.model_dump(mode="json", include={"file", "repository", "base", "target", "budget_usd"})
        print_json({**plan_json(found), **said, "tasks": tasks})
        return
    print_plan(found, head, list(by_run.values()))
    told = [*incomplete_task_lines(backend, by_run), *WorkWarnings().lines(backend, by_run)]
    if told:
        print("", *told, sep="\n")


@plan.command("graph")
def graph(
    ctx: typer.Context,
    plan: Annotated[
        str | None,
        typer.Argument(metavar="[PLAN|FILE]", help="A submitted plan or a plan file; the newest plan if not given."),
    ] = None,
    format_: Annotated[
        str, Opt("--format", metavar="text|dot|mermaid|json", help="Output format; text if not given.")
    ] = "text",
    var: Vars = None,
) -> None:
    """Draw the tasks of a plan as a graph, with the state of each.

    \b
    Example: agentq plan graph plan.yaml --format mermaid
    Example: agentq plan graph PLAN
    """
    from agentq.cli.plans.graph import FORMATS, GraphNode, draw_graph

    if format_ not in FORMATS:
        raise Invalid(f"--format takes {', '.join(FORMATS)}, not {format_[:40]!r}.")
    if plan is not None and is_plan_file(plan):
        compiled = check_plan(plan, var)
        agents = {task.id: task.spec.agent or "" for task in compiled.tasks}
        nodes = [GraphNode(task, "", tuple(of), agents[task]) for task, of in compiled.graph.needs.items()]
    else:
        from agentq.cli.plans.import_export import list_exported_tasks

        backend = connect_backend(ctx)
        nodes = [
            GraphNode(each.id, each.state, tuple(each.needs), each.spec.agent or "")
            for each in list_exported_tasks(backend, find_plan_or_newest(backend.plans, plan).id)
        ]
    print(draw_graph(nodes, format_), end="")


@plan.command("cancel")
def cancel(
    ctx: typer.Context,
    plan: PlanId,
    reason: Annotated[str | None, Opt(metavar="TEXT", help="Reason to record with the plan.")] = None,
    json: Json = False,
) -> None:
    """Cancel a plan: its running tasks are stopped and no more start.

    \b
    Example: agentq plan cancel PLAN
    """
    plans = connect_backend(ctx).plans
    _print_plan_state(plans.cancel(find_plan(plans, plan).id, reason or "cancelled on request"), json=json)


@plan.command("retry")
def retry(
    ctx: typer.Context,
    plan: PlanId,
    task: Annotated[str | None, Opt(metavar="ID", help="Only this task and the tasks skipped because of it.")] = None,
    all_: Annotated[bool, Opt("--all", help="Cancelled tasks, too.")] = False,
    json: Json = False,
) -> None:
    """Requeue the failed tasks, and the tasks skipped because of them.

    \b
    Example: agentq plan retry PLAN
    Example: agentq plan retry PLAN --task parser
    """
    if task is not None and all_:
        raise Invalid("--task and --all contradict each other; give one of them.")
    plans = connect_backend(ctx).plans
    found = find_plan(plans, plan)
    again = plans.retry(found.id, "all" if all_ else "failed", task=task)
    _print_plan_state(again, json=json)
    if not json and again.ended is None:
        print_note(f"`agentq resume {found.id}` works on it here.")


@plan.command("resume")
def resume(
    ctx: typer.Context,
    plan: PlanId,
    workers: Annotated[int | None, Opt(metavar="N", help="Tasks at the same time here; 0 only watches.")] = None,
    json: Json = False,
) -> None:
    """Continue a plan, as `agentq resume` does.

    \b
    Example: agentq plan resume PLAN
    """
    from agentq.cli.commands.resume import resume_plan

    raise typer.Exit(resume_plan(ctx, plan, workers, json=json))


@plan.command("export")
def export(
    ctx: typer.Context,
    plan: PlanId,
    format_: Annotated[
        str, Opt("--format", metavar="yaml|json|jsonl", help="Output format; yaml if not given.")
    ] = "yaml",
) -> None:
    """Write a submitted plan as a file, with the state of each task.

    Completed tasks are not repeated when the file is submitted.

    \b
    Example: agentq plan export PLAN
    """
    from agentq.cli.plans.import_export import export_document
    from agentq.planning.convert.plan_text import format_plan

    backend = connect_backend(ctx)
    print(format_plan(export_document(backend, find_plan(backend.plans, plan).id), _check_format(format_)), end="")


def _check_format(text: str) -> str:
    if text not in ("yaml", "json", "jsonl"):
        raise Invalid(f"--format takes yaml, json or jsonl, not {text[:40]!r}.")
    return text


def _format_count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _print_plan_state(found: Any, *, json: bool) -> None:
    from agentq.coordinator.public_json.plans import plan_json

    if json:
        print_json(plan_json(found))
    else:
        print_row(found.id, found.state)
