"""A task: a function with the options of its runs. Called directly, it behaves as the plain function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar, Unpack, cast, overload

from agentq.coordinator.errors import Invalid
from agentq.sdk.client import default_client
from agentq.sdk.functions.definition import FunctionDefinition
from agentq.sdk.options import Options, build_function_spec

if TYPE_CHECKING:
    from agentq.sdk.administration import JsonRecord, ScheduleTiming
    from agentq.sdk.async_handles import AsyncRun
    from agentq.sdk.run_handle import Run

P = ParamSpec("P")
R = TypeVar("R")


class Task(FunctionDefinition[P, R]):
    """A function that can be submitted, by itself or with `options`."""

    def submit(self, /, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Submit a call of it, through the default client."""
        return default_client().submit(self, *args, **kwargs)

    async def submit_async(self, /, *args: P.args, **kwargs: P.kwargs) -> AsyncRun[R]:
        """Submit a call of it, and wait for nothing else than that, in an event loop."""
        return await default_client().aio.submit(self, *args, **kwargs)

    def map(self, *values: Iterable[Any]) -> list[Run[R]]:
        """Submit a call for each value, or for each row of values of several iterables, thousands at a time."""
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
        return default_client().schedule(name, self, args, kwargs, **timing)

    def options(self, **options: Unpack[Options]) -> Self:
        """The same task, with these options in place of its own."""
        other = type(self)(self.__agentq_function__, cast(Options, {**self._options, **options}), pickle=self.pickle)
        if "function" in vars(self):
            vars(other)["function"] = self.function
        other.spec  # noqa: B018 - reports invalid options here
        return other

    def __repr__(self) -> str:
        return f"<task {self.__module__}:{self.__qualname__}>"

    def __reduce__(self) -> Any:
        return _import_object, (self.__module__, self.__qualname__)


class AsyncTask(Task[P, R]):
    """A task whose function is `async def`: a call is awaited; the result of a run is the value it returns."""

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


def _import_object(module: str, qualname: str) -> Any:
    import importlib

    return functools.reduce(getattr, qualname.split("."), cast(Any, importlib.import_module(module)))
