"""A verb that is said to several runs: all hear it, and each tells what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from agentq.cli.connect import print_note
from agentq.cli.render import print_json, print_row
from agentq.coordinator.errors import NotFound, Refused, TryLater
from agentq.coordinator.model.lifecycle import HELD_STATES, State


class ApplyResult(NamedTuple):
    """What came of it: the exit code of the first refusal, 0 without one, and how many did as they were told."""

    code: int
    done: int


def stopping_note(state: State) -> str:
    """What there is to add for one that is to end."""
    return "is being stopped" if state in HELD_STATES else ""


def apply_to_runs(
    ids: Iterable[str], verb: Callable[[str], State], *, json: bool, add: Callable[[State], str] = stopping_note
) -> ApplyResult:
    """Apply the verb to each; a refusal does not stop the rest."""
    code = done = 0
    for run_id in ids:
        try:
            state = verb(run_id)
        except (Refused, NotFound, TryLater) as refused:
            print_note(str(refused))
            code = code or refused.exit_code
            continue
        done += 1
        if json:
            print_json({"id": run_id, "state": state.value})
        else:
            print_row(run_id, state.value, add(state))
    return ApplyResult(code, done)
