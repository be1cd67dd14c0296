"""An answer that comes in pieces of a few letters, and is told in whole messages."""

from __future__ import annotations

from agentq.coordinator.doings import Said, cut
from agentq.worker.agents.formats.values import answer


class Pieces:
    """What the model has said since it was last asked, and what of that has not been told yet."""

    def __init__(self) -> None:
        self.answer = ""
        self._untold = ""

    def add(self, text: str) -> None:
        self.answer = answer(self.answer + text)
        self._untold = answer(self._untold + text)

    def anew(self) -> None:
        """What follows is another answer."""
        self.answer = ""

    def told(self) -> list[Said]:
        """The pieces so far, as one."""
        untold, self._untold = self._untold, ""
        return [Said(text=cut(untold))] if untold.strip() else []
