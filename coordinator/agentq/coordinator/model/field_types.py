"""Validated field types of input: names, labels, texts, times, sizes; and the sentences that refuse a value.

Every limit has its sentence. What JSON cannot carry, or Python not read back, is refused here rather than changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, Field, JsonValue, StringConstraints, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, from_json, to_json

from agentq.coordinator import bounds
from agentq.coordinator.errors import Invalid, quote_input
from agentq.coordinator.model.ids import check_run_id
from agentq.coordinator.model.lifecycle import OutcomeClass

LOCATION_PARTS_MAX = 6
"""How deep into nested input an error message points."""

RESULT_REFERENCE_KEY = "$run"
"""The one key of an object among the arguments of a function that stands for the result of a run."""

ENTRY_ID_PATTERN = r"^[0-9]{1,19}-[0-9]{1,19}$"
"""The id of an entry in a stream. With a digit more it could be one that the server does not take."""
_NAME_PATTERN = rf"^[A-Za-z0-9][A-Za-z0-9_.@+-]{{0,{bounds.NAME_LENGTH - 1}}}$"
_LABEL_PATTERN = rf"^[A-Za-z0-9][A-Za-z0-9_.@/+-]{{0,{bounds.NAME_LENGTH - 1}}}$"
_LIMIT_PATTERN = rf"^[A-Za-z0-9][A-Za-z0-9_.@/:+-]{{0,{bounds.NAME_LENGTH - 1}}}$"
_DEMAND_VALUE_PATTERN = rf"[A-Za-z0-9][A-Za-z0-9_.@/+-]{{0,{bounds.NAME_LENGTH - 1}}}"
_MINIMUM_PATTERN = r">=\d{1,9}(\.\d{1,9}){0,7}"
DEMAND_PATTERN = (
    rf"^({_MINIMUM_PATTERN}|(!=)?{_DEMAND_VALUE_PATTERN}(\|{_DEMAND_VALUE_PATTERN}){{0,{bounds.ALTERNATIVES - 1}}})$"
)
_CHILD_PATTERN = rf"^(command|function|agent(:{_NAME_PATTERN[1:-1]})?)$"
TRACEPARENT_PATTERN = r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"
PRINTABLE_PATTERN = r"^[^\x00-\x1f\x7f]+$"
PATTERN_MESSAGES = {
    PRINTABLE_PATTERN: "use characters that can be printed",
    ENTRY_ID_PATTERN: "the id of an entry looks like 1700000000000-0",
    TRACEPARENT_PATTERN: "it is what W3C calls one, such as 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    DEMAND_PATTERN: f"name a value, up to {bounds.ALTERNATIVES} of which one will do as in a|b, values that will not "
    f"do as in "
    f"!=a, or the least number as in >=2.1; a value is up to {bounds.NAME_LENGTH} letters, digits and _ . @ / + -",
    _LIMIT_PATTERN: f"use up to {bounds.NAME_LENGTH} letters, digits and _ . @ / : + -, beginning with a letter or "
    f"digit",
    _CHILD_PATTERN: "it is one of agent, agent:NAME, command and function",
    _NAME_PATTERN: f"use up to {bounds.NAME_LENGTH} letters, digits and _ . @ + -, beginning with a letter or digit",
    _LABEL_PATTERN: f"use up to {bounds.NAME_LENGTH} letters, digits and _ . @ / + -, beginning with a letter or digit",
}

_ERROR_MESSAGES = {
    "model_type": "it has to be an object",
    "model_attributes_type": "it has to be an object",
    "dict_type": "it has to be an object",
    "tuple_type": "it has to be a list",
    "list_type": "it has to be a list",
    "too_short": "it needs {min_length} at the least, and has {actual_length}",
    "json_invalid": "it is not JSON: {error}",
    "int_type": "it should be a whole number",
    "int_parsing": "it should be a whole number",
    "int_from_float": "it should be a whole number",
    "float_type": "it should be a number",
    "float_parsing": "it should be a number",
    "bool_type": "it should be true or false",
    "bool_parsing": "it should be true or false",
    "string_type": "it should be a text",
    "string_unicode": "this is not valid UTF-8",
    "missing": "it has to be given",
    "too_long": "{max_length} entries are the most",
    "string_too_short": "{min_length} character is the least",
    "string_too_long": "{max_length} characters are the most",
}
_TEXT_TOO_LONG_MESSAGE = "{max_length} characters are the most, not {actual_length}"
"""Messages plainer than pydantic's, by the type of the error."""

Name = Annotated[str, StringConstraints(pattern=_NAME_PATTERN)]
"""A queue, plan, session or agent: safe in a key, a lane's name and a URL path."""

Label = Annotated[str, StringConstraints(pattern=_LABEL_PATTERN)]
"""The name or value of a label, or the name of a demand."""

Demand = Annotated[
    str, StringConstraints(pattern=DEMAND_PATTERN), AfterValidator(lambda demand: _sort_alternatives(demand))
]
"""What a label must be; see demands.py."""


Traceparent = Annotated[str, StringConstraints(pattern=TRACEPARENT_PATTERN)]
"""Where in a trace something was submitted, as in the header of that name."""

LimitKey = Annotated[str, StringConstraints(pattern=_LIMIT_PATTERN), AfterValidator(lambda key: _check_limit_key(key))]
"""A limit that a run names to need capacity under it."""

LimitName = Annotated[str, StringConstraints(pattern=_LIMIT_PATTERN)]
"""A limit that runs name, or one that applies by itself."""

LimitUnits = Annotated[int, Field(ge=1, le=bounds.UNITS_MAX)]


def _check_limit_key(key: str) -> str:
    if key == "global" or key.startswith("queue:"):
        raise ValueError(f"the limit {key!r} applies by itself, where it is set; a run does not name it")
    return key


def _sort_alternatives(demand: str) -> str:
    """Normalize a demand, so that equal demands have one text and one lane."""
    mark = demand[:2] if demand[:2] in ("!=", ">=") else ""
    return mark + "|".join(sorted(set(demand.removeprefix(mark).split("|"))))


def limit_bytes(most: int, what: str) -> AfterValidator:
    def check(value: Any) -> Any:
        body = value.encode() if isinstance(value, str) else to_json(value, inf_nan_mode="constants")
        if len(body) > most:
            raise ValueError(f"{what} has {len(body)} bytes; {most} is the most")
        if not isinstance(value, str) and _NON_JSON_NUMBER.search(body):
            json.loads(body, parse_constant=_reject_constant)
        return value

    return AfterValidator(check)


_NON_JSON_NUMBER = re.compile(rb"NaN|Infinity|\d{4300}")
"""Values that JSON lacks, and integers of more digits than Python reads; or a string that looks so."""


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} has no place in JSON")


def _reject_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("a NUL byte cannot be passed to a process")
    return text


def check_program(argv: Sequence[str]) -> Sequence[str]:
    if argv and not argv[0].strip():
        raise ValueError("the program to run is empty")
    return argv


def check_variable_names(environment: dict[str, str]) -> dict[str, str]:
    for name in environment:
        if not name or "=" in name:
            raise ValueError(f"{name!r} is not the name of a variable")
    return environment


def _check_model_name(model: str) -> str:
    """Refuse a text that is unsafe as an argument of the agent, or a part of one."""
    if not model.strip() or model.startswith("-") or not model.isprintable():
        raise ValueError("it should be a model's name, on one line, and not begin with -")
    return model


Text = Annotated[str, AfterValidator(_reject_nul)]
ModelName = Annotated[str, AfterValidator(_check_model_name)]
"""The name of a model, as its agent knows it."""
Milliseconds = Annotated[int, Field(ge=0, le=bounds.DELAY_MS_MAX)]
RetentionMs = Annotated[Milliseconds, AfterValidator(lambda kept_ms: _check_retention(kept_ms))]
TimeoutMs = Annotated[int, Field(gt=0, le=bounds.DELAY_MS_MAX)]


def _check_retention(kept_ms: int) -> int:
    if kept_ms < bounds.KEEP_MS_MIN:
        raise ValueError(f"a run is kept for {bounds.KEEP_MS_MIN} ms at least, so that a submit sent again finds it")
    return kept_ms


def _check_run_id(text: str) -> str:
    try:
        check_run_id(text)
    except Invalid as invalid:
        raise ValueError(str(invalid)) from invalid
    return text


RunId = Annotated[str, AfterValidator(_check_run_id)]


if TYPE_CHECKING:
    TextList = Sequence[str]
    JsonValues = Sequence[JsonValue]
    RunIds = Sequence[str]
    ChildKinds = Sequence[str]
    OutcomeClasses = Sequence[OutcomeClass | str]
    DelayList = Sequence[int]
else:
    # Accepts any sequence and keeps a tuple: pydantic copies a default that is a list for each object.
    # Stops at the first wrong entry: to report millions of them takes minutes.
    _COERCED_FIELD = Field(strict=False)
    _LIST_FIELD = Field(strict=False, fail_fast=True)
    TextList = Annotated[tuple[Text, ...], _LIST_FIELD]
    JsonValues = Annotated[tuple[JsonValue, ...], _LIST_FIELD]
    RunIds = Annotated[tuple[RunId, ...], _LIST_FIELD]
    ChildKinds = Annotated[tuple[Annotated[str, StringConstraints(pattern=_CHILD_PATTERN)], ...], _LIST_FIELD]
    OutcomeClasses = Annotated[tuple[Annotated[OutcomeClass, _COERCED_FIELD], ...], _LIST_FIELD]
    DelayList = Annotated[tuple[Milliseconds, ...], Field(strict=False, max_length=bounds.DELAYS, fail_fast=True)]


FREE_JSON_FIELDS = frozenset({"args", "kwargs", "notes"})
"""The fields of a run that hold any JSON."""


def check_members(value: object, free: Collection[str] = ()) -> None:
    """Raise `Invalid` for an object with more members than any valid one has, before a model looks at each of them.

    Looks into objects within it, except those that are `free`, which may hold any JSON.
    """
    if not isinstance(value, dict):
        return
    if len(value) > bounds.OBJECT_MEMBERS:
        raise Invalid(f"An object has {len(value)} members; {bounds.OBJECT_MEMBERS} is the most.")
    for name, inner in value.items():
        if name not in free:
            check_members(inner)


def check_json_members(text: str | bytes, free: Collection[str] = ()) -> None:
    """Call `check_members` on JSON text. A small text cannot have many members and is not parsed."""
    if len(text) > bounds.OBJECT_MEMBERS:
        with suppress(ValueError):  # the model that reads it reports invalid JSON
            check_members(from_json(text), free)


def check_name(adapter: TypeAdapter[str], text: str, what: str) -> str:
    """Validate a name; raises `Invalid` with one sentence. `what` is the kind of thing that has the name."""
    try:
        return adapter.validate_python(text)
    except ValidationError as error:
        raise Invalid(f"{quote_input(text)} is not the name of a {what}: {describe_error(error)}") from error


def list_errors(error: ValidationError) -> list[ErrorDetails]:
    """The errors; a single one for all if there are too many, since each takes time to describe."""
    if error.error_count() > bounds.INPUT_ERRORS:
        return [{"type": "too_many_faults", "loc": (), "msg": "it has too many faults to name one", "input": None}]
    return error.errors(include_url=False, include_input=False)


def describe_error(error: ValidationError) -> str:
    """A sentence about what is wrong with the input; the first error first."""
    first = list_errors(error)[0]
    return format_error(
        format_location(first["loc"]), error_message(first, find_model(error.title)), error.error_count()
    )


def format_error(place: str, text: str, number: int) -> str:
    """One error as a sentence, with the number of the others."""
    more = f" ({number - 1} more)" if number > 1 else ""
    end = "" if text.endswith("?") and not more else "."
    return f"{place + ': ' if place else ''}{text.rstrip('.')}{more}{end}"


def format_location(location: Sequence[int | str]) -> str:
    """The path in the input where an error is."""
    return ".".join(str(part) for part in location[:LOCATION_PARTS_MAX] if part != "[key]")


def error_message(fault: Mapping[str, Any], model: type[BaseModel] | None = None) -> str:
    """The message for one error; for an unknown field, with the field that was perhaps meant."""
    if fault["type"] == "extra_forbidden":
        return f"there is no such field{_suggest_field(fault['loc'], model)}"
    context, template = fault.get("ctx", {}), _ERROR_MESSAGES.get(fault["type"], "")
    if fault["type"] == "too_long" and context["field_type"] == "Value":
        template = _TEXT_TOO_LONG_MESSAGE
    rest = fault["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    return PATTERN_MESSAGES.get(context.get("pattern", "")) or template.format(**context) or rest


def find_model(title: str) -> type[BaseModel] | None:
    """The model of that name; an error tells only the name."""
    found: list[type[BaseModel]] = [BaseModel]
    for each in found:
        if each.__name__ == title:
            return each
        found += each.__subclasses__()
    return None


def _suggest_field(location: Sequence[int | str], model: type[BaseModel] | None) -> str:
    from difflib import get_close_matches

    for part in location[:-1]:
        if model is not None and isinstance(part, str):
            field = model.model_fields.get(part)
            model = None if field is None else next(field_models(field.annotation), None)
    known = [] if model is None else [field.alias or name for name, field in model.model_fields.items()]
    close = get_close_matches(str(location[-1]), known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def field_models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that are among a field's types."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from field_models(each)
