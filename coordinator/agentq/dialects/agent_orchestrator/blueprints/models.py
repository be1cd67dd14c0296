"""Models of the stored items of each kind, and their encoding."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from agentq.coordinator.bounds import BLUEPRINT_BYTES
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.field_types import Name, describe_error
from agentq.dialects.agent_orchestrator.blueprints.parameter_schema import check_schema
from agentq.dialects.agent_orchestrator.run_translation import format_time

Fields = dict[str, Any]
Kind = Literal["agents", "capabilities", "scripts", "mcp-servers"]
KINDS: tuple[Kind, ...] = ("agents", "capabilities", "scripts", "mcp-servers")
KIND_PREFIXES = tuple(f"{kind}/" for kind in KINDS)
EMPTY_VALUES: tuple[JsonValue, ...] = ("", [], {})
"""Values by which a client clears a field."""


class BlueprintHook(BaseModel):
    """An agent that runs before or after a run."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: Literal["agent"] = "agent"
    agent_name: Name
    on_error: Literal["block", "continue"] = "continue"
    timeout_seconds: Annotated[float, Field(gt=0, le=86_400)] = 300


class BlueprintHooks(BaseModel):
    """The hooks of a blueprint."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    on_run_start: BlueprintHook | None = None
    on_run_finish: BlueprintHook | None = None


class Blueprint(BaseModel):
    """The description of an agent. Fields that agentq does not use are kept unchanged."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Name
    description: str = ""
    type: Literal["autonomous", "procedural"] = "autonomous"
    status: Literal["active", "inactive"] = "active"
    system_prompt: str | None = None
    tags: Annotated[tuple[str, ...], Field(fail_fast=True)] = ()
    capabilities: Annotated[tuple[str, ...], Field(fail_fast=True)] = ()
    mcp_servers: dict[str, JsonValue] | None = None
    script: Name | None = None
    """The script that a procedural agent runs."""
    parameters_schema: dict[str, JsonValue] | None = None
    demands: dict[str, JsonValue] | None = None
    hooks: BlueprintHooks | None = None


class Capability(BaseModel):
    """Text and MCP servers that blueprints share."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Name
    description: str = ""
    text: str = ""
    mcp_servers: dict[str, JsonValue] | None = None
    script: Name | None = None
    """A script that agents with this capability may call; its usage is added to their system prompts."""


class BlueprintScript(BaseModel):
    """A script that procedural agents run; runners fetch it."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Name
    description: str = ""
    script_file: str | None = None
    script_content: str = ""
    parameters_schema: dict[str, JsonValue] | None = None


class McpServer(BaseModel):
    """An MCP server in the registry."""

    model_config = ConfigDict(extra="allow", frozen=True)

    id: Name | None = None
    name: str = ""


MODELS: dict[Kind, type[BaseModel]] = {
    "agents": Blueprint,
    "capabilities": Capability,
    "scripts": BlueprintScript,
    "mcp-servers": McpServer,
}
KIND_LABELS: dict[Kind, str] = {
    "agents": "Agent",
    "capabilities": "Capability",
    "scripts": "Script",
    "mcp-servers": "MCP server",
}
_name_adapter: TypeAdapter[str] = TypeAdapter(Name)


class InvalidItemName(Invalid):
    """The item has no valid name."""


def read_name(kind: Kind, body: Any, name: str | None) -> str:
    """The name of an item: `name` if given, or the one in the body."""
    if not isinstance(body, dict):
        raise Invalid(f"{KIND_LABELS[kind]}: a JSON object is needed.")
    given_name = name or (kind == "mcp-servers" and body.get("id")) or body.get("name") or body.get("id")
    try:
        return _name_adapter.validate_python(given_name)
    except ValidationError as error:
        raise InvalidItemName(f"{KIND_LABELS[kind]}: name: {describe_error(error)}") from error


def encode_at_path(path: str, body: Any) -> str:
    """Encode the item of a path such as `agents/researcher`."""
    kind, _, name = path.partition("/")
    if kind not in MODELS:
        raise Invalid(f"{path[:80]!r} is nothing that is kept here; there are {', '.join(KINDS)}.")
    return encode_item(kind, read_name(kind, body, name), body, {})


def encode_item(kind: Kind, name: str, body: Fields, before: Fields) -> str:
    """Check an item and encode it for the store."""
    name_field = {"id": name} if kind == "mcp-servers" else {"name": name}
    now, empty = format_time(wall_ms()), EMPTY_VALUES if kind in ("agents", "capabilities") else ()
    given = {field: value for field, value in body.items() if value is not None and value not in empty}
    fields = {**given, **name_field, "created_at": before.get("created_at", now), "modified_at": now}
    try:
        MODELS[kind].model_validate(fields)
    except ValidationError as error:
        raise Invalid(f"{KIND_LABELS[kind]} {name}: {describe_error(error)}") from error
    if isinstance(fields.get("parameters_schema"), dict):
        check_schema(fields["parameters_schema"])
    text = json.dumps(fields)
    if len(text) > BLUEPRINT_BYTES:
        raise Invalid(f"{KIND_LABELS[kind]} {name} has {len(text)} bytes; {BLUEPRINT_BYTES} is the most.")
    return text


def describe_usage(script: Fields) -> str:
    """The usage of a script in Markdown, for system prompts."""
    schema = script.get("parameters_schema") or {}
    fields = {
        name: field if isinstance(field, dict) else {} for name, field in (schema.get("properties") or {}).items()
    }
    required = set(schema.get("required") or ())
    file = script.get("script_file") or f"{script['name']}.py"
    call = [f"uv run --script scripts/{script['name']}/{file}"]
    for name, field in fields.items():
        option = f"--{name} {_make_placeholder(name, field)}".rstrip()
        call.append(option if name in required else f"[{option}]")
    lines = [f"## Local Script: {script['name']}", f"**Description:** {script.get('description') or ''}", ""]
    lines += ["**Usage:**", "```bash", " ".join(call), "```"]
    if fields:
        lines += [
            "",
            "**Arguments:**",
            *(_format_argument(name, field, name in required) for name, field in fields.items()),
        ]
    return "\n".join(lines)


def _make_placeholder(name: str, field: Fields) -> str:
    if isinstance(field.get("enum"), list):
        return f"<{'|'.join(map(str, field['enum']))}>"
    kind = field.get("type", "string")
    by_type = {"boolean": "", "integer": "<N>", "number": "<N>", "array": "<value1,value2,...>"}
    return by_type.get(kind, f"<{name}>") if isinstance(kind, str) else f"<{name}>"


def _format_argument(name: str, field: Fields, required: bool) -> str:
    parts = [f"- `--{name}`", "(required)" if required else "(optional)"]
    if isinstance(field.get("enum"), list):
        parts.append(f"One of: {', '.join(map(str, field['enum']))}")
    elif field.get("type", "string") != "string":
        parts.append(f"({field['type']})")
    if "default" in field:
        parts.append(f"[default: {field['default']}]")
    if "description" in field:
        parts.append(f"- {field['description']}")
    return " ".join(parts)
