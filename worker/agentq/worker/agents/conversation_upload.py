"""Keeping a conversation, so that the same run's next attempt, or the session's next turn, can go on with it.

1. As soon as the agent's own id of it is known, it is noted with the run and its session, and on which host it is.
2. Its transcript, where the agent has one that can travel, is carried to the server now and then and at the end, so
   that even the death of the machine costs no more than the last moments.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError, Invalid, TryLater
from agentq.coordinator.runs.verbs import Claim
from agentq.worker.agents.agent_context import AgentContext
from agentq.worker.agents.preparation import PreparedAgent
from agentq.worker.agents.reader import AgentFacts
from agentq.worker.agents.verdicts import Verdict

UPLOAD_INTERVAL_MS = 15_000
"""How often a transcript is carried while the agent works, at the most."""
UPLOAD_BYTES_PER_S = 256 << 10
"""How much of transcripts an agent has carried while it works, at the most: long ones are carried less often."""
FIRST_UPLOAD_MS = 2_000
"""How long the agent has worked before it is worth while for the first time."""
SendReliably = Callable[[Callable[[], bool]], Awaitable[bool | None]]
"""Say something to the server until it answers; None if it could not be said."""


class ConversationUpload:
    """Of one attempt. Lives on the worker's event loop."""

    def __init__(
        self, claim: Claim, out: PreparedAgent, agents: AgentContext, say: SendReliably, note: Callable[[str], None]
    ) -> None:
        self._claim = claim
        self._out = out
        self._agents = agents
        self._say = say
        self._note = note
        self._bound: tuple[str | None, str | None, bool] | None = None
        self._carry_at_ms = monotonic_ms() + FIRST_UPLOAD_MS
        self._movable = out.profile.transcript is not None
        self._errand: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """An id that we made is known before the agent is."""
        if self._out.own_session is not None:
            await self._bind(self._out.own_session, None)

    def heard(self, facts: AgentFacts) -> None:
        """The agent has done something; what is to be kept of it is kept beside."""
        if self._errand is not None and not self._errand.done():
            return
        unknown = facts.session is not None and self._bound != (facts.session, facts.model, self._movable)
        due = self._movable and monotonic_ms() >= self._carry_at_ms
        if unknown or due:
            self._errand = asyncio.ensure_future(self._keep(facts, carry=due))

    async def end(self, verdict: Verdict) -> None:
        """The process is gone: keep what there is now, or let it be forgotten where it is of no more use."""
        if self._errand is not None:
            await self._errand
        anew = verdict.consequence.conversation == "begins anew"
        await self._keep(self._out.reader.facts, carry=self._movable and not anew, anew=anew)

    async def _keep(self, facts: AgentFacts, *, carry: bool, anew: bool = False) -> None:
        session = facts.session or self._out.own_session
        if session is None:
            return
        try:
            if anew:
                await self._bind(None, None)
                return
            await self._bind(session, facts.model)
            if carry:
                await self._carry(session)
                await self._bind(session, facts.model)
        except AgentqError as error:
            # The work is worth more than the way back to it; and what was refused is not said with every word again.
            self._bound = (session, facts.model, self._movable)
            self._note(f"the conversation {session} could not be kept: {error}")

    async def _carry(self, session: str) -> None:
        packed = await asyncio.to_thread(self._out.packed, session)
        self._carry_at_ms = monotonic_ms() + max(UPLOAD_INTERVAL_MS, 1_000 * len(packed or b"") // UPLOAD_BYTES_PER_S)
        if packed is None:
            return

        def carry() -> bool:
            try:
                self._agents.conversations.carry(self._claim, packed)
                return True
            except TryLater as full:
                raise Invalid("The server has no room for it.") from full

        try:
            await self._say(carry)
        except Invalid:
            # It cannot travel: from now on the conversation stays on this machine.
            self._movable = False

    async def _bind(self, session: str | None, model: str | None) -> None:
        if self._bound == (session, model, self._movable):
            return
        host, account, movable = socket.gethostname(), self._out.account, self._movable

        def bind() -> bool:
            self._agents.conversations.bind(
                self._claim, session, host=host, account=account, model=model or "", movable=movable
            )
            return True

        if await self._say(bind):
            self._bound = (session, model, movable)
