"""What `agentq submit` takes for an agent: its options, and from them the agent's part of a spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

Opt = typer.Option


def take_agent_options(
    agent: Annotated[str | None, Opt(metavar="NAME", help="Run this agent; the words after it are the prompt.")] = None,
    prompt_file: Annotated[str | None, Opt(metavar="FILE", help="File with the prompt; - for stdin.")] = None,
    model: Annotated[str | None, Opt(metavar="NAME", help="Model; the agent's own if not given.")] = None,
    permissions: Annotated[
        str | None, Opt(metavar="read|edit|full", help="What the agent may do without asking; edit if not given.")
    ] = None,
    may_submit: Annotated[
        list[str] | None,
        Opt(metavar="KIND", help="Its children: agent, agent:NAME, command, function. Repeatable."),
    ] = None,
    trust: Annotated[str | None, Opt(metavar="none|repo", help="Whether hooks of the repository may run.")] = None,
    account: Annotated[str | None, Opt(metavar="NAME", help="Account to bill; accounts take turns.")] = None,
    max_cost: Annotated[str | None, Opt(metavar="USD", help="Cost limit in US dollars.")] = None,
    max_tokens: Annotated[str | None, Opt(metavar="N", help="Token limit, such as 500k or 2M.")] = None,
    max_turns: Annotated[int | None, Opt(metavar="N", help="Limit for its requests to the model.")] = None,
    expect: Annotated[
        str | None, Opt(metavar="anything|changes", help="With changes, an end without changes is a failure.")
    ] = None,
    on_limit: Annotated[str | None, Opt(metavar="defer|fail", help="If its account is at its limit.")] = None,
    session: Annotated[str | None, Opt(metavar="NAME", help="Submit the next turn of this conversation.")] = None,
    startup: Annotated[str | None, Opt(metavar="DURATION", help="Longest time until the agent's first output.")] = None,
    linger: Annotated[str | None, Opt(metavar="DURATION", help="Longest time from last output to exit.")] = None,
) -> None:
    """These are options of `agentq submit`, which takes them over by their names."""


TURN_FIELDS = {
    "permissions": "permissions",
    "trust": "trust",
    "account": "account",
    "model": "model",
    "expect": "expects",
    "on_limit": "on_limit",
}
NON_AGENT_OPTIONS = {
    "function": "a run is either an agent or a function",
    "stdin": "an agent reads its prompt there; give that with --prompt-file, or - for what comes in here",
}
FLAGS_BY_FIELD = {
    "expects": "--expect",
    "startup_timeout_ms": "--startup",
    "linger_timeout_ms": "--linger",
    "cost_usd": "--max-cost",
    "tokens": "--max-tokens",
    "turns": "--max-turns",
    "prompt": "the prompt",
}
TOKEN_UNITS = {"k": 10**3, "K": 10**3, "m": 10**6, "M": 10**6}


def parse_agent_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """The agent's part of a spec, from what was typed."""
    from agentq.cli.parse.option_errors import flag_name, parse_duration_field, translate_errors
    from agentq.cli.parse.prompt import read_prompt
    from agentq.coordinator.errors import Invalid
    from agentq.coordinator.model.agent_options import AgentTurnOptions

    for option, why in NON_AGENT_OPTIONS.items():
        if option in given:
            raise Invalid(f"{flag_name(option)} and --agent contradict each other: {why}.")
    words = given.get("command", ())
    _check_prompt_words(words)
    turn: dict[str, Any] = {field: given[option] for option, field in TURN_FIELDS.items() if option in given}
    turn |= {
        f"{option}_timeout_ms": parse_duration_field(given, option)
        for option in ("startup", "linger")
        if option in given
    }
    with translate_errors(FLAGS_BY_FIELD):
        budgets = parse_budgets(given)
        if budgets is not None:
            turn["budgets"] = budgets
        fields: dict[str, Any] = {"turn": AgentTurnOptions(**turn)} if turn else {}
    if "session" in given:
        fields["session"] = given["session"]
    return fields | {"kind": "agent", "agent": given["agent"], "prompt": read_prompt(words, given.get("prompt_file"))}


def _check_prompt_words(words: Sequence[str]) -> None:
    """Refuse an option after the prompt: it would silently become a part of the prompt."""
    from agentq.coordinator.errors import Invalid

    for word in words[1:]:
        if word.startswith("--") and word[2:3].isalpha():
            raise Invalid(
                f"{word[:80]} comes after the prompt, of which it would be a part: put it before, or the whole prompt "
                "between quotes."
            )


def parse_budgets(given: Mapping[str, Any]) -> Any:
    from agentq.coordinator.model.agent_options import AgentBudgets

    budgets: dict[str, Any] = {}
    if "max_cost" in given:
        budgets["cost_usd"] = _parse_dollars(given["max_cost"])
    if "max_tokens" in given:
        budgets["tokens"] = _parse_token_count(given["max_tokens"])
    if "max_turns" in given:
        budgets["turns"] = given["max_turns"]
    return AgentBudgets(**budgets) if budgets else None


def _parse_dollars(text: str) -> float:
    from agentq.coordinator.errors import Invalid

    whole, point, part = text.removeprefix("$").partition(".")
    if not (whole + part).isdecimal() or (point and not part):
        raise Invalid(f"--max-cost: {text[:40]!r} is not an amount in dollars; write it like 2 or 0.50.")
    return float(f"{whole or 0}.{part or 0}")


def _parse_token_count(text: str) -> int:
    from agentq.coordinator.errors import Invalid

    number, unit = (text[:-1], text[-1:]) if text[-1:] in TOKEN_UNITS else (text, "")
    if not number.isdecimal():
        raise Invalid(f"--max-tokens: {text[:40]!r} is not a number of tokens; write it like 500000, 500k or 2M.")
    return int(number) * TOKEN_UNITS.get(unit, 1)
