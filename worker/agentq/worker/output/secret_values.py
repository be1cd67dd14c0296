"""The secrets of a run: the values of variables with a secret's name, in the forms in which programs show them."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, quote_plus, unquote

from agentq.coordinator.security.secret_fields import URL_PASSWORD, declared_secrets, is_secret_name

SECRET_BYTES_MIN = 8
"""A shorter value occurs in too many words to be replaced."""
NEEDLE_BYTES_MAX = 256
"""A longer value is searched in parts."""
WRAPPED_LINE_BYTES = 76
"""The line lengths at which programs wrap base64."""
VALUES_MAX = 100


@dataclass(frozen=True, slots=True)
class SecretValues:
    """The byte strings to search for."""

    needles: tuple[bytes, ...] = ()
    """The longest first."""
    found: re.Pattern[bytes] | None = None
    """Matches any of them."""
    beginnings: frozenset[bytes] = frozenset()
    """All bytes that one of them can begin with."""

    @classmethod
    def of(cls, env: Mapping[str, str]) -> SecretValues:
        """The secrets of a run with these variables."""
        return _build_secrets(frozenset(_find_secret_values(env)))


def _find_secret_values(env: Mapping[str, str]) -> Iterator[str]:
    named = declared_secrets(env)
    for name, value in env.items():
        if name in named or (is_secret_name(name) and not _is_path(value)):
            yield value
        elif "://" in value:
            for password in URL_PASSWORD.findall(value):
                yield password
                yield unquote(password)


def _is_path(value: str) -> bool:
    """Whether it is a path: the place of a secret is none."""
    return value.startswith("/") and os.path.exists(value)


@lru_cache(maxsize=256)
def _build_secrets(values: frozenset[str]) -> SecretValues:
    needles = {needle for value in sorted(values)[:VALUES_MAX] for needle in _encode_forms(value)}
    if not needles:
        return SecretValues()
    ordered = tuple(sorted(needles, key=lambda needle: (-len(needle), needle)))
    beginnings = {needle[:end] for needle in ordered for end in range(1, len(needle))}
    return SecretValues(ordered, re.compile(b"|".join(map(re.escape, ordered))), frozenset(beginnings))


def _encode_forms(value: str) -> Iterator[bytes]:
    raw = value.encode("utf-8", "surrogateescape")
    if len(raw.strip()) < SECRET_BYTES_MIN:
        return
    for line in raw.splitlines():
        yield from _split_form(line)
    shown = value.encode("utf-8", "replace").decode()
    for text in (json.dumps(shown)[1:-1], json.dumps(shown, ensure_ascii=False)[1:-1], quote(shown, safe="")):
        yield from _split_form(text.encode())
    yield from _split_form(quote_plus(shown).encode())
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for offset, skipped in enumerate((0, 2, 3)):
            # What stands before and after it in what was encoded changes the letters at both ends, but not these.
            bits = (offset + len(raw)) * 8
            core = encode(bytes(offset) + raw)[skipped : bits // 6]
            yield from _split_form(core)
            if not offset:
                yield from _split_form(core, WRAPPED_LINE_BYTES)


def _split_form(form: bytes, most_bytes: int = NEEDLE_BYTES_MAX) -> Iterator[bytes]:
    for at in range(0, len(form), most_bytes):
        part = form[at : at + most_bytes].strip()
        if len(part) >= SECRET_BYTES_MIN and not part.startswith(b"-----"):
            yield part
