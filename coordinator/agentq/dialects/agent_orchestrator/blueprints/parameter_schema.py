"""Validates the parameters of a run against the schema of its agent; a refusal includes the schema, so that an agent
can correct them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft7Validator  # type: ignore[import-untyped]
from jsonschema.exceptions import SchemaError  # type: ignore[import-untyped]

from agentq.coordinator.errors import Invalid, TryLater
from agentq.coordinator.schema_validation import InvalidSchema, ValidationBusy, validate_schema

PROMPT_ONLY_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"prompt": {"type": "string", "minLength": 1}},
    "required": ["prompt"],
    "additionalProperties": False,
}


class InvalidWithDetail(Invalid):
    """The parameters do not fit their schema."""

    def __init__(self, detail: dict[str, Any]) -> None:
        super().__init__(str(detail["message"]))
        self.detail = detail


def check_schema(schema: Mapping[str, Any]) -> None:
    """Refuse an invalid JSON schema."""
    try:
        Draft7Validator.check_schema(schema)
    except SchemaError as error:
        raise Invalid(f"parameters_schema is no JSON schema of draft 7: {error.message}.") from error


def check_parameters(parameters: Mapping[str, Any], agent: str | None, schema: Mapping[str, Any] | None) -> None:
    """Refuse parameters that do not match the schema."""
    schema = schema or PROMPT_ONLY_SCHEMA
    try:
        found = validate_schema(parameters, schema)
    except InvalidSchema as unfit:
        raise Invalid(f"The schema of {agent or 'the agent'} {unfit}.") from unfit
    except ValidationBusy as busy:
        raise TryLater("The parameters could not be checked in time; the server has too much to do.") from busy
    if not found:
        return
    raise InvalidWithDetail(
        {
            "error": "parameter_validation_failed",
            "message": f"The parameters do not fit what {agent or 'the agent'} takes: {found[0].message}",
            "agent_name": agent,
            "validation_errors": [
                {
                    "path": "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault.path),
                    "message": fault.message,
                    "schema_path": fault.schema_path,
                }
                for fault in found
            ],
            "parameters_schema": schema,
        }
    )
