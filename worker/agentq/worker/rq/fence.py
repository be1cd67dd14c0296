"""The fence of an attempt, in RQ's terms: a client that writes nothing for an attempt that was superseded.

RQ writes what becomes of a job in transactions. Here each of them watches the run that the job is, and looks for the
attempt's own fence before it is sent: if the run has gone on without this attempt, or does so before the transaction
is executed, nothing of it is. So between the look and the write there is no gap, however long the process is stopped
there. In the same transaction as the outcome, the job leaves the record of those whose outcome is to be told.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import redis
from redis import ConnectionPool, Redis, WatchError
from redis.client import Pipeline
from rq.utils import as_text

from agentq.coordinator.errors import Fenced, Refused

WRITE_COMMANDS = frozenset(
    ("HSET", "HDEL", "HINCRBY", "HINCRBYFLOAT", "PERSIST", "EXPIRE", "DEL", "ZADD", "ZREM", "SADD", "SREM", "LREM")
)
"""Commands by which RQ writes of a job outside of a transaction."""
RQ_KEY_PREFIX = "rq:"


class OutcomeAlreadyWritten(Refused):
    """The outcome of this job is written already."""


@dataclass
class RqFence:
    """What an attempt has to show, and what it has to close."""

    run_key: str
    """The hash of the run."""
    text: str
    """The fence that it got with its claim."""
    jobs_key: str
    """The record of jobs whose outcome is to be told."""
    run: str
    """The field of that record which this attempt closes: its own run's, as a rule."""
    closing: bool = False
    """Whether the next transaction is the outcome."""
    outcome_written: bool = False
    """Whether the outcome was found to be written already."""
    broken: bool = False
    """Whether it could not be written, or nobody can say."""

    def check(self, holder: str | None, is_open: bool) -> None:
        """Refuse an attempt that has the run no longer, and one whose outcome is there, though its reply was lost."""
        if holder != self.text:
            raise Fenced(f"The run {self.run} has gone on without this attempt; nothing more is written of its job.")
        if self.broken:
            raise redis.ConnectionError(f"The outcome of the run {self.run} could not be written.")
        self.outcome_written = self.outcome_written or (self.closing and not is_open)
        if self.outcome_written:
            raise OutcomeAlreadyWritten(f"The outcome of the run {self.run} is written already.")


class FencedPipeline(Pipeline):
    """A transaction that is executed only while its attempt has the run."""

    def __init__(self, pool: ConnectionPool, callbacks: Any, fence: RqFence, *, closes: bool) -> None:
        self._fence = fence
        self._closes = closes
        self._watching = False
        self._watched_values: dict[Any, Any] = {}
        super().__init__(pool, callbacks, True, None)

    def reset(self) -> None:  # type: ignore[override]
        self._watching = False
        super().reset()

    def watch(self, *names: Any) -> None:
        """Watch the run too, and look whether it is still ours: from here on any change ends the transaction."""
        self._watch_run(*names)
        self._watched_values = self._read_values(names)

    def _watch_run(self, *names: Any) -> None:
        fence = self._fence
        super().watch(*names, fence.run_key)  # type: ignore[no-untyped-call]
        holder: Any = self.immediate_execute_command("HGET", fence.run_key, "fence")  # type: ignore[no-untyped-call]
        is_open = self.immediate_execute_command("HEXISTS", fence.jobs_key, fence.run)  # type: ignore[no-untyped-call]
        try:
            fence.check(holder if holder is None else as_text(holder), bool(is_open))
        except (Refused, redis.ConnectionError):
            self.reset()
            raise
        self._watching = True

    def _read_values(self, names: Iterable[Any]) -> dict[Any, Any]:
        """What stands in the keys that the caller watches."""
        return {name: self.immediate_execute_command("DUMP", name) for name in names}  # type: ignore[no-untyped-call]

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """All of it, or nothing."""
        if not self.command_stack:
            return super().execute(raise_on_error)
        closes = self._closes and self._fence.closing
        if closes:
            self.pipeline_execute_command("HDEL", self._fence.jobs_key, self._fence.run)
        try:
            replies = self._execute_until_done(raise_on_error)
        except (Refused, WatchError):
            raise
        except BaseException:
            # What comes next must not be taken for the outcome.
            self._fence.broken = self._fence.broken or closes
            raise
        if closes:
            self._fence.closing = False
            del replies[-1:]
        return replies

    def _execute_once(self, raise_on_error: bool) -> list[Any]:
        replies: list[Any] = super().execute(raise_on_error)
        return replies

    def _execute_until_done(self, raise_on_error: bool) -> list[Any]:
        """Send it again where the run was changed, perhaps by a word of its own worker. Where what the caller watches
        has changed, it is theirs to try again."""
        stack, scripts, seen = (
            list(self.command_stack),
            set(self.scripts),
            self._watched_values if self._watching else {},
        )
        while True:
            try:
                if not self._watching:
                    # After MULTI redis-py refuses to watch; nothing has been sent yet, so here that is of no account.
                    self.explicit_transaction = False
                    self._watch_run(*seen)
                    if self._read_values(seen) != seen:
                        break
                    self.command_stack, self.scripts = list(stack), set(scripts)
                return self._execute_once(raise_on_error)
            except WatchError:
                # So redis-py calls a connection that broke, too.
                self.reset()
        self.reset()
        raise WatchError("Watched variable changed.")


class FencedRedis(Redis):
    """A client for one attempt at a job."""

    def __init__(self, pool: ConnectionPool, fence: RqFence) -> None:
        super().__init__(connection_pool=pool)
        self.fence = fence

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> Pipeline:  # noqa: ARG002 - always one
        return self._fenced(closes=True)

    def _fenced(self, *, closes: bool) -> FencedPipeline:
        return FencedPipeline(self.connection_pool, self.response_callbacks, self.fence, closes=closes)

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """What RQ writes by a single command is a transaction of one; all else, and what functions do, goes its way."""
        if args[0] not in WRITE_COMMANDS or not str(args[1]).startswith(RQ_KEY_PREFIX):
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        with self._fenced(closes=False) as alone:
            alone.execute_command(*args, **options)  # type: ignore[no-untyped-call]
            return alone.execute()[0]

    def check(self) -> None:
        """Refuse, if the attempt was superseded."""
        with self.pipeline() as pipeline:
            pipeline.watch()  # type: ignore[no-untyped-call]

    def is_outcome_written(self) -> bool:
        """Whether the outcome was written already, by this attempt or an earlier one whose worker then died."""
        return not self.hexists(self.fence.jobs_key, self.fence.run)
