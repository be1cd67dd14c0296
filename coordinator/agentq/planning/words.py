"""How values are written in a plan: durations, sizes, amounts, command lines; and what is said if they are not.

Each is read into what a run's spec has, and knows its JSON schema.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints, ValidationInfo, WithJsonSchema

from agentq.coordinator.errors import Invalid
from agentq.coordinator.fields import SAID
from agentq.coordinator.moments import duration_ms
from agentq.planning.tree import Written, text_of

SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
NUMBERS = {"": 1, "k": 10**3, "K": 10**3, "m": 10**6, "M": 10**6}
SHELL = ["/bin/sh", "-euc"]

_SIZE = re.compile(r"([0-9]{1,15})(?:([KMGT])i?)?B?")
_MANY = re.compile(r"([0-9]{1,15})([kKmM]?)")
_DOLLARS = re.compile(r"\$?([0-9]{1,9}(?:\.[0-9]{1,6})?)")
_CALLED = re.compile(r"[\w.]+:[\w.]+")
_SETS = re.compile(r"[A-Za-z_]\w*=")
_EXPANDS = re.compile(r"\$[A-Za-z_{(]|`")
_GIVEN = re.compile(r"\{\{\s*(tasks\.[^{}]*?)\s*\}\}")
"""What a task before this one gives is one word, whatever it is."""
_OPERATOR = set("();<>|&")


def _text(value: Any) -> Any:
    """Text, also if it looks like a number; but not what YAML takes for true, false or nothing."""
    return value.written if isinstance(value, Written) else value


def _span(value: Any) -> Any:
    if isinstance(value, Written):
        raise ValueError(f"{value.written} has no unit; write a duration like 90s, 5m, 1h30m or 2d")
    if not isinstance(value, str):
        return value
    try:
        return duration_ms(value)
    except Invalid as invalid:
        raise ValueError(str(invalid).rstrip(".")) from None


def _size(value: Any) -> Any:
    if isinstance(value, Written) or not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value)
    if not found:
        raise ValueError(f"{value[:40]!r} is not a size; write it like 512M or 4G")
    return int(found[1]) * SIZES[found[2] or ""]


def _many(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    found = _MANY.fullmatch(value)
    if not found:
        raise ValueError(f"{value[:40]!r} is not a number; write it like 500000, 500k or 2M")
    return int(found[1]) * NUMBERS[found[2]]


def _dollars(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    found = _DOLLARS.fullmatch(value)
    if not found:
        raise ValueError(f"{value[:40]!r} is not an amount in dollars; write it like 2 or 0.50")
    return float(found[1])


def _several(value: Any) -> Any:
    """A list, of which a single one need not be put into one."""
    return value if isinstance(value, list | tuple) or value is None else [value]


def _command(value: Any, info: ValidationInfo) -> Any:
    """The arguments of a command that is a line, or a list."""
    return argv_of(value, shell=bool(info.data.get("shell")))


def argv_of(value: Any, *, shell: bool) -> Any:
    """A line becomes words as a shell would make them, and without `shell` nothing else that a shell does."""
    value = _text(value)
    if not isinstance(value, str):
        if not isinstance(value, list | tuple):
            raise ValueError("a command is a line, or a list of words")
        if shell:
            raise ValueError("with `shell: true` a command is one text, not a list")
        return value
    if not value.strip():
        raise ValueError("the command is empty")
    return [*SHELL, value] if shell else _split(value)


def _split(line: str) -> list[str]:
    line = _GIVEN.sub(r"{{\1}}", line)
    try:
        words = shlex.split(line, comments=False)
        bare = _bare(line)
    except ValueError as error:
        raise ValueError(f"the command cannot be split into words: {str(error).lower()}") from None
    for word in bare:
        if set(word) <= _OPERATOR or (word[:1] != "'" and _EXPANDS.search(word)):
            raise ValueError(f"{word[:40]!r} means something to a shell only; say `shell: true`, or write a list")
    if _SETS.match(words[0]):
        raise ValueError(f"{words[0][:40]!r} before a command means something to a shell only; say it under `env`")
    return words


def _bare(line: str) -> list[str]:
    """The words with their quotes, and what stands between them."""
    reader = shlex.shlex(line.replace("\n", " "), posix=False, punctuation_chars=True)
    reader.whitespace_split = True
    reader.commenters = ""
    return list(reader)


def _function(value: Any) -> Any:
    if isinstance(value, str) and not _CALLED.fullmatch(value):
        raise ValueError(f"{value[:80]!r} is not a function; write it module:name, such as shop:price")
    return value


def _environment(value: Any) -> Any:
    """Numbers, true and false are what was written."""
    if not isinstance(value, Mapping):
        return value
    return {name: text_of(each) if isinstance(each, bool | int | float) else each for name, each in value.items()}


def _amounts(value: Any) -> Any:
    """Limits by their keys alone, or with how much of each."""
    value = _text(value)
    keys = [value] if isinstance(value, str) else value
    return dict.fromkeys(map(_text, keys), 1) if isinstance(keys, list) else value


def _schema(type_: str | list[str], *examples: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": type_, "examples": list(examples)})


_SINGLE = {"type": ["string", "number", "boolean"]}
_LINES = {"anyOf": [{"type": "string"}, {"type": "array", "items": _SINGLE}]}
_AMOUNTS = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}}
_NAMED = next(pattern for pattern in SAID if pattern.startswith(r"^[A-Za-z0-9][A-Za-z0-9_.@+-]{"))

Line = Annotated[str, BeforeValidator(_text)]
Id = Annotated[str, StringConstraints(pattern=_NAMED), BeforeValidator(_text)]
Span = Annotated[int, BeforeValidator(_span), _schema("string", "90s", "5m", "1h30m")]
Size = Annotated[int, BeforeValidator(_size), _schema(["integer", "string"], "512M", "4G")]
Many = Annotated[int, BeforeValidator(_many), _schema(["integer", "string"], "500k", 2000)]
Dollars = Annotated[float, BeforeValidator(_dollars), _schema(["number", "string"], 2, "0.50")]
Called = Annotated[Line, BeforeValidator(_function)]
Command = Annotated[tuple[Line, ...], Field(strict=False), BeforeValidator(_command), WithJsonSchema(_LINES)]
Several = Annotated[tuple[Line, ...], Field(strict=False), BeforeValidator(_several), WithJsonSchema(_LINES)]
Environment = Annotated[
    dict[str, str],
    BeforeValidator(_environment),
    WithJsonSchema({"type": "object", "additionalProperties": _SINGLE}),
]
Amounts = Annotated[dict[Line, int], BeforeValidator(_amounts), WithJsonSchema({"anyOf": [*_LINES["anyOf"], _AMOUNTS]})]
