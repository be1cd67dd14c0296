"""Options and arguments that several commands take."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Set
from typing import Annotated, Any, TypeVar

import typer

F = TypeVar("F", bound=Callable[..., Any])

TYPER_SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
"""Every command is made so. Help without rich costs a quarter of what it costs with it."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON: one object, or one on each line.")]
RUN_HELP = "An id, its beginning or its end, or PLAN/TASK"
NEWEST_RUN_HELP = f"{RUN_HELP}; the newest if not given."
RunId = Annotated[str, typer.Argument(metavar="RUN", help=f"{RUN_HELP}.")]
RunIds = Annotated[list[str], typer.Argument(metavar="RUN", help=f"{RUN_HELP}. Several may be given.")]
RunOrNewest = Annotated[str | None, typer.Argument(metavar="RUN", help=NEWEST_RUN_HELP)]
RunsOrNewest = Annotated[list[str] | None, typer.Argument(metavar="RUN", help=NEWEST_RUN_HELP)]


def with_options_of(command: Callable[..., Any], *, without: Set[str]) -> Callable[[F], F]:
    """Give a command, after its own options, those of another, so that each is written once. It takes them as `**`."""

    def give(function: F) -> F:
        own = {
            name: each
            for name, each in inspect.signature(function, eval_str=True).parameters.items()
            if each.kind is not each.VAR_KEYWORD
        }
        others = inspect.signature(command, eval_str=True).parameters
        taken = own | {name: each for name, each in others.items() if name not in own and name not in without}
        function.__signature__ = inspect.Signature(list(taken.values()))  # type: ignore[attr-defined]
        function.__annotations__ = {name: each.annotation for name, each in taken.items()}
        return function

    return give
