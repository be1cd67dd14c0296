"""What of a run is secret: variables that are called so, those that the run itself names, and what looks like it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentq.coordinator.run import SECRETS
from agentq.coordinator.secret_shapes import without_secrets

_CALLED_SO = re.compile(
    r"(^|_|API)KEYS?(_|\d|$)|SECRET|TOKEN(?!S$)|PASSW|PASSPHRASE|CREDENTIAL|(^|_)(PAT|PWD|PASS|AUTH)$|AUTHORIZATION"
    r"|(DB|SQL|REDIS|ROOT|USER|ADMIN|SMTP|MAIL|SSH)_?(PASS|PWD)$|CONNECTION_?STR|(^|_)(CONN_STR|DSN|JWT|COOKIES?|PRIVATE|SALT)$"
    r"|(^|_)(HEADERS|SIGNATURE|CERT_KEY|SESSION_?KEY|MNEMONIC|SEED_PHRASE)$|WEBHOOK|STRIPE|(^|_)BEARER(_|$)|APIKEY",
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
    """A spec for those who may read it. The values of variables that may be secret are left out, and so is, in any
    text of it, what looks like a secret.
    """
    env: dict[str, str] = spec.get("env") or {}
    named = named_secret(env)
    fields: dict[str, Any] = {name: shown(value) for name, value in spec.items() if name != "env"}
    if "env" in spec:
        names = {name for name in env if name in named or is_called_secret(name)}
        fields["env"] = env and {name: HIDDEN if name in names else shown(value) for name, value in env.items()}
    return {name: fields[name] for name in spec}


def shown(value: Any) -> Any:
    """A value of JSON without what looks like a secret in any text of it."""
    if isinstance(value, str):
        return without_secrets(PASSWORD.sub(_without, value) if "://" in value else value, HIDDEN)
    if isinstance(value, dict):
        return {name: shown(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [shown(each) for each in value]
    return value


def _without(found: re.Match[str]) -> str:
    return found[0].replace(f":{found[1]}@", f":{HIDDEN}@")
