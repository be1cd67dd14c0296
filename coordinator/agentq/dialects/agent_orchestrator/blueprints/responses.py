"""Responses for stored items: whole for a single item, shortened in a list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Fields = dict[str, Any]

AGENT_DEFAULTS: Mapping[str, Any] = {"type": "autonomous", "tags": [], "capabilities": [], "status": "active"}
"""Defaults of an agent; clients show only agents with the status active."""
MCP_SERVER_DEFAULTS: Mapping[str, Any] = {"description": None, "config_schema": None, "default_config": None}


def render_item(kind: str, fields: Fields) -> Fields:
    """One item, whole."""
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
    """The type of a capability that does not name one."""
    if fields.get("script"):
        return "script"
    return "mcp" if fields.get("mcp_servers") else "text"


def render_list_item(kind: str, fields: Fields) -> Fields:
    """One entry of a list: for fields that can be long, only whether they are set."""
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
