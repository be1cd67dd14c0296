"""Calls functions in a child: synchronous ones in the main thread, asynchronous ones on an event loop.

A synchronous call blocks the loop, and with it all asynchronous calls of the child.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from typing import Any

from agentq.sdk.functions.codec import Function
from agentq.sdk.run_context import RunContext, look_up_result, set_current_run
from agentq.worker.functions import protocol
from agentq.worker.functions.child_runtime import call_outcomes
from agentq.worker.functions.child_runtime.interrupts import Interrupts, create_interrupt
from agentq.worker.functions.child_runtime.reply_writer import ReplyWriter
from agentq.worker.functions.child_runtime.run_host import ChildHost


def parse_attempt_number(fence: str) -> int:
    return 1 if fence.startswith("1-") else int(fence.partition("-")[0])


class CallRunner:
    """Calls functions and sends their outcomes."""

    def __init__(self, replies: ReplyWriter, interrupts: Interrupts, host: ChildHost) -> None:
        self._replies = replies
        self._interrupts = interrupts
        self._host = host
        self.out_of_memory = False
        """Whether a call ran out of memory in this process."""

    def call(
        self, number: int, run: str, fence: str, function: Function, text: str, timeout_ms: int | None = None
    ) -> None:
        """Call a synchronous function with the arguments in this text."""
        try:
            args, kwargs = function.arguments(text, run, look_up_result)
        except BaseException as error:  # noqa: BLE001 - any error becomes the outcome
            self.send_failure(run, fence, call_outcomes.encode_not_begun(error))
            return
        self.call_with(number, run, fence, function, args, kwargs, timeout_ms)

    def call_with(
        self,
        number: int,
        run: str,
        fence: str,
        function: Function,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        timeout_ms: int | None,
    ) -> None:
        interrupts, host = self._interrupts, self._host
        host.run, host.fence = run, fence
        set_current_run(RunContext(run, parse_attempt_number(fence), host))
        try:
            try:
                interrupts.executing = number
                value = function.run(*args, **kwargs)
            finally:
                interrupts.executing = 0
        except BaseException as error:  # noqa: BLE001 - see above
            interrupts.executing = 0
            self.send_failure(run, fence, call_outcomes.encode_exception(error, timeout_ms))
        else:
            self.send_result(run, fence, function, value)
        host.run = ""

    def send_result(self, run: str, fence: str, function: Function, value: Any) -> None:
        try:
            result = function.result(value)
        except BaseException as error:  # noqa: BLE001 - see above
            self.send_failure(run, fence, call_outcomes.encode_invalid_result(error))
            return
        if self._host.written:
            self._host.flush(run)
        if result == b"null":
            self._replies.put(f'{run}\n{fence}\nok\n{{"class":"ok"}}\n'.encode())
        else:
            self._replies.put(f'{run}\n{fence}\nok\n{{"class":"ok","result":{result.decode()}}}\n'.encode())

    def send_failure(self, run: str, fence: str, outcome: call_outcomes.CallOutcome) -> None:
        """Send the outcome of a call that did not end well."""
        if self._host.written:
            self._host.flush(run)
        self.out_of_memory = self.out_of_memory or outcome[0] == "oom"
        self._replies.put(protocol.encode_record(run, fence, *outcome))


class AsyncCallRunner:
    """The running asynchronous calls."""

    def __init__(self, calls: CallRunner, host: ChildHost, on_ended: Callable[[], None]) -> None:
        self._calls = calls
        self._host = host
        self._on_ended = on_ended
        """Called after a call has ended."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self.tasks: dict[int, asyncio.Task[Any]] = {}
        self._stop_reasons: dict[int, int] = {}

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop

    def begin(
        self,
        number: int,
        run: str,
        fence: str,
        function: Function,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        timeout_ms: int | None,
    ) -> None:
        self._host.fences[run] = fence
        context = copy_context()
        context.run(set_current_run, RunContext(run, parse_attempt_number(fence), self._host))
        coroutine = self._interruptible(function.run(*args, **kwargs), number)
        task = self.loop.create_task(coroutine, name=run, context=context)
        self.tasks[number] = task
        task.add_done_callback(lambda task: self._on_task_done(task, number, run, fence, function, timeout_ms))

    def stop(self, number: int, why: int) -> None:
        """Raise an exception where the call awaits."""
        task = self.tasks.get(number)
        if task is not None and number not in self._stop_reasons:
            self._stop_reasons[number] = why
            if why == protocol.UNWANTED_STOP:
                self._host.stopped.add(task.get_name())
            task.cancel()

    @types.coroutine
    def _interruptible(self, coroutine: Coroutine[Any, Any, Any], number: int) -> Generator[Any, Any, Any]:
        """The coroutine; a cancellation by `stop` becomes the exception that says why."""
        error: BaseException | None = None
        while True:
            try:
                awaited = coroutine.send(None) if error is None else coroutine.throw(error)
            except StopIteration as stop:
                return stop.value
            error = None
            try:
                yield awaited
            except asyncio.CancelledError as cancelled:
                error = cancelled
                if number in self._stop_reasons:
                    error = create_interrupt(self._stop_reasons[number])
                    self.tasks[number].uncancel()
            except BaseException as other:  # noqa: BLE001 - it is for the coroutine
                error = other

    def _on_task_done(
        self, task: asyncio.Task[Any], number: int, run: str, fence: str, function: Function, timeout_ms: int | None
    ) -> None:
        del self.tasks[number]
        self._stop_reasons.pop(number, None)
        self._host.stopped.discard(run)
        if task.cancelled():
            self._calls.send_failure(run, fence, call_outcomes.encode_exception(asyncio.CancelledError(), timeout_ms))
        elif (error := task.exception()) is not None:
            self._calls.send_failure(run, fence, call_outcomes.encode_exception(error, timeout_ms))
        else:
            self._calls.send_result(run, fence, function, task.result())
        self._host.fences.pop(run, None)
        self._on_ended()
