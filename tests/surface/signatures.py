"""The libraries that programs import: what each exports, with its signature, as it is written in the source."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, ForwardRef, get_overloads, is_typeddict

from pydantic import BaseModel
from support.golden_files import outline
from surface.parts import fields, titled

OPERATORS = re.compile(r"__(call|iter|next|aiter|anext|await|enter|exit|aenter|aexit|getitem|len|contains|get|bool)__")


class Written:
    """An annotation as it stands in the source."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def library(module: ModuleType) -> Iterator[str]:
    """Everything that a module exports."""
    for name in sorted(module.__all__):
        yield from titled(f"{module.__name__}.{name}", _described(name, getattr(module, name), set(module.__all__)))


def _described(name: str, thing: Any, public: set[str]) -> Iterator[str]:
    if not isinstance(thing, type):
        yield from _function(name, thing)
    elif is_typeddict(thing):
        required: frozenset[str] = vars(thing)["__required_keys__"]
        yield "a TypedDict"
        for field, kind in sorted(thing.__annotations__.items()):
            written = kind.__forward_arg__ if isinstance(kind, ForwardRef) else kind
            yield f"  {field}: {written}{'' if field in required else ', may be missing'}"
    elif issubclass(thing, enum.Enum):
        yield "an enumeration"
        yield from (f"  {each.name} = {each.value!r}" for each in thing)
    elif issubclass(thing, BaseModel):
        yield "a model"
        yield from outline(fields(thing))
        yield from _members(thing)
    else:
        bases = [each.__name__ for each in thing.__mro__[1:] if each.__name__ in public or _is_fault(each)]
        yield f"class {name}({', '.join(bases)})"
        yield from _members(thing)


def _is_fault(kind: type) -> bool:
    return kind.__module__ == "builtins" and issubclass(kind, BaseException)


def _members(kind: type) -> Iterator[str]:
    """What a class of ours and those of ours that it is made of define, by name."""
    found: dict[str, Any] = {}
    for each in reversed([each for each in kind.__mro__ if each.__module__.startswith("agentq.")]):
        found |= dict(vars(each))
    if dataclasses.is_dataclass(kind) or "__init__" in found:
        yield f"  __init__{_signature(kind.__init__)}"  # type: ignore[misc]
    for name, member in sorted(found.items()):
        if (name[0] == "_" and not OPERATORS.fullmatch(name)) or name == "model_config":
            continue
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if isinstance(member, property):
            written = inspect.signature(member.fget).return_annotation if member.fget else ""
            yield f"  {name} -> {written}{', may be set' if member.fset else ''}"
        elif callable(plain) and inspect.isfunction(inspect.unwrap(plain)):
            how = type(member).__name__ if isinstance(member, classmethod | staticmethod) else ""
            yield from (f"  {how} {line}".replace("   ", "  ") for line in _function(name, plain))
        elif not inspect.isdatadescriptor(member) and isinstance(member, str | int | float | tuple | None):
            yield f"  {name} = {member!r}"
        else:
            yield f"  {name}"


def _function(name: str, function: Callable[..., Any]) -> Iterator[str]:
    """A function, or a thing that is called like one; with overloads, those are what callers see."""
    is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    for each in get_overloads(function) or [function]:
        yield f"{'async ' if is_async else ''}{name}{_signature(each)}"


def _signature(function: Callable[..., Any]) -> str:
    signature = inspect.signature(function)
    parameters = [each.replace(annotation=_written(each.annotation)) for each in signature.parameters.values()]
    written = signature.replace(parameters=parameters, return_annotation=_written(signature.return_annotation))
    return re.sub(r"<object object at 0x[0-9a-f]+>", "...", str(written))


def _written(annotation: Any) -> Any:
    return Written(annotation) if isinstance(annotation, str) else annotation
