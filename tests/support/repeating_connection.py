"""A connection on which every reply is lost once: each script is sent again, and the second reply is what comes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agentq.coordinator.storage.connection import CommandArgument, Connection, ScriptCall, ScriptSource

FIND_LESS = (
    "duty/run_timers",
    "duty/notify_dependents",
    "duty/reap_workers",
    "repair/lane",
    "repair/queue",
    "schedule/fire",
    "plan/cancel",
    "plan/retry",
)
"""Duties and their like, which say how much they found, or left, to do: the second time nothing."""


class Repeating(Connection):
    """Sends everything twice, and holds the second reply against the first."""

    def script(self, source: ScriptSource, key: str, args: Sequence[CommandArgument]) -> Any:
        first = super().script(source, key, args)
        again = super().script(source, key, args)
        if source.name not in FIND_LESS:
            assert _told(source.name, again) == _told(source.name, first), f"{source.name} {args}"
        return again

    def scripts(self, calls: Iterable[ScriptCall], **_: int) -> Iterator[Any]:
        return (self.script(*call) for call in calls)


def _told(script: str, reply: Any) -> Any:
    """What a reply says; but whether a worker is new is true only once."""
    return [*reply[:2], *reply[3:]] if script == "worker/register" and reply[0] == "ok" else reply
