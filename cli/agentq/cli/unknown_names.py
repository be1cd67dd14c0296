"""Notes about names that nothing has yet: most of the time they are typing errors, and what they mean has no effect."""

from __future__ import annotations

from collections.abc import Iterable

from agentq.cli.connect import ServerConnection, print_note


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
