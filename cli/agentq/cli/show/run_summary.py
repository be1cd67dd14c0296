"""A run as the outside sees it: the JSON of `--json`, whose names never change, and short words for people."""

from __future__ import annotations

import json
import shlex

from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.public_json.runs import last_agent_outcome
from agentq.coordinator.runs.run_record import RunRecord

DESCRIPTION_CHARACTERS = 200


def describe_spec(spec: RunSpec) -> str:
    """What a run is, in a few words: its name, or what it runs; of an agent's run always the agent, too."""
    if spec.name and spec.kind == "agent":
        return _shorten(f"{spec.agent or 'agent'}: {spec.name}")
    return _shorten(spec.name) if spec.name else describe_work(spec)


def describe_work(spec: RunSpec) -> str:
    """The work of a run in one line; `name` is not considered."""
    said = {
        "command": lambda: shlex.join(spec.argv),
        "function": lambda: f"{spec.function}({_format_arguments(spec)})",
        "agent": lambda: f"{spec.agent or 'agent'}: {first_words(spec.prompt or '')}",
    }[spec.kind]()
    return _shorten(said)


def _shorten(text: str) -> str:
    return text if len(text) <= DESCRIPTION_CHARACTERS else text[: DESCRIPTION_CHARACTERS - 1] + "…"


def first_words(prompt: str, most: int = DESCRIPTION_CHARACTERS) -> str:
    """The beginning of a prompt, on one line."""
    text = " ".join(prompt[: 4 * most].split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _format_arguments(spec: RunSpec) -> str:
    """What a function is called with, as far as there is room for it."""
    said: list[str] = []
    for name, value in [*(("", each) for each in spec.args), *((f"{key}=", each) for key, each in spec.kwargs.items())]:
        said.append(name + json.dumps(value, ensure_ascii=False))
        if sum(map(len, said)) > DESCRIPTION_CHARACTERS:
            break
    return ", ".join(said)


def describe_end(run: RunRecord) -> str:
    """How a run ended, in a few words; nothing while it goes on."""
    outcome = run.outcome
    if outcome is None or run.finished_at_ms is None:
        return ""
    if outcome.class_.value == run.state.value:
        return ""  # it was cancelled, which its state says
    if (word := last_agent_outcome(run)) is not None and run.attempts[-1].outcome == outcome:
        # Neither 0 nor 143 says how an agent ended; its verdict does.
        return "" if word.verdict == "ok" else word.verdict
    if outcome.exit_code is not None and outcome.class_ in (OutcomeClass.OK, OutcomeClass.EXIT):
        return f"exit {outcome.exit_code}"
    return "" if outcome.class_ is OutcomeClass.OK else outcome.class_.value
