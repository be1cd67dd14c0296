"""How command lines are parsed where typer alone would be wrong: options of every command, and commands in commands.

1. `--url`, `--namespace` and `--config` are understood before and after any command.
2. What follows a command that is to run belongs to that command. If it is one of our own options, and no `--` says that
   it is meant for the command, it was put in the wrong place.
3. `agentq run` takes a plan file; `agentq run -- COMMAND` is `agentq submit --follow -- COMMAND`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from agentq.cli.options import TYPER_SETTINGS
from agentq.cli.parse.option_groups import GroupedCommand
from agentq.coordinator.config.settings_files import CONFIG_VARIABLE

# typer has no public name for what its parser raises.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def prepare_command(command: Any) -> Any:
    """A command as it is parsed, with those below it."""
    for param in command.params:
        if not param.required and param.callback is None:
            # To build a converter for each of fifty options costs a tenth of a start, so only for what was given.
            param.process_value = partial(_convert_given, param.process_value)
    named = {param.name for param in command.params}
    command.params += [param for param in _global_options() if param.name not in named]
    for below in getattr(command, "commands", {}).values():
        prepare_command(below)
    return command


def _convert_given(convert: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    return None if value is None else convert(ctx, value)


def _remember_option(ctx: typer.Context, param: typer.CallbackParam, value: str | None) -> None:
    if value is not None:
        root = ctx.find_root()
        root.obj = {**(root.obj or {}), param.name or "": value}


def set_config_file(ctx: typer.Context, path: str | None) -> None:
    """Have a settings file read while the command lasts, here and by every process that it starts."""
    if path is not None:
        ctx.find_root().call_on_close(partial(_set_variable, CONFIG_VARIABLE, os.environ.get(CONFIG_VARIABLE)))
        _set_variable(CONFIG_VARIABLE, os.path.abspath(os.path.expanduser(path)))


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


@cache
def _global_options() -> list[Any]:
    """The options of every command, as its parser has them."""

    def anywhere(url: GlobalOption = None, namespace: GlobalOption = None, config: GlobalConfigOption = None) -> None:
        """Only its options are used."""

    made = typer.Typer(**TYPER_SETTINGS)
    made.command()(anywhere)
    return list(typer.main.get_command(made).params)


GlobalOption = Annotated[str | None, typer.Option(hidden=True, expose_value=False, callback=_remember_option)]
GlobalConfigOption = Annotated[str | None, typer.Option(hidden=True, expose_value=False, callback=set_config_file)]


class SubmitCommand(GroupedCommand):
    """`agentq submit`: refuses an option of ours among the words of the command, unless `--` stands before it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = list(args)
        rest = super().parse_args(ctx, args)
        words = ctx.params.get("command") or []
        before = given[: len(given) - len(words)]
        if before[-1:] != ["--"] and ctx.params.get("agent") is None:
            self._check(ctx, words[: words.index("--")] if "--" in words else words)
        return rest

    def _check(self, ctx: Any, words: Sequence[str]) -> None:
        own = {name for param in self.params for name in param.opts if name.startswith("--")}
        for word in words[1:]:
            option = word.partition("=")[0]
            if option in own:
                raise UsageError(
                    f"{option} after the command is passed to {words[0][:80]}: put it before the command, or write -- "
                    f"before the command if it is meant for {words[0][:80]}",
                    ctx,
                )


class RunCommand(TyperCommand):
    """`agentq run`: says what to type where a command was given instead of a plan file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except UsageError:
            if words and not words[0].startswith("-") and not is_plan_file(words[0]):
                raise UsageError(not_a_plan_message(words), ctx) from None
            raise


def not_a_plan_message(words: Sequence[str]) -> str:
    """The error for a command that was given in the place of a plan file."""
    from shlex import join

    return (
        f"`agentq run` takes {words[0][:80]!r} for a plan file, and there is no such file; "
        f"to run a command, type `agentq run -- {join(words)[:200]}`"
    )


def is_plan_file(text: str) -> bool:
    """Whether a file is meant, rather than a command, or a plan that was submitted."""
    _, ending = os.path.splitext(text)
    return text == "-" or ending in (".yaml", ".yml", ".json", ".jsonl", ".ndjson") or os.path.isfile(text)


def is_command_line(args: Sequence[str]) -> bool:
    """Whether the words after `agentq run` are a command to submit and follow, rather than a plan file."""
    return "--" in args[:-1]


COMMAND_CLASSES: dict[str, type[TyperCommand]] = {"submit": SubmitCommand, "run": RunCommand}
"""Commands that are parsed in their own way."""
