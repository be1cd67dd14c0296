"""Notes about names that nothing has yet: most of the time they are typing errors, and what they mean has no effect."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from agentq.cli.connect import print_note
from agentq.coordinator.errors import NotAllowed

if TYPE_CHECKING:
    from agentq.sdk.backend import Backend


def note_unknown_queues(backend: Backend, names: Iterable[str]) -> None:
    """Name the queues that have no run and that no worker serves."""
    from agentq.coordinator.queues.queues import check_queue_name

    wanted = [check_queue_name(name) for name in names]
    known = {each.queue for each in backend.queues.all()}
    if not known.issuperset(wanted):
        try:
            known |= {queue for worker in backend.workers.all() for queue in worker.queues}
        except NotAllowed:
            return  # a token of some queues does not see the others
    for name in wanted:
        if name not in known:
            meant = _suggest_name(name, known)
            print_note(f"no queue is called {name}{f'; {meant}' if meant else ' yet.'}")


def _suggest_name(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    return next((f"did you mean {close}?" for close in get_close_matches(name, list(known), n=1)), "")
