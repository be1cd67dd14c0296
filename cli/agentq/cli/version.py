"""`agentq version`."""

from __future__ import annotations

import platform
from importlib.metadata import version as installed_version

from agentq.cli.options import Json
from agentq.cli.render import print_json


def version(json: Json = False) -> None:
    """Show the version of agentq.

    \b
    Example: agentq version
    """
    number = installed_version("agentq")
    if json:
        print_json({"agentq": number, "python": platform.python_version()})
    else:
        print(f"agentq {number}")
