"""What a test can ask of the runs that were submitted in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from agentq.coordinator.errors import Invalid
from agentq.coordinator.life import Run
from agentq.coordinator.run import RunSpec
from agentq.sdk.calls import Function
from agentq.sdk.client import Client, default_client
from agentq.sdk.options import Options, spec_of
from agentq.sdk.references import MARK
from agentq.sdk.tasks import Task, task_of
from agentq.testing.memory import MemoryClient

Func = Task[..., Any] | Callable[..., Any] | str


def submitted(
    func: Func | None = None, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
) -> list[Run]:
    """The runs that were submitted, oldest first: all, those of a function, or those with these arguments."""
    runs = list(_client().records.all())[::-1]
    found = [_client().records.get(run.id) for run in runs]
    if func is None:
        return found
    function = task_of(func).function
    mine = [run for run in found if run.spec.function == function.path]
    if args is None and kwargs is None:
        return mine
    wanted = _wanted(function, tuple(args or ()), dict(kwargs or {}))
    return [run for run in mine if _given(function, run.spec) == wanted]


def assert_submitted(
    func: Func,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    times: int = 1,
    **options: Unpack[Options],
) -> list[Run]:
    """Fail unless a function was submitted so many times, with these arguments and options where some are named."""
    __tracebackhide__ = True
    function = task_of(func).function
    found = submitted(func, args, kwargs)
    wanted = spec_of(function.path, options)
    fields = wanted.model_fields_set - {"kind", "function"}
    right = [run for run in found if all(getattr(run.spec, name) == getattr(wanted, name) for name in fields)]
    if len(right) != times:
        said = "" if args is None and kwargs is None else f" with {_call(args or (), kwargs or {})}"
        said += f" and {options}" if options else ""
        raise AssertionError(
            f"{function.path} was submitted {len(right)} times{said}, not {times}. These were submitted: {_listed()}"
        )
    return right


def assert_nothing_submitted(func: Func | None = None) -> None:
    """Fail if anything was submitted, or a call of this function."""
    __tracebackhide__ = True
    if submitted(func):
        raise AssertionError(f"These were submitted: {_listed()}")


def _client() -> MemoryClient:
    client: Client = default_client()
    if not isinstance(client, MemoryClient):
        raise Invalid("Tasks are not submitted to a queue in memory here; use the fixture agentq_client, or eager().")
    return client


def _wanted(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    packed = function.packed(args, kwargs)
    spec = RunSpec(kind="function", function=function.path)
    if packed.long is not None:
        spec = spec.model_copy(update={"args": packed.long[0], "kwargs": packed.long[1]})
        return _given(function, spec)
    return _normal(function, packed.text or "[]")


def _given(function: Function, spec: RunSpec) -> Any:

    if spec.args and spec.kwargs:
        return _bound(function, *function.arguments_of(spec.args, spec.kwargs))
    return _normal(function, json.dumps(spec.kwargs or list(spec.args)))


def _normal(function: Function, text: str) -> Any:
    """Arguments by their names, so that it does not matter how they were given."""
    if MARK in text:
        return json.loads(text)
    return _bound(function, *function.arguments(text))


def _bound(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if function.signature is None:
        return args, kwargs
    bound = function.signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def _listed() -> str:
    calls = [f"{run.spec.function}{_call(run.spec.args, run.spec.kwargs)}" for run in submitted()]
    return ", ".join(calls) or "none"


def _call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    return f"({', '.join([*map(repr, args), *(f'{name}={value!r}' for name, value in kwargs.items())])})"
