"""`agentq completion`: prints shell completion code for commands and options."""

from __future__ import annotations

from typing import Annotated

import typer
from typer._completion_shared import get_completion_script

from agentq.coordinator.errors import Invalid

SHELLS = ("bash", "zsh", "fish")


def completion(shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print the shell code that completes commands and options.

    For bash, put `eval "$(agentq completion bash)"` into ~/.bashrc; for zsh, the same with zsh into ~/.zshrc; for fish,
    run `agentq completion fish > ~/.config/fish/completions/agentq.fish`.

    \b
    Example: agentq completion bash
    """
    if shell not in SHELLS:
        raise Invalid(f"{shell[:40]!r} is not a shell that can be completed for; there are {', '.join(SHELLS)}.")
    print(get_completion_script(prog_name="agentq", complete_var="_AGENTQ_COMPLETE", shell=shell))
