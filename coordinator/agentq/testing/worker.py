"""A worker in this process: it calls the functions of runs one after the other, when a test says so.

1. Claim pending runs, call their functions, and report their ends, with the scripts of every worker.
2. With `run_until_idle`, move the clock to the next due time: a delay, a backoff, the alarm of a waiting run.
3. Keep the raised exceptions for the test.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any

from agentq.coordinator import bounds
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.duties.promoter import Promoter
from agentq.coordinator.errors import AgentqError, Invalid
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import Outcome, RunSpec, is_function_lane, parse_spec
from agentq.coordinator.runs.logs import LogChunk
from agentq.coordinator.runs.verbs import Claim, RunVerbs
from agentq.coordinator.runs.wait import Resumption
from agentq.coordinator.workers.lease import WorkerIdentity, WorkerLease
from agentq.sdk.client import Client
from agentq.sdk.errors import Cancelled, Fail, ImportFailed, Retry, SoftTimeout
from agentq.sdk.functions.codec import Function, load_function
from agentq.sdk.options import Duration, to_duration_ms
from agentq.sdk.run_context import Parked, RunContext, look_up_result, use_run_context
from agentq.testing.memory_queue import MemoryClient

ROUNDS_MAX = 10_000
"""After this many rounds, runs are assumed to submit each other for ever."""
IDLE_ADVANCE_MAX = timedelta(days=31)


class Worker:
    """Executes the function runs of an in-memory queue, or of a real server."""

    def __init__(self, client: Client, labels: Mapping[str, str] | None = None) -> None:
        self.client = client
        self.labels = dict(labels or {})
        self.raised: dict[str, BaseException] = {}
        """The exception of the last attempt, by run id."""
        self._settings = Settings()

    @property
    def _queue(self) -> RunVerbs:
        return self.client.queue

    def run_all(self) -> int:
        """Execute pending runs, and those that they make pending; the clock stands still. Returns the number of
        attempts."""
        done = 0
        for _ in range(ROUNDS_MAX):
            attempts = self._round()
            if not attempts:
                return done
            done += attempts
        raise Invalid(f"Runs were still pending after {ROUNDS_MAX} rounds; do they submit each other for ever?")

    def run_until_idle(self, at_most: Duration = IDLE_ADVANCE_MAX) -> int:
        """Execute pending runs, and move the clock to what is due within `at_most`, until nothing is. Returns the
        number of attempts."""
        if not isinstance(self.client, MemoryClient):
            raise Invalid("The clock of a server cannot be moved; run_until_idle is for a queue in memory.")
        clock, done = self.client.clock, 0
        end_ms = clock.now_ms + to_duration_ms(at_most)
        for _ in range(ROUNDS_MAX):
            done += self.run_all()
            due_ms = self._next_due_ms()
            if due_ms is None or due_ms > end_ms:
                return done
            clock.now_ms = max(clock.now_ms, due_ms)
        raise Invalid(f"Something was due after {ROUNDS_MAX} rounds; give a time with run_until_idle(at_most=...).")

    def _next_due_ms(self) -> int | None:
        """When the next run is due that is delayed, asleep until a time, or waits for a rate."""
        due: list[int | None] = []
        for summary in self.client.records.all():
            if summary.state is State.SCHEDULED:
                due.append(self.client.records.get(summary.id).due_at_ms)
            elif summary.state is State.WAITING:
                wait = self.client.records.get(summary.id).wait
                due.append(None if wait is None else wait.until_ms)
            elif summary.state is State.BLOCKED and summary.reason.startswith("limit "):
                due.append(self._now_ms() + self._promote())
        return min((each for each in due if each is not None), default=None)

    def _promote(self) -> int:
        """Promote due runs; returns the milliseconds until the next one."""
        promoter = Promoter(self._queue.store, self._settings.tick_ms)
        return min(promoter.run_once(partition).next_ms for partition in self._queue.store.partitions())

    def _now_ms(self) -> int:
        return int(self._queue.store.now())

    def _round(self) -> int:
        self._promote()
        queues = [name for name in self.client.records.count() if name]
        if not queues:
            return 0
        identity = WorkerIdentity(id=f"testing-{self._queue.store.nonce()}", queues=tuple(queues), labels=self.labels)
        lease = WorkerLease(self._queue.store, identity, self._settings)
        lease.register()
        try:
            claims = [claim for claim in lease.claim(0, 1) if is_function_lane(claim.lane)]
            for claim in claims:
                self._attempt(claim)
        finally:
            lease.deregister()
        return len(claims)

    def _attempt(self, claim: Claim) -> None:
        spec = parse_spec(claim.spec, claim.lane)
        if self._queue.start([claim])[0] is not None:
            # It was cancelled between claim and start.
            self._queue.fail(claim, Outcome(class_=OutcomeClass.CANCELLED))
            return
        self.raised.pop(claim.id, None)
        step = _CallProgress(OutcomeClass.REJECTED)
        try:
            value = self._call_function(claim, spec, step)
        except Parked as parked:
            self._queue.park(claim, parked.reason, parked.wait)
        except (Exception, Cancelled) as error:  # noqa: BLE001 - whatever a function raises is its outcome
            self.raised[claim.id] = error
            delay_ms = error.delay_ms if isinstance(error, Retry) else None
            self._queue.fail(claim, error_outcome(error, step.class_), delay_ms=delay_ms)
        else:
            self._queue.finish([(claim, Outcome(result=value))])

    def _call_function(self, claim: Claim, spec: RunSpec, step: _CallProgress) -> Any:
        """Call the function; returns the result as JSON values."""
        assert spec.function is not None
        function = load_function(spec.function)
        context = RunContext(
            claim.id, int(claim.fence.partition("-")[0]), _FunctionHost(self, claim), client=self.client
        )
        with use_run_context(context):
            args, kwargs = _parse_arguments(function, claim, spec)
            step.class_ = OutcomeClass.EXIT
            value = function.run(*args, **kwargs)
            if asyncio.iscoroutine(value):
                value = _run_coroutine(value)
            step.class_ = OutcomeClass.CHECK
            return json.loads(function.result(value))


@dataclass(slots=True)
class _CallProgress:
    """The progress of a call: the class of an outcome that ends it now."""

    class_: OutcomeClass


class _FunctionHost:
    """Passes the reports of functions directly to the queue."""

    def __init__(self, worker: Worker, claim: Claim) -> None:
        self._worker, self._claim = worker, claim
        self._queue = worker.client.queue
        self._reports, self._logs = count(1), count(1)

    def report(self, run_id: str, progress: dict[str, Any]) -> None:  # noqa: ARG002 - it hosts one run
        self._queue.report(self._claim, next(self._reports), progress)

    def log(self, run_id: str, text: str) -> None:  # noqa: ARG002
        size = bounds.LOG_CHUNK_CHARACTERS
        chunks = [LogChunk("out", text[at : at + size]) for at in range(0, len(text), size)]
        self._queue.log(self._claim, next(self._logs), chunks)

    def is_cancelled(self, run_id: str) -> bool:
        return self._worker.client.records.get(run_id).stop_at_ms is not None

    def received(self, run_id: str) -> Resumption | None:  # noqa: ARG002
        return self._queue.receive(self._claim)


def error_outcome(error: BaseException, class_: OutcomeClass = OutcomeClass.EXIT) -> Outcome:
    """The outcome of an attempt that raised this exception; `class_` is for exceptions without a class of their own."""
    if isinstance(error, ImportFailed):
        class_ = OutcomeClass.SPAWN
    elif class_ is OutcomeClass.EXIT:
        kinds = (
            (SoftTimeout, OutcomeClass.TIMEOUT),
            (Cancelled, OutcomeClass.CANCELLED),
            (MemoryError, OutcomeClass.OOM),
        )
        class_ = next((each for kind, each in kinds if isinstance(error, kind)), class_)
        if isinstance(error, Fail):
            class_ = OutcomeClass.CHECK if error.class_ is OutcomeClass.OK else error.class_
    message = str(error) if isinstance(error, AgentqError | Fail) else f"{type(error).__name__}: {error}"
    tail = "".join(traceback.format_exception(error))[-bounds.TAIL_CHARACTERS :]
    return Outcome(class_=class_, error=message[: bounds.ERROR_CHARACTERS], tail=tail)


_CLASSES_BY_ERROR: tuple[tuple[type[BaseException], OutcomeClass], ...] = (
    (SoftTimeout, OutcomeClass.TIMEOUT),
    (Cancelled, OutcomeClass.CANCELLED),
    (MemoryError, OutcomeClass.OOM),
)


def _parse_arguments(function: Function, claim: Claim, spec: RunSpec) -> tuple[tuple[Any, ...], dict[str, Any]]:
    text = claim.spec.removeprefix(function.path)
    if text == claim.spec:
        return function.arguments_of(spec.args, spec.kwargs, look_up=look_up_result)
    return function.arguments(text, look_up=look_up_result)


def _run_coroutine(coroutine: Any) -> Any:
    """Run a coroutine; in a thread if the test runs in an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    context = contextvars.copy_context()
    results: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        try:
            results.append((asyncio.run(coroutine), None))
        except BaseException as error:  # noqa: BLE001 - it is raised again in the thread that waits
            results.append((None, error))

    thread = threading.Thread(target=context.run, args=(run,))
    thread.start()
    thread.join()
    value, error = results[0]
    if error is not None:
        raise error
    return value
