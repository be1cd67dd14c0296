"""Revokes a token with everything that was created with it. In this order:

1. The token, and those that it made, are good for nothing: nothing more comes in.
2. Schedules and webhooks go, and sessions close, so that nothing is made by itself.
3. Live runs are cancelled, until none is found: what runs may have had children meanwhile.

What is done twice changes nothing, so that a call that failed in the middle is made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from agentq.coordinator.errors import NotFound, WrongState
from agentq.coordinator.model.lifecycle import LIVE_STATES
from agentq.coordinator.runs.queries import RunFilter, RunQueries
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.coordinator.schedules.verbs import Schedules
from agentq.coordinator.security.tokens import TokenRecord, Tokens
from agentq.coordinator.sessions.verbs import Sessions
from agentq.coordinator.storage.store import NamespaceStore
from agentq.coordinator.webhooks.verbs import Webhooks


@dataclass(frozen=True, slots=True)
class RevocationResult:
    """What has ended with a token, each by its name or id."""

    tokens: list[str] = field(default_factory=list)
    schedules: list[str] = field(default_factory=list)
    webhooks: list[str] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.tokens or self.schedules or self.webhooks or self.sessions or self.runs)


class RevocableTokens(Tokens):
    """The tokens of one namespace, which can be revoked with what they made."""

    def revoke_tree(self, token: str) -> RevocationResult:
        """Revoke a token, by its id or name, and end what it has made. By its id also one that was revoked before."""
        ended = RevocationResult()
        for each in _list_descendants(self.all(), self.id_of(token)):
            with suppress(NotFound):  # it was revoked before
                self.revoke(each)
                ended.tokens.append(each)
            _end_created(self.store, each, ended)
        if ended.is_empty:
            raise NotFound(f"There is no token {token[:80]}, and nothing that it has made.")
        return ended


def _list_descendants(known: Sequence[TokenRecord], token: str) -> list[str]:
    """A token, those that it made, those that they made, and so on."""
    found = [token]
    for each in found:
        found += [other.id for other in known if other.made_by == each and other.id not in found]
    return found


def _end_created(store: NamespaceStore, token: str, ended: RevocationResult) -> None:
    schedules, webhooks, sessions = Schedules(store), Webhooks(store), Sessions(store)
    for name in [each.name for each in schedules.all() if each.made_by == token]:
        schedules.remove(name)
        ended.schedules.append(name)
    for name in [each.name for each in webhooks.all() if each.made_by == token]:
        webhooks.remove(name)
        ended.webhooks.append(name)
    for name in [each.name for each in sessions.all() if each.made_by == token and each.state == "open"]:
        sessions.close(name, cancel=True)
        ended.sessions.append(name)
    queue, records, seen = RunVerbs(store), RunQueries(store), set(ended.runs)
    while True:
        # Oldest first: what waits for them is then skipped, or cancelled after them.
        live = [run.id for run in records.all(RunFilter(states=LIVE_STATES, made_by=token)) if run.id not in seen][::-1]
        if not live:
            return
        for run in live:
            seen.add(run)
            with suppress(NotFound, WrongState):  # it has ended meanwhile
                queue.cancel(run, f"the token {token} was revoked with what it made")
                ended.runs.append(run)
