"""From what was typed to a run's retry policy: how often, after what, and when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentq.cli.parse.option_errors import flag_name, parse_duration_option, translate_errors
from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.lifecycle import CLASS_BUDGETS, OutcomeClass
from agentq.coordinator.model.retry_policy import OutcomeClassPolicy, RetryPolicy

FLAGS_BY_FIELD = {
    "failures": "--retries",
    "delay_ms": "--retry-delay",
    "delay_ms_max": "--retry-delay-max",
    "delays_ms": "--backoff",
    "max_elapsed_ms": "--max-elapsed",
    "only": "--retry-on",
    "classes": "--retry-on",
    "retries": "--retry-on",
    "final": "--never-retry",
}
DURATION_FIELDS = {"retry_delay": "delay_ms", "retry_delay_max": "delay_ms_max", "max_elapsed": "max_elapsed_ms"}
RETRY_OPTIONS = ("retries", "backoff", "no_jitter", "retry_on", "never_retry", *DURATION_FIELDS)
FAILURE_CLASSES = [class_ for class_ in OutcomeClass if class_ not in (OutcomeClass.OK, OutcomeClass.CANCELLED)]
EXAMPLE = "as in --retry-on timeout=1,5m"


def parse_retry_policy(given: Mapping[str, Any]) -> RetryPolicy | None:
    """The policy that the options of `agentq submit` make; None if none of them was given."""
    if not any(name in given for name in RETRY_OPTIONS):
        return None
    with translate_errors(FLAGS_BY_FIELD):
        fields: dict[str, Any] = {"failures": given["retries"]} if "retries" in given else {}
        fields |= {
            field: parse_duration_option(given[name], flag_name(name))
            for name, field in DURATION_FIELDS.items()
            if name in given
        }
        fields |= _backoff_fields(given) | _class_fields(given)
        return RetryPolicy(**fields)


def _backoff_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """`exponential`, `fixed`, or the waits themselves."""
    kind = given.get("backoff", "exponential")
    exponential = kind == "exponential"
    for name in ("no_jitter", "retry_delay_max"):
        if name in given and not exponential:
            raise Invalid(
                f"{flag_name(name)} is for an exponential backoff; --backoff {kind[:40]} is kept to the letter."
            )
    if exponential:
        return {"jitter": False} if "no_jitter" in given else {}
    if kind == "fixed":
        return {"factor": 1.0}
    if "retry_delay" in given:
        raise Invalid("--retry-delay and a --backoff that lists the waits contradict each other; give one of them.")
    if not kind[:1].isdigit():
        raise Invalid(f"--backoff takes exponential, fixed, or waits such as 10s,1m,5m, not {kind[:40]!r}.")
    return {"delays_ms": [parse_duration_option(each, "--backoff") for each in kind.split(",")]}


def _class_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is tried again, how often and when, where that was said by class; and what never is."""
    fields: dict[str, Any] = {}
    only: list[OutcomeClass] = []
    classes: dict[OutcomeClass, OutcomeClassPolicy] = {}
    for text in given.get("retry_on", ()):
        name, equals, numbers = text.partition("=")
        class_ = parse_failure_class(name, "--retry-on")
        if CLASS_BUDGETS.get(class_) == "failures":
            only.append(class_)
        if equals:
            classes[class_] = _parse_class_policy(numbers, text)
        elif "retries" not in given:
            raise Invalid(f"--retry-on {text[:40]} means nothing without --retries, or a number of its own, {EXAMPLE}.")
    if only:
        fields["only"] = only
    if classes:
        fields["classes"] = classes
    if "never_retry" in given:
        fields["final"] = [parse_failure_class(name, "--never-retry") for name in given["never_retry"]]
    return fields


def _parse_class_policy(numbers: str, text: str) -> OutcomeClassPolicy:
    times, comma, delay = numbers.partition(",")
    if not times.isdecimal():
        raise Invalid(f"--retry-on takes a class, or a class with a number and a wait, {EXAMPLE}, not {text[:40]!r}.")
    own: dict[str, Any] = {"retries": int(times)}
    if comma:
        own |= {"delay_ms": parse_duration_option(delay, "--retry-on"), "factor": 1.0}
    return OutcomeClassPolicy(**own)


def parse_failure_class(name: str, option: str) -> OutcomeClass:
    """A class of failure, by its name; `--retry-on` takes only those that something pays for."""
    known = [each.value for each in FAILURE_CLASSES if each in CLASS_BUDGETS or option != "--retry-on"]
    if name not in known:
        raise Invalid(f"{option}: {name[:40]!r} is not a class of failure; there are {', '.join(known)}.")
    return OutcomeClass(name)
