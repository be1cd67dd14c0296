"""Fills in the placeholders of a profile: `{model}` in an argument, `~` and `$NAME` in a path or variable.

Each placeholder is replaced once, from left to right. Inserted text is not expanded again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from agentq.coordinator.errors import Invalid
from agentq.worker.agents.profiles.profile import OWN_PREFIX, PLACEHOLDER

_VARIABLE = re.compile(
    r"\$(?:(?P<dollar>\$)|(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?::-(?P<default>[^{}]*))?\})"
)
_CONTROL_CHARACTER = re.compile("[\x00-\x1f\x7f]")


def fill_arguments(arguments: Iterable[str], values: Mapping[str, str]) -> list[str]:
    """Arguments with what they stand for. A value that a program would take for an option is refused."""

    def value(name: str, *, alone: bool) -> str:
        if name not in values:
            raise Invalid(f"{{{name}}} is to be filled in, and is not known here.")
        found = values[name]
        if not found or _CONTROL_CHARACTER.search(found) or (alone and found.startswith("-")):
            raise Invalid(
                f"{found[:80]!r} cannot be passed as {name}: it is empty, begins with -, or is not plain text."
            )
        return found

    return [PLACEHOLDER.sub(lambda hit: value(hit[1], alone=hit.start() == 0), argument) for argument in arguments]


def fill_text(of: str, variables: Mapping[str, str]) -> str:
    """A text with `~` at its beginning, `$NAME`, `${NAME}` and `${NAME:-default}` filled in; `$$` is a dollar.

    Without a default, a variable has to be there. Those of agentq itself are not there for anybody.
    """

    def value(hit: re.Match[str]) -> str:
        if hit["dollar"]:
            return "$"
        name = hit["name"] or hit["braced"]
        found = "" if name.startswith(OWN_PREFIX) else variables.get(name, "")
        if found:
            return found
        if hit["default"] is None:
            raise Invalid(f"${name} is not set where the worker runs.")
        return expand_home(hit["default"], variables)

    filled = _VARIABLE.sub(value, of)
    return expand_home(filled, variables) if of.startswith("~") else filled


def expand_home(path: str, variables: Mapping[str, str]) -> str:
    """A path that begins with `~`, from the home of these variables."""
    if path != "~" and not path.startswith("~/"):
        return path
    if "HOME" not in variables:
        raise Invalid("$HOME is not set where the worker runs.")
    return variables["HOME"] + path[1:]
