"""The document that describes the API, for `/docs` and for whoever makes clients of it.

What the framework finds out by itself is completed here: what a run is made of, which scope a route takes, that every
refusal has one shape, and what an answer looks like.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from agentq.coordinator.run import RunSpec
from agentq.coordinator.server.access import Allowed
from agentq.coordinator.server.answers import ANSWERS
from agentq.coordinator.server.examples import RUNS
from agentq.coordinator.server.foreign.examples import EXAMPLES, Example
from agentq.coordinator.server.problems import MEDIA_TYPE, Problem
from agentq.coordinator.tokens import MEANING

DESCRIPTION = (
    "Runs are submitted, followed and told what to do; sessions, plans, schedules, limits, queues and workers are "
    "looked after. Errors are `application/problem+json` with a sentence in `detail`. Times are ISO 8601 in UTC; what "
    "ends in `_ms` is milliseconds. A request with a token shows it as `Authorization: Bearer aq_…`."
)
REF = "#/components/schemas/{model}"
JSON = "application/json"
SCHEME = "token"
REFUSALS = {
    "401": "No token, or one that is not good.",
    "403": "The token lacks the scope, or is not good for this.",
    "404": "There is no such thing.",
    "409": "The present state forbids it.",
    "422": "The input is not valid.",
    "429": "This token has made as many requests as it may.",
    "503": "The store cannot be reached, or takes nothing at the moment: try again.",
}


def document(app: FastAPI, routes: Iterable[tuple[APIRoute, Allowed | None]]) -> dict[str, Any]:
    """The OpenAPI document."""
    described = get_openapi(
        title=app.title, version=app.version, summary=app.summary, description=DESCRIPTION, routes=app.routes
    )
    components = described.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    _add(schemas, "Problem", Problem.model_json_schema(ref_template=REF))
    _add(schemas, "RunSpec", RunSpec.model_json_schema(ref_template=REF))
    answers = _answers(schemas)
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    scopes = "; ".join(f"`{scope}`: {meaning}" for scope, meaning in MEANING.items())
    components["securitySchemes"] = {SCHEME: {"type": "http", "scheme": "bearer", "description": scopes}}
    for route, allowed in routes:
        for method in route.methods or ():
            operation = described["paths"].get(route.path_format, {}).get(method.lower())
            if operation is not None:
                _complete(operation, allowed)
                if (method, route.path) in answers:
                    schema = answers[method, route.path]
                    _tell(operation, {"schema": schema, "example": example_of(schema, schemas)})
                _complete_foreign(operation, EXAMPLES.get((method, route.path)))
    _describe_submit(described["paths"]["/runs"]["post"])
    return described


def _add(schemas: dict[str, Any], name: str, schema: dict[str, Any]) -> None:
    """A model, and those that it is made of."""
    schemas.update(schema.pop("$defs", {}))
    schemas[name] = schema


def _answers(schemas: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """The schema of each answer; the models that these are made of are put with the others."""
    adapters = [(at, "validation", TypeAdapter(model)) for at, model in ANSWERS.items()]
    found, shared = TypeAdapter.json_schemas(adapters, ref_template=REF)  # type: ignore[arg-type]
    schemas.update(shared.get("$defs", {}))
    return {at: schema for (at, _), schema in found.items()}


def _complete(operation: dict[str, Any], allowed: Allowed | None) -> None:
    answers = operation["responses"]
    for status, answer in answers.items():
        kind = next((kind for kind in answer.get("content", ()) if kind != JSON), None)
        if status.startswith("2") and kind is not None:
            del answer["content"][JSON]  # as the framework takes for granted
    refusals = dict(REFUSALS)
    if allowed is None:
        refusals = {"503": REFUSALS["503"]}
    else:
        operation["security"] = [{SCHEME: []}]
        operation["description"] = f"{operation.get('description', '')}\n\nScope: `{allowed.scope}`."
    for status, meaning in refusals.items():
        schema = {"$ref": REF.format(model="Problem")}
        answers[status] = {"description": meaning, "content": {MEDIA_TYPE: {"schema": schema}}}


def _complete_foreign(operation: dict[str, Any], example: Example | None) -> None:
    """Bodies of the dialects are read by hand, each as what it is."""
    if example is None:
        return
    kind = "array" if isinstance(example.answered, list) else "object"
    _tell(operation, {"schema": {"type": kind}, "example": example.answered})
    if example.asked is not None:
        content = {"schema": {"type": "object"}, "example": example.asked}
        operation["requestBody"] = {"content": {JSON: content}}


def _tell(operation: dict[str, Any], content: dict[str, Any]) -> None:
    """What is answered if all goes well, beside what the route itself says of answers that are no JSON."""
    good = min(status for status in operation["responses"] if status.startswith("2"))
    operation["responses"][good]["content"] = {**operation["responses"][good].get("content", {}), JSON: content}


def example_of(schema: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """An example of what fits a schema: the one that it has, or what follows from its parts."""
    if "examples" in schema or "default" in schema or "const" in schema:
        return schema["examples"][0] if "examples" in schema else schema.get("default", schema.get("const"))
    if "$ref" in schema:
        return example_of(schemas[schema["$ref"].removeprefix(REF.format(model=""))], schemas)
    if "anyOf" in schema:
        nothing = {"type": "null"}
        return None if nothing in schema["anyOf"] else example_of(schema["anyOf"][0], schemas)
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "array":
        return [example_of(schema["items"], schemas)]
    if schema.get("type") == "object":
        return {name: example_of(each, schemas) for name, each in schema.get("properties", {}).items()}
    return {"string": "", "integer": 0, "number": 0.0, "boolean": False}.get(schema.get("type", ""))


def _describe_submit(operation: dict[str, Any]) -> None:
    """The body of a submit is read by hand, once, as what it is."""
    run = {"$ref": REF.format(model="RunSpec")}
    runs = {
        "type": "object",
        "required": ["runs"],
        "additionalProperties": False,
        "properties": {"runs": {"type": "array", "items": run, "minItems": 1, "maxItems": 1000}},
    }
    content = {"schema": {"anyOf": [run, runs]}, "examples": RUNS}
    operation["requestBody"] = {"required": True, "content": {JSON: content}}
