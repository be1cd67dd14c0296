"""Options that are written `K=V`."""

from __future__ import annotations

from collections.abc import Iterable

from agentq.coordinator.errors import Invalid


def parse_key_values(texts: Iterable[str], option: str) -> dict[str, str]:
    """Names and values; of a name that is given twice, the last counts."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Invalid(f"{option} takes a name and a value, as in {option} name=value, not {text[:80]!r}.")
        found[name] = value
    return found


def parse_demands(texts: Iterable[str], option: str) -> dict[str, str]:
    """Demands, as `name=value`, `name!=value` or `name>=value`."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        mark = f"{name[-1:]}=" if name[-1:] in ("!", ">") else ""
        name = name[:-1] if mark else name
        if not equals or not name:
            raise Invalid(f"{option} takes a name and a value, as in {option} name=value, not {text[:80]!r}.")
        if name in found:
            raise Invalid(
                f"{option} names {name[:80]} twice; one of several values is written {option} {name[:80]}='a|b'."
            )
        found[name] = mark + value
    return found
