"""What a backend does with runs beside the verbs: calls of one function, waits for ends, and what it knows of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from agentq.coordinator.bounds import LIST_PER_CALL
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.runs.end_waiter import WakeFlag
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import SubmitReceipt

if TYPE_CHECKING:
    from agentq.coordinator.runs.queries import RunFilter, RunListPage


class Explanation(NamedTuple):
    """Where a run stands, and why: the most important sentence first."""

    state: State
    because: list[str]


class RunPages(Protocol):
    """Lists runs, a page at a time: a backend."""

    def page(self, which: RunFilter, *, limit: int = 100, cursor: str | None = None) -> RunListPage: ...


def list_run_ids(backend: RunPages, which: RunFilter) -> Iterator[str]:
    """The ids of the runs that a filter takes, newest first, page by page."""
    cursor: str | None = None
    while True:
        page = backend.page(which, limit=LIST_PER_CALL, cursor=cursor)
        yield from (entry.id for entry in page.runs)
        cursor = page.cursor
        if cursor is None:
            return


class CallSubmitter(Protocol):
    """Submits calls of one function, given the texts of their arguments."""

    def submit(self, arguments: str, *, durable: bool = False) -> SubmitReceipt: ...

    def submit_many(self, arguments: Sequence[str]) -> list[SubmitReceipt]: ...


class RunWatcher(Protocol):
    """Looks at runs, and is rung when one may have ended."""

    def get(self, run_id: str) -> RunRecord:
        """A run, whole."""

    def looked_at(self, run_ids: Sequence[str], *, likely: bool) -> dict[str, RunRecord | AgentqError | None]:
        """Those of these runs that have ended, or what keeps us from knowing it of one; None for one that has not.

        `likely` says that they probably have.
        """

    def enter(self, run_id: str, bell: WakeFlag) -> None:
        """Have a bell rung from now on whenever it is time to look at a run."""

    def leave(self, run_id: str, bell: WakeFlag) -> None:
        """Do not ring it any more."""

    def close(self) -> None: ...
