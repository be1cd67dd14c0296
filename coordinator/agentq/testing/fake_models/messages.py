"""What the dialects share: an event as it goes over the wire, and which of what was sent is a prompt."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

_CONTEXT_TAGS = "system-reminder|environment_context|session_context|user_instructions|permissions instructions"
_CONTEXT_PATTERN = re.compile(rf"<({_CONTEXT_TAGS})>.*?</\1>|^Your response above was stopped by .*", re.S)


@dataclass(frozen=True, slots=True)
class HttpReply:
    """One that is told at once."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a conversation."""

    is_users: bool
    """It is the user's; not the model's, nor the agent's own."""
    text: str
    results: int = 0
    """How many results of tools are in it."""


def extract_prompts(messages: Iterable[ChatMessage]) -> tuple[tuple[str, ...], int]:
    """All that was asked, and how many tools were used since the newest of it.

    What agents put in of their own beside the user's words stands in tags, and is passed over.
    """
    prompts, done = list[str](), 0
    for message in messages:
        done += message.results
        text = _CONTEXT_PATTERN.sub("", message.text).strip()
        if message.is_users and text and not message.results:
            prompts.append(text)
            done = 0
    return tuple(prompts), done


def message_text(content: object) -> str:
    """All text in the content of a message, which is a string or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return ""


def split_words(text: str) -> list[str]:
    """The words of a text, each with the space before it."""
    return re.findall(r"\s*\S+", text) or [text]


def format_sse(data: object, name: str | None = None) -> bytes:
    """A server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()
