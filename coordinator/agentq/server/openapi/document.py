"""The OpenAPI document of the server.

Completes what FastAPI derives by itself: the fields of a run, the scope of each route, the one format of errors, and
the response models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.security.tokens import SCOPE_MEANINGS
from agentq.server.auth.access_control import RequiredScope
from agentq.server.dialect import RouteExample, ServerDialect
from agentq.server.http.problems import MEDIA_TYPE, Problem
from agentq.server.schema import RESPONSE_MODELS
from agentq.server.schema.examples import RUN_EXAMPLES

DESCRIPTION = (
    "Submit and control runs; manage sessions, plans, schedules, limits, queues and "
    "workers. Errors are `application/problem+json` with a sentence in `detail`. Times are ISO 8601 in UTC; what "
    "ends in `_ms` is milliseconds. A request with a token shows it as `Authorization: Bearer aq_…`."
)
SCHEMA_REF = "#/components/schemas/{model}"
JSON_TYPE = "application/json"
SECURITY_SCHEME = "token"
ERROR_RESPONSES = {
    "401": "No token, or one that is not good.",
    "403": "The token lacks the scope, or is limited to other resources.",
    "404": "Not found.",
    "409": "The present state forbids it.",
    "422": "The input is not valid.",
    "429": "The token has reached its rate limit.",
    "503": "The store cannot be reached, or takes nothing at the moment: try again.",
}


def build_document(
    app: FastAPI, routes: Iterable[tuple[APIRoute, RequiredScope | None]], dialects: Sequence[ServerDialect]
) -> dict[str, Any]:
    """The OpenAPI document."""
    examples = {at: example for dialect in dialects for at, example in dialect.examples.items()}
    described = get_openapi(
        title=app.title, version=app.version, summary=app.summary, description=DESCRIPTION, routes=app.routes
    )
    components = described.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    _add_schema(schemas, "Problem", Problem.model_json_schema(ref_template=SCHEMA_REF))
    _add_schema(schemas, "RunSpec", RunSpec.model_json_schema(ref_template=SCHEMA_REF))
    answers = _build_response_schemas(schemas, list_response_models(dialects))
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    scopes = "; ".join(f"`{scope}`: {meaning}" for scope, meaning in SCOPE_MEANINGS.items())
    components["securitySchemes"] = {SECURITY_SCHEME: {"type": "http", "scheme": "bearer", "description": scopes}}
    for route, allowed in routes:
        for method in route.methods or ():
            operation = described["paths"].get(route.path_format, {}).get(method.lower())
            if operation is not None:
                _complete_operation(operation, allowed)
                if (method, route.path) in answers:
                    schema = answers[method, route.path]
                    _set_success_content(operation, {"schema": schema, "example": build_example(schema, schemas)})
                _complete_dialect_operation(operation, examples.get((method, route.path)))
    for dialect in dialects:
        for (method, path), parameters in dialect.parameters.items():
            described["paths"][path][method.lower()]["parameters"] += parameters
    for path in ("/runs", "/runs/check"):
        _describe_submit_body(described["paths"][path]["post"])
    return described


def _add_schema(schemas: dict[str, Any], name: str, schema: dict[str, Any]) -> None:
    """Add a model and those that it uses."""
    schemas.update(schema.pop("$defs", {}))
    schemas[name] = schema


def list_response_models(dialects: Iterable[ServerDialect | type[ServerDialect]]) -> dict[tuple[str, str], Any]:
    """The response model of each route, by method and path; the union with a dialect's model where it has one."""
    models = dict(RESPONSE_MODELS)
    for at, model in (each for dialect in dialects for each in dialect.response_models.items()):
        models[at] |= model
    return models


def _build_response_schemas(
    schemas: dict[str, Any], models: Mapping[tuple[str, str], Any]
) -> dict[tuple[str, str], dict[str, Any]]:
    """The schema of each response; models that they share are added to the others."""
    adapters = [(at, "validation", TypeAdapter(model)) for at, model in models.items()]
    found, shared = TypeAdapter.json_schemas(adapters, ref_template=SCHEMA_REF)  # type: ignore[arg-type]
    schemas.update(shared.get("$defs", {}))
    return {at: schema for (at, _), schema in found.items()}


def _complete_operation(operation: dict[str, Any], allowed: RequiredScope | None) -> None:
    answers = operation["responses"]
    for status, answer in answers.items():
        kind = next((kind for kind in answer.get("content", ()) if kind != JSON_TYPE), None)
        if status.startswith("2") and kind is not None:
            del answer["content"][JSON_TYPE]  # as the framework takes for granted
    refusals = dict(ERROR_RESPONSES)
    if allowed is None:
        refusals = {"503": ERROR_RESPONSES["503"]}
    else:
        operation["security"] = [{SECURITY_SCHEME: []}]
        operation["description"] = f"{operation.get('description', '')}\n\nScope: `{allowed.scope}`."
    for status, meaning in refusals.items():
        schema = {"$ref": SCHEMA_REF.format(model="Problem")}
        answers[status] = {"description": meaning, "content": {MEDIA_TYPE: {"schema": schema}}}


def _complete_dialect_operation(operation: dict[str, Any], example: RouteExample | None) -> None:
    """Add examples of a dialect's route, whose body is parsed by hand."""
    if example is None:
        return
    kind = "array" if isinstance(example.response, list) else "object"
    _set_success_content(operation, {"schema": {"type": kind}, "example": example.response})
    if example.body is not None:
        content = {"schema": {"type": "object"}, "example": example.body}
        operation["requestBody"] = {"content": {JSON_TYPE: content}}


def _set_success_content(operation: dict[str, Any], content: dict[str, Any]) -> None:
    """Set the content of the successful response, beside other media types."""
    good = min(status for status in operation["responses"] if status.startswith("2"))
    operation["responses"][good]["content"] = {**operation["responses"][good].get("content", {}), JSON_TYPE: content}


def build_example(schema: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """An example for a schema: its own, or one built from its parts."""
    if "examples" in schema or "default" in schema or "const" in schema:
        return schema["examples"][0] if "examples" in schema else schema.get("default", schema.get("const"))
    if "$ref" in schema:
        return build_example(schemas[schema["$ref"].removeprefix(SCHEMA_REF.format(model=""))], schemas)
    if "anyOf" in schema:
        nothing = {"type": "null"}
        return None if nothing in schema["anyOf"] else build_example(schema["anyOf"][0], schemas)
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "array":
        return [build_example(schema["items"], schemas)]
    if schema.get("type") == "object":
        return {name: build_example(each, schemas) for name, each in schema.get("properties", {}).items()}
    return {"string": "", "integer": 0, "number": 0.0, "boolean": False}.get(schema.get("type", ""))


def _describe_submit_body(operation: dict[str, Any]) -> None:
    """Describe the body of a submit, which is parsed by hand."""
    run = {"$ref": SCHEMA_REF.format(model="RunSpec")}
    runs = {
        "type": "object",
        "required": ["runs"],
        "additionalProperties": False,
        "properties": {"runs": {"type": "array", "items": run, "minItems": 1, "maxItems": 1000}},
    }
    content = {"schema": {"anyOf": [run, runs]}, "examples": RUN_EXAMPLES}
    operation["requestBody"] = {"required": True, "content": {JSON_TYPE: content}}
