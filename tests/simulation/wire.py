"""The link of the simulated programs. It loses words before they arrive, or the answers to them, as the seed says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any

from simulation.tapped import Tapped

from agentq.coordinator.errors import AgentqError, Unreachable
from agentq.coordinator.storage.connection import CommandArgument, Connection, ScriptSource
from agentq.coordinator.storage.script_call import ScriptCall


class Loss(Enum):
    """What is lost of a call."""

    NOTHING = "nothing"
    WORDS = "the words"
    ANSWER = "the answer"


ANSWER_MS = 600_000
"""A server that gets no processor for a while answers late. To ask it again would run the call twice, heard once."""


class Wire(Connection):
    """A connection whose script calls can be lost, and are all overheard once the server has run them."""

    def __init__(self, url: str) -> None:
        super().__init__(url, timeout_ms=ANSWER_MS)
        self.calm = Connection(url)
        """The same server, over a link that loses nothing."""
        self.rest()

    def rest(self) -> None:
        """Lose nothing, and let nobody listen."""
        self.fate: Callable[[str], Loss] = lambda _: Loss.NOTHING
        self.heard: Callable[[str, Sequence[CommandArgument], Tapped], None] = lambda *_: None

    def close(self) -> None:
        self.calm.close()
        super().close()

    def script(self, source: ScriptSource, key: str, args: Sequence[CommandArgument]) -> Any:
        loss = self.fate(source.name)
        if loss is Loss.WORDS:
            raise Unreachable("the words were lost")
        try:
            answer = Tapped(*super().script(source, key, args))
        except AgentqError as fault:
            raise AssertionError(f"the server did not run {source.name} {list(args)}: {fault}") from fault
        self.heard(source.name, args, answer)
        if loss is Loss.ANSWER:
            raise Unreachable("the answer was lost")
        return answer.reply

    def scripts(self, calls: Iterable[ScriptCall], *, window: int = 2) -> Iterator[Any]:
        assert window > 0
        return (self.script(*call) for call in calls)
