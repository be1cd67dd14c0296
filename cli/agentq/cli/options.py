"""Options and arguments that several commands take."""

from __future__ import annotations

from typing import Annotated, Any

import typer

STYLE: dict[str, Any] = {
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
"""Every command is made so. Help without rich costs a quarter of what it costs with it."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON: one object, or one on each line.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="An id, or a beginning that only one id has.")]
RunIds = Annotated[list[str], typer.Argument(metavar="RUN", help="Ids, or beginnings that only one id has.")]
