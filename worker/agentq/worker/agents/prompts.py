"""What an agent is asked: the prompt of its run, or words that let it go on where it was."""

from __future__ import annotations

from collections.abc import Sequence

from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.wait import Resumption, SignalMessage

WAKE_PROMPT = "wake_prompt"
"""In what a sleeping agent's run has saved: what the agent wants to be asked when it is woken."""
HINT_SIGNAL = "hint"
"""The name of the signals that are meant for whoever works on the run next."""
HINT_CHARACTERS = 8_000
"""Of all of them; the newest count."""
NO_CHANGES = "no_changes"
"""In the result of a run: the agent declares that nothing has to be changed, and why."""

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
    """What to ask. `interrupted`: the conversation goes on in which an earlier attempt had asked. `instead`: the work
    was done, and that is what is left to do.
    """
    prompt = spec.prompt or ""
    if repair_prompt is not None:
        return repair_prompt if interrupted else f"{prompt}\n\n{repair_prompt}"
    if resumption is not None:
        asked = resumption.state.get(WAKE_PROMPT) if isinstance(resumption.state, dict) else None
        if interrupted and isinstance(asked, str):
            return asked or "You wanted to be woken now. Go on."
        told = f"You waited, and this is what came:\n\n{resumption.to_json().decode()}"
        return f"{told}\n\nGo on." if interrupted else f"{prompt}\n\n{told}"
    if interrupted:
        prompt = f"{_INTERRUPTED_PROMPT}\n\n{prompt}"
    if spec.turn is not None and spec.turn.expects == "changes":
        prompt = f"{prompt}\n\n{_NO_CHANGES_PROMPT}"
    return prompt


def format_hints(mail: Sequence[SignalMessage]) -> str:
    """What people have left for the attempt, to be told after what it is asked."""
    told = "\n".join(f"- {hint.data}" for hint in mail if hint.name == HINT_SIGNAL and isinstance(hint.data, str))
    if not told:
        return ""
    return f"\n\nThe people you work for have a hint for you:\n\n{told[-HINT_CHARACTERS:]}"
