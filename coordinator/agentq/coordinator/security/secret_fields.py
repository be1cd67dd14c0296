"""Finds the secret values of a run: secret variables, those that the run names, and matches of a pattern."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentq.coordinator.model.spec import SECRETS_VARIABLE
from agentq.coordinator.security.secret_patterns import redact_secrets

_SECRET_NAME = re.compile(
    r"(^|_|API)KEYS?(_|\d|$)|SECRET|TOKEN(?!S$)|PASSW|PASSPHRASE|CREDENTIAL|(^|_)(PAT|PWD|PASS|AUTH)$|AUTHORIZATION"
    r"|(DB|SQL|REDIS|ROOT|USER|ADMIN|SMTP|MAIL|SSH)_?(PASS|PWD)$|CONNECTION_?STR|(^|_)(CONN_STR|DSN|JWT|COOKIES?|PRIVATE|SALT)$"
    r"|(^|_)(HEADERS|SIGNATURE|CERT_KEY|SESSION_?KEY|MNEMONIC|SEED_PHRASE)$|WEBHOOK|STRIPE|(^|_)BEARER(_|$)|APIKEY",
    re.IGNORECASE,
)
_PUBLIC_NAME = re.compile(r"^PWD$|^OLDPWD$|_(FILE|PATH|DIR|SOCK|ID|NAME)$", re.IGNORECASE)
URL_PASSWORD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s/@:]*:([^\s/@]+)@")
"""The password in an address."""
REDACTED = "…"


def declared_secrets(env: Mapping[str, str]) -> frozenset[str]:
    """The variables that a run names as secret."""
    return frozenset(re.split(r"[\s,]+", env.get(SECRETS_VARIABLE, "")))


def is_secret_name(name: str) -> bool:
    """Whether a variable is one by what it is called."""
    return bool(_SECRET_NAME.search(name)) and not _PUBLIC_NAME.search(name)


def redact_spec(spec: dict[str, Any]) -> dict[str, Any]:
    """A spec for those who may read it. The values of variables that may be secret are left out, and so is, in any
    text of it, what looks like a secret.
    """
    env: dict[str, str] = spec.get("env") or {}
    named = declared_secrets(env)
    fields: dict[str, Any] = {name: redact_value(value) for name, value in spec.items() if name != "env"}
    if "env" in spec:
        names = {name for name in env if name in named or is_secret_name(name)}
        fields["env"] = env and {
            name: REDACTED if name in names else redact_value(value) for name, value in env.items()
        }
    return {name: fields[name] for name in spec}


def redact_value(value: Any) -> Any:
    """A value of JSON without what looks like a secret in any text of it."""
    if isinstance(value, str):
        return redact_secrets(URL_PASSWORD.sub(_redact_password, value) if "://" in value else value, REDACTED)
    if isinstance(value, dict):
        return {name: redact_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [redact_value(each) for each in value]
    return value


def _redact_password(found: re.Match[str]) -> str:
    return found[0].replace(f":{found[1]}@", f":{REDACTED}@")
