"""The JSON schema of a plan for editors, generated from the models with their descriptions."""

from __future__ import annotations

from typing import Any

from agentq.planning.model import CHECK_SCHEMA, CommandStep, PlanDefinition

SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"
EXPRESSION_SCHEMA = {"type": "string", "pattern": r"\{\{.*\}\}"}
"""An expression may replace any value; its result is checked when it is filled in."""
_CHECK_KEYS = ("check", "setup")


def plan_schema() -> dict[str, Any]:
    """The schema, as `agentq plan schema` prints it."""
    schema = PlanDefinition.model_json_schema(ref_template="#/$defs/{model}")
    step = CommandStep.model_json_schema()
    definitions = schema["$defs"]
    definitions["Step"] = {key: value for key, value in step.items() if key != "title"}
    definitions["Check"] = {"anyOf": [*CHECK_SCHEMA["anyOf"], {"$ref": "#/$defs/Step"}]}
    for part in (schema, *definitions.values()):
        part.pop("title", None)
        part["properties"] = {
            name: _allow_expression(name, key_schema) for name, key_schema in part.get("properties", {}).items()
        }
        if not part["properties"]:
            del part["properties"]
    schema["properties"]["$schema"] = {"type": "string", "description": "Where this schema is, for editors."}
    return {"$schema": SCHEMA_DIALECT, "title": "A plan of agentq", **schema}


def _allow_expression(name: str, key_schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a key: its own type, or an expression."""
    description = {"description": key_schema["description"]} if "description" in key_schema else {}
    if name in _CHECK_KEYS:
        return {**description, "$ref": "#/$defs/Check"}
    body = {key: value for key, value in key_schema.items() if key not in ("title", "default", "description")}
    choices = [each for each in body.pop("anyOf", [body]) if each and each != {"type": "null"}]
    if not any(_takes_text(each) for each in choices):
        choices.append(EXPRESSION_SCHEMA)
    return {**description, **(choices[0] if len(choices) == 1 else {"anyOf": choices})}


def _takes_text(choice: dict[str, Any]) -> bool:
    """Whether any text is allowed, and therefore an expression."""
    kinds = choice.get("type", [])
    return "string" in ([kinds] if isinstance(kinds, str) else kinds) and not choice.keys() & {"enum", "pattern"}
