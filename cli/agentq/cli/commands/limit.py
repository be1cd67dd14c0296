"""`agentq limit`: limits on concurrency and rate under a key."""

from __future__ import annotations

from typing import Annotated

import typer

from agentq.cli.connect import connect_backend, print_note
from agentq.cli.options import TYPER_SETTINGS, Json
from agentq.cli.parse.option_errors import parse_duration_option
from agentq.cli.render import on_terminal, print_json, print_pairs, print_row, print_table
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import Invalid, NotFound
from agentq.coordinator.model.durations import format_duration, format_iso, parse_duration_ms, parse_time_ms
from agentq.coordinator.public_json.queues import limit_json
from agentq.coordinator.queues.limits import LimitFullPolicy, LimitRate, LimitRecord

Opt = typer.Option
Key = Annotated[str, typer.Argument(metavar="KEY", help="Such as repo:acme; queue:NAME, or global for everything.")]

limit = typer.Typer(**TYPER_SETTINGS, no_args_is_help=True, help="Limit concurrency or rate under a key.")


@limit.callback()
def _limit() -> None:
    """Limit concurrency or rate under a key."""


@limit.command("set")
def set_limit(
    ctx: typer.Context,
    key: Key,
    most: Annotated[int | None, typer.Argument(metavar="RUNS", help="Runs at the same time.")] = None,
    rate: Annotated[str | None, Opt(metavar="UNITS/TIME", help="Units per time, such as 100000/1m.")] = None,
    burst: Annotated[int | None, Opt(metavar="UNITS", help="Units at once after an idle time; as in --rate.")] = None,
    when_full: Annotated[
        str | None,
        Opt(
            metavar="queue|cancel-newest|cancel-running|keep-latest", help="Effect on a run when the limit is reached."
        ),
    ] = None,
) -> None:
    """Set the limit of a key. Runs that hold more than the new limit keep it.

    \b
    Example: agentq limit set repo:acme 3
    Example: agentq limit set openai:tokens --rate 100000/1m
    Example: agentq limit set queue:builds 4
    """
    if most is None and rate is None:
        raise Invalid(f"Give a number of runs, as in `agentq limit set {key} 3`, or --rate 100/1m.")
    if burst is not None and rate is None:
        raise Invalid("--burst means nothing without --rate.")
    bucket = None if rate is None else _parse_rate(rate, burst)
    limits = connect_backend(ctx, start=True).limits
    limits.set(key, most=most, rate=bucket, when_full=_parse_when_full(when_full))
    print_row(key, _describe_limit(limits.get(key)))


@limit.command("ls")
def ls(ctx: typer.Context, json: Json = False) -> None:
    """List limits: capacity, units in use, and waiting runs.

    \b
    Example: agentq limit ls
    """
    found = connect_backend(ctx).limits.all()
    if json:
        for each in found:
            print_json(limit_json(each))
        return
    rows = [
        [each.key, _describe_limit(each), str(each.held), str(each.waiting), _describe_gate(each)] for each in found
    ]
    print_table(["limit", "allows", "held", "waiting", "gate"], rows)
    if not found and on_terminal():
        print_note("there are no limits; `agentq limit set KEY 3` makes one.")


@limit.command("show")
def show(ctx: typer.Context, key: Key, json: Json = False) -> None:
    """Show a limit and its holders.

    \b
    Example: agentq limit show LIMIT
    """
    limits = connect_backend(ctx).limits
    found, holders = limits.get(key), limits.holders(key)
    if json:
        print_json(limit_json(found) | {"holders": holders})
        return
    held = ", ".join(holders) + (f" and {found.held - len(holders)} more" if found.held > len(holders) else "")
    print_pairs(
        [
            ("limit", found.key),
            ("allows", _describe_limit(found)),
            ("when full", found.when_full.value.replace("_", "-")),
            ("held", f"{found.held}{f' by {held}' if held else ''}"),
            ("waiting", str(found.waiting)),
            ("gate", _describe_gate(found)),
        ]
    )


@limit.command("rm")
def rm(ctx: typer.Context, key: Key) -> None:
    """Remove a limit; runs that wait for it continue.

    \b
    Example: agentq limit rm LIMIT
    """
    connect_backend(ctx).limits.remove(key)
    print_row(key, "not limited any more")


@limit.command("shut")
def shut(
    ctx: typer.Context,
    key: Key,
    until: Annotated[str | None, Opt(metavar="TIME", help="Until then: 16:00, or 2030-01-31T14:30.")] = None,
    duration: Annotated[str | None, Opt("--for", metavar="DURATION", help="For so long.")] = None,
    why: Annotated[str | None, Opt(metavar="TEXT", help="Reason, shown by `agentq why`.")] = None,
) -> None:
    """Admit no run under a key until a time; runs that hold it continue.

    \b
    Example: agentq limit shut account:anthropic --for 2h --why 'usage limit'
    """
    if (until is None) == (duration is None):
        raise Invalid("Give either --until TIME or --for DURATION.")
    for_ms = None if duration is None else parse_duration_option(duration, "--for")
    if for_ms == 0:
        raise Invalid(f"--for: {duration} is not a positive duration; write it like 2h.")
    at_ms = wall_ms() + for_ms if for_ms is not None else parse_time_ms(until or "")
    connect_backend(ctx, start=True).limits.shut(key, at_ms, why or "")
    print_row(key, f"shut until {format_iso(at_ms)}")


@limit.command("open")
def open_gate(ctx: typer.Context, key: Key) -> None:
    """Open a shut limit before its time.

    \b
    Example: agentq limit open LIMIT
    """
    limits = connect_backend(ctx).limits
    if limits.get(key).shut_until_ms is None:
        raise NotFound(f"The limit {key} is not shut.")
    limits.open(key)
    print_row(key, "open")


def _parse_rate(text: str, burst: int | None) -> LimitRate:
    units, slash, span = text.partition("/")
    if not slash or not units.isdecimal() or int(units) < 1:
        raise Invalid(f"--rate: {text[:40]!r} is not a rate; write it like 100/1m or 5000/1h.")
    per_ms = parse_duration_ms(span if span[:1].isdecimal() else f"1{span}")
    if per_ms < 1:
        raise Invalid(f"--rate: {text[:40]!r} has a duration of zero; write it like 100/1m.")
    if burst is not None and burst < 1:
        raise Invalid(f"--burst is 1 or more, not {burst}.")
    return LimitRate(units=int(units), per_ms=per_ms, burst=burst or int(units))


def _parse_when_full(word: str | None) -> LimitFullPolicy:
    names = {each.value.replace("_", "-"): each for each in LimitFullPolicy}
    if word is not None and word not in names:
        raise Invalid(f"--when-full is one of {', '.join(names)}, not {word[:40]!r}.")
    return names[word or "queue"]


def _describe_limit(found: LimitRecord) -> str:
    rate = found.rate
    told = [] if found.max is None else [f"{found.max} {'run' if found.max == 1 else 'runs'} at once"]
    if rate is not None:
        burst = "" if rate.burst == rate.units else f", {rate.burst} at once"
        told.append(f"{rate.units} in {format_duration(rate.per_ms)}{burst}")
    return " and ".join(told) or "anything"


def _describe_gate(found: LimitRecord) -> str:
    if found.shut_until_ms is None:
        return ""
    return f"shut until {format_iso(found.shut_until_ms)}{f': {found.shut_why}' if found.shut_why else ''}"
