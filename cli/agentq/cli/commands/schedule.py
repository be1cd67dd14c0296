"""`agentq schedule`: runs commands and agents on a schedule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentq.cli.commands.submit import check_folder, submit
from agentq.cli.connect import connect_backend, print_note
from agentq.cli.options import TYPER_SETTINGS, Json, with_options_of
from agentq.cli.parse.option_errors import flag_name, parse_duration_field, translate_errors
from agentq.cli.parse.option_groups import GroupedCommand
from agentq.cli.parse.run_spec import build_spec, parse_spec_fields
from agentq.cli.render import bold, clean, on_terminal, paint, print_json, print_pairs, print_row, print_table
from agentq.cli.show.run_summary import describe_spec
from agentq.cli.submission_check import check_specs, note_unset_limits
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.durations import format_duration, format_iso, parse_time_ms
from agentq.coordinator.public_json.schedules import schedule_history_json, schedule_json, upcoming_json
from agentq.coordinator.schedules.cron import ScheduleRule, load_timezone, parse_cron
from agentq.coordinator.schedules.verbs import OverlapPolicy, ScheduleHistoryEntry, ScheduleRecord

if TYPE_CHECKING:
    from agentq.sdk.backend.schedules import ScheduleVerbs

Opt = typer.Option
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")]
Names = Annotated[list[str], typer.Argument(metavar="NAME", help="Names of the schedules.")]

FLAGS_BY_FIELD = {"every_ms": "--every", "jitter_ms": "--jitter", "catch_up_ms": "--catch-up", "until_ms": "--until"}
RULE_KINDS = ("cron", "every", "at")
RULE_OPTIONS = ("cron", "tz", "every", "at", "until", "overlap", "catch_up", "missed", "jitter")
EXCLUDED_OPTIONS = {
    *("delay", "at", "after", "on_failed", "from_jsonl", "durable", "wait", "follow", "json"),
    *("plan", "task", "needs"),
}
"""Options of a submit that say when, or what to do then."""
EXAMPLE = "`agentq schedule add nightly --cron '30 2 * * *' -- make test`"
HISTORY_SHOWN = 20

schedule = typer.Typer(**TYPER_SETTINGS, no_args_is_help=True, help="Run commands and agents on a schedule.")


@schedule.callback(epilog="Example: agentq schedule add nightly --cron '30 2 * * *' -- make test")
def _schedule() -> None:
    """Run commands and agents on a schedule."""


@schedule.command("add", cls=GroupedCommand)
@with_options_of(submit, without=EXCLUDED_OPTIONS)
def add(
    ctx: typer.Context,
    schedule: Name,
    cron: Annotated[str | None, Opt(metavar="LINE", help="Minute, hour, day, month and weekday; or @daily.")] = None,
    tz: Annotated[str | None, Opt(metavar="ZONE", help="The time zone of --cron; UTC if not given.")] = None,
    every: Annotated[str | None, Opt(metavar="DURATION", help="Interval, such as 10m.")] = None,
    at: Annotated[str | None, Opt(metavar="TIME", help="Once, at 14:30 or 2030-01-31T14:30.")] = None,
    until: Annotated[str | None, Opt(metavar="TIME", help="Not after this.")] = None,
    overlap: Annotated[
        str | None,
        Opt(metavar="skip|queue|cancel-old|allow", help="If its last run has not ended; skip if not given."),
    ] = None,
    catch_up: Annotated[str | None, Opt(metavar="DURATION", help="Run missed ticks not older than this.")] = None,
    missed: Annotated[str | None, Opt(metavar="latest|all", help="Which missed ticks; latest if not given.")] = None,
    jitter: Annotated[str | None, Opt(metavar="DURATION", help="Longest random delay of each tick.")] = None,
    replace: Annotated[bool, Opt("--replace", help="Replace the schedule of that name.")] = False,
    json: Json = False,
    **run: Any,
) -> None:
    """Run a command or an agent on a schedule. All other options are those of `agentq submit`.

    When the clocks change, a fixed time that is left out runs right after, and one that comes twice runs once; a line
    whose minute or hour begins with * goes by the time that passes.

    \b
    Example: agentq schedule add nightly --cron '30 2 * * *' --tz Europe/Berlin -- make test
    Example: agentq schedule add poll --every 10m --overlap queue --queue builds -- ./poll.sh
    Example: agentq schedule add once --at 2030-01-31T14:30 -- make release
    Example: agentq schedule add tidy --cron @weekly --agent claude "Update the dependencies"
    """
    given = {name: value for name, value in locals().items() if name in RULE_OPTIONS and value is not None}
    fields = {name: value for name, value in run.items() if value is not None and value is not False}
    if "command" not in fields and "agent" not in fields:
        raise Invalid(f"There is no command to run; give it after --, as in {EXAMPLE}.")
    rule, policy, spec = (
        _parse_rule(given),
        _parse_overlap(given.get("overlap", "skip")),
        build_spec(parse_spec_fields(fields)),
    )
    check_folder(ctx, spec.cwd, asked="cwd" in fields)
    backend = connect_backend(ctx, start=True)
    note_unset_limits(check_specs(backend, [spec]))
    made = backend.schedules.add(schedule, rule, spec, overlap=policy, replace=replace)
    if json:
        print_json(schedule_json(made))
    else:
        print_row(made.name, _next_tick(made, wall_ms()))


@schedule.command("ls")
def ls(ctx: typer.Context, json: Json = False) -> None:
    """List schedules with their next ticks.

    \b
    Example: agentq schedule ls
    """
    rows, now_ms = [], wall_ms()
    for found in connect_backend(ctx).schedules.all():
        if json:
            print_json(schedule_json(found))
            continue
        last = "" if found.last_at_ms is None else _format_moment(found.last_at_ms, now_ms)
        said = describe_spec(found.spec) if found.spec is not None else found.why
        rows.append(
            [
                found.name,
                found.state.value,
                _describe_rule(found),
                _next_tick(found, now_ms),
                last,
                str(len(found.live)),
                said,
            ]
        )
    if json:
        return
    print_table(["schedule", "state", "when", "next", "last", "live", "what"], rows, spare=("live", "last", "when"))
    if not rows and on_terminal():
        print_note(f"there are no schedules; {EXAMPLE} makes one.")


@schedule.command("show")
def show(ctx: typer.Context, name: Names, json: Json = False) -> None:
    """Show schedules in full: their runs, next ticks and tick history.

    \b
    Example: agentq schedule show SCHEDULE
    """
    schedules = connect_backend(ctx).schedules
    for found in [schedules.get(each) for each in name]:
        coming, history = upcoming_json(found, wall_ms()), schedules.history(found.name, HISTORY_SHOWN)
        if json:
            told = [schedule_history_json(each) for each in history]
            print_json({**schedule_json(found), "next": coming, "history": told})
        else:
            _print_schedule(found, coming, history)


@schedule.command("pause")
def pause(
    ctx: typer.Context,
    name: Names,
    why: Annotated[str, Opt(metavar="TEXT", help="Reason, shown with the schedule.")] = "",
    json: Json = False,
) -> None:
    """Pause schedules until they are resumed. Runs already submitted continue.

    \b
    Example: agentq schedule pause SCHEDULE --why "the disk is full"
    """
    schedules = _existing_schedules(ctx, name)
    for each in name:
        _print_state(schedules.pause(each, why), json=json)


@schedule.command("resume")
def resume(ctx: typer.Context, name: Names, json: Json = False) -> None:
    """Resume schedules. Ticks missed meanwhile run only with --catch-up.

    \b
    Example: agentq schedule resume SCHEDULE
    """
    schedules = _existing_schedules(ctx, name)
    for each in name:
        _print_state(schedules.resume(each), json=json)


@schedule.command("run")
def run(ctx: typer.Context, name: Name, json: Json = False) -> None:
    """Submit a run of the schedule now, even if it is paused or its last run has not ended. Prints its id.

    \b
    Example: agentq schedule run SCHEDULE
    """
    receipt = _existing_schedules(ctx, [name]).run(name)
    if not receipt.created:
        print_note(f"{receipt.id} is live and has this dedupe key; nothing new was submitted.")
    if json:
        print_json({"id": receipt.id, "created": receipt.created})
    else:
        print(receipt.id)


@schedule.command("rm")
def rm(ctx: typer.Context, name: Names, json: Json = False) -> None:
    """Remove schedules and their history. Runs already submitted continue.

    \b
    Example: agentq schedule rm SCHEDULE
    """
    schedules = _existing_schedules(ctx, name)
    for each in name:
        schedules.remove(each)
        if json:
            print_json({"name": each, "state": "removed"})
        else:
            print_row(each, "removed")


# ---- what was typed


def _existing_schedules(ctx: typer.Context, names: list[str]) -> ScheduleVerbs:
    """The schedules; if one of those named does not exist, nothing is done to the others."""
    schedules = connect_backend(ctx).schedules
    for name in names:
        schedules.get(name)
    return schedules


def _parse_rule(given: dict[str, Any]) -> ScheduleRule:
    kinds = [kind for kind in RULE_KINDS if kind in given]
    if not kinds:
        raise Invalid(f"A schedule needs --cron, --every or --at, as in {EXAMPLE}.")
    if len(kinds) > 1:
        raise Invalid(f"{flag_name(kinds[0])} and {flag_name(kinds[1])} contradict each other; give one of them.")
    for option, needed in (("tz", "cron"), ("missed", "catch_up")):
        if option in given and needed not in given:
            raise Invalid(f"{flag_name(option)} means nothing without {flag_name(needed)}.")
    durations = [option for option in ("every", "catch_up", "jitter") if option in given]
    fields: dict[str, Any] = {f"{option}_ms": parse_duration_field(given, option) for option in durations}
    fields |= {f"{option}_ms": parse_time_ms(given[option]) for option in ("at", "until") if option in given}
    fields |= {option: given[option] for option in ("cron", "tz") if option in given}
    if "catch_up" in given:
        fields["missed"] = given.get("missed", "latest")
        if fields["missed"] not in ("latest", "all"):
            raise Invalid(f"--missed: {fields['missed'][:40]!r} is not a choice; there are latest and all.")
    with translate_errors(FLAGS_BY_FIELD):
        rule = ScheduleRule(**fields)
    _check_times(rule)
    return rule


def _check_times(rule: ScheduleRule) -> None:
    """Whether its times are times; a cron line is read only when it is asked for one."""
    try:
        load_timezone(rule.tz)
    except Invalid as invalid:
        raise Invalid(f"--tz: {invalid}") from invalid
    if rule.cron is None:
        return
    try:
        parse_cron(rule.cron)
        tick = rule.after(wall_ms())
    except Invalid as invalid:
        raise Invalid(f"--cron: {invalid}") from invalid
    if tick is None:
        raise Invalid(f"--cron: {rule.cron!r} is never, or not before --until; write it like '30 2 * * *'.")


def _parse_overlap(text: str) -> OverlapPolicy:
    try:
        return OverlapPolicy(text.replace("-", "_"))
    except ValueError:
        names = [each.value.replace("_", "-") for each in OverlapPolicy]
        raise Invalid(f"--overlap: {text[:40]!r} is not a policy; there are {', '.join(names)}.") from None


# ---- output


def _print_state(found: ScheduleRecord, *, json: bool) -> None:
    if json:
        print_json(schedule_json(found))
    else:
        following = _next_tick(found, wall_ms())
        print_row(found.name, found.state.value, following)


def _describe_rule(found: ScheduleRecord) -> str:
    return "" if found.rule is None else found.rule.describe()


def _format_moment(at_ms: int, now_ms: int) -> str:
    if not on_terminal():
        return format_iso(at_ms)
    return f"in {format_duration(at_ms - now_ms)}" if at_ms > now_ms else f"{format_duration(now_ms - at_ms)} ago"


def _next_tick(found: ScheduleRecord, now_ms: int) -> str:
    coming = found.coming(1, now_ms)
    return f"{_format_moment(coming[0], now_ms)}" if coming else ""


def _print_schedule(found: ScheduleRecord, coming: list[str], history: list[ScheduleHistoryEntry]) -> None:
    why = f": {clean(found.why)}" if found.why else ""
    print(f"{bold(found.name)}  {paint(found.state.value, like=COLOURS.get(found.state.value, ''))}{why}")
    print_pairs(_schedule_pairs(found, coming), indent=2)
    if history:
        print("  history")
    for each in history:
        print(f"    {_history_line(each)}")


COLOURS = {"active": "ok", "paused": "warn", "faulty": "fail"}


def _schedule_pairs(found: ScheduleRecord, coming: list[str]) -> Iterator[tuple[str, str]]:
    rule = found.rule
    yield "when", _describe_rule(found)
    if rule is not None:
        yield "until", "" if rule.until_ms is None else format_iso(rule.until_ms)
        yield "jitter", format_duration(rule.jitter_ms) if rule.jitter_ms else ""
        yield "catches up", f"{rule.missed}, {format_duration(rule.catch_up_ms)}" if rule.catch_up_ms else ""
    yield "overlap", found.overlap.replace("_", "-")
    if found.spec is not None:
        yield "runs", describe_spec(found.spec)
        yield "in", found.spec.cwd or ""
        yield "queue", f"{found.spec.queue}, priority {found.spec.priority}"
    yield "live", ", ".join(found.live)
    yield "last", "" if found.last_at_ms is None else format_iso(found.last_at_ms)
    yield "next", ", ".join(coming)


def _history_line(each: ScheduleHistoryEntry) -> str:
    tick = format_iso(each.tick_ms if each.tick_ms is not None else each.at_ms)
    before = "" if each.before_ms is None else f"and all before {format_iso(each.before_ms)}"
    return "  ".join(filter(None, (tick, each.what, before, each.run, clean(each.why or ""))))


def _format_time(at_ms: int | None) -> str | None:
    return None if at_ms is None else format_iso(at_ms)
