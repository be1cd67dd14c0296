"""The few things that can be done without reaching the server: by what stands in its place.

In an agent's run that is the door of its worker; elsewhere a coordinator, if the address is one's: `https://…`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Protocol

import typer

from agentq.cli.agent_socket import AgentSocketBackend
from agentq.cli.connect import read_settings
from agentq.coordinator.bounds import LIST_PER_CALL
from agentq.coordinator.errors import NotFound
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.logs import RunLogEntry
from agentq.coordinator.runs.queries import RunFilter
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import SubmitReceipt
from agentq.coordinator.storage.url import is_coordinator_url


class RemoteBackend(Protocol):
    """What stands in the place of a server, as far as it is one."""

    def find(self, text: str | None, *, live: bool = False) -> str:
        """The id of the run that was typed, or of the newest."""

    def get(self, run_id: str) -> RunRecord:
        """A run, whole."""

    def wait(self, run_id: str, timeout_ms: int | None = None) -> RunRecord:
        """A run, once it has ended."""

    def cancel(self, run_id: str, reason: str) -> State:
        """End a run."""

    def logs(self, run_id: str, after: str, *, follow: bool) -> Iterator[RunLogEntry]:
        """What a run has written after a place up to now, or until it has ended."""


class CoordinatorBackend:
    """A coordinator, by the Python SDK."""

    def __init__(self, url: str) -> None:
        from agentq.sdk.client import connect

        self._client = connect(url)

    @classmethod
    def here(cls, ctx: typer.Context) -> CoordinatorBackend | None:
        """The coordinator that the settings name; None if what they name is no coordinator."""
        url = read_settings(ctx).settings.url
        if not is_coordinator_url(url):
            return None
        found = cls(url.strip())
        ctx.call_on_close(found._client.close)
        return found

    def submit(self, specs: Iterable[RunSpec], *, durable: bool = False) -> Iterable[SubmitReceipt]:
        backend = self._client.backend
        if durable:
            return [backend.submit(spec, durable=True) for spec in specs]
        return backend.submit_many(specs)

    def find(self, text: str | None, *, live: bool = False) -> str:
        return self._client.backend.find(text, live=live)

    def matching(self, which: RunFilter, labels: Mapping[str, str]) -> Iterator[str]:
        """The ids of the runs that a filter takes and that have these labels, newest first."""
        cursor: str | None = ""
        while cursor is not None:
            page = self._client.backend.page(which, limit=LIST_PER_CALL, cursor=cursor or None)
            for run in page.runs:
                with suppress(NotFound):  # forgotten since it was listed
                    if not labels or labels.items() <= self.get(run.id).spec.labels.items():
                        yield run.id
            cursor = page.cursor

    def get(self, run_id: str) -> RunRecord:
        return self._client.run(run_id).record()

    def wait(self, run_id: str, timeout_ms: int | None = None) -> RunRecord:
        self._client.run(run_id).wait(None if timeout_ms is None else timeout_ms / 1000)
        return self.get(run_id)

    def cancel(self, run_id: str, reason: str) -> State:
        return self._client.run(run_id).cancel(reason)

    def logs(self, run_id: str, after: str, *, follow: bool) -> Iterator[RunLogEntry]:
        return self._client.run(run_id).logs(follow=follow, after=after)


def find_remote_backend(ctx: typer.Context) -> AgentSocketBackend | CoordinatorBackend | None:
    """What stands in the place of the server; None where it is reached as ever."""
    return AgentSocketBackend.here(ctx) or CoordinatorBackend.here(ctx)
