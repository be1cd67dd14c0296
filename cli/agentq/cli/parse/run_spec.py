"""Builds the spec of a run from the options typed; errors name options, not fields."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from agentq.cli.parse.key_values import parse_demands, parse_key_values
from agentq.cli.parse.option_errors import flag_name, parse_duration_field, translate_errors
from agentq.cli.parse.retry_policy import parse_retry_policy
from agentq.cli.parse.text_input import read_text
from agentq.coordinator.bounds import STDIN_BYTES
from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.durations import parse_time_ms
from agentq.coordinator.model.field_types import describe_error
from agentq.coordinator.model.spec import ResourceLimits, RunSpec

PLAIN_FIELDS = (
    "queue",
    "priority",
    "name",
    "on_failed",
    "dedupe_key",
    "if_live",
    "fair_key",
    "children",
    "on_drain",
    "may_submit",
)
DURATION_FIELDS = {
    "delay": "delay_ms",
    "expires": "expires_ms",
    "timeout": "timeout_ms",
    "silence": "silence_timeout_ms",
    "grace": "stop_grace_ms",
    "keep": "keep_ms",
    "dedupe_ttl": "dedupe_ttl_ms",
    "debounce_max": "debounce_max_ms",
}
AGENT_ONLY_OPTIONS = (
    *("prompt_file", "model", "permissions", "trust", "account", "max_cost", "max_tokens", "max_turns", "expect"),
    *("on_limit", "session", "startup", "linger"),
)
REQUIRED_OPTIONS = {"if_live": "dedupe_key", "dedupe_ttl": "dedupe_key", "on_failed": "after"}
EXAMPLE_SPEC = '{"argv": ["make", "test"], "queue": "builds"}'
SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

FLAGS_BY_FIELD = {
    "agent": "--agent",
    "prompt": "the prompt",
    **{field: flag_name(option) for option, field in DURATION_FIELDS.items()},
    "labels": "--label",
    "demands": "--demand",
    "argv": "the command",
    "args": "--function",
    "kwargs": "--function",
    "due_at_ms": "--at",
    "limits": "--limit",
    "memory_bytes": "--memory",
    "cpu_s": "--cpu-time",
}
"""Which option a field of the spec was filled by, where the two are not named alike."""


def parse_spec_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a spec, from the options of `agentq submit`; the caller resolves the ids of `after`."""
    if "delay" in given and "at" in given:
        raise Invalid("--delay and --at contradict each other; give one of them.")
    for option, needed in REQUIRED_OPTIONS.items():
        if option in given and needed not in given:
            raise Invalid(f"{flag_name(option)} means nothing without {flag_name(needed)}.")
    _check_dedupe_key(given)
    fields = _work_fields(given)
    fields |= {name: given[name] for name in PLAIN_FIELDS if name in given}
    if "label" in given:
        fields["labels"] = parse_key_values(given["label"], "--label")
    if "demand" in given:
        fields["demands"] = parse_demands(given["demand"], "--demand")
    fields |= {
        field: parse_duration_field(given, option) for option, field in DURATION_FIELDS.items() if option in given
    }
    if "limit" in given:
        fields["limits"] = _parse_limit_units(given["limit"])
    if "at" in given:
        fields["due_at_ms"] = parse_time_ms(given["at"])
    if "env" in given or "env_from" in given:
        fields["env"] = _inherited_variables(given.get("env_from", ())) | parse_key_values(
            given.get("env", ()), "--env"
        )
    if "stdin" in given:
        fields["stdin"] = read_text(given["stdin"], "--stdin", STDIN_BYTES)
    return fields | _nested_fields(given)


def _work_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields for the work itself: command, function or agent."""
    if "agent" in given:
        from agentq.cli.parse.agent_options import parse_agent_fields

        # A conversation has a folder of its own.
        where = {} if "session" in given and "cwd" not in given else {"cwd": absolute_folder(given.get("cwd"))}
        return parse_agent_fields(given) | where
    if not given.keys().isdisjoint(AGENT_ONLY_OPTIONS):
        raise Invalid(
            f"{flag_name(next(name for name in AGENT_ONLY_OPTIONS if name in given))} means nothing without --agent."
        )
    return _function_fields(given) if "function" in given else _command_fields(given)


def _command_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    if "command" not in given:
        raise Invalid("There is no command to run; give it after --, as in `agentq submit -- make test`.")
    return {"kind": "command", "argv": given["command"], "cwd": absolute_folder(given.get("cwd"))}


def _function_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """A function by its path, which only the workers have, and the JSON of its arguments."""
    from agentq.sdk.functions.codec import Function

    path, texts = Function.unseen(given["function"]).path, given.get("command", ["[]"])
    if "stdin" in given:
        raise Invalid("--stdin is for a command; a function is given its arguments as JSON.")
    try:
        (text,) = texts
        arguments = json.loads(text)
    except ValueError:
        arguments = None
    if not isinstance(arguments, list | dict):
        raise Invalid(
            f"--function {path} takes its arguments as one JSON array, or one object of keywords, as in "
            f"""`agentq submit --function {path} '[1, "tea"]'`; not {" ".join(texts)[:80]!r}."""
        )
    where = {"cwd": absolute_folder(given["cwd"])} if "cwd" in given else {}
    return {
        "kind": "function",
        "function": path,
        "args" if isinstance(arguments, list) else "kwargs": arguments,
        **where,
    }


def _check_dedupe_key(given: Mapping[str, Any]) -> None:
    """Check that the options of the dedupe key are compatible."""
    mode = given.get("if_live", "return")
    if mode == "debounce" and "delay" not in given:
        raise Invalid("--if-live debounce needs --delay, which begins anew with each submit.")
    if mode != "debounce" and "debounce_max" in given:
        raise Invalid("--debounce-max is for --if-live debounce.")
    if mode in ("replace", "debounce", "follow") and "dedupe_ttl" in given:
        raise Invalid(f"--dedupe-ttl is for --if-live return or reject; with {mode} the key is free when the run ends.")


def build_spec(fields: Mapping[str, Any]) -> RunSpec:
    """The spec, if it is one."""
    with translate_errors(FLAGS_BY_FIELD):
        return RunSpec(**fields)


def parse_jsonl_specs(text: str, source: str) -> list[RunSpec]:
    """A spec from each line, with the fields that `agentq show --json` shows; a command, unless it says otherwise."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise Invalid(f"There are no runs in {source}; write one on each line, such as {EXAMPLE_SPEC}.")
    return [_parse_spec_line(line, f"Line {number} of {source}") for number, line in lines]


def _parse_spec_line(line: str, place: str) -> RunSpec:
    try:
        fields = json.loads(line)
        if isinstance(fields, dict) and fields.setdefault("kind", "command") == "command":
            fields.setdefault("cwd", absolute_folder(None))
        return RunSpec.model_validate_json(json.dumps(fields))
    except ValidationError as error:
        raise Invalid(f"{place} is not a run: {describe_error(error)}") from error
    except ValueError as error:
        raise Invalid(f"{place} is not JSON: {error}; a run looks like {EXAMPLE_SPEC}.") from error


def _nested_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are models of their own within the spec."""
    fields: dict[str, Any] = {}
    caps: dict[str, Any] = {"nice": given["nice"]} if "nice" in given else {}
    if "memory" in given:
        caps["memory_bytes"] = parse_size(given["memory"], "--memory")
    if "cpu_time" in given:
        caps["cpu_s"] = -(-parse_duration_field(given, "cpu_time") // 1000)
    with translate_errors(FLAGS_BY_FIELD):
        if caps:
            fields["caps"] = ResourceLimits(**caps)
    policy = parse_retry_policy(given)
    if policy is not None:
        fields["retry"] = policy
    return fields


def _parse_limit_units(texts: Iterable[str]) -> dict[str, int]:
    """Limits, and how much of each: 1, if nothing else is said."""
    found: dict[str, int] = {}
    for text in texts:
        key, _, number = text.partition("=")
        if (number and not number.isdecimal()) or not key:
            raise Invalid(
                f"--limit takes a key, and how many units if not 1, as in --limit tokens=500; not {text[:80]!r}."
            )
        found[key] = int(number or 1)
    return found


def parse_size(text: str, option: str) -> int:
    number, unit = text.rstrip("KMGTiB").strip(), text.lstrip("0123456789").removesuffix("B").removesuffix("i")
    if not number.isdecimal() or unit not in SIZE_UNITS:
        raise Invalid(f"{option}: {text[:40]!r} is not a size; write it like 512M or 4G.")
    return int(number) * SIZE_UNITS[unit]


def absolute_folder(folder: str | None) -> str:
    """The whole path of a folder; of this one, if none is named."""
    try:
        return os.path.abspath(os.path.expanduser(folder or "."))
    except FileNotFoundError:
        raise Invalid("The present folder does not exist any more; go to another, or give --cwd.") from None


def _inherited_variables(names: tuple[str, ...]) -> dict[str, str]:
    for name in names:
        if name not in os.environ:
            raise Invalid(f"--env-from {name[:80]}: there is no such variable here.")
    return {name: os.environ[name] for name in names}
