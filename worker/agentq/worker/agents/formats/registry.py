"""The reader of each format."""

from __future__ import annotations

from collections.abc import Callable

from agentq.coordinator.errors import Invalid
from agentq.worker.agents.formats.agentq import AgentqReader
from agentq.worker.agents.formats.aider import AiderReader
from agentq.worker.agents.formats.claude import ClaudeReader
from agentq.worker.agents.formats.codex import CodexReader
from agentq.worker.agents.formats.gemini import GeminiReader
from agentq.worker.agents.formats.goose import GooseReader
from agentq.worker.agents.formats.opencode import OpencodeReader
from agentq.worker.agents.formats.plain_text import TextReader
from agentq.worker.agents.reader import AgentReader, PriorConversation

READERS_BY_FORMAT: dict[str, Callable[[PriorConversation], AgentReader]] = {
    "claude": ClaudeReader,
    "codex": CodexReader,
    "gemini": GeminiReader,
    "opencode": OpencodeReader,
    "goose": GooseReader,
    "aider": AiderReader,
    "agentq": AgentqReader,
    "text": TextReader,
}


def create_reader(format_: str, before: PriorConversation) -> AgentReader:
    """A reader for one attempt of an agent that speaks this format."""
    if format_ not in READERS_BY_FORMAT:
        raise Invalid(f"there is no format {format_!r}; there are {', '.join(sorted(READERS_BY_FORMAT))}")
    return READERS_BY_FORMAT[format_](before)
