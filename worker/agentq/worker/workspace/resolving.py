"""An agent that resolves conflicts in place of whoever made them: of a command, or of an agent that is not to be asked.

It begins a conversation of its own in the run's worktree, where the target has been brought in with its conflicts, and
is told no more than that. What it spends is its own: it is in the log, and not in the run's sum.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from agentq.coordinator.errors import Invalid, NotFound
from agentq.coordinator.run import RunSpec
from agentq.coordinator.turn import Turn
from agentq.worker.agents.formats.readers import reader_of
from agentq.worker.agents.judge import End, judged
from agentq.worker.agents.launching import Start, start
from agentq.worker.agents.reading import Before
from agentq.worker.agents.telling import Telling
from agentq.worker.agents.trust import refusal
from agentq.worker.agents.verdicts import VerdictKind
from agentq.worker.workspace.chores import Chore
from agentq.worker.workspace.errands import Errands

if TYPE_CHECKING:
    from agentq.worker.attempt import Attempt

TIMEOUT_MS = 3_600_000
"""For a run that has no limit of its own."""


class Resolver:
    """Of one attempt."""

    def __init__(self, attempt: Attempt, spec: RunSpec, errands: Errands) -> None:
        assert spec.workspace is not None
        self._attempt = attempt
        self._spec = spec
        self._name = spec.workspace.resolver or ""
        self._errands = errands

    async def resolve(self, prompt: str) -> str | None:
        """Have it done; one sentence if it was not."""
        self._attempt.progress(f"has its conflicts resolved by {self._name}")
        try:
            chore, telling = self._chore(prompt)
        except (Invalid, NotFound) as unfit:
            return f"the resolver {self._name} cannot be asked: {unfit}"
        done = await self._errands.do(chore)
        telling.ended()
        verdict = judged(telling.reader.facts, End(0 if done.error is None else 1))
        if verdict.kind in (VerdictKind.OK, VerdictKind.OK_WITH_DENIALS):
            return None
        return f"the resolver {self._name} failed: {verdict.error or done.error}"

    def _chore(self, prompt: str) -> tuple[Chore, Telling]:
        """What is to be started, and who reads along."""
        around, folder = self._attempt.around, self._errands.folder
        profile = around.profiles().get(self._name)
        turn = self._spec.turn or Turn()
        refused = refusal(self._name, profile, turn, folder)
        if refused is not None:
            raise Invalid(refused)
        file = around.logs / self._attempt.claim.id / "prompt" if profile.prompt == "file" else None
        session = str(uuid.uuid4()) if profile.takes_id else None
        own = Turn(permissions=turn.permissions, trust=turn.trust)
        asked = Start(self._name, profile, prompt, own, session=session, prompt_file=file)
        started = start(asked, around.environment.inherited)
        if file is not None and started.prompt_file is not None:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.touch(mode=0o600)
            file.write_bytes(started.prompt_file)
        telling = Telling(reader_of(profile.format, Before()), self._attempt.log, lambda _: None)
        chore = self._errands.chore("resolver", started.argv, folder, self._spec.timeout_ms or TIMEOUT_MS, started.env)
        return replace(chore, stdin=started.stdin, tap=telling.tap), telling
