"""`agentq worker`: runs a worker, or manages running workers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentq.cli.connect import (
    connect_backend,
    guard_embedded_server,
    home_folder,
    locate_server,
    print_note,
    read_settings,
)
from agentq.cli.options import TYPER_SETTINGS, Json
from agentq.cli.parse.key_values import parse_key_values
from agentq.cli.parse.option_errors import flag_name, translate_errors
from agentq.cli.parse.run_spec import parse_size
from agentq.cli.render import bold, on_terminal, paint, print_json, print_pairs, print_row, print_table
from agentq.coordinator import log_setup
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.config.settings import LayeredSettings, Settings
from agentq.coordinator.errors import Invalid, NotFound
from agentq.coordinator.model.agent_options import AGENT_LABEL, AGENT_READY
from agentq.coordinator.model.demands import is_built_in_label
from agentq.coordinator.model.durations import format_duration, format_iso, parse_duration_ms
from agentq.coordinator.public_json.workers import worker_json

if TYPE_CHECKING:
    from agentq.coordinator.workers.registry import WorkerOverview
    from agentq.sdk.backend.workers import WorkerVerbs
    from agentq.worker.options import WorkerOptions
    from agentq.worker.settings_reload import SettingsReload

Opt = typer.Option
Workers = Annotated[list[str], typer.Argument(metavar="WORKER", help="Ids or unique beginnings of ids.")]
Slots = Annotated[int | None, Opt(metavar="N", help="Runs at the same time; 1 if not given.")]
Queues = Annotated[list[str] | None, Opt(metavar="NAME", help="Queue to serve, highest priority first; default.")]
Labels = Annotated[list[str] | None, Opt(metavar="K=V", help="Label that runs can demand. Repeatable.")]

COORDINATOR_OPTIONS = ("connect", "token_file", "ca_file", "plain_http")
PLAIN_OPTIONS = (
    *("slots", "name", "burst", "max_runs", "only_matching", "children", "async_calls", "child_runs"),
    *("log_level", "log_json", *COORDINATOR_OPTIONS),
)
FIXED_OPTIONS = (
    *("name", "children", "async_calls", "child_memory", "child_rss", "child_runs", "redact", "worktree_idle"),
    *("functions", "server_queues"),
    *("log_level", "log_json", *COORDINATOR_OPTIONS),
)
"""What of a worker's settings cannot change while it works."""
FLAGS_BY_FIELD = {"queues": "--queue", "labels": "--label", "drain_grace_ms": "--drain-grace"}

worker = typer.Typer(**TYPER_SETTINGS, invoke_without_command=True)


@worker.callback(epilog="Example: agentq worker --slots 4 --queue default")
def run_worker(
    ctx: typer.Context,
    slots: Slots = None,
    queue: Queues = None,
    rq: Annotated[
        list[str] | None, Opt(metavar="NAMES", help="RQ queues to adopt, highest priority first, as in high,default.")
    ] = None,
    rq_serializer: Annotated[
        str | None, Opt(metavar="NAME", help="Serializer of their jobs: pickle, json, or a path; pickle.")
    ] = None,
    label: Labels = None,
    only_matching: Annotated[
        bool, Opt("--only-matching", help="Take only runs that demand one of its labels.")
    ] = False,
    name: Annotated[str | None, Opt(metavar="NAME", help="Prefix of its id; the host's name if not given.")] = None,
    burst: Annotated[bool, Opt("--burst", help="End when no run is left to claim.")] = False,
    max_runs: Annotated[int | None, Opt(metavar="N", help="End after this many runs.")] = None,
    drain_grace: Annotated[
        str | None, Opt(metavar="DURATION", help="Longest time for its runs to finish in a drain; 30s.")
    ] = None,
    children: Annotated[int | None, Opt(metavar="N", help="Processes for function runs; as many as slots.")] = None,
    async_calls: Annotated[
        int | None, Opt(metavar="N", help="Asynchronous functions at the same time in one child; 100.")
    ] = None,
    child_memory: Annotated[
        str | None, Opt(metavar="SIZE", help="What a child may use: 512M, 4G. Default: any.")
    ] = None,
    child_rss: Annotated[str | None, Opt(metavar="SIZE", help="Replace a child whose memory exceeds this.")] = None,
    child_runs: Annotated[int | None, Opt(metavar="N", help="Replace a child after this many function runs.")] = None,
    connect: Annotated[
        str | None, Opt(metavar="URL", help="Work through a coordinator (agentq serve), without reaching Redis.")
    ] = None,
    token_file: Annotated[
        str | None, Opt(metavar="FILE", help="Its token, if not in AGENTQ_WORKER_TOKEN; see agentq token new.")
    ] = None,
    ca_file: Annotated[str | None, Opt(metavar="FILE", help="Certificates to trust there, as PEM.")] = None,
    plain_http: Annotated[bool, Opt("--plain-http", help="Connect without TLS, on a private network.")] = False,
    log_level: Annotated[
        str | None,
        Opt(metavar="LEVEL", help="debug, info (each run that starts and ends), warning or error; warning."),
    ] = None,
    log_json: Annotated[bool, Opt("--log-json", help="Write its log as lines of JSON.")] = False,
) -> None:
    """Run a worker here, or, with a command, manage running workers.

    SIGTERM or Ctrl-C: it claims nothing more, lets its runs finish for a while, hands the rest back, and ends. A second
    one ends it at once. SIGHUP: it reads its settings again. You can set other options in the table [worker] of the
    settings file.
    """
    given = {name: value for name, value in locals().items() if value is not None and value is not False}
    del given["ctx"]
    if ctx.invoked_subcommand is None:
        raise typer.Exit(serve_worker(ctx, given))
    if given:
        raise Invalid(f"{', '.join(flag_name(each) for each in given)} is for running a worker, without a command.")


def serve_worker(ctx: typer.Context, given: dict[str, Any], slots: int = 1) -> int:
    """Run a worker in this process, with this many slots by default; the exit code."""
    from agentq.coordinator.security.environment_memory import hide_memory
    from agentq.worker import worker
    from agentq.worker.server_backends import RedisWorkerBackend
    from agentq.worker.settings_reload import ReloadedSettings, SettingsReload

    hide_memory()
    before = read_settings(ctx)
    options = _worker_options(before, given, slots)
    log_setup.log_worker(options.log_level, as_json=options.log_json)
    say = log_setup.WORKER_MESSAGES.info if options.log_json else print_note

    def reread() -> ReloadedSettings:
        now = read_settings(ctx)
        changed = [
            name for name in Settings.model_fields if getattr(now.settings, name) != getattr(before.settings, name)
        ]
        changed += [
            f"worker.{name}"
            for name in FIXED_OPTIONS
            if name not in given and getattr(now.worker, name) != getattr(before.worker, name)
        ]
        return ReloadedSettings(_worker_options(now, given, slots), tuple(changed))

    if "rq_serializer" in given and "rq" not in given:
        raise Invalid("--rq-serializer means nothing without --rq.")
    if "rq_serializer" in given:
        from agentq.worker.rq.adopt.adopting_worker import check_serializer

        check_serializer(given["rq_serializer"])
    if options.connect is not None:
        source = "" if "connect" in given else before.sources["worker.connect"]
        place = f", set in {source}" if source.startswith("/") else ""
        return _serve_remote(before.settings, options, SettingsReload(reread, say), place, rq="rq" in given)
    if stray := sorted(set(COORDINATOR_OPTIONS) & given.keys()):
        raise Invalid(f"{flag_name(stray[0])} means nothing without --connect.")
    settings = locate_server(ctx, start=True)
    if "rq" in given:
        from agentq.worker.rq.redis_client import check_address

        check_address(settings.url)
    guard_embedded_server()
    many = f"{options.slots} {'slot' if options.slots == 1 else 'slots'}"
    say(f"a worker with {many} for {', '.join(options.queues)}; Ctrl-C ends it.")
    reload = SettingsReload(reread, say)
    if "rq" in given:
        from agentq.worker.rq.adopt import adopting_worker
        from agentq.worker.rq.queue_names import split_names

        adopted = adopting_worker.AdoptedQueues(split_names(given["rq"]), given.get("rq_serializer", ""))
        return adopting_worker.serve_adopting(settings, options, home_folder(settings), reload, adopted)
    return worker.serve_worker(RedisWorkerBackend(settings), options, home_folder(settings), reload)


def _serve_remote(settings: Settings, options: WorkerOptions, reload: SettingsReload, place: str, *, rq: bool) -> int:
    """Run a worker that reaches nothing but a coordinator."""
    from agentq.worker import worker
    from agentq.worker.server_backends import TOKEN_VARIABLE, RemoteWorkerBackend

    if rq:
        raise Invalid("--rq needs Redis itself, where RQ's queues are; it cannot be said with --connect.")
    reach = RemoteWorkerBackend(options, home=home_folder(settings))
    os.environ.pop(TOKEN_VARIABLE, None)
    reload.notify(f"a worker for {', '.join(options.queues)} through {options.connect}{place}; Ctrl-C ends it.")
    return worker.serve_worker(reach, options, home_folder(settings), reload)


def _worker_options(found: LayeredSettings, given: dict[str, Any], slots: int) -> WorkerOptions:
    """The settings: flags first, then settings from other sources."""
    from agentq.worker.options import WorkerOptions

    fields: dict[str, Any] = {"slots": slots, **found.worker.model_dump(exclude_unset=True)}
    fields |= {name: given[name] for name in PLAIN_OPTIONS if name in given}
    if "queue" in given:
        fields["queues"] = tuple(_check_queue_name(name) for name in given["queue"])
    if "rq" in given:
        from agentq.worker.rq.queue_names import list_served_queues, split_names

        fields["queues"] = (*given.get("queue", ()), *list_served_queues(split_names(given["rq"])))
    if "label" in given:
        fields["labels"] = parse_key_values(given["label"], "--label")
    if "drain_grace" in given:
        fields["drain_grace_ms"] = parse_duration_ms(given["drain_grace"])
    for name in ("child_memory", "child_rss"):
        if name in given:
            fields[name] = parse_size(given[name], f"--{name.replace('_', '-')}")
    with translate_errors(FLAGS_BY_FIELD):
        return WorkerOptions(**fields)


def _check_queue_name(queue: str) -> str:
    """A queue, where --rq takes several at once."""
    if "," in queue:
        raise Invalid(f"--queue takes one name; say it again for another, not {queue[:80]!r}.")
    return queue


@worker.command("ls")
def ls(
    ctx: typer.Context,
    all_: Annotated[bool, Opt("--all", help="Also workers that left or were lost within the hour.")] = False,
    json: Json = False,
) -> None:
    """List the workers that are registered.

    \b
    Example: agentq worker ls
    Example: agentq worker ls --all
    """
    found = connect_backend(ctx).workers.all(departed=all_)
    if json:
        for each in found:
            print_json(worker_json(each))
        return
    rows = []
    for each in found:
        taken = f"{len(each.runs)}/{each.slots}"
        given = {name: value for name, value in each.labels.items() if not is_built_in_label(name)}
        labels = " ".join(f"{key}={value}" for key, value in sorted(given.items()))
        ended = [_format_moment(each.ended_at_ms)] if all_ else []
        heard, agents = _format_moment(each.seen_at_ms), _format_agents(each.labels)
        rows.append([each.id, each.state, taken, heard, *ended, ",".join(each.queues), agents, labels])
    head = ["worker", "state", "slots", "heard", *(["ended"] if all_ else []), "queues", "agents", "labels"]
    print_table(head, rows, cut={"queues", "agents", "labels"})
    for each in found:
        if each.silence:
            print_note(f"{each.id} {each.silence}.")
    if not rows and on_terminal():
        print_note("no worker is registered; start one with `agentq worker`.")


@worker.command("show")
def show(ctx: typer.Context, worker: Workers, json: Json = False) -> None:
    """Show workers in full, with the runs they hold.

    For an hour after a worker left or was lost, its end is shown.

    \b
    Example: agentq worker show WORKER
    """
    found = connect_backend(ctx).workers.all(departed=True)
    for each in [_find_worker(found, text) for text in worker]:
        if json:
            print_json(worker_json(each))
            continue
        print(f"{bold(each.id)}  {paint(each.state, like='ok' if each.state == 'ready' else 'warn')}")
        print_pairs(
            [
                ("slots", str(each.slots)),
                ("queues", ", ".join(each.queues)),
                ("agents", _format_agents(each.labels)),
                ("labels", ", ".join(f"{key}={value}" for key, value in _other_labels(each.labels))),
                ("takes", "only what demands a label of it" if each.only_matching else ""),
                ("about", ", ".join(f"{key} {value}" for key, value in sorted(each.about.items()))),
                ("registered", _format_moment(each.registered_at_ms)),
                ("runs ended", str(each.runs_ended)),
                ("heard", _format_moment(each.seen_at_ms)),
                ("ended", ": ".join(filter(None, (_format_moment(each.ended_at_ms), each.ended_why)))),
                ("silent", each.silence),
                ("holds", ", ".join(each.runs)),
            ],
            indent=2,
        )


@worker.command("drain")
def drain(ctx: typer.Context, worker: Workers, json: Json = False) -> None:
    """Drain workers: they claim no more runs, finish or hand back the runs they hold, and end.

    \b
    Example: agentq worker drain WORKER
    """
    _drain_workers(connect_backend(ctx).workers, worker, json, hurry=False)


@worker.command("stop")
def stop(ctx: typer.Context, worker: Workers, json: Json = False) -> None:
    """Stop workers now: their runs are stopped and handed back, to run elsewhere without using a retry.

    Its processes get SIGTERM, the grace that each run asks for, and SIGKILL. A worker that drains already does not wait
    any longer.

    \b
    Example: agentq worker stop WORKER
    """
    _drain_workers(connect_backend(ctx).workers, worker, json, hurry=True)


def _drain_workers(workers: WorkerVerbs, typed: list[str], json: bool, *, hurry: bool) -> None:
    found = workers.all()
    for each in [_find_worker(found, text) for text in typed]:
        workers.drain(each.id, f"asked by {os.environ.get('USER', 'somebody')}", hurry=hurry)
        if json:
            print_json({"id": each.id, "state": "draining"})
        else:
            print_row(each.id, "draining")


def _find_worker(found: list[WorkerOverview], text: str) -> WorkerOverview:
    candidates = [each for each in found if each.id == text] or [
        each for each in found if text and each.id.startswith(text)
    ]
    if not candidates:
        raise NotFound(f"There is no worker {text[:80]!r}; `agentq worker ls --all` shows those that there are.")
    if len(candidates) > 1:
        names = ", ".join(each.id for each in candidates[:10])
        raise Invalid(f"Several workers have an id that begins so: {names}; write more of it.")
    return candidates[0]


def _format_moment(at_ms: int | None) -> str:
    """How long ago, for a person; when, for a program."""
    if at_ms is None:
        return ""
    return f"{format_duration(wall_ms() - at_ms)} ago" if on_terminal() else format_iso(at_ms)


def _other_labels(labels: Mapping[str, str]) -> list[tuple[str, str]]:
    """Labels that do not tell of agents."""
    return sorted((key, value) for key, value in labels.items() if not key.startswith(AGENT_LABEL))


def _format_agents(labels: Mapping[str, str]) -> str:
    """Those that it can take runs of; one whose accounts are all at their limits stands in brackets."""
    found = {name.removeprefix(AGENT_LABEL): value for name, value in labels.items() if name.startswith(AGENT_LABEL)}
    return ",".join(name if value == AGENT_READY else f"({name})" for name, value in sorted(found.items()))
