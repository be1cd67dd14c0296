"""Conversations: what an attempt of an agent begins from, and what it tells of its conversation while it goes on.

They are their run's, or their session's where the run is a turn of one. All of this is said by the attempt that holds
the run, shows its fence, and can be sent twice.
"""

from __future__ import annotations

import json
import zlib
from base64 import b85decode, b85encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from pydantic import StringConstraints, TypeAdapter, ValidationError

from agentq.coordinator.connection import Word
from agentq.coordinator.errors import Fenced, Invalid, refusal
from agentq.coordinator.fields import Label, Text, one_sentence
from agentq.coordinator.identity import partition_of
from agentq.coordinator.life import spending_of
from agentq.coordinator.limits import CARRIED_BYTES, FACT_CHARACTERS, SPENT_COUNT_MAX, SPENT_USD_MAX, TOTALS_BYTES
from agentq.coordinator.queue import Claim
from agentq.coordinator.run import Spending
from agentq.coordinator.store import Store
from agentq.coordinator.turn import Budgets

_fact: TypeAdapter[str] = TypeAdapter(Annotated[Text, StringConstraints(max_length=FACT_CHARACTERS)])
_host: TypeAdapter[str] = TypeAdapter(Label)
_budgets: TypeAdapter[Budgets] = TypeAdapter(Budgets)


class TooLarge(Invalid):
    """A transcript is too large to travel; its conversation stays where it is."""


@dataclass(frozen=True, slots=True)
class Sums:
    """What was spent, so far: by a run since it began or began anew, and by its session, if it has one."""

    run: Spending
    session: Spending | None


@dataclass(frozen=True, slots=True)
class Conversation:
    """What an attempt begins from."""

    agent_session: str | None
    """What the agent calls it; None where there is none to go on with."""
    host: str | None
    """Where it was last gone on with."""
    account: str | None
    movable: bool
    """Whether a transcript of it can be had, with `carried`."""
    fork: bool
    """Whether it is another session's, to be gone on from as one of its own."""
    begun: bool
    """Whether an earlier attempt of this run was in it already."""
    model: str | None
    """That the session was begun with, or of the run's last attempt."""
    cwd: str | None
    totals: Mapping[str, float]
    """The agent's own running totals when they were last told."""
    spent: Sums
    """Before this attempt."""
    budgets: Budgets | None
    """Of the session."""


class _Facts(NamedTuple):
    """The reply of the script, word for word."""

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
    begun: str


class Conversations:
    """What the attempts of agents say."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def open(self, claim: Claim) -> Conversation:
        """What an attempt begins from."""
        facts = _Facts(*self._ask("conversation/get", claim))
        return Conversation(
            agent_session=facts.agent_session or None,
            host=facts.host or None,
            account=facts.account or None,
            movable=facts.carried == "1",
            fork=facts.fork == "1",
            begun=facts.begun == "1",
            model=facts.model or None,
            cwd=facts.cwd or None,
            totals=json.loads(facts.totals) if facts.totals else {},
            spent=_sums(facts.run, facts.session),
            budgets=_budgets.validate_json(facts.budgets) if facts.budgets else None,
        )

    def bind(
        self, claim: Claim, agent_session: str | None, *, host: str, account: str = "", model: str = "", movable: bool
    ) -> None:
        """Say which conversation an attempt is in; None that there is none to go on with: the next one begins anew.

        Unless it is movable, later attempts and turns go to this host.
        """
        facts = [_checked(_fact, text or "", what) for text, what in (
            (agent_session, "session of an agent"), (account, "account"), (model, "model")
        )]  # fmt: skip
        session, payer, model = facts
        self._say(
            "conversation/bind", claim, session, _checked(_host, host, "host"), payer, model, 1 if movable else ""
        )

    def spend(self, claim: Claim, spending: Spending, totals: Mapping[str, float] | None = None) -> Sums:
        """Say what an attempt has spent so far, in all; returns what its run and session have, with that.

        `totals` are the agent's own running totals, for the next attempt to begin from.
        """
        cost: Word = "" if spending.cost_usd is None else round(spending.cost_usd * 1_000_000)
        numbers = (spending.input_tokens, spending.cached_tokens, spending.output_tokens, spending.turns)
        if not 0 <= (spending.cost_usd or 0) < SPENT_USD_MAX or not all(
            0 <= each < SPENT_COUNT_MAX for each in numbers
        ):
            raise Invalid(f"Nobody can have spent that: {spending}.")
        told = json.dumps(dict(totals)) if totals else ""
        if len(told) > TOTALS_BYTES:
            raise Invalid(f"The totals have {len(told)} bytes; {TOTALS_BYTES} is the most.")
        run, session = self._ask("conversation/record_spending", claim, cost, *numbers, told)
        return _sums(run, session)

    def carry(self, claim: Claim, transcript: bytes) -> None:
        """Keep the transcript of an attempt's conversation, for other hosts, in place of the last; it must be bound."""
        packed = b85encode(zlib.compress(transcript))
        if len(packed) > CARRIED_BYTES:
            raise TooLarge(f"The transcript has {len(packed)} bytes, compressed; {CARRIED_BYTES} is the most.")
        self._say("conversation/save_transcript", claim, packed)

    def carried(self, claim: Claim) -> bytes | None:
        """The transcript of the conversation that an attempt goes on with, if it was carried."""
        (packed,) = self._ask("conversation/get_transcript", claim)
        try:
            return zlib.decompress(b85decode(packed)) if packed else None
        except (ValueError, zlib.error) as error:
            raise Invalid(f"The transcript that was carried is broken: {error}.") from error

    def _say(self, script: str, claim: Claim, *words: Word) -> None:
        reply = self.store.call(script, partition_of(claim.id), claim.id, claim.fence, *words)
        refused = refusal(str(reply), f"run {claim.id}")
        if refused is not None:
            raise refused

    def _ask(self, script: str, claim: Claim, *words: Word) -> list[Any]:
        reply = self.store.call(script, partition_of(claim.id), claim.id, claim.fence, *words)
        if isinstance(reply, str):
            raise refusal(reply, f"run {claim.id}") or Fenced()
        return list(reply[1:])


def _sums(run: str, session: str) -> Sums:
    return Sums(spending_of(run), spending_of(session) if session else None)


def _checked(adapter: TypeAdapter[str], text: str, what: str) -> str:
    try:
        return adapter.validate_python(text)
    except ValidationError as error:
        raise Invalid(f"{text[:80]!r} is no {what}: {one_sentence(error)}") from error
