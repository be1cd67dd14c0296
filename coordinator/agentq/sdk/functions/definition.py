"""What a task is to those that submit and execute it: a function, its path, and the options that its runs have."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from agentq.coordinator.model.spec import RunSpec
from agentq.sdk.functions.codec import Function, find_loaded_function, function_path
from agentq.sdk.options import Options, build_function_spec

if TYPE_CHECKING:
    from agentq.sdk.backend import Backend
    from agentq.sdk.backend.runs import CallSubmitter

P = ParamSpec("P")
R = TypeVar("R")


class FunctionDefinition(Generic[P, R]):
    """A function with the options that its runs have."""

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


class NamedFunction(FunctionDefinition[..., Any]):
    """A function of which only the path is known: its arguments are checked where it runs."""

    def __init__(self, path: str) -> None:
        self._options: Options = {}
        self.pickle = False
        self._calls = None
        self.__module__, _, self.__qualname__ = path.partition(":")
        vars(self)["function"] = find_loaded_function(path) or Function.unseen(path)


def define_task(func: Callable[..., Any] | str) -> FunctionDefinition[..., Any]:
    """The task that a function is, or that a path names."""
    if isinstance(func, FunctionDefinition):
        return func
    return NamedFunction(func) if isinstance(func, str) else FunctionDefinition(func, {})
