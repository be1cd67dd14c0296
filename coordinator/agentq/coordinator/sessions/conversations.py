"""The conversation of an attempt of an agent: what it starts from, and what it records while it runs.

A conversation belongs to a run, or to a session if the run is a turn. Only the attempt that holds the run calls these
verbs; it shows its fence, and each can be sent twice.
"""

from __future__ import annotations

import json
import zlib
from base64 import b85decode, b85encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from pydantic import StringConstraints, TypeAdapter, ValidationError

from agentq.coordinator.bounds import (
    CONVERSATION_FIELD_CHARACTERS,
    SPENT_COUNT_MAX,
    SPENT_USD_MAX,
    TOTALS_BYTES,
    TRANSCRIPT_BYTES,
)
from agentq.coordinator.errors import Fenced, Invalid, refusal_error
from agentq.coordinator.model.agent_options import AgentBudgets
from agentq.coordinator.model.field_types import Label, Text, describe_error
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.spec import AgentSpending
from agentq.coordinator.runs.run_record import parse_spending
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.storage.connection import CommandArgument
from agentq.coordinator.storage.store import NamespaceStore

_fact_adapter: TypeAdapter[str] = TypeAdapter(
    Annotated[Text, StringConstraints(max_length=CONVERSATION_FIELD_CHARACTERS)]
)
_host_adapter: TypeAdapter[str] = TypeAdapter(Label)
_budgets_adapter: TypeAdapter[AgentBudgets] = TypeAdapter(AgentBudgets)


class TranscriptTooLarge(Invalid):
    """A transcript is too large to store; its conversation stays on its host."""


@dataclass(frozen=True, slots=True)
class SpendingTotals:
    """The spending so far: of a run since its first start or last operator retry, and of its session, if any."""

    run: AgentSpending
    session: AgentSpending | None


@dataclass(frozen=True, slots=True)
class AgentConversation:
    """The conversation that an attempt starts from."""

    agent_session: str | None
    """The agent's own id of the conversation; None if there is none to continue."""
    host: str | None
    """The host that continued it last."""
    account: str | None
    movable: bool
    """Whether its transcript is stored; `carried` returns it."""
    fork: bool
    """Whether it belongs to another session, and is to be continued as a copy."""
    has_earlier_attempt: bool
    """Whether an earlier attempt of this run continued it already."""
    model: str | None
    """The model that the session began with, or of the run's last attempt."""
    cwd: str | None
    totals: Mapping[str, float]
    """The agent's own running totals, as last reported."""
    spent: SpendingTotals
    """The spending before this attempt."""
    budgets: AgentBudgets | None
    """The budgets of the session."""


class _ConversationReply(NamedTuple):
    """The fields of the script's reply."""

    agent_session: str
    host: str
    account: str
    model: str
    cwd: str
    carried: str
    fork: str
    totals: str
    budgets: str
    run: str
    session: str
    has_earlier_attempt: str


class AgentConversations:
    """The verbs of attempts about their conversations."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store

    def open(self, claim: Claim) -> AgentConversation:
        """The conversation that an attempt starts from."""
        stored = _ConversationReply(*self._ask("conversation/get", claim))
        return AgentConversation(
            agent_session=stored.agent_session or None,
            host=stored.host or None,
            account=stored.account or None,
            movable=stored.carried == "1",
            fork=stored.fork == "1",
            has_earlier_attempt=stored.has_earlier_attempt == "1",
            model=stored.model or None,
            cwd=stored.cwd or None,
            totals=json.loads(stored.totals) if stored.totals else {},
            spent=_parse_totals(stored.run, stored.session),
            budgets=_budgets_adapter.validate_json(stored.budgets) if stored.budgets else None,
        )

    def bind(
        self, claim: Claim, agent_session: str | None, *, host: str, account: str = "", model: str = "", movable: bool
    ) -> None:
        """Record the conversation of an attempt; None if there is none to continue, so that the next is new.

        Unless it is movable, later attempts and turns are pinned to this host.
        """
        stored = [_validate(_fact_adapter, text or "", what) for text, what in (
            (agent_session, "session of an agent"), (account, "account"), (model, "model")
        )]  # fmt: skip
        session, payer, model = stored
        self._call(
            "conversation/bind",
            claim,
            session,
            _validate(_host_adapter, host, "host"),
            payer,
            model,
            1 if movable else "",
        )

    def spend(self, claim: Claim, spending: AgentSpending, totals: Mapping[str, float] | None = None) -> SpendingTotals:
        """Record the total spending of an attempt so far; returns the totals of its run and session.

        `totals` are the agent's own running totals, which the next attempt starts from.
        """
        cost: CommandArgument = "" if spending.cost_usd is None else round(spending.cost_usd * 1_000_000)
        numbers = (spending.input_tokens, spending.cached_tokens, spending.output_tokens, spending.turns)
        if not 0 <= (spending.cost_usd or 0) < SPENT_USD_MAX or not all(
            0 <= each < SPENT_COUNT_MAX for each in numbers
        ):
            raise Invalid(f"The spending is out of range: {spending}.")
        result = json.dumps(dict(totals)) if totals else ""
        if len(result) > TOTALS_BYTES:
            raise Invalid(f"The totals have {len(result)} bytes; {TOTALS_BYTES} is the most.")
        run, session = self._ask("conversation/record_spending", claim, cost, *numbers, result)
        return _parse_totals(run, session)

    def carry(self, claim: Claim, transcript: bytes) -> None:
        """Store the transcript of an attempt's conversation for other hosts, replacing the last; it must be bound."""
        packed = b85encode(zlib.compress(transcript))
        if len(packed) > TRANSCRIPT_BYTES:
            raise TranscriptTooLarge(
                f"The transcript has {len(packed)} bytes, compressed; {TRANSCRIPT_BYTES} is the most."
            )
        self._call("conversation/save_transcript", claim, packed)

    def carried(self, claim: Claim) -> bytes | None:
        """The stored transcript of the conversation that an attempt continues, if there is one."""
        (packed,) = self._ask("conversation/get_transcript", claim)
        try:
            return zlib.decompress(b85decode(packed)) if packed else None
        except (ValueError, zlib.error) as error:
            raise Invalid(f"The stored transcript cannot be read: {error}.") from error

    def _call(self, script: str, claim: Claim, *words: CommandArgument) -> None:
        reply = self.store.call(script, partition_of(claim.id), claim.id, claim.fence, *words)
        refused = refusal_error(str(reply), f"run {claim.id}")
        if refused is not None:
            raise refused

    def _ask(self, script: str, claim: Claim, *words: CommandArgument) -> list[Any]:
        reply = self.store.call(script, partition_of(claim.id), claim.id, claim.fence, *words)
        if isinstance(reply, str):
            raise refusal_error(reply, f"run {claim.id}") or Fenced()
        return list(reply[1:])


def _parse_totals(run: str, session: str) -> SpendingTotals:
    return SpendingTotals(parse_spending(run), parse_spending(session) if session else None)


def _validate(adapter: TypeAdapter[str], text: str, what: str) -> str:
    try:
        return adapter.validate_python(text)
    except ValidationError as error:
        raise Invalid(f"{text[:80]!r} is no {what}: {describe_error(error)}") from error
