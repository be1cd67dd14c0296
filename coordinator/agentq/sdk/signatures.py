"""What a function takes and returns, as pydantic checks it: in Python before a submit, in JSON before a call.

Pydantic's validator of a function's arguments checks all of them in one call, from Python or from JSON text. An
annotation that cannot be resolved (its import stands under TYPE_CHECKING) checks nothing, and neither does a function
whose signature Python does not know.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from pydantic import ConfigDict, PydanticUserError, TypeAdapter
from pydantic_core import CoreConfig, SchemaValidator

Pair = tuple[tuple[Any, ...], dict[str, Any]]

_CONFIG = ConfigDict(arbitrary_types_allowed=True, ser_json_bytes="base64", val_json_bytes="base64")
_CORE = CoreConfig(ser_json_bytes="base64", val_json_bytes="base64")


def signature_of(func: Callable[..., Any]) -> inspect.Signature | None:
    """The signature with its annotations resolved; None where there is none to know, as of some builtins."""
    try:
        signature = inspect.signature(func)
    except (TypeError, ValueError):
        return None
    scope = getattr(inspect.unwrap(func), "__globals__", {})
    parameters = [each.replace(annotation=_resolved(each.annotation, scope)) for each in signature.parameters.values()]
    return signature.replace(parameters=parameters, return_annotation=_resolved(signature.return_annotation, scope))


def arguments_validator(signature: inspect.Signature) -> SchemaValidator:
    """What turns arguments, as a tuple, a dict or JSON of either, into those that the function takes."""

    def capture(*args: Any, **kwargs: Any) -> Pair:
        return args, kwargs

    capture.__signature__ = signature.replace(return_annotation=inspect.Signature.empty)  # type: ignore[attr-defined]
    capture.__annotations__ = {
        each.name: each.annotation for each in signature.parameters.values() if each.annotation is not each.empty
    }
    anything: Any = capture
    schema: Any = TypeAdapter(anything, config=_CONFIG).core_schema
    # The part of the schema that is about the arguments does the same without the call, in half the time.
    if schema["type"] == "call":
        return SchemaValidator(schema["arguments_schema"], _CORE)
    if schema["type"] == "definitions" and schema["schema"]["type"] == "call":
        return SchemaValidator({**schema, "schema": schema["schema"]["arguments_schema"]}, _CORE)
    return SchemaValidator(schema, _CORE)


def result_adapter(annotation: Any) -> TypeAdapter[Any] | None:
    """What turns the JSON of a result into what the function says it returns; None where it says nothing."""
    if annotation in (inspect.Signature.empty, Any):
        return None
    try:
        return TypeAdapter(annotation, config=_CONFIG)
    except PydanticUserError:
        # A model, a dataclass or a TypedDict has a configuration of its own, and takes no other.
        return TypeAdapter(annotation)


def _resolved(annotation: Any, scope: dict[str, Any]) -> Any:
    if annotation is inspect.Parameter.empty or annotation is None:
        return annotation
    holder = type("_Holder", (), {"__annotations__": {"it": annotation}})
    try:
        return get_type_hints(holder, scope, include_extras=True)["it"]
    except (NameError, AttributeError, TypeError, SyntaxError):
        return Any
