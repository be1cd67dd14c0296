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

from agentq.coordinator.run import RunSpec
from agentq.coordinator.server.access import Allowed
from agentq.coordinator.server.examples import ANSWERS, RUNS
from agentq.coordinator.server.problems import MEDIA_TYPE, Problem
from agentq.coordinator.tokens import MEANING

DESCRIPTION = (
    "Runs are submitted, followed and told what to do; sessions, plans, schedules, limits, queues and workers are "
    "looked after. Errors are `application/problem+json` with a sentence in `detail`. Times are ISO 8601 in UTC; what "
    "ends in `_ms` is milliseconds. A request with a token shows it as `Authorization: Bearer aq_…`."
)
REF = "#/components/schemas/{model}"
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
    _add(schemas, "Run", RunSpec.model_json_schema(ref_template=REF))
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    scopes = "; ".join(f"`{scope}`: {meaning}" for scope, meaning in MEANING.items())
    components["securitySchemes"] = {SCHEME: {"type": "http", "scheme": "bearer", "description": scopes}}
    for route, allowed in routes:
        for method in route.methods or ():
            operation = described["paths"].get(route.path_format, {}).get(method.lower())
            if operation is not None:
                _complete(operation, method, route, allowed)
    _describe_submit(described["paths"]["/runs"]["post"])
    return described


def _add(schemas: dict[str, Any], name: str, schema: dict[str, Any]) -> None:
    """A model, and those that it is made of."""
    schemas.update(schema.pop("$defs", {}))
    schemas[name] = schema


def _complete(operation: dict[str, Any], method: str, route: APIRoute, allowed: Allowed | None) -> None:
    answers = operation["responses"]
    refusals = dict(REFUSALS)
    if allowed is None:
        refusals = {"503": REFUSALS["503"]}
    else:
        operation["security"] = [{SCHEME: []}]
        operation["description"] = f"{operation.get('description', '')}\n\nScope: `{allowed.scope}`."
    for status, meaning in refusals.items():
        schema = {"$ref": "#/components/schemas/Problem"}
        answers[status] = {"description": meaning, "content": {MEDIA_TYPE: {"schema": schema}}}
    example = ANSWERS.get((method, route.path))
    good = next((answer for status, answer in answers.items() if status.startswith("2")), None)
    if example is not None and good is not None:
        good["content"] = {"application/json": {"schema": {}, "example": example}}


def _describe_submit(operation: dict[str, Any]) -> None:
    """The body of a submit is read by hand, once, as what it is."""
    run = {"$ref": "#/components/schemas/Run"}
    runs = {
        "type": "object",
        "required": ["runs"],
        "additionalProperties": False,
        "properties": {"runs": {"type": "array", "items": run, "minItems": 1, "maxItems": 1000}},
    }
    content = {"schema": {"anyOf": [run, runs]}, "examples": RUNS}
    operation["requestBody"] = {"required": True, "content": {"application/json": content}}
