"""The interface between the script of a fake agent and its output protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(slots=True)
class FakeSpending:
    """The spending of one process."""

    cost_usd: float = 0
    input_tokens: int = 0
    output_tokens: int = 0
    turns: int = 0


@dataclass(slots=True)
class FakeTurn:
    """The arguments of a process."""

    prompt: str
    model: str = "standin-1"
    allowed_tools: frozenset[str] | None = frozenset()
    """The tools that are allowed; None for all."""
    turns_max: int | None = None
    cost_max_usd: float | None = None
    spending: FakeSpending = field(default_factory=FakeSpending)

    def allows(self, tool: str) -> bool:
        return self.allowed_tools is None or tool in self.allowed_tools


class TurnEnded(Exception):
    """Ends the turn."""

    def __init__(self, why: str = "done", text: str = "", until_ms: int | None = None) -> None:
        super().__init__(text or why)
        self.why = why
        """`done`, `failed`, `limit`, `throttled`, `overloaded`, `auth`, `credit`, `context`, `refused`, `turns`,
        `budget` or `interrupted`."""
        self.text = text
        self.until_ms = until_ms


class AgentProtocol(Protocol):
    """An output protocol with its conversation."""

    turn: FakeTurn

    def begin(self) -> None:
        """Report that the agent has started."""

    def say(self, text: str) -> None: ...

    def think(self, text: str) -> None: ...

    def plan(self, items: list[str]) -> None: ...

    def call(self, tool: str, tool_input: dict[str, Any]) -> str:
        """Report a tool call; returns its id."""

    def allowed(self, use: str, tool: str) -> bool:
        """Whether the tool is allowed; asks the client if the protocol can."""

    def denied(self, use: str, tool: str, tool_input: dict[str, Any]) -> None: ...

    def returned(self, use: str, tool: str, text: str, *, ok: bool) -> None: ...

    def wake(self, delay_ms: int, prompt: str) -> bool:
        """Request a wakeup; False if the protocol has none."""

    def answer(self, value: object) -> None:
        """Answer with a structured value."""

    def prompts(self) -> list[str]:
        """The prompts of this conversation, the newest last."""
