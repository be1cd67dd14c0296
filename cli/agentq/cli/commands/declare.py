"""`agentq declare`: within an agent's run, declares that ending without a change is right."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

from agentq.cli.connect import print_note
from agentq.coordinator.errors import Invalid

DECLARATION = "no-changes"
WHY_CHARACTERS = 4_000


def declare(
    what: Annotated[str, typer.Argument(metavar=DECLARATION, help="What is declared.")],
    why: Annotated[str, typer.Argument(metavar="WHY", help="The reason, in a sentence.")],
) -> None:
    """Within an agent's run: declare that no change is needed, and why.

    Use it in a run that is expected to change files. Needs no server: the declaration is written to the file that
    AGENTQ_RESULT names, and becomes the result of the run.

    \b
    Example: agentq declare no-changes "The tests pass already."
    """
    if what != DECLARATION:
        raise Invalid(f"Only {DECLARATION!r} can be declared, not {what[:80]!r}.")
    if not why.strip() or len(why) > WHY_CHARACTERS:
        raise Invalid(f"Say why, in {WHY_CHARACTERS} characters at most.")
    path = os.environ.get("AGENTQ_RESULT")
    if not path:
        raise Invalid("`agentq declare` is said within a run, and this is none: AGENTQ_RESULT is not set.")
    try:
        with open(f"{path}.part", "w", encoding="utf-8") as file:
            json.dump({DECLARATION.replace("-", "_"): why}, file)
        os.replace(f"{path}.part", path)
    except OSError as error:
        raise Invalid(f"It cannot be written to {path}: {error.strerror}.") from error
    print_note("declared; end now, without a change.")
