"""The calls of a client, each done in the calling thread.

A client connects when it is first used, and anew in the child of a fork. Any number of threads may use it.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, overload

from agentq.coordinator.errors import Invalid, quote_input
from agentq.coordinator.model.ids import check_run_id, id_created_ms, make_tick_run_id, partition_of
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.sdk.errors import PartlyRefused
from agentq.sdk.functions.codec import Function, PackedArguments
from agentq.sdk.functions.definition import FunctionDefinition, define_task
from agentq.sdk.redis_backend import RedisBackend
from agentq.sdk.run_handle import Run, parse_result

if TYPE_CHECKING:
    from agentq.coordinator.runs.queries import RunQueries
    from agentq.sdk.administration import ClientLimits, ClientQueues, ClientSchedules, JsonRecord, ScheduleTiming
    from agentq.sdk.agent_options import AgentOptions, SessionOptions
    from agentq.sdk.backend import Backend
    from agentq.sdk.sessions import Session
    from agentq.sdk.wait.event_streams import PositionedEvent
    from agentq.sdk.wait.run_ends import RunWaiters
    from agentq.sdk.wait.stream import Stream

P = ParamSpec("P")
R = TypeVar("R")


class BlockingClient:
    """One namespace: submits functions, finds runs, and sets what stands beside them."""

    _blocks = True
    """Whether a call waits for a server."""

    def __init__(self, open_it: Callable[[], Backend]) -> None:
        self._open = open_it
        self._lock = threading.Lock()
        self._link: _Connection | None = None
        self._tasks: dict[Any, FunctionDefinition[..., Any]] = {}

    # ---- submitting

    @overload
    def submit(self, func: FunctionDefinition[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Run[R]: ...
    @overload
    def submit(self, func: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> Run[R]: ...
    @overload
    def submit(self, func: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Run[R]: ...
    @overload
    def submit(self, func: str, /, *args: Any, **kwargs: Any) -> Run[Any]: ...
    def submit(self, func: Any, /, *args: Any, **kwargs: Any) -> Run[Any]:
        """Submit one call of a task, of a function, or of `"module:function"` that only the workers have."""
        task = func if isinstance(func, FunctionDefinition) else self._task(func)
        packed = task.function.packed(args, kwargs)
        if packed.text is not None and not packed.after:
            receipt = task.calls(self.backend).submit(packed.text, durable=task.durable)
        else:
            receipt = self.backend.submit(_build_spec(task.spec, packed), durable=task.durable)
        return Run(self, receipt.id, task.function)

    @overload
    def submit_many(self, func: FunctionDefinition[..., R], calls: Iterable[Any]) -> list[Run[R]]: ...
    @overload
    def submit_many(self, func: Callable[..., Coroutine[Any, Any, R]], calls: Iterable[Any]) -> list[Run[R]]: ...
    @overload
    def submit_many(self, func: Callable[..., R], calls: Iterable[Any]) -> list[Run[R]]: ...
    @overload
    def submit_many(self, func: str, calls: Iterable[Any]) -> list[Run[Any]]: ...
    def submit_many(self, func: Any, calls: Iterable[Any]) -> list[Run[Any]]:
        """Submit many calls, each a tuple of arguments or a dict of keywords. Nothing is sent if one of them is wrong.

        A submit that the server refuses does not stop the others: `PartlyRefused` tells of it in the end.
        """
        task: FunctionDefinition[..., Any] = func if isinstance(func, FunctionDefinition) else self._task(func)
        function, rows = task.function, _list_calls(calls)
        texts = function.texts(rows) if rows else []
        if texts is None:
            packed = [_pack_call(function, call) for call in rows]
            texts = [each.text for each in packed if each.text is not None and not each.after]
        if task.durable:
            raise Invalid("Many runs at once cannot be durable each; submit them one by one, or without durable=True.")
        if len(texts) == len(rows):
            receipts = task.calls(self.backend).submit_many(texts)
        else:
            receipts = self.backend.submit_many([_build_spec(task.spec, each) for each in packed])
        runs: list[Run[Any]] = [Run(self, receipt.id, function) for receipt in receipts]
        refused = [(receipt.id, receipt.refused) for receipt in receipts if receipt.refused is not None]
        if refused:
            raise PartlyRefused(runs, refused)
        return runs

    def submit_agent(self, agent: str, prompt: str, **options: Unpack[AgentOptions]) -> Run[Any]:
        """Have an agent do what the prompt asks for. The names of the options are those of `agentq submit --agent`."""
        from agentq.sdk.agent_options import build_agent_spec

        spec = build_agent_spec(agent, prompt, options)
        return Run(self, self.backend.submit(spec, durable=options.get("durable", False)).id, None)

    def submit_child(
        self, parent: str, seen: Counter[str], func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Run[Any]:
        """Submit a child of a run. The same call of the same parent is the same child, however often it is asked for;
        `seen` counts the calls that are meant to be several."""
        task = func if isinstance(func, FunctionDefinition) else self._task(func)
        spec = _build_spec(task.spec, task.function.packed(args, dict(kwargs)), parent=parent)
        call = f"{spec.lane} {spec.to_wire().decode()}"
        seen[call] += 1
        run_id = make_tick_run_id(partition_of(parent), id_created_ms(parent), f"{parent} {seen[call]} {call}")
        return Run(self, self.backend.submit(spec, run_id=run_id, durable=task.durable).id, task.function)

    def _task(self, func: Any) -> FunctionDefinition[..., Any]:
        found = self._tasks.get(func) if callable(func) or isinstance(func, str) else define_task(func)
        if found is None:
            found = self._tasks[func] = define_task(func)
        return found

    def session(self, name: str | None, **options: Unpack[SessionOptions]) -> Session:
        """A conversation with an agent, by its name. With `agent`, or `fork`, it begins if there is none of that name,
        and only then the rest counts."""
        from agentq.sdk.sessions import open_session

        return open_session(self, name, options)

    # ---- schedules, limits and queues

    def schedule(
        self,
        name: str,
        func: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **timing: Unpack[ScheduleTiming],
    ) -> JsonRecord:
        """Have a call submitted again and again, or at a time. A schedule of that name is replaced, and keeps its
        history and its pause."""
        from agentq.sdk.administration import build_schedule_rule, check_schedule_arguments

        check_schedule_arguments(args, kwargs)
        rule, overlap = build_schedule_rule(timing)
        task = func if isinstance(func, FunctionDefinition) else self._task(func)
        spec = _build_spec(task.spec, task.function.packed(tuple(args), dict(kwargs or {})))
        return self.schedules.put(name, spec, rule, overlap)

    @property
    def schedules(self) -> ClientSchedules:
        """The schedules of the namespace."""
        from agentq.sdk.administration import ClientSchedules

        return ClientSchedules(self.backend.schedules)

    @property
    def limits(self) -> ClientLimits:
        """How much may run at once, or in a time, under a key."""
        from agentq.sdk.administration import ClientLimits

        return ClientLimits(self.backend.limits)

    @property
    def queues(self) -> ClientQueues:
        """The queues of the namespace: their counts, and whether they are paused."""
        from agentq.sdk.administration import ClientQueues

        return ClientQueues(self.backend.queues)

    def dead(self, queue: str | None = None) -> Iterator[Run[Any]]:
        """The runs that failed for good, newest first; `requeue()` has one begin again."""
        from agentq.coordinator.runs.queries import RunFilter
        from agentq.sdk.backend.runs import list_run_ids

        which = RunFilter((State.FAILED,), queue)
        return (Run(self, run_id, None) for run_id in list_run_ids(self.backend, which))

    # ---- finding

    def run(self, run_id: str) -> Run[Any]:
        """A handle of any run, by its id."""
        check_run_id(run_id)
        return Run(self, run_id, None)

    def events(self, *, after: str | None = None, follow: bool = True) -> Stream[PositionedEvent]:
        """What happens to all runs, from now on, or after an event: `after` takes the `place` of the last one seen."""
        return self.backend.events(after, follow=follow)

    def result_value(self, run_id: str, *, given_to: str | None = None) -> Any:
        """The result of a completed run as JSON values; `given_to` a run that has it as an argument, if that may."""
        check_run_id(run_id)
        return parse_result(self.backend.get(run_id, given_to=given_to))

    # ---- the server

    @property
    def backend(self) -> Backend:
        """The server, as this process reaches it."""
        if self._blocks:
            _warn_in_event_loop()
        link = self._link
        if link is None or link.pid != os.getpid():
            link = self._connect()
        return link.backend

    @property
    def queue(self) -> RunVerbs:
        """The verbs of the namespace, for what the SDK has no word for. Not over HTTP."""
        return self._direct.queue

    @property
    def records(self) -> RunQueries:
        """The reading side of the namespace. Not over HTTP."""
        return self._direct.records

    @property
    def _direct(self) -> RedisBackend:
        backend = self.backend
        if not isinstance(backend, RedisBackend):
            raise Invalid("This client reaches its server over HTTP; `queue` and `records` are of one that uses Redis.")
        return backend

    @property
    def endings(self) -> RunWaiters:
        """The waits for runs of this client."""
        return self.backend.endings

    def connect_endings(self) -> RunWaiters:
        """The same, as a call."""
        return self.endings

    def peek_endings(self) -> RunWaiters | None:
        """The same, if the client is connected already."""
        link = self._link
        return link.backend.endings if link is not None and link.pid == os.getpid() else None

    def _connect(self) -> _Connection:
        if self._link is not None and self._link.pid != os.getpid():
            # The parent may have been forked while it held the lock, and its threads are not here.
            self._link, self._lock = None, threading.Lock()
        with self._lock:
            if self._link is None:
                self._link = _Connection(self._open())
            return self._link

    def close(self) -> None:
        """Close the connections and end the threads. It connects again when it is used again."""
        link, self._link = self._link, None
        if link is not None and link.pid == os.getpid():
            link.backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Connection:
    """What a client has in one process while it is connected."""

    def __init__(self, backend: Backend) -> None:
        self.pid = os.getpid()
        self.backend = backend


def _warn_in_event_loop() -> None:
    """Warn of a call that has all tasks of an event loop wait; Python shows it once for each place in a program.

    A notebook's cells run inside its loop, which nothing else needs meanwhile.
    """
    events = sys.modules.get("asyncio.events")
    if events is None or events._get_running_loop() is None or "ipykernel" in sys.modules:
        return
    frame, level = inspect.currentframe(), 0
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("agentq.sdk"):
        frame, level = frame.f_back, level + 1
    warnings.warn(
        "This call blocks the event loop until the server has answered; await the same call of client.aio, or of "
        "connect_async(), or submit_async() of a task.",
        RuntimeWarning,
        stacklevel=level + 1,
    )


def _list_calls(calls: object) -> list[Any]:
    if isinstance(calls, str | bytes | Mapping) or not isinstance(calls, Iterable):
        raise Invalid(f"submit_many takes a list of calls, such as [(1,), (2,)], not {quote_input(calls)}.")
    return list(calls)


def _pack_call(function: Function, call: Any) -> PackedArguments:
    if isinstance(call, dict):
        return function.packed((), call)
    if not isinstance(call, tuple | list):
        raise Invalid(
            f"{quote_input(call)} is no call; write a tuple of arguments, such as ({quote_input(call)},), or a dict of "
            "keywords."
        )
    return function.packed(tuple(call), {})


def _build_spec(template: RunSpec, packed: PackedArguments, **more: Any) -> RunSpec:
    """The spec of one call, which the template is of many."""
    if packed.long is not None:
        args, kwargs = packed.long
    else:
        value = json.loads(packed.text or "[]")
        args, kwargs = (tuple(value), {}) if isinstance(value, list) else ((), value)
    after = tuple(dict.fromkeys((*template.after, *packed.after)))
    given = {name: getattr(template, name) for name in template.model_fields_set}
    if after:
        given["after"] = after
    return RunSpec.checked(**{**given, "args": args, "kwargs": kwargs, **more})
