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

CallArguments = tuple[tuple[Any, ...], dict[str, Any]]

_MODEL_CONFIG = ConfigDict(arbitrary_types_allowed=True, ser_json_bytes="base64", val_json_bytes="base64")
_CORE_CONFIG = CoreConfig(ser_json_bytes="base64", val_json_bytes="base64")


def resolve_signature(func: Callable[..., Any]) -> inspect.Signature | None:
    """The signature with its annotations resolved; None where there is none to know, as of some builtins."""
    try:
        signature = inspect.signature(func)
    except (TypeError, ValueError):
        return None
    scope = getattr(inspect.unwrap(func), "__globals__", {})
    parameters = [
        each.replace(annotation=_resolve_annotation(each.annotation, scope)) for each in signature.parameters.values()
    ]
    return signature.replace(
        parameters=parameters, return_annotation=_resolve_annotation(signature.return_annotation, scope)
    )


def build_arguments_validator(signature: inspect.Signature) -> SchemaValidator:
    """What turns arguments, as a tuple, a dict or JSON of either, into those that the function takes."""
    try:
        schema = _arguments_schema(signature)
    except PydanticUserError:
        # One of the annotations means nothing to pydantic: that parameter takes anything.
        known = [
            each.replace(annotation=each.annotation if _is_supported(each) else Any)
            for each in signature.parameters.values()
        ]
        schema = _arguments_schema(signature.replace(parameters=known))
    # The part of the schema that is about the arguments does the same without a call, in half the time.
    if schema["type"] == "call":
        return SchemaValidator(schema["arguments_schema"], _CORE_CONFIG)
    if schema["type"] == "definitions" and schema["schema"]["type"] == "call":
        return SchemaValidator({**schema, "schema": schema["schema"]["arguments_schema"]}, _CORE_CONFIG)
    return SchemaValidator(schema, _CORE_CONFIG)


def build_result_validator(annotation: Any) -> SchemaValidator | None:
    """The same for the one thing that a function returns; None where it does not say what."""
    if annotation in (inspect.Signature.empty, Any):
        return None
    result = inspect.Parameter("result", inspect.Parameter.POSITIONAL_ONLY, annotation=annotation)
    return build_arguments_validator(inspect.Signature([result]))


def _arguments_schema(signature: inspect.Signature) -> Any:
    def capture(*args: Any, **kwargs: Any) -> CallArguments:
        return args, kwargs

    capture.__signature__ = signature.replace(return_annotation=inspect.Signature.empty)  # type: ignore[attr-defined]
    capture.__annotations__ = {
        each.name: each.annotation for each in signature.parameters.values() if each.annotation is not each.empty
    }
    anything: Any = capture
    return TypeAdapter(anything, config=_MODEL_CONFIG).core_schema


def _is_supported(parameter: inspect.Parameter) -> bool:
    try:
        _arguments_schema(inspect.Signature([parameter]))
    except PydanticUserError:
        return False
    return True


def _resolve_annotation(annotation: Any, scope: dict[str, Any]) -> Any:
    if annotation is inspect.Parameter.empty or annotation is None:
        return annotation
    holder = type("_Holder", (), {"__annotations__": {"it": annotation}})
    try:
        return get_type_hints(holder, scope, include_extras=True)["it"]
    except (NameError, AttributeError, TypeError, SyntaxError):
        return Any
