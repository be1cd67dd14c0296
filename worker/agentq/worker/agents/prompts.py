"""Builds an agent's prompt: that of its run, or one to continue with."""

from __future__ import annotations

from collections.abc import Sequence

from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.wait import Resumption, SignalMessage

WAKE_PROMPT = "wake_prompt"
"""The field of a sleeping run's state with the prompt to wake the agent with."""
HINT_SIGNAL = "hint"
"""The name of signals that are hints for the next attempt."""
HINT_CHARACTERS = 8_000
"""Length limit of all hints; the newest count."""
NO_CHANGES = "no_changes"
"""The field of a result by which the agent declares, with a reason, that nothing has to be changed."""

_INTERRUPTED_PROMPT = (
    "You were interrupted before you had finished. What you had done is still there: look before you do anything "
    "again. Go on with this:"
)
_NO_CHANGES_PROMPT = (
    "If it turns out that nothing has to be changed, declare that before you end: "
    'printf \'{"no_changes": "why"}\' > "$AGENTQ_RESULT"'
)


def build_prompt(
    spec: RunSpec, resumption: Resumption | None, *, interrupted: bool, repair_prompt: str | None = None
) -> str:
    """The prompt. `interrupted`: the conversation continues one in which an earlier attempt had asked. `repair_prompt`:
    the work was done, and this is left to do.
    """
    prompt = spec.prompt or ""
    if repair_prompt is not None:
        return repair_prompt if interrupted else f"{prompt}\n\n{repair_prompt}"
    if resumption is not None:
        asked = resumption.state.get(WAKE_PROMPT) if isinstance(resumption.state, dict) else None
        if interrupted and isinstance(asked, str):
            return asked or "You wanted to be woken now. Go on."
        answer = f"You waited, and this is what came:\n\n{resumption.to_json().decode()}"
        return f"{answer}\n\nGo on." if interrupted else f"{prompt}\n\n{answer}"
    if interrupted:
        prompt = f"{_INTERRUPTED_PROMPT}\n\n{prompt}"
    if spec.turn is not None and spec.turn.expects == "changes":
        prompt = f"{prompt}\n\n{_NO_CHANGES_PROMPT}"
    return prompt


def format_hints(mail: Sequence[SignalMessage]) -> str:
    """Hints that people left for the attempt, appended to the prompt."""
    hints = "\n".join(f"- {hint.data}" for hint in mail if hint.name == HINT_SIGNAL and isinstance(hint.data, str))
    if not hints:
        return ""
    return f"\n\nThe people you work for have a hint for you:\n\n{hints[-HINT_CHARACTERS:]}"
