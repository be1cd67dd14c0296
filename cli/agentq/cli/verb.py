"""A verb that is said to several runs: all hear it, and each tells what became of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentq.cli.render import paint, print_json
from agentq.cli.server import note
from agentq.coordinator.errors import NotFound, Refused, TryLater
from agentq.coordinator.lifecycle import HELD, State


def stopping(state: State) -> str:
    """What there is to add for one that is to end."""
    return "is being stopped" if state in HELD else ""


def say_to_all(
    ids: Sequence[str], verb: Callable[[str], State], *, json: bool, add: Callable[[State], str] = stopping
) -> int:
    """The exit code of the first refusal, which keeps nobody else from being told; 0 without one."""
    code = 0
    for run_id in ids:
        try:
            state = verb(run_id)
        except (Refused, NotFound, TryLater) as refused:
            note(str(refused))
            code = code or refused.exit_code
            continue
        if json:
            print_json({"id": run_id, "state": state.value})
        else:
            print("  ".join(filter(None, (run_id, paint(state.value), add(state)))))
    return code
