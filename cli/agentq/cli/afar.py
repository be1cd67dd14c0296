"""The few things that can be done without reaching the server: by what stands in its place.

In an agent's run that is the door of its worker; elsewhere a coordinator, if the address is one's: `https://…`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Protocol

import typer

from agentq.cli.door import Door
from agentq.cli.server import settings_of
from agentq.coordinator.errors import NotFound
from agentq.coordinator.events import BEGINNING
from agentq.coordinator.life import Run
from agentq.coordinator.lifecycle import State
from agentq.coordinator.logs import LogEntry
from agentq.coordinator.queue import Receipt
from agentq.coordinator.records import Filter
from agentq.coordinator.run import RunSpec
from agentq.coordinator.url import is_coordinator


class Afar(Protocol):
    """What stands in the place of a server, as far as it is one."""

    def find(self, text: str | None, *, live: bool = False) -> str:
        """The id of the run that was typed, or of the newest."""

    def get(self, run_id: str) -> Run:
        """A run, whole."""

    def wait(self, run_id: str, timeout_ms: int | None = None) -> Run:
        """A run, once it has ended."""

    def cancel(self, run_id: str, reason: str) -> State:
        """End a run."""

    def log(self, run_id: str, *, follow: bool = False, after: str = BEGINNING) -> Iterator[LogEntry]:
        """What a run has written after a place up to now, or until it has ended."""


class Coordinator:
    """A coordinator, by the Python SDK."""

    def __init__(self, url: str) -> None:
        from agentq.sdk.client import connect

        self._client = connect(url)

    @classmethod
    def here(cls, ctx: typer.Context) -> Coordinator | None:
        """The coordinator that the settings name; None if what they name is no coordinator."""
        url = settings_of(ctx).settings.url
        if not is_coordinator(url):
            return None
        found = cls(url.strip())
        ctx.call_on_close(found._client.close)
        return found

    def submit(self, specs: Iterable[RunSpec], *, durable: bool = False) -> Iterable[Receipt]:
        backend = self._client.backend
        if durable:
            return [backend.submit(spec, durable=True) for spec in specs]
        return backend.submit_many(specs)

    def find(self, text: str | None, *, live: bool = False) -> str:
        return self._client.backend.find(text, live=live)

    def matching(self, which: Filter, labels: Mapping[str, str]) -> Iterator[str]:
        """The ids of the runs that a filter takes and that have these labels, newest first."""
        for run_id in self._client.backend.matching(which):
            with suppress(NotFound):  # forgotten since it was listed
                if not labels or labels.items() <= self.get(run_id).spec.labels.items():
                    yield run_id

    def get(self, run_id: str) -> Run:
        return self._client.run(run_id).record()

    def wait(self, run_id: str, timeout_ms: int | None = None) -> Run:
        self._client.run(run_id).wait(None if timeout_ms is None else timeout_ms / 1000)
        return self.get(run_id)

    def cancel(self, run_id: str, reason: str) -> State:
        return self._client.run(run_id).cancel(reason)

    def log(self, run_id: str, *, follow: bool = False, after: str = BEGINNING) -> Iterator[LogEntry]:
        return self._client.run(run_id).logs(follow=follow, after=after)


def afar(ctx: typer.Context) -> Door | Coordinator | None:
    """What stands in the place of the server; None where it is reached as ever."""
    return Door.here(ctx) or Coordinator.here(ctx)
