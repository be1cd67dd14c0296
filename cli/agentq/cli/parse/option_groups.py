"""The help of commands that take the options of a run: the common ones in groups; all of them with `--help-all`."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from agentq.cli.options import TYPER_SETTINGS

COMMON_OPTIONS = frozenset({
    *("agent", "function", "env", "cwd"),
    *("queue", "priority", "delay", "at", "after", "limit"),
    *("retries", "timeout"),
    *("wait", "follow", "json"),
})  # fmt: skip

OPTION_GROUPS: dict[str, tuple[str, ...]] = {
    "What to run": (
        *("agent", "function", "prompt_file", "from_jsonl", "name", "label"),
        *("env", "env_from", "cwd", "stdin"),
    ),
    "Where and when": (
        *("queue", "priority", "fair_key", "demand", "limit"),
        *("delay", "at", "expires", "after", "on_failed"),
    ),
    "Retries": (
        *("retries", "backoff", "retry_delay", "retry_delay_max", "no_jitter"),
        *("max_elapsed", "retry_on", "never_retry"),
    ),
    "Bounds": ("timeout", "silence", "grace", "on_drain", "memory", "cpu_time", "nice"),
    "Agents": (
        *("model", "permissions", "may_submit", "trust", "account", "max_cost", "max_tokens", "max_turns"),
        *("expect", "on_limit", "session", "startup", "linger"),
    ),
    "Plans and children": ("plan", "task", "needs", "parent", "child", "children"),
    "Duplicates": ("dedupe_key", "if_live", "dedupe_ttl", "debounce_max"),
    "Result": ("wait", "follow", "json", "durable", "keep"),
}
"""Every option of a run, by what it is about."""

RUN_OPTIONS = frozenset(name for names in OPTION_GROUPS.values() for name in names)
NAME_COLUMNS = 30
"""As wide as the parser lets the names of options be before their help begins on a line of its own."""
SHOW_ALL = "agentq.help_all"


def _print_all(ctx: typer.Context, param: typer.CallbackParam, value: bool) -> None:
    del param
    if value and not ctx.resilient_parsing:
        ctx.meta[SHOW_ALL] = True
        typer.echo(ctx.get_help())
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option(
        "--help-all", is_eager=True, expose_value=False, callback=_print_all, help="Show every option and exit."
    ),
]


@cache
def _help_all_options() -> list[Any]:
    """`--help-all`, as the parser has it."""

    def anything(help_all: HelpAll = False) -> None:
        """Only its option is used."""

    made = typer.Typer(**TYPER_SETTINGS)
    made.command()(anything)
    return list(typer.main.get_command(made).params)


class GroupedCommand(TyperCommand):
    """A command whose `--help` shows its own options and the common ones of a run, in groups."""

    def get_params(self, ctx: Any) -> list[Any]:
        return [*super().get_params(ctx), *_help_all_options()]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        rows = {param: row for param in self.get_params(ctx) if (row := param.get_help_record(ctx)) is not None}
        shown = frozenset(RUN_OPTIONS if ctx.meta.get(SHOW_ALL) else COMMON_OPTIONS)
        rows = {param: row for param, row in rows.items() if param.name in shown or param.name not in RUN_OPTIONS}
        width = min(max(len(name) for name, _ in rows.values()), NAME_COLUMNS)
        for title, params in _group(list(rows)).items():
            with formatter.section(title):
                formatter.write_dl([(rows[param][0].ljust(width), rows[param][1]) for param in params])


def _group(params: list[Any]) -> dict[str, list[Any]]:
    """Parameters by the title that they stand under; a command's own are first, the arguments before all."""
    named = {param.name: param for param in params}
    arguments = [param for param in params if param.param_type_name == "argument"]
    own = [param for param in params if param.name not in RUN_OPTIONS and param not in arguments]
    groups = {title: [named[name] for name in names if name in named] for title, names in OPTION_GROUPS.items()}
    return {title: found for title, found in {"Arguments": arguments, "Options": own, **groups}.items() if found}
