"""What is put into a blueprint when it goes to a runner: values for its placeholders, addresses for its references.

`${params.NAME}`, `${scope.NAME}` and `${runtime.NAME}` are replaced once, in the blueprint as it was stored. What is
put in is never looked at again, and nothing ever comes from the environment of this process: `${env.NAME}` and
`${runner.NAME}` are left for the runner to replace, or not.

A server of tools that is named by reference, `{"ref": ID, "config": {…}}`, becomes what `/mcp-servers` has of it,
`{"url", "config"}`: the defaults that stand there, and above them what the blueprint says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import JsonValue

from agentq.coordinator.server.foreign.validating import Mistaken

Fields = dict[str, Any]
Facts = Mapping[str, Mapping[str, Any]]
"""By `params`, `scope` and `runtime`, what the placeholders stand for."""
Registered = Callable[[str], Fields | None]
"""What is registered of a server of tools, by its id."""

_PLACE = re.compile(r"\$\{(params|scope|runtime)\.([\w.-]+)\}")
_LEFT = re.compile(r"\$\{[^}]+\}")


def facts_of(params: Mapping[str, Any], scope: Mapping[str, Any], session: str, run: str) -> Facts:
    """What the placeholders stand for in a run of a session."""
    return {"params": params, "scope": scope, "runtime": {"session_id": session, "run_id": run}}


def filled_in(value: Any, facts: Facts) -> Any:
    """The value with its placeholders replaced, once. One that stands alone becomes what it names, of whatever type."""
    if isinstance(value, dict):
        return {name: filled_in(each, facts) for name, each in value.items()}
    if isinstance(value, list):
        return [filled_in(each, facts) for each in value]
    if not isinstance(value, str):
        return value
    whole = _PLACE.fullmatch(value)
    if whole is not None and whole[2] in facts[whole[1]]:
        return facts[whole[1]][whole[2]]
    return _PLACE.sub(lambda place: _text(facts[place[1]].get(place[2], place[0])), value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def referred(servers: JsonValue, registered: Registered) -> JsonValue:
    """Servers of tools with those that are named by reference replaced; what nobody registered is left as it is."""
    if not isinstance(servers, dict):
        return servers
    found: dict[str, JsonValue] = {}
    for name, server in servers.items():
        entry = registered(str(server["ref"])) if isinstance(server, dict) and "ref" in server else None
        found[name] = server if entry is None or not isinstance(server, dict) else _merged(entry, server)
    return found


def check_references(servers: JsonValue, facts: Facts, registered: Registered) -> None:
    """Refuse servers of tools that are registered nowhere, or lack what they need, in the words that clients know."""
    for name, server in servers.items() if isinstance(servers, dict) else ():
        if not isinstance(server, dict) or "ref" not in server:
            continue
        ref = str(server["ref"])
        entry = registered(ref)
        if entry is None:
            raise Mistaken(
                {
                    "error": "mcp_ref_resolution_failed",
                    "message": f"Failed to resolve MCP server '{name}' (ref: {ref}): Not found in registry",
                    "server_name": name,
                    "ref": ref,
                }
            )
        missing = _missing(entry, filled_in(_merged(entry, server), facts)["config"])
        if missing:
            raise Mistaken(
                {
                    "error": "missing_required_mcp_config",
                    "message": f"MCP server '{name}' missing required config: {', '.join(missing)}",
                    "server_name": name,
                    "missing_fields": missing,
                }
            )


def _merged(entry: Fields, server: Mapping[str, JsonValue]) -> Fields:
    said = server.get("config")
    return {
        "url": entry.get("url"),
        "config": {**(entry.get("default_config") or {}), **(said if isinstance(said, dict) else {})},
    }


def _missing(entry: Fields, config: Mapping[str, Any]) -> list[str]:
    """What its schema says is needed and is not there, or is a placeholder still."""
    schema = entry.get("config_schema")
    needed = [
        name
        for name, field in (schema.items() if isinstance(schema, dict) else ())
        if isinstance(field, dict) and field.get("required")
    ]
    return [name for name in needed if config.get(name) is None or _LEFT.search(str(config[name]))]
