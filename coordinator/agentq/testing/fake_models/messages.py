"""Code shared by the APIs: the format of events, and which messages are prompts."""

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
    """A response that is not streamed."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a conversation."""

    is_users: bool
    """Whether it is the user's, not the model's or the agent's own."""
    text: str
    results: int = 0
    """The number of tool results in it."""


def extract_prompts(messages: Iterable[ChatMessage]) -> tuple[tuple[str, ...], int]:
    """All prompts, and the number of tool calls since the newest one.

    Context that agents add to the user's text is in tags, and is ignored.
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
