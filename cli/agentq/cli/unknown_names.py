"""Notes about names that nothing has yet: most of the time they are typing errors, and what they mean has no effect."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from agentq.cli.connect import ServerConnection, print_note

if TYPE_CHECKING:
    from agentq.coordinator.model.spec import RunSpec

RUNS_CHECKED = 20
"""Submitted runs whose queues are checked for workers."""


def note_unknown_limits(server: ServerConnection, specs: Iterable[RunSpec], *, but: Collection[str] = ()) -> None:
    """Name the limits of runs that nobody has set, each once; `but` are those that are about to be set."""
    keys = {key for spec in specs for key in spec.limits} - set(but)
    if not keys:
        return
    from agentq.coordinator.queues.limits import Limits, warn_unset_limits

    for sentence in warn_unset_limits(Limits(server.store), keys):
        print_note(sentence)


def note_unknown_queues(server: ServerConnection, names: Iterable[str]) -> None:
    """Name the queues that have had no run yet and that no worker serves."""
    from agentq.coordinator.queues.queues import Queues

    queues, wanted = Queues(server.store), list(names)
    known = {*server.records.queues(), *queues.paused(), *queues.drained()}
    if not known.issuperset(wanted):
        known |= {queue for worker in server.records.workers() for queue in worker.identity.queues}
    for name in wanted:
        if name not in known:
            meant = _suggest_name(name, known)
            print_note(f"no queue is called {name}{f'; {meant}' if meant else ' yet.'}")


def _suggest_name(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    return next((f"did you mean {close}?" for close in get_close_matches(name, list(known), n=1)), "")
