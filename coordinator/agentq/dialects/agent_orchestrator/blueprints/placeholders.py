"""Fills in a blueprint for a runner: replaces its placeholders, and resolves its references to MCP servers.

`${params.NAME}`, `${scope.NAME}` and `${runtime.NAME}` are replaced once, in the stored blueprint; inserted values are
not searched for placeholders. No value comes from the environment of this process: `${env.NAME}` and `${runner.NAME}`
are left for the runner to replace.

An MCP server that is named by reference, `{"ref": ID, "config": {…}}`, becomes `{"url", "config"}` as registered at
`/mcp-servers`: the defaults from there, overridden by the blueprint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import JsonValue

from agentq.dialects.agent_orchestrator.blueprints.parameter_schema import InvalidWithDetail

Fields = dict[str, Any]
PlaceholderValues = Mapping[str, Mapping[str, Any]]
"""Values of placeholders, by `params`, `scope` and `runtime`."""
ServerLookup = Callable[[str], Fields | None]
"""Finds a registered MCP server by its id."""

_PLACEHOLDER = re.compile(r"\$\{(params|scope|runtime)\.([\w.-]+)\}")
_ANY_PLACEHOLDER = re.compile(r"\$\{[^}]+\}")


def collect_values(params: Mapping[str, Any], scope: Mapping[str, Any], session: str, run: str) -> PlaceholderValues:
    """The values of placeholders in a run of a session."""
    return {"params": params, "scope": scope, "runtime": {"session_id": session, "run_id": run}}


def fill_placeholders(value: Any, values: PlaceholderValues) -> Any:
    """Replace the placeholders in a value, once. A text that is only a placeholder becomes its value, of whatever
    type."""
    if isinstance(value, dict):
        return {name: fill_placeholders(each, values) for name, each in value.items()}
    if isinstance(value, list):
        return [fill_placeholders(each, values) for each in value]
    if not isinstance(value, str):
        return value
    only_match = _PLACEHOLDER.fullmatch(value)
    if only_match is not None and only_match[2] in values[only_match[1]]:
        return values[only_match[1]][only_match[2]]
    return _PLACEHOLDER.sub(lambda match: _format_value(values[match[1]].get(match[2], match[0])), value)


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def resolve_references(servers: JsonValue, find_server: ServerLookup) -> JsonValue:
    """Replace references to MCP servers; a server that is not registered is left unchanged."""
    if not isinstance(servers, dict):
        return servers
    found: dict[str, JsonValue] = {}
    for name, server in servers.items():
        entry = find_server(str(server["ref"])) if isinstance(server, dict) and "ref" in server else None
        found[name] = server if entry is None or not isinstance(server, dict) else _merge_config(entry, server)
    return found


def check_references(servers: JsonValue, values: PlaceholderValues, find_server: ServerLookup) -> None:
    """Refuse MCP servers that are not registered or lack required settings, with the messages that clients expect."""
    for name, server in servers.items() if isinstance(servers, dict) else ():
        if not isinstance(server, dict) or "ref" not in server:
            continue
        ref = str(server["ref"])
        entry = find_server(ref)
        if entry is None:
            raise InvalidWithDetail(
                {
                    "error": "mcp_ref_resolution_failed",
                    "message": f"Failed to resolve MCP server '{name}' (ref: {ref}): Not found in registry",
                    "server_name": name,
                    "ref": ref,
                }
            )
        missing = _find_missing_config(entry, fill_placeholders(_merge_config(entry, server), values)["config"])
        if missing:
            raise InvalidWithDetail(
                {
                    "error": "missing_required_mcp_config",
                    "message": f"MCP server '{name}' missing required config: {', '.join(missing)}",
                    "server_name": name,
                    "missing_fields": missing,
                }
            )


def _merge_config(entry: Fields, server: Mapping[str, JsonValue]) -> Fields:
    config = server.get("config")
    return {
        "url": entry.get("url"),
        "config": {**(entry.get("default_config") or {}), **(config if isinstance(config, dict) else {})},
    }


def _find_missing_config(entry: Fields, config: Mapping[str, Any]) -> list[str]:
    """The required settings that are missing, or still contain a placeholder."""
    schema = entry.get("config_schema")
    required = [
        name
        for name, field in (schema.items() if isinstance(schema, dict) else ())
        if isinstance(field, dict) and field.get("required")
    ]
    return [name for name in required if config.get(name) is None or _ANY_PLACEHOLDER.search(str(config[name]))]
