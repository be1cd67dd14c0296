"""Which agents a worker can run at the moment, and which account is billed next. Its tasks:

1. Choose an account whose gate is open, in the profile's order.
2. When an account has reached its limit, close its gate, for every worker that uses it.
3. Withdraw an agent's label while all its accounts here are closed, so that its runs wait where another worker, with
   another account, may take them; offer it again as soon as one opens, by time or by hand.

Besides one call before each attempt, the server is only polled while a gate is known to be closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.queues.limits import Limits
from agentq.worker.agents.accounts.billing import build_gate_key, order_accounts
from agentq.worker.agents.profiles.installed import InstalledAgents
from agentq.worker.agents.profiles.registry import ProfileRegistry

GATE_POLL_MS = 5_000
"""How often closed gates are polled: a person may open one."""


class AgentAvailability:
    """Lives on the worker's event loop; calls to the server run in a thread."""

    def __init__(
        self,
        limits: Limits,
        profiles: ProfileRegistry,
        installed: InstalledAgents,
        on_change: Callable[[], None],
    ) -> None:
        self._limits = limits
        self._profiles = profiles
        self._installed = installed
        self._on_change = on_change
        self._closed_until: dict[str, int] = {}
        """Closed gates, with the time when they open."""
        self._poll_task: asyncio.Task[None] | None = None

    def labels(self) -> dict[str, str]:
        """The labels of available agents."""
        return self._installed.labels(name for name in self._installed.programs if self._is_closed(name))

    def read_gates(self, agent: str) -> dict[str, int]:
        """Until when each account of an agent is closed, according to the server; called in a thread."""
        return {limit.key: limit.shut_until_ms or 0 for limit in self._limits.named(self._gates(agent))}

    def close_gate(self, agent: str, account: str, until_ms: int, why: str) -> dict[str, int]:
        """Close an account until a time; called in a thread. Returns what `read_gates` does."""
        self._limits.shut(build_gate_key(agent, account), until_ms, why)
        return self.read_gates(agent)

    def update(self, gates: Mapping[str, int]) -> None:
        """Apply gates that were read."""
        before, now_ms = self.labels(), wall_ms()
        for key, until_ms in gates.items():
            if until_ms > now_ms:
                self._closed_until[key] = until_ms
            else:
                self._closed_until.pop(key, None)
        if self._closed_until and (self._poll_task is None or self._poll_task.done()):
            self._poll_task = asyncio.ensure_future(self._poll_gates())
        if self.labels() != before:
            self._on_change()

    def first_open(self, agent: str, accounts: Sequence[str]) -> str | None:
        """The account to use now; None if all are closed."""
        return next((account for account in accounts if build_gate_key(agent, account) not in self._closed_until), None)

    def opens_at_ms(self, agent: str, accounts: Sequence[str]) -> int:
        """When the first of these opens."""
        return min(self._closed_until.get(build_gate_key(agent, account), 0) for account in accounts)

    def close(self) -> None:
        if self._poll_task is not None:
            self._poll_task.cancel()

    def _is_closed(self, agent: str) -> bool:
        return all(key in self._closed_until for key in self._gates(agent))

    def _gates(self, agent: str) -> list[str]:
        return [build_gate_key(agent, account) for account in order_accounts(self._profiles.get(agent))]

    async def _poll_gates(self) -> None:
        while self._closed_until:
            next_ms = min(self._closed_until.values()) - wall_ms()
            await asyncio.sleep(min(max(next_ms, 10), GATE_POLL_MS) / 1000)
            try:
                for agent in {key.split(":")[1] for key in self._closed_until}:
                    self.update(await asyncio.to_thread(self.read_gates, agent))
            except AgentqError:
                # The server is away: keep what is known, each gate until its time.
                self.update(dict(self._closed_until))
