"""What of a run is secret: variables that are called so, those that the run itself names, passwords in addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentq.coordinator.run import SECRETS

_CALLED_SO = re.compile(
    r"(^|_|API)KEYS?(_|\d|$)|SECRET|TOKEN(?!S$)|PASSW|PASSPHRASE|CREDENTIAL|(^|_)(PAT|PWD|PASS|AUTH)$|AUTHORIZATION",
    re.IGNORECASE,
)
_CALLED_OTHERWISE = re.compile(r"^PWD$|^OLDPWD$|_(FILE|PATH|DIR|SOCK|ID|NAME)$", re.IGNORECASE)
PASSWORD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s/@:]*:([^\s/@]+)@")
"""The password in an address."""
HIDDEN = "…"


def named_secret(env: Mapping[str, str]) -> frozenset[str]:
    """The variables that a run names as secret."""
    return frozenset(re.split(r"[\s,]+", env.get(SECRETS, "")))


def is_called_secret(name: str) -> bool:
    """Whether a variable is one by what it is called."""
    return bool(_CALLED_SO.search(name)) and not _CALLED_OTHERWISE.search(name)


def hidden(spec: dict[str, Any]) -> dict[str, Any]:
    """The fields of a spec, for those who may read it: the values of secret variables are not told, nor passwords."""
    workspace: dict[str, Any] = spec.get("workspace") or {}
    if workspace.get("repository"):
        spec = {**spec, "workspace": {**workspace, "repository": PASSWORD.sub(_without, workspace["repository"])}}
    env: dict[str, str] = spec.get("env") or {}
    if not env:
        return spec
    named = named_secret(env)
    shown = {
        name: HIDDEN if name in named or is_called_secret(name) else PASSWORD.sub(_without, value)
        for name, value in env.items()
    }
    return {**spec, "env": shown}


def _without(found: re.Match[str]) -> str:
    return found[0].replace(f":{found[1]}@", f":{HIDDEN}@")
