"""What is kept on the shelf, as it is answered: whole where one is asked for, and in short in a list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Fields = dict[str, Any]

AGENT_DEFAULTS: Mapping[str, Any] = {"type": "autonomous", "tags": [], "capabilities": [], "status": "active"}
"""What is so of an agent unless something else is said; clients show only what says that it is active."""
MCP_SERVER_DEFAULTS: Mapping[str, Any] = {"description": None, "config_schema": None, "default_config": None}


def render_item(kind: str, fields: Fields) -> Fields:
    """One of a kind."""
    if kind == "mcp-servers":
        changed = fields.get("updated_at") or fields.get("modified_at")
        return {**MCP_SERVER_DEFAULTS, **fields, "name": fields.get("name") or fields["id"], "updated_at": changed}
    given = {name: value for name, value in fields.items() if value is not None}
    if kind == "agents":
        return {"description": "", **AGENT_DEFAULTS, **given}
    if kind == "capabilities":
        return {"description": "", "type": get_capability_type(fields), **given}
    return given


def get_capability_type(fields: Fields) -> str:
    """Which of the three types a capability is of that does not say."""
    if fields.get("script"):
        return "script"
    return "mcp" if fields.get("mcp_servers") else "text"


def render_list_item(kind: str, fields: Fields) -> Fields:
    """One of a list: of what may be long only whether it is there."""
    if kind == "capabilities":
        return _render_capability(fields)
    if kind == "scripts":
        return _render_script(fields)
    return render_item(kind, fields)


def _render_capability(fields: Fields) -> Fields:
    rendered = {
        "name": fields["name"],
        "description": fields.get("description") or "",
        "type": fields.get("type") or get_capability_type(fields),
        "has_script": bool(fields.get("script")),
        "script_name": fields.get("script") or None,
        "has_text": bool(fields.get("text")),
        "has_mcp": bool(fields.get("mcp_servers")),
        "mcp_server_names": list(fields.get("mcp_servers") or ()),
    }
    return rendered | _pick_times(fields)


def _render_script(fields: Fields) -> Fields:
    demands = fields.get("demands") or {}
    rendered = {
        "name": fields["name"],
        "description": fields.get("description") or "",
        "script_file": fields.get("script_file") or f"{fields['name']}.py",
        "has_parameters_schema": bool(fields.get("parameters_schema")),
        "has_demands": any(demands.values()),
        "demand_tags": list(demands.get("tags") or ()),
    }
    return rendered | _pick_times(fields)


def _pick_times(fields: Fields) -> Fields:
    return {name: fields.get(name) for name in ("created_at", "modified_at")}
