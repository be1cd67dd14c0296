"""What an agent is asked: words on the command line, a file, or what comes in on stdin."""

from __future__ import annotations

from collections.abc import Sequence

from agentq.cli.parse.text_input import read_text
from agentq.coordinator.bounds import PROMPT_BYTES
from agentq.coordinator.errors import Invalid


def read_prompt(words: Sequence[str], file: str | None) -> str:
    """The prompt, which is never empty and never too long. `-` for the words, or for the file, is stdin."""
    if words and file is not None:
        raise Invalid("--prompt-file and a prompt contradict each other; give one of them.")
    if not words and file is None:
        raise Invalid("There is no prompt; write what the agent is to do, - for what comes in here, or --prompt-file.")
    if file is not None:
        text, source = read_text(file, "--prompt-file", PROMPT_BYTES), "stdin" if file == "-" else file
    elif list(words) == ["-"]:
        text, source = read_text("-", "-", PROMPT_BYTES), "stdin"
    else:
        text, source = _join_words(words), "the prompt"
    if not text.strip():
        raise Invalid(f"{source[:80]} is empty; write what the agent is to do.")
    return text


def _join_words(words: Sequence[str]) -> str:
    text = " ".join(words)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise Invalid("The prompt is not valid UTF-8.") from None
    if size > PROMPT_BYTES:
        raise Invalid(f"The prompt has {size} bytes; {PROMPT_BYTES} is the most. Have the agent read a file instead.")
    return text
