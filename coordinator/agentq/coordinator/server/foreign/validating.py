"""Parameters of a run against the schema of its agent: refused with the schema, so that an agent can mend them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft7Validator  # type: ignore[import-untyped]
from jsonschema.exceptions import SchemaError  # type: ignore[import-untyped]
from referencing import Registry
from referencing.exceptions import Unresolvable

from agentq.coordinator.errors import Invalid

PROMPT_ONLY: Mapping[str, Any] = {
    "type": "object",
    "properties": {"prompt": {"type": "string", "minLength": 1}},
    "required": ["prompt"],
    "additionalProperties": False,
}
FAULTS = 20


class Mistaken(Invalid):
    """The parameters do not fit their schema."""

    def __init__(self, detail: dict[str, Any]) -> None:
        super().__init__(str(detail["message"]))
        self.detail = detail


def check_schema(schema: Mapping[str, Any]) -> None:
    """Refuse a schema that is none."""
    try:
        Draft7Validator.check_schema(schema)
    except SchemaError as error:
        raise Invalid(f"parameters_schema is no JSON schema of draft 7: {error.message}.") from error


def check_parameters(parameters: Mapping[str, Any], agent: str | None, schema: Mapping[str, Any] | None) -> None:
    """Refuse parameters that do not fit."""
    schema = schema or PROMPT_ONLY
    # With a registry of its own, nothing that a schema refers to is ever fetched from anywhere.
    validator = Draft7Validator(schema, registry=Registry())
    try:
        faults = sorted(validator.iter_errors(parameters), key=lambda fault: list(map(str, fault.path)))
    except Unresolvable as error:
        raise Invalid(f"The schema of {agent or 'the agent'} refers to what it does not have: {error}.") from error
    except RecursionError:
        raise Invalid(f"The schema of {agent or 'the agent'} refers to itself without end.") from None
    if not faults:
        return
    raise Mistaken(
        {
            "error": "parameter_validation_failed",
            "message": f"The parameters do not fit what {agent or 'the agent'} takes: {faults[0].message[:500]}",
            "agent_name": agent,
            "validation_errors": [
                {
                    "path": "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault.path),
                    "message": fault.message[:500],
                    "schema_path": "/".join(map(str, fault.schema_path)),
                }
                for fault in faults[:FAULTS]
            ],
            "parameters_schema": schema,
        }
    )
