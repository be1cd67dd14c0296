"""`agentq config`: every setting, its value and where it comes from."""

from __future__ import annotations

import typer

from agentq.cli.connect import embedded_server, home_folder, read_settings
from agentq.cli.options import Json
from agentq.cli.render import print_json, print_table
from agentq.coordinator.config.settings import SERVER_TABLE, WORKER_TABLE, Settings
from agentq.coordinator.storage.url import redact_url


def config(ctx: typer.Context, json: Json = False) -> None:
    """Show every setting, its value and where it comes from.

    A flag counts most, then the environment, then the file that --config or AGENTQ_CONFIG names, or else the nearest
    agentq.toml in this folder or one above it, then ~/.config/agentq/config.toml, then /etc/agentq/agentq.toml, then
    the default. What a nearby file sets that does not count is shown with the reason.

    \b
    Example: agentq config
    """
    found = read_settings(ctx)
    values = {name: _setting_value(found.settings, name) for name in Settings.model_fields}
    for table, of_table in ((WORKER_TABLE, found.worker), (SERVER_TABLE, found.server)):
        values |= {f"{table}.{name}": value for name, value in of_table.model_dump(mode="json").items()}
    if json:
        for name, value in values.items():
            print_json({"name": name, "value": value, "source": found.sources[name]})
        for each in found.ignored:
            print_json({"ignored": each.name, "source": each.source, "why": each.why})
    else:
        rows = [(name, _format_value(value), found.sources[name]) for name, value in values.items()]
        rows += [(f"{each.name or 'all'} (ignored)", each.why, each.source) for each in found.ignored]
        print_table(["setting", "value", "from"], rows)


def _setting_value(settings: Settings, name: str) -> object:
    """A setting as it works out; an address is shown without its password."""
    if name == "home":
        return str(home_folder(settings))
    if name == "url":
        return redact_url(settings.url) if settings.url else embedded_server(settings).find() or ""
    return getattr(settings, name)


def _format_value(value: object) -> str:
    """A value as it is written into a variable, or into agentq.toml."""
    if isinstance(value, dict):
        return ",".join(f"{name}={each}" for name, each in value.items())
    if isinstance(value, list):
        return ",".join(value)
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
