"""Types of values in a plan: durations, sizes, amounts, command lines; with their error messages.

Each is parsed into the value of a run's spec, and has a JSON schema.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints, ValidationInfo, WithJsonSchema

from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.durations import parse_duration_ms
from agentq.coordinator.model.field_types import PATTERN_MESSAGES
from agentq.planning.read.source_tree import WrittenNumber, source_text

SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
COUNT_UNITS = {"": 1, "k": 10**3, "K": 10**3, "m": 10**6, "M": 10**6}
SHELL_COMMAND = ["/bin/sh", "-euc"]

_SIZE_PATTERN = re.compile(r"([0-9]{1,15})(?:([KMGT])i?)?B?")
_COUNT_PATTERN = re.compile(r"([0-9]{1,15})([kKmM]?)")
_DOLLARS_PATTERN = re.compile(r"\$?([0-9]{1,9}(?:\.[0-9]{1,6})?)")
_FUNCTION_PATTERN = re.compile(r"[\w.]+:[\w.]+")
_ASSIGNMENT_PATTERN = re.compile(r"[A-Za-z_]\w*=")
_EXPANSION_PATTERN = re.compile(r"\$[A-Za-z_{(]|`")
_OUTPUT_PATTERN = re.compile(r"\{\{\s*(tasks\.[^{}]*?)\s*\}\}")
"""An output of an earlier task is one word of a command, whatever it contains."""
_SHELL_OPERATORS = set("();<>|&")


def _parse_text(value: Any) -> Any:
    """Text, also if it looks like a number; but not true, false or null."""
    return value.written if isinstance(value, WrittenNumber) else value


def _parse_duration(value: Any) -> Any:
    if isinstance(value, WrittenNumber):
        raise ValueError(f"{value.written} has no unit; write a duration like 90s, 5m, 1h30m or 2d")
    if not isinstance(value, str):
        return value
    try:
        return parse_duration_ms(value)
    except Invalid as invalid:
        raise ValueError(str(invalid).rstrip(".")) from None


def _parse_size(value: Any) -> Any:
    if isinstance(value, WrittenNumber) or not isinstance(value, str):
        return value
    found = _SIZE_PATTERN.fullmatch(value)
    if not found:
        raise ValueError(f"{value[:40]!r} is not a size; write it like 512M or 4G")
    return int(found[1]) * SIZE_UNITS[found[2] or ""]


def _parse_count(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    found = _COUNT_PATTERN.fullmatch(value)
    if not found:
        raise ValueError(f"{value[:40]!r} is not a number; write it like 500000, 500k or 2M")
    return int(found[1]) * COUNT_UNITS[found[2]]


def _parse_dollars(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    found = _DOLLARS_PATTERN.fullmatch(value)
    if not found:
        raise ValueError(f"{value[:40]!r} is not an amount in dollars; write it like 2 or 0.50")
    return float(found[1])


def _parse_list(value: Any) -> Any:
    """A list; a single value becomes a list of one."""
    return value if isinstance(value, list | tuple) or value is None else [value]


def _parse_command(value: Any, info: ValidationInfo) -> Any:
    """The arguments of a command that is text or a list."""
    return parse_argv(value, shell=bool(info.data.get("shell")))


def parse_argv(value: Any, *, shell: bool) -> Any:
    """Split text into words as a shell would, but without `shell` nothing else that a shell does."""
    value = _parse_text(value)
    if not isinstance(value, str):
        if not isinstance(value, list | tuple):
            raise ValueError("a command is a line, or a list of words")
        if shell:
            raise ValueError("with `shell: true` a command is one text, not a list")
        return value
    if not value.strip():
        raise ValueError("the command is empty")
    return [*SHELL_COMMAND, value] if shell else _split_command(value)


def _split_command(line: str) -> list[str]:
    line = _OUTPUT_PATTERN.sub(r"{{\1}}", line)
    try:
        words = shlex.split(line, comments=False)
        bare = _split_quoted(line)
    except ValueError as error:
        raise ValueError(f"the command cannot be split into words: {str(error).lower()}") from None
    for word in bare:
        if set(word) <= _SHELL_OPERATORS or (word[:1] != "'" and _EXPANSION_PATTERN.search(word)):
            raise ValueError(f"{word[:40]!r} means something to a shell only; say `shell: true`, or write a list")
    if _ASSIGNMENT_PATTERN.match(words[0]):
        raise ValueError(f"{words[0][:40]!r} before a command means something to a shell only; say it under `env`")
    return words


def _split_quoted(line: str) -> list[str]:
    """The words with their quotes, and the operators between them."""
    reader = shlex.shlex(line.replace("\n", " "), posix=False, punctuation_chars=True)
    reader.whitespace_split = True
    reader.commenters = ""
    return list(reader)


def _parse_function(value: Any) -> Any:
    if isinstance(value, str) and not _FUNCTION_PATTERN.fullmatch(value):
        raise ValueError(f"{value[:80]!r} is not a function; write it module:name, such as shop:price")
    return value


def _parse_environment(value: Any) -> Any:
    """Numbers and booleans become the text that was written."""
    if not isinstance(value, Mapping):
        return value
    return {name: source_text(each) if isinstance(each, bool | int | float) else each for name, each in value.items()}


def _parse_limit_units(value: Any) -> Any:
    """Limits by their keys alone, or with units."""
    value = _parse_text(value)
    keys = [value] if isinstance(value, str) else value
    return dict.fromkeys(map(_parse_text, keys), 1) if isinstance(keys, list) else value


def _schema(type_: str | list[str], *examples: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": type_, "examples": list(examples)})


_SCALAR_SCHEMA = {"type": ["string", "number", "boolean"]}
_TEXTS_SCHEMA = {"anyOf": [{"type": "string"}, {"type": "array", "items": _SCALAR_SCHEMA}]}
_UNITS_SCHEMA = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}}
_NAME_PATTERN = next(pattern for pattern in PATTERN_MESSAGES if pattern.startswith(r"^[A-Za-z0-9][A-Za-z0-9_.@+-]{"))

Text = Annotated[str, BeforeValidator(_parse_text)]
Id = Annotated[str, StringConstraints(pattern=_NAME_PATTERN), BeforeValidator(_parse_text)]
Duration = Annotated[int, BeforeValidator(_parse_duration), _schema("string", "90s", "5m", "1h30m")]
Size = Annotated[int, BeforeValidator(_parse_size), _schema(["integer", "string"], "512M", "4G")]
Count = Annotated[int, BeforeValidator(_parse_count), _schema(["integer", "string"], "500k", 2000)]
Dollars = Annotated[float, BeforeValidator(_parse_dollars), _schema(["number", "string"], 2, "0.50")]
FunctionPath = Annotated[Text, BeforeValidator(_parse_function)]
Command = Annotated[
    tuple[Text, ...], Field(strict=False), BeforeValidator(_parse_command), WithJsonSchema(_TEXTS_SCHEMA)
]
TextOrList = Annotated[
    tuple[Text, ...], Field(strict=False), BeforeValidator(_parse_list), WithJsonSchema(_TEXTS_SCHEMA)
]
EnvironmentVariables = Annotated[
    dict[str, str],
    BeforeValidator(_parse_environment),
    WithJsonSchema({"type": "object", "additionalProperties": _SCALAR_SCHEMA}),
]
LimitUnits = Annotated[
    dict[Text, int],
    BeforeValidator(_parse_limit_units),
    WithJsonSchema({"anyOf": [*_TEXTS_SCHEMA["anyOf"], _UNITS_SCHEMA]}),
]
