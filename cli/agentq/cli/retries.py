"""From what was typed to a run's retry policy: how often, after what, and when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentq.cli.faults import duration_of, flag, of_options
from agentq.coordinator.errors import Invalid
from agentq.coordinator.lifecycle import BUDGETS, OutcomeClass
from agentq.coordinator.policy import ClassPolicy, RetryPolicy

OPTIONS = {
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
DURATIONS = {"retry_delay": "delay_ms", "retry_delay_max": "delay_ms_max", "max_elapsed": "max_elapsed_ms"}
GIVEN = ("retries", "backoff", "no_jitter", "retry_on", "never_retry", *DURATIONS)
FAILURES = [class_ for class_ in OutcomeClass if class_ not in (OutcomeClass.OK, OutcomeClass.CANCELLED)]
EXAMPLE = "as in --retry-on timeout=1,5m"


def policy_of(given: Mapping[str, Any]) -> RetryPolicy | None:
    """The policy that the options of `agentq submit` make; None if none of them was given."""
    if not any(name in given for name in GIVEN):
        return None
    with of_options(OPTIONS):
        fields: dict[str, Any] = {"failures": given["retries"]} if "retries" in given else {}
        fields |= {field: duration_of(given[name], flag(name)) for name, field in DURATIONS.items() if name in given}
        fields |= _backoff(given) | _chosen(given)
        return RetryPolicy(**fields)


def _backoff(given: Mapping[str, Any]) -> dict[str, Any]:
    """`exponential`, `fixed`, or the waits themselves."""
    kind = given.get("backoff", "exponential")
    exponential = kind == "exponential"
    for name in ("no_jitter", "retry_delay_max"):
        if name in given and not exponential:
            raise Invalid(f"{flag(name)} is for an exponential backoff; --backoff {kind[:40]} is kept to the letter.")
    if exponential:
        return {"jitter": False} if "no_jitter" in given else {}
    if kind == "fixed":
        return {"factor": 1.0}
    if "retry_delay" in given:
        raise Invalid("--retry-delay and a --backoff that lists the waits contradict each other; give one of them.")
    if not kind[:1].isdigit():
        raise Invalid(f"--backoff takes exponential, fixed, or waits such as 10s,1m,5m, not {kind[:40]!r}.")
    return {"delays_ms": [duration_of(each, "--backoff") for each in kind.split(",")]}


def _chosen(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is tried again, how often and when, where that was said by class; and what never is."""
    fields: dict[str, Any] = {}
    only: list[OutcomeClass] = []
    classes: dict[OutcomeClass, ClassPolicy] = {}
    for text in given.get("retry_on", ()):
        name, equals, numbers = text.partition("=")
        class_ = class_of(name, "--retry-on")
        if BUDGETS.get(class_) == "failures":
            only.append(class_)
        if equals:
            classes[class_] = _own(numbers, text)
        elif "retries" not in given:
            raise Invalid(f"--retry-on {text[:40]} means nothing without --retries, or a number of its own, {EXAMPLE}.")
    if only:
        fields["only"] = only
    if classes:
        fields["classes"] = classes
    if "never_retry" in given:
        fields["final"] = [class_of(name, "--never-retry") for name in given["never_retry"]]
    return fields


def _own(numbers: str, text: str) -> ClassPolicy:
    times, comma, delay = numbers.partition(",")
    if not times.isdecimal():
        raise Invalid(f"--retry-on takes a class, or a class with a number and a wait, {EXAMPLE}, not {text[:40]!r}.")
    own: dict[str, Any] = {"retries": int(times)}
    if comma:
        own |= {"delay_ms": duration_of(delay, "--retry-on"), "factor": 1.0}
    return ClassPolicy(**own)


def class_of(name: str, option: str) -> OutcomeClass:
    """A class of failure, by its name; `--retry-on` takes only those that something pays for."""
    known = [each.value for each in FAILURES if each in BUDGETS or option != "--retry-on"]
    if name not in known:
        raise Invalid(f"{option}: {name[:40]!r} is not a class of failure; there are {', '.join(known)}.")
    return OutcomeClass(name)
