"""`agentq version`."""

from __future__ import annotations

from agentq.cli.options import Json
from agentq.coordinator.package_version import installed_version


def version(json: Json = False) -> None:
    """Show the version of agentq.

    \b
    Example: agentq version
    """
    if not json:
        print(f"agentq {installed_version()}")
        return
    import platform

    from agentq.cli.render import print_json

    print_json({"agentq": installed_version(), "python": platform.python_version()})
