"""What a model finds wrong with a value, said in the words of the command line that gave it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.durations import format_duration, parse_duration_ms
from agentq.coordinator.model.field_types import DEMAND_PATTERN, PATTERN_MESSAGES, error_message


@contextmanager
def translate_errors(options: Mapping[str, str]) -> Iterator[None]:
    """Name the option where a field is wrong; `options` tells it where the two are not named alike."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        place = options.get(name) or (flag_name(name) if name else "")
        if first["type"] == "string_pattern_mismatch":
            wrong = repr(str(first["input"])[:80])
            takes = "is not a name, which takes letters, digits, and after the first also _ . @ + -"
            if first["ctx"]["pattern"] == DEMAND_PATTERN:
                takes = f"is nothing to demand: {PATTERN_MESSAGES[DEMAND_PATTERN]}"
            text = f"{wrong} {takes}"
        elif "surrogates" in first["msg"]:
            text = "this is not valid UTF-8"
        else:
            text = _name_bound(error_message(first), name, first.get("ctx", {}))
        raise Invalid(f"{place}: {text}." if place else f"{text}.") from error


def _name_bound(text: str, field: str, context: Mapping[str, object]) -> str:
    """The bound of a duration as durations are typed: a field has milliseconds, and its option has none."""
    bound = next((context[kind] for kind in ("ge", "gt", "le", "lt") if context.get(kind)), None)
    if not field.endswith("_ms") or not isinstance(bound, int):
        return text
    return text.replace(str(bound), format_duration(bound).replace(" ", ""))


def flag_name(name: str) -> str:
    """How an option of this name is written."""
    return f"--{name.replace('_', '-')}"


def parse_duration_option(text: str, option: str) -> int:
    """A time that was typed for an option, in milliseconds."""
    try:
        return parse_duration_ms(text)
    except Invalid as invalid:
        raise Invalid(f"{option}: {invalid}") from None


def parse_duration_field(given: Mapping[str, Any], option: str) -> int:
    """A duration among the options."""
    return parse_duration_option(given[option], flag_name(option))
