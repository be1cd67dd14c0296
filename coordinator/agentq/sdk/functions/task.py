"""A task: a function with the options that its runs have. It stays the function that it was, for whoever calls it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack, cast, overload

from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.spec import RunSpec
from agentq.sdk.functions.codec import Function, find_loaded_function, function_path
from agentq.sdk.options import Options, build_function_spec

if TYPE_CHECKING:
    from agentq.sdk.administration import JsonRecord, ScheduleTiming
    from agentq.sdk.async_client import AsyncRun
    from agentq.sdk.backend import Backend
    from agentq.sdk.backend.runs import CallSubmitter
    from agentq.sdk.run_handle import Run

P = ParamSpec("P")
R = TypeVar("R")


class Task(Generic[P, R]):
    """A function that can be submitted, by itself or with `options`."""

    __qualname__: str

    def __init__(self, func: Callable[P, R], options: Options, *, pickle: bool = False) -> None:
        functools.update_wrapper(self, func)
        self.__agentq_function__ = func
        self.pickle = pickle
        self._options = options
        self._calls: tuple[Backend, CallSubmitter] | None = None

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, here and now."""
        return self.__agentq_function__(*args, **kwargs)

    def submit(self, /, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Submit a call of it, through the default client."""
        from agentq.sdk.client import default_client

        return default_client().submit(self, *args, **kwargs)

    async def submit_async(self, /, *args: P.args, **kwargs: P.kwargs) -> AsyncRun[R]:
        """Submit a call of it, and wait for nothing else than that, in an event loop."""
        from agentq.sdk.client import default_client

        return await default_client().aio.submit(self, *args, **kwargs)

    def map(self, *values: Iterable[Any]) -> list[Run[R]]:
        """Submit a call for each value, or for each row of values of several iterables, thousands at a time."""
        from agentq.sdk.client import default_client

        for each in values:
            if not isinstance(each, Iterable):
                raise Invalid(f"map takes the values of each argument, such as a list, and {each!r:.80} is none.")
        try:
            rows = list(zip(*values, strict=True))
        except ValueError as error:
            if not str(error).startswith("zip() "):
                raise
            fault = str(error).removeprefix("zip() ")
            raise Invalid(f"map takes as many values of each argument: {fault}.") from error
        return default_client().submit_many(self, rows)

    def schedule(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **timing: Unpack[ScheduleTiming],
    ) -> JsonRecord:
        """Have a call submitted again and again, or at a time; replaces the schedule of that name."""
        from agentq.sdk.client import default_client

        return default_client().schedule(name, self, args, kwargs, **timing)

    def options(self, **options: Unpack[Options]) -> Self:
        """The same task, with these options in place of its own."""
        other = type(self)(self.__agentq_function__, cast(Options, {**self._options, **options}), pickle=self.pickle)
        if "function" in vars(self):
            vars(other)["function"] = self.function
        other.spec  # noqa: B018 - what is wrong with the options is said here
        return other

    @functools.cached_property
    def function(self) -> Function:
        """What its runs call."""
        func = self.__agentq_function__
        return Function(function_path(func), func, pickled=self.pickle)

    @functools.cached_property
    def spec(self) -> RunSpec:
        """What its runs have in common: all but the arguments."""
        return build_function_spec(self.function.path, self._options)

    @functools.cached_property
    def durable(self) -> bool:
        """Whether its submits return only when the run is on the server's disk."""
        return self._options.get("durable", False)

    def calls(self, backend: Backend) -> CallSubmitter:
        """What submits its calls to a server, once for all of them."""
        found = self._calls
        if found is None or found[0] is not backend:
            found = self._calls = (backend, backend.submitter(self.spec))
        return found[1]

    def __repr__(self) -> str:
        return f"<task {self.__module__}:{self.__qualname__}>"

    def __reduce__(self) -> Any:
        return _import_object, (self.__module__, self.__qualname__)


class AsyncTask(Task[P, R]):
    """A task whose function is `async def`: called, it is awaited; submitted, its result is what it returns then."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:  # type: ignore[override]
        """Call the function, here and now; await what comes back."""
        return self.__agentq_function__(*args, **kwargs)  # type: ignore[return-value]


class TaskDecorator(Protocol):
    """What `task` with options is, before it has a function."""

    @overload
    def __call__(self, func: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, func: Callable[P, R], /) -> Task[P, R]: ...


@overload
def task(func: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
@overload
def task(func: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(*, pickle: bool = False, **options: Unpack[Options]) -> TaskDecorator: ...
def task(func: Callable[..., Any] | None = None, /, *, pickle: bool = False, **options: Unpack[Options]) -> Any:
    """Make a function a task: `@task`, or `@task(queue="mail", retries=3, timeout="30s")`."""
    if func is not None:
        return _task_class(func)(func, {})
    build_function_spec("options:only", options)

    def decorate(func: Callable[..., Any]) -> Task[..., Any]:
        return _task_class(func)(func, options, pickle=pickle)

    return decorate


def _task_class(func: Callable[..., Any]) -> type[Task[..., Any]]:
    return AsyncTask if inspect.iscoroutinefunction(func) else Task


class _RemoteTask(Task[..., Any]):
    """A function of which only the path is known: its arguments are checked where it runs."""

    def __init__(self, path: str) -> None:
        self._options: Options = {}
        self.pickle = False
        self._calls = None
        self.__module__, _, self.__qualname__ = path.partition(":")
        vars(self)["function"] = find_loaded_function(path) or Function.unseen(path)


def to_task(func: Callable[..., Any] | str) -> Task[..., Any]:
    """The task that a function is, or that a path names."""
    if isinstance(func, Task):
        return func
    return _RemoteTask(func) if isinstance(func, str) else _task_class(func)(func, {})


def _import_object(module: str, qualname: str) -> Any:
    import importlib

    return functools.reduce(getattr, qualname.split("."), cast(Any, importlib.import_module(module)))
