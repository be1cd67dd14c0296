"""An in-memory queue: the real scripts on fakeredis, with a clock that tests move."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import AgentqError, Invalid
from agentq.coordinator.runs.queries import RunQueries
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.coordinator.storage.connection import CommandArgument, Connection
from agentq.coordinator.storage.keys import Keyspace
from agentq.coordinator.storage.scripts import ScriptSet
from agentq.coordinator.storage.store import NamespaceStore
from agentq.sdk.client import Client
from agentq.sdk.errors import StillGoing
from agentq.sdk.redis_backend import RedisBackend
from agentq.sdk.wait.run_ends import EndCallback, RunWaiters
from agentq.testing.clock import Clock

MISSING_FAKEREDIS = (
    "The testing kit keeps its queue in fakeredis, which is not installed; run `pip install 'fakeredis[lua]'`."
)


class MemoryQueue(RunVerbs):
    """The verbs of runs, on an in-memory server."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.submitted: Callable[[], None] | None = None
        """Called after every submit."""
        connection = Connection("redis://memory", client=_create_fake_redis())
        super().__init__(_MemoryStore(connection, self))


class MemoryClient(Client):
    """A client of an in-memory queue. Runs are executed only by a `Worker` of this kit."""

    _blocks = False

    def __init__(self, queue: MemoryQueue | None = None) -> None:
        self.memory = queue or MemoryQueue()
        super().__init__(lambda: RedisBackend(self.memory, Settings()))

    @property
    def clock(self) -> Clock:
        """The clock of its queue."""
        return self.memory.clock

    @property
    def endings(self) -> RunWaiters:
        """The waits for runs: there are none, since no run proceeds while a test waits."""
        return _NoWaiters(self.records)

    def peek_endings(self) -> RunWaiters:
        return self.endings


class _NoWaiters(RunWaiters):
    """Refuses at once to wait."""

    def __init__(self, records: RunQueries) -> None:
        self._records = records

    def now(self, run_id: str) -> RunRecord | None:
        run = self._records.get(run_id)
        return run if run.finished_at_ms is not None else None

    def on_end(self, run_id: str, told: EndCallback) -> None:
        try:
            run = self._records.get(run_id)
            ended = run.finished_at_ms is not None
            told(run if ended else StillGoing(_not_ended_message(run)))
        except AgentqError as fault:
            told(fault)

    def leave(self, run_id: str, told: EndCallback) -> None:
        """There are no callbacks to remove."""

    def close(self) -> None:
        """Nothing to close."""


def _not_ended_message(run: RunRecord) -> str:
    why = f" ({run.reason})" if run.reason else ""
    return (
        f"The run {run.id} is {run.state}{why}, and nothing executes it while the test waits; run the worker of the "
        "testing kit first, with run_all() or run_until_idle()."
    )


class _MemoryStore(NamespaceStore):
    """A store that reports submits."""

    def __init__(self, connection: Connection, queue: MemoryQueue) -> None:
        clock = queue.clock
        super().__init__(
            connection, Keyspace("test"), scripts=_load_scripts(), clock=lambda: clock.now_ms, dice=lambda: 0.5
        )
        self._queue = queue

    def call(self, script: str, partition: int, *arguments: CommandArgument) -> Any:
        reply = super().call(script, partition, *arguments)
        self._notify_submitted(script)
        return reply

    def call_many(self, script: str, calls: Iterable[tuple[int, Sequence[CommandArgument]]]) -> Iterator[Any]:
        yield from super().call_many(script, calls)
        self._notify_submitted(script)

    def _notify_submitted(self, script: str) -> None:
        if script == "run/submit" and self._queue.submitted is not None:
            self._queue.submitted()


@cache
def _load_scripts() -> ScriptSet:
    """The scripts without their line of flags, which fakeredis would pass to Lua."""
    return ScriptSet(lambda name, text: text.partition("\n")[2] if name == "whole" else text)


def _create_fake_redis() -> Any:
    # fakeredis runs scripts with lupa, which only its extra brings.
    try:
        import fakeredis
    except ImportError as error:
        raise Invalid(MISSING_FAKEREDIS) from error
    if find_spec("lupa") is None:
        raise Invalid(MISSING_FAKEREDIS)
    return fakeredis.FakeRedis(server=fakeredis.FakeServer(server_type="redis", version=(7, 0)))
