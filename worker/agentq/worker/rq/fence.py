"""Fences an attempt at an RQ job: its client writes nothing once the attempt was superseded.

RQ writes the outcome of a job in transactions. Each of them watches the job's run and reads the attempt's fence before
it is sent: if another attempt has the run, or gets it before the transaction executes, nothing is written. So there is
no gap between check and write, however long the process is stopped there. The same transaction removes the job from the
record of jobs whose outcome is to be told.
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
"""Commands by which RQ writes a job outside of transactions."""
RQ_KEY_PREFIX = "rq:"


class OutcomeAlreadyWritten(Refused):
    """The outcome of this job is written already."""


@dataclass
class RqFence:
    """What an attempt has to present, and which entry it has to close."""

    run_key: str
    """The hash of the run."""
    text: str
    """The fence that it got with its claim."""
    jobs_key: str
    """The record of jobs whose outcome is to be told to RQ."""
    run: str
    """The field of that record which this attempt closes: usually its own run's."""
    closing: bool = False
    """Whether the next transaction writes the outcome."""
    outcome_written: bool = False
    """Whether the outcome was found to be written already."""
    broken: bool = False
    """Whether writing the outcome failed, or may have."""

    def check(self, holder: str | None, is_open: bool) -> None:
        """Refuse a fenced attempt, and one whose outcome is written already although its reply was lost."""
        if holder != self.text:
            raise Fenced(f"Another attempt has the run {self.run}; this one writes nothing more of its job.")
        if self.broken:
            raise redis.ConnectionError(f"The outcome of the run {self.run} could not be written.")
        self.outcome_written = self.outcome_written or (self.closing and not is_open)
        if self.outcome_written:
            raise OutcomeAlreadyWritten(f"The outcome of the run {self.run} is written already.")


class FencedPipeline(Pipeline):
    """A transaction that executes only while its attempt holds the run."""

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
        """Watch the run too, and check its fence: from here on any change aborts the transaction."""
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
        """The values of the keys that the caller watches."""
        return {name: self.immediate_execute_command("DUMP", name) for name in names}  # type: ignore[no-untyped-call]

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Execute everything or nothing."""
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
            # The next transaction must not be taken for the outcome.
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
        """Retry when the run has changed, perhaps by a report of its own worker. If keys that the caller watches have
        changed, the caller has to retry.
        """
        stack, scripts, seen = (
            list(self.command_stack),
            set(self.scripts),
            self._watched_values if self._watching else {},
        )
        while True:
            try:
                if not self._watching:
                    # After MULTI redis-py refuses to watch; nothing has been sent yet, so it is safe here.
                    self.explicit_transaction = False
                    self._watch_run(*seen)
                    if self._read_values(seen) != seen:
                        break
                    self.command_stack, self.scripts = list(stack), set(scripts)
                return self._execute_once(raise_on_error)
            except WatchError:
                # redis-py also raises this for a broken connection.
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
        """A single write command of RQ becomes a transaction of one; all others, and those of functions, pass."""
        if args[0] not in WRITE_COMMANDS or not str(args[1]).startswith(RQ_KEY_PREFIX):
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        with self._fenced(closes=False) as alone:
            alone.execute_command(*args, **options)  # type: ignore[no-untyped-call]
            return alone.execute()[0]

    def check(self) -> None:
        """Raise `Fenced` if the attempt was superseded."""
        with self.pipeline() as pipeline:
            pipeline.watch()  # type: ignore[no-untyped-call]

    def is_outcome_written(self) -> bool:
        """Whether the outcome is written, by this attempt or an earlier one whose worker then died."""
        return not self.hexists(self.fence.jobs_key, self.fence.run)
