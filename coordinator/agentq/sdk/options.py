"""How a task and a submit say what they want: the fields of RunSpec, with times as people write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol, TypedDict

from pydantic import ValidationError

from agentq.coordinator.errors import Invalid, quote_input
from agentq.coordinator.model.durations import parse_duration_ms
from agentq.coordinator.model.field_types import describe_error
from agentq.coordinator.model.retry_policy import RetryPolicy
from agentq.coordinator.model.spec import RunSpec

Duration = str | timedelta
"""A duration: `"90s"`, `"5m"`, `"1h30m"`, or a timedelta."""


class RunReference(Protocol):
    """A handle of a run, of any client."""

    @property
    def __agentq_run__(self) -> str: ...


class Options(TypedDict, total=False):
    """What may be said of a task, or of one submit. The names are those of RunSpec."""

    name: str
    queue: str
    priority: int
    labels: Mapping[str, str]
    demands: Mapping[str, str]
    limits: Mapping[str, int]
    fair_key: str
    retries: int
    """How often it is tried again after it has failed: the `failures` of a RetryPolicy."""
    retry: RetryPolicy
    timeout: Duration
    stop_grace: Duration
    delay: Duration
    due_at: datetime
    expires: Duration
    after: RunReference | str | Sequence[RunReference | str]
    on_failed: Literal["skip", "run", "fail"]
    dedupe_key: str
    if_live: Literal["return", "reject", "replace", "debounce", "follow"]
    dedupe_ttl: Duration
    debounce_max: Duration
    plan: str
    session: str
    children: Literal["cancel", "leave"]
    result_ttl: Duration
    """How long it can be looked up after its end."""
    durable: bool
    """Whether the submit returns only when the run is on the server's disk."""


_DURATION_FIELDS = {
    "timeout": "timeout_ms",
    "silence_timeout": "silence_timeout_ms",
    "startup_timeout": "startup_timeout_ms",
    "linger_timeout": "linger_timeout_ms",
    "stop_grace": "stop_grace_ms",
    "delay": "delay_ms",
    "expires": "expires_ms",
    "dedupe_ttl": "dedupe_ttl_ms",
    "debounce_max": "debounce_max_ms",
    "result_ttl": "keep_ms",
}
_MAPPING_FIELDS = ("labels", "demands", "limits", "env")


def build_function_spec(path: str, options: Options, **more: Any) -> RunSpec:
    """The spec of a run of this function, without arguments."""
    return RunSpec.checked(
        kind="function", function=path, **build_spec_fields(options, Options.__annotations__), **more
    )


def build_spec_fields(options: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a spec that options fill. One that is not known is refused; `durable` concerns the submit alone."""
    unknown = options.keys() - known.keys()
    if unknown:
        raise Invalid(f"There is no option {sorted(unknown)[0]!r}; there are {', '.join(known)}.")
    given: dict[str, Any] = dict(options)
    retries, due_at, after, _ = (given.pop(name, None) for name in ("retries", "due_at", "after", "durable"))
    fields: dict[str, Any] = {
        _DURATION_FIELDS.get(name, name): _field_value(name, value) for name, value in given.items()
    }
    if retries is not None:
        fields["retry"] = _retry_policy(retries, given.get("retry"))
    if due_at is not None:
        fields["due_at_ms"] = to_time_ms("due_at", due_at)
    if after is not None:
        fields["after"] = resolve_run_ids(after)
    return fields


def resolve_run_ids(runs: Any) -> tuple[str, ...]:
    """The ids of runs, or of one, given as handles or as ids."""
    several = (runs,) if isinstance(runs, str) or hasattr(runs, "__agentq_run__") else runs
    if not isinstance(several, Iterable):
        raise Invalid(f"The option 'after' takes runs or their ids, not {quote_input(runs)}.")
    return tuple(_resolve_run_id(each) for each in several)


def _resolve_run_id(run: Any) -> str:
    if isinstance(run, str):
        return run
    if not hasattr(run, "__agentq_run__"):
        raise Invalid(f"The option 'after' takes runs or their ids, not {quote_input(run)}.")
    return str(run.__agentq_run__)


def to_time_ms(name: str, moment: object) -> int:
    """A time in milliseconds since 1970; one without a zone is of the zone of this machine."""
    if not isinstance(moment, datetime):
        raise Invalid(
            f"{name}: {quote_input(moment)} is no time; give a datetime, as in datetime(2030, 1, 31, 14, 30)."
        )
    return round(moment.timestamp() * 1000)


def to_duration_ms(span: Duration) -> int:
    """A duration in milliseconds. A bare number would have no unit, and is refused."""
    if isinstance(span, timedelta):
        if span < timedelta():
            raise Invalid(f"A duration cannot be negative, as {span} is.")
        return round(span.total_seconds() * 1000)
    if isinstance(span, str):
        return parse_duration_ms(span)
    raise Invalid(f"{span!r} is not a duration; write one like '90s' or '1h30m', or give a timedelta.")


def to_timeout_ms(timeout: float | Duration | None) -> int | None:
    """How long to wait here: seconds, as everywhere in Python, or a duration."""
    if timeout is None or isinstance(timeout, float | int):
        return None if timeout is None else max(0, round(timeout * 1000))
    return to_duration_ms(timeout)


def _field_value(name: str, value: Any) -> Any:
    if name in _DURATION_FIELDS:
        try:
            return to_duration_ms(value)
        except Invalid as invalid:
            raise Invalid(f"The option {name!r}: {invalid}") from invalid
    return dict(value) if name in _MAPPING_FIELDS and isinstance(value, Mapping) else value


def _retry_policy(retries: int, policy: RetryPolicy | None) -> RetryPolicy:
    if policy is not None:
        raise Invalid("Give either retries or retry, whose `failures` is the same number.")
    try:
        return RetryPolicy(failures=retries)
    except ValidationError as error:
        fault = describe_error(error).removeprefix("failures: ")
        raise Invalid(f"The option 'retries': {fault}") from error
