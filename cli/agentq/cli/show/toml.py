"""Tables as TOML, which Python reads and does not write: texts, numbers, truths, lists, and tables within tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

LINE_WIDTH = 110
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_lines(table: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[str]:
    """The lines of a table: what is in it, and then the tables in it. Those that are empty are left out."""
    inner = {name: value for name, value in table.items() if isinstance(value, Mapping)}
    for name, value in table.items():
        if name not in inner:
            yield from _assignment_lines(_format_key(name), value)
    for name, value in inner.items():
        if value:
            path = (*above, name)
            if not all(isinstance(each, Mapping) and each for each in value.values()):
                yield ""
                yield f"[{'.'.join(map(_format_key, path))}]"
            yield from toml_lines(value, path)


def _assignment_lines(key: str, value: Any) -> Iterator[str]:
    line = f"{key} = {_format_value(value)}"
    if len(line) <= LINE_WIDTH or not isinstance(value, list):
        yield line
        return
    yield f"{key} = ["
    for each in value:
        yield f"    {_format_value(each)},"
    yield "]"


def _format_key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _format_value(name)


def _format_value(value: Any) -> str:
    """JSON writes all of these as TOML does, but for characters that TOML wants escaped."""
    if isinstance(value, list):
        return f"[{', '.join(map(_format_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
