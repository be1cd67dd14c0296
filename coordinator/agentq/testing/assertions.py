"""Assertions about the runs that a test has submitted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.run_record import RunRecord
from agentq.sdk.client import Client, default_client
from agentq.sdk.functions.codec import Function
from agentq.sdk.functions.definition import FunctionDefinition, define_task
from agentq.sdk.functions.references import REFERENCE_MARK
from agentq.sdk.options import Options, build_function_spec
from agentq.testing.memory_queue import MemoryClient

FunctionLike = FunctionDefinition[..., Any] | Callable[..., Any] | str


def submitted(
    func: FunctionLike | None = None, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
) -> list[RunRecord]:
    """The submitted runs, oldest first: all, those of a function, or those with these arguments."""
    runs = list(_memory_client().records.all())[::-1]
    found = [_memory_client().records.get(run.id) for run in runs]
    if func is None:
        return found
    function = define_task(func).function
    mine = [run for run in found if run.spec.function == function.path]
    if args is None and kwargs is None:
        return mine
    wanted = _expected_arguments(function, tuple(args or ()), dict(kwargs or {}))
    return [run for run in mine if _run_arguments(function, run.spec) == wanted]


def assert_submitted(
    func: FunctionLike,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    times: int = 1,
    **options: Unpack[Options],
) -> list[RunRecord]:
    """Fail unless a function was submitted this many times, optionally with these arguments and options."""
    __tracebackhide__ = True
    function = define_task(func).function
    found = submitted(func, args, kwargs)
    wanted = build_function_spec(function.path, options)
    fields = wanted.model_fields_set - {"kind", "function"}
    right = [run for run in found if all(getattr(run.spec, name) == getattr(wanted, name) for name in fields)]
    if len(right) != times:
        condition = "" if args is None and kwargs is None else f" with {_format_call(args or (), kwargs or {})}"
        condition += f" and {options}" if options else ""
        raise AssertionError(
            f"{function.path} was submitted {len(right)} times{condition}, not {times}. These were submitted: "
            f"{_list_submitted()}"
        )
    return right


def assert_nothing_submitted(func: FunctionLike | None = None) -> None:
    """Fail if any run was submitted, or any of this function."""
    __tracebackhide__ = True
    if submitted(func):
        raise AssertionError(f"These were submitted: {_list_submitted()}")


def _memory_client() -> MemoryClient:
    client: Client = default_client()
    if not isinstance(client, MemoryClient):
        raise Invalid("Tasks are not submitted to a queue in memory here; use the fixture agentq_client, or eager().")
    return client


def _expected_arguments(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    packed = function.packed(args, kwargs)
    spec = RunSpec(kind="function", function=function.path)
    if packed.long is not None:
        spec = spec.model_copy(update={"args": packed.long[0], "kwargs": packed.long[1]})
        return _run_arguments(function, spec)
    return _named_arguments(function, packed.text or "[]")


def _run_arguments(function: Function, spec: RunSpec) -> Any:

    if spec.args and spec.kwargs:
        return _bind_arguments(function, *function.arguments_of(spec.args, spec.kwargs))
    return _named_arguments(function, json.dumps(spec.kwargs or list(spec.args)))


def _named_arguments(function: Function, text: str) -> Any:
    """Arguments by name, however they were passed."""
    if REFERENCE_MARK in text:
        return json.loads(text)
    return _bind_arguments(function, *function.arguments(text))


def _bind_arguments(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if function.signature is None:
        return args, kwargs
    bound = function.signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def _list_submitted() -> str:
    calls = [f"{run.spec.function}{_format_call(run.spec.args, run.spec.kwargs)}" for run in submitted()]
    return ", ".join(calls) or "none"


def _format_call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    return f"({', '.join([*map(repr, args), *(f'{name}={value!r}' for name, value in kwargs.items())])})"
