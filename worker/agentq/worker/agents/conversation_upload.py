"""Saves a conversation, so that the run's next attempt or the session's next turn can continue it.

1. As soon as the agent's own id of it is known, it is recorded with the run, its session and the host.
2. Its transcript, if the agent has one that can move, is uploaded at intervals and at the end, so that even the loss of
   the machine costs only the last moments.
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
"""The shortest interval between uploads of a transcript."""
UPLOAD_BYTES_PER_S = 256 << 10
"""The average upload rate limit: long transcripts are uploaded less often."""
FIRST_UPLOAD_MS = 2_000
"""How long the agent works before the first upload."""
SendReliably = Callable[[Callable[[], bool]], Awaitable[bool | None]]
"""Calls the server until it answers; None if it could not be reached."""


class ConversationUpload:
    """Saves the conversation of one attempt. Lives on the worker's event loop."""

    def __init__(
        self,
        claim: Claim,
        prepared: PreparedAgent,
        agents: AgentContext,
        send: SendReliably,
        note: Callable[[str], None],
    ) -> None:
        self._claim = claim
        self._prepared = prepared
        self._agents = agents
        self._send = send
        self._note = note
        self._bound: tuple[str | None, str | None, bool] | None = None
        self._upload_at_ms = monotonic_ms() + FIRST_UPLOAD_MS
        self._movable = prepared.profile.transcript is not None
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Record an id that agentq made, before the agent starts."""
        if self._prepared.own_session is not None:
            await self._bind(self._prepared.own_session, None)

    def on_events(self, facts: AgentFacts) -> None:
        """The agent has reported something: save what is due, in the background."""
        if self._task is not None and not self._task.done():
            return
        unknown = facts.session is not None and self._bound != (facts.session, facts.model, self._movable)
        due = self._movable and monotonic_ms() >= self._upload_at_ms
        if unknown or due:
            self._task = asyncio.ensure_future(self._save(facts, upload=due))

    async def end(self, verdict: Verdict) -> None:
        """The process has ended: save the conversation, or unbind it where it is of no more use."""
        if self._task is not None:
            await self._task
        begin_anew = verdict.consequence.conversation == "begins anew"
        await self._save(self._prepared.reader.facts, upload=self._movable and not begin_anew, begin_anew=begin_anew)

    async def _save(self, facts: AgentFacts, *, upload: bool, begin_anew: bool = False) -> None:
        session = facts.session or self._prepared.own_session
        if session is None:
            return
        try:
            if begin_anew:
                await self._bind(None, None)
                return
            await self._bind(session, facts.model)
            if upload:
                await self._upload(session)
                await self._bind(session, facts.model)
        except AgentqError as error:
            # The work matters more than the conversation. Do not repeat a refused call with every event.
            self._bound = (session, facts.model, self._movable)
            self._note(f"the conversation {session} could not be saved: {error}")

    async def _upload(self, session: str) -> None:
        packed = await asyncio.to_thread(self._prepared.pack_transcript, session)
        self._upload_at_ms = monotonic_ms() + max(UPLOAD_INTERVAL_MS, 1_000 * len(packed or b"") // UPLOAD_BYTES_PER_S)
        if packed is None:
            return

        def carry() -> bool:
            try:
                self._agents.conversations.carry(self._claim, packed)
                return True
            except TryLater as full:
                raise Invalid("The server has no room for it.") from full

        try:
            await self._send(carry)
        except Invalid:
            # It cannot move: from now on the conversation stays on this machine.
            self._movable = False

    async def _bind(self, session: str | None, model: str | None) -> None:
        if self._bound == (session, model, self._movable):
            return
        host, account, movable = socket.gethostname(), self._prepared.account, self._movable

        def bind() -> bool:
            self._agents.conversations.bind(
                self._claim, session, host=host, account=account, model=model or "", movable=movable
            )
            return True

        if await self._send(bind):
            self._bound = (session, model, movable)
