"""What a stand-in has to be able to say, in whichever language."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(slots=True)
class FakeSpending:
    """What one process has spent."""

    cost_usd: float = 0
    input_tokens: int = 0
    output_tokens: int = 0
    turns: int = 0


@dataclass(slots=True)
class FakeTurn:
    """What a process was started with."""

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
    """The turn is over."""

    def __init__(self, why: str = "done", text: str = "", until_ms: int | None = None) -> None:
        super().__init__(text or why)
        self.why = why
        """`done`, `failed`, `limit`, `throttled`, `overloaded`, `auth`, `credit`, `context`, `refused`, `turns`,
        `budget` or `interrupted`."""
        self.text = text
        self.until_ms = until_ms


class AgentProtocol(Protocol):
    """One language, and the conversation that is held in it."""

    turn: FakeTurn

    def begin(self) -> None:
        """Say that it is up."""

    def say(self, text: str) -> None: ...

    def think(self, text: str) -> None: ...

    def plan(self, items: list[str]) -> None: ...

    def call(self, tool: str, tool_input: dict[str, Any]) -> str:
        """Say that a tool is used; returns what to call this use."""

    def allowed(self, use: str, tool: str) -> bool:
        """Whether it may be; ask, where the language can."""

    def denied(self, use: str, tool: str, tool_input: dict[str, Any]) -> None: ...

    def returned(self, use: str, tool: str, text: str, *, ok: bool) -> None: ...

    def wake(self, delay_ms: int, prompt: str) -> bool:
        """Ask to be woken; False where the language has no words for that."""

    def answer(self, value: object) -> None:
        """Answer with a value, not with words."""

    def prompts(self) -> list[str]:
        """What was asked in this conversation, the newest last."""
