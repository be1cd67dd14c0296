"""`agentq config`: every setting, its value and where it comes from."""

from __future__ import annotations

import typer

from agentq.cli.options import Json
from agentq.cli.render import print_json, print_table
from agentq.cli.server import brought, home_of, settings_of
from agentq.coordinator.settings import Settings
from agentq.coordinator.url import display


def config(ctx: typer.Context, json: Json = False) -> None:
    """Show every setting, its value and where it comes from.

    A flag counts most, then the environment, then the nearest agentq.toml in this folder or one above it, then
    ~/.config/agentq/config.toml, then the default.

    \b
    Example: agentq config
    """
    found = settings_of(ctx)
    rows = [(name, _value(found.settings, name), found.sources[name]) for name in Settings.model_fields]
    if json:
        for name, value, source in rows:
            print_json({"name": name, "value": value, "source": source})
    else:
        print_table(["setting", "value", "from"], [(name, str(value), source) for name, value, source in rows])


def _value(settings: Settings, name: str) -> object:
    """A setting as it works out; an address is shown without its password."""
    if name == "home":
        return str(home_of(settings))
    if name == "url":
        return display(settings.url) if settings.url else brought(settings).find() or ""
    return getattr(settings, name)
