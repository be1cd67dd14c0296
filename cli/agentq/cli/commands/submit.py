"""`agentq submit`: a command, or a call of a function, becomes a run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentq.cli.connect import connect_backend, print_note, read_settings
from agentq.cli.options import Json, with_options_of
from agentq.cli.parse.agent_options import take_agent_options
from agentq.cli.parse.run_spec import build_spec, parse_jsonl_specs, parse_spec_fields
from agentq.cli.parse.text_input import read_text
from agentq.cli.plans.plan_options import take_plan_options
from agentq.cli.render import print_json
from agentq.cli.submission_check import check_specs, note_unmet_demands, note_unset_limits
from agentq.coordinator.errors import Invalid, NotFound, Refused
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.verbs import SubmitReceipt

if TYPE_CHECKING:
    from agentq.sdk.backend import Backend

Opt = typer.Option
SUBMIT_OPTIONS = ("durable", "wait", "follow", "json")
JSONL_BYTES = 256 << 20

Demands = Annotated[
    list[str] | None,
    Opt(metavar="K=V", help="Worker label that it needs: gpu=a, zone=a|b, zone!=c, version>=0.2."),
]
FunctionPath = Annotated[
    str | None,
    Opt(metavar="MODULE:NAME", help="Call this; the words after it are arguments in JSON."),
]
IfLive = Annotated[
    str | None,
    Opt(metavar="MODE", help="If a run has it: return, reject, replace, debounce, follow."),
]


@with_options_of(take_agent_options, without=set())
@with_options_of(take_plan_options, without=set())
def submit(
    ctx: typer.Context,
    command: Annotated[list[str] | None, typer.Argument(metavar="-- COMMAND", help="What to run.")] = None,
    function: FunctionPath = None,
    queue: Annotated[str | None, Opt(metavar="NAME", help="Queue to submit to; `default` if not given.")] = None,
    priority: Annotated[int | None, Opt(metavar="0-9", help="Priority; 9 is the most urgent, 5 if not given.")] = None,
    name: Annotated[str | None, Opt(metavar="TEXT", help="Name to show.")] = None,
    label: Annotated[list[str] | None, Opt(metavar="K=V", help="Label to filter by. Repeatable.")] = None,
    limit: Annotated[list[str] | None, Opt(metavar="KEY[=N]", help="Limit that it counts against. Repeatable.")] = None,
    fair_key: Annotated[str | None, Opt(metavar="KEY", help="Tenant; the tenants of a queue take turns.")] = None,
    demand: Demands = None,
    delay: Annotated[str | None, Opt(metavar="DURATION", help="Start after this, such as 90s or 1h30m.")] = None,
    at: Annotated[str | None, Opt(metavar="TIME", help="Start at this time: 14:30, or 2030-01-31T14:30.")] = None,
    expires: Annotated[str | None, Opt(metavar="DURATION", help="Fail if it has not started by then.")] = None,
    after: Annotated[list[str] | None, Opt(metavar="RUN", help="Start when this run has ended. Repeatable.")] = None,
    parent: Annotated[str | None, Opt(metavar="RUN", help="Make the new run a child of this run.")] = None,
    child: Annotated[bool, Opt("--child", help="Make it a child of the run that executes this.")] = False,
    children: Annotated[str | None, Opt(metavar="cancel|leave", help="Its own children, if it fails.")] = None,
    on_failed: Annotated[str | None, Opt(metavar="skip|run|fail", help="If a run of --after fails.")] = None,
    retries: Annotated[int | None, Opt(metavar="N", help="Retries after a failure; 0 if not given.")] = None,
    backoff: Annotated[str | None, Opt(metavar="KIND", help="exponential, fixed, or waits such as 10s,1m,5m.")] = None,
    retry_delay: Annotated[str | None, Opt(metavar="DURATION", help="First wait; 1s if not given.")] = None,
    retry_delay_max: Annotated[str | None, Opt(metavar="DURATION", help="Longest wait; 5m if not given.")] = None,
    no_jitter: Annotated[bool, Opt("--no-jitter", help="Wait exactly, without a random part.")] = False,
    max_elapsed: Annotated[str | None, Opt(metavar="DURATION", help="Start no attempt later than this.")] = None,
    retry_on: Annotated[list[str] | None, Opt(metavar="CLASS[=N[,WAIT]]", help="Failure to retry. Repeatable.")] = None,
    never_retry: Annotated[list[str] | None, Opt(metavar="CLASS", help="Failure not to retry. Repeatable.")] = None,
    timeout: Annotated[str | None, Opt(metavar="DURATION", help="Longest time that one attempt may run.")] = None,
    silence: Annotated[str | None, Opt(metavar="DURATION", help="Longest time without output.")] = None,
    grace: Annotated[str | None, Opt(metavar="DURATION", help="Time from SIGTERM to SIGKILL.")] = None,
    on_drain: Annotated[str | None, Opt(metavar="SIGNAL", help="Signal to send when the worker drains.")] = None,
    memory: Annotated[str | None, Opt(metavar="SIZE", help="Memory limit, such as 512M or 4G.")] = None,
    cpu_time: Annotated[str | None, Opt(metavar="DURATION", help="CPU time limit.")] = None,
    nice: Annotated[int | None, Opt(metavar="0-19", help="Niceness of its processes.")] = None,
    env: Annotated[list[str] | None, Opt(metavar="K=V", help="Environment variable. Repeatable.")] = None,
    env_from: Annotated[list[str] | None, Opt(metavar="NAME", help="Environment variable to copy. Repeatable.")] = None,
    cwd: Annotated[str | None, Opt(metavar="FOLDER", help="Working directory; this one if not given.")] = None,
    stdin: Annotated[str | None, Opt(metavar="FILE", help="File for its standard input; - for stdin.")] = None,
    dedupe_key: Annotated[str | None, Opt(metavar="KEY", help="At most one live run has this key.")] = None,
    if_live: IfLive = None,
    dedupe_ttl: Annotated[str | None, Opt(metavar="DURATION", help="Keep the key for at least this long.")] = None,
    debounce_max: Annotated[str | None, Opt(metavar="DURATION", help="Longest delay by debounce.")] = None,
    keep: Annotated[str | None, Opt(metavar="DURATION", help="How long the record is kept; 7d if not given.")] = None,
    from_jsonl: Annotated[str | None, Opt(metavar="FILE", help="Submit the spec on each line; - for stdin.")] = None,
    durable: Annotated[bool, Opt("--durable", help="Return only when the run is on the server's disk.")] = False,
    wait: Annotated[bool, Opt("--wait", help="Wait for the end; the exit code is 1 if it failed.")] = False,
    follow: Annotated[bool, Opt("--follow", "-f", help="Wait for the end, and print the output.")] = False,
    json: Json = False,
    **others: Any,
) -> None:
    """Submit a run: a command with all that follows, a function, or a prompt for an agent. Prints its id.

    \b
    Example: agentq submit -- make test
    Example: agentq submit --queue builds --retries 2 --timeout 10m -- make
    Example: agentq submit --after RUN --wait -- echo done
    Example: agentq submit --function shop:price '[1, "tea"]'
    Example: agentq submit --agent claude "Fix the failing test"
    """
    _submit_runs(ctx, _given_options(locals() | others, without={"ctx", "others"}), wait=wait or follow, json=json)


def _given_options(options: dict[str, Any], *, without: set[str]) -> dict[str, Any]:
    """The options that were given."""
    return {
        name: value
        for name, value in options.items()
        if value is not None and value is not False and name not in without
    }


def _submit_runs(ctx: typer.Context, given: dict[str, Any], *, wait: bool, json: bool) -> None:
    """Check all that can be checked here, then ask the server."""
    how = {name: given.pop(name, False) for name in SUBMIT_OPTIONS}
    if how["follow"] and json:
        raise Invalid("--follow and --json contradict each other: one prints what the run writes, one its record.")
    path = given.pop("from_jsonl", None)
    if "plan" in given or "task" in given or "needs" in given:
        from agentq.cli.plans.add_task import add_task

        raise typer.Exit(add_task(ctx, given, how, wait=wait, json=json))
    if path is None:
        after, parent = given.get("after", []), _parent_id(given)
        fields = parse_spec_fields(given)
        spec = build_spec(fields)
        check_folder(ctx, spec.cwd, asked="cwd" in given)
        backend = connect_backend(ctx, start=True)
        specs = [build_spec(fields | _related_runs(backend, after, parent)) if after or parent else spec]
    else:
        specs = _read_jsonl(path, given)
        if how["follow"] and len(specs) > 1:
            raise Invalid("--follow follows one run; use --wait for several.")
        backend = connect_backend(ctx, start=True)
    checked = check_specs(backend, specs)
    note_unset_limits(checked)
    note_unmet_demands(checked)
    unmet = {} if checked is None else {lane: problem.demands for lane, problem in checked.unmet.items()}
    receipts = _submit_specs(backend, specs, durable=how["durable"])
    ids, code = _print_receipts(specs, receipts, unmet, quiet=how["follow"] or (wait and json), json=json)
    if wait:
        from agentq.cli.follow import follow_runs

        code = max(code, follow_runs(backend, ids, follow=how["follow"], json=json))
    raise typer.Exit(code)


def _parent_id(given: dict[str, Any]) -> str | None:
    """The run that it is to be a child of."""
    if not given.get("child"):
        return given.get("parent")
    if "parent" in given:
        raise Invalid("--parent and --child contradict each other; give one of them.")
    if "AGENTQ_RUN_ID" not in os.environ:
        raise Invalid("--child is said within a run, and this is none; name the parent with --parent.")
    return os.environ["AGENTQ_RUN_ID"]


def _related_runs(backend: Backend, after: list[str], parent: str | None) -> dict[str, Any]:
    """The runs that it comes after, and the one whose child it is."""
    found: dict[str, Any] = {"after": [backend.find(text) for text in after]} if after else {}
    return found | ({"parent": backend.find(parent)} if parent else {})


def _read_jsonl(path: str, given: dict[str, Any]) -> list[RunSpec]:
    if given:
        raise Invalid(f"With --from-jsonl, all that a run is stands in the file; leave {_option_names(given)} away.")
    return parse_jsonl_specs(read_text(path, "--from-jsonl", JSONL_BYTES), "stdin" if path == "-" else path)


def _option_names(given: dict[str, Any]) -> str:
    return ", ".join("the command" if name == "command" else f"--{name.replace('_', '-')}" for name in given)


def check_folder(ctx: typer.Context, folder: str | None, *, asked: bool) -> None:
    """Whether the folder is there, where the worker is surely on this machine; elsewhere, the worker finds out."""
    url = read_settings(ctx).settings.url
    if asked and folder is not None and (not url or url.startswith("unix:")) and not os.path.isdir(folder):
        raise Invalid(f"--cwd: there is no folder {folder}.")


def _print_receipts(
    specs: list[RunSpec], receipts: Iterable[SubmitReceipt], unmet: dict[str, list[str]], *, quiet: bool, json: bool
) -> tuple[list[str], int]:
    """Say what became of each run; the ids, and the exit code of the first refusal."""
    ids: list[str] = []
    code = 0
    for spec, receipt in zip(specs, receipts, strict=True):
        if receipt.refused is not None:
            print_note(str(receipt.refused))
            code = code or receipt.refused.exit_code
            continue
        ids.append(receipt.id)
        if not receipt.created:
            print_note(f"{receipt.id} has this dedupe key; nothing new was submitted.")
        if json and not quiet:
            print_json({"id": receipt.id, "created": receipt.created, "unmet": unmet.get(spec.lane, [])})
        elif not quiet:
            print(receipt.id, flush=True)
    return ids, code


def _submit_specs(backend: Backend, specs: list[RunSpec], *, durable: bool) -> Iterable[SubmitReceipt]:
    return _submit_each(backend, specs, durable) if durable or len(specs) == 1 else backend.submit_many(specs)


def _submit_each(backend: Backend, specs: list[RunSpec], durable: bool) -> Iterator[SubmitReceipt]:
    for spec in specs:
        try:
            yield backend.submit(spec, durable=durable)
        except (Refused, NotFound) as refused:
            yield SubmitReceipt("", created=False, refused=refused)
