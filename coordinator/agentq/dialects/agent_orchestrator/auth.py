"""Scopes of what runners ask, which is held while the store cannot be asked whether their token is good."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError, TryLater, Unreachable
from agentq.coordinator.security.tokens import TokenScope
from agentq.server.auth.access_control import Principal, RequiredScope
from agentq.server.http.problems import TooMany
from agentq.server.service import OUTAGE_PAUSE_S, ServerService, get_service

Reply = TypeVar("Reply")
REPORT_TIMEOUT_S = 28.0
"""How long a report is held through an outage of the store: runners give up after 35 s, their gateway after 30."""
EVENT_TIMEOUT_S = 4.0
"""The same for what executors say themselves, which give up after 5 s."""


class PollScope(RequiredScope):
    """The scope of a poll. With a token that has asked too often, or while the store cannot be asked whether it is
    good, it is held, and told nothing: refused three times in a row, a runner gives up for good.
    """

    async def __call__(self, connection: HTTPConnection) -> Principal:
        if "authorization" not in connection.headers:
            return await super().__call__(connection)  # which asks the store nothing
        timeout_s: float = connection.app.state.agent_orchestrator.timing.runner_poll_timeout
        until_ms = monotonic_ms() + round(timeout_s * 1000)
        authenticating = asyncio.create_task(super().__call__(connection))
        # It is not cut off: others are looked at in the same call of the store.
        await asyncio.wait({authenticating}, timeout=timeout_s)
        if authenticating.done():
            try:
                return authenticating.result()
            except (Unreachable, TryLater) as wait:
                await self._hold(connection, wait, until_ms)
        authenticating.add_done_callback(lambda task: task.cancelled() or task.exception())
        raise HTTPException(204)

    async def _hold(self, connection: HTTPConnection, refusal: AgentqError, until_ms: int) -> None:
        """Wait until the store can be asked again, or for as long as a poll is held."""
        service = get_service(connection)
        is_rate_limited = isinstance(refusal, TooMany)
        pause_s = refusal.wait_ms / 1000 if isinstance(refusal, TooMany) else OUTAGE_PAUSE_S
        # Nothing is ever heard of nobody's run, but that the server is to end.
        with service.event_hub.watch_runs("nobody") as watch:
            while not service.event_hub.closing and (left_s := (until_ms - monotonic_ms()) / 1000) > 0:
                await watch.next(min(pause_s, left_s))
                if is_rate_limited or await self._is_store_back(service):
                    return

    async def _is_store_back(self, service: ServerService) -> bool:
        with suppress(Unreachable, TryLater):
            await service.call_in_thread(service.store.guard)
            await service.call_in_thread(service.store.connection.command, "PING")
            return True
        return False


async def retry_through_outage(
    service: ServerService, timeout_s: float, action: Callable[[], Awaitable[Reply]]
) -> Reply:
    """What something is answered that is said once: while the store cannot be reached it is tried again, for so long.

    Their programs do not repeat a report, and a run whose end was lost would run for ever.
    """
    until_ms = monotonic_ms() + round(timeout_s * 1000)
    while True:
        try:
            return await action()
        except TooMany:
            raise
        except (Unreachable, TryLater):
            left_s = (until_ms - monotonic_ms()) / 1000
            if left_s <= 0 or service.event_hub.closing:
                raise
            with service.event_hub.watch_runs("nobody") as watch:
                await watch.next(min(OUTAGE_PAUSE_S, left_s))


class ReportScope(RequiredScope):
    """The scope of a report; while the store cannot be asked whether the token is good, it is held."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(TokenScope.WORK, bound=True, foreign=True)
        self._timeout_s = timeout_s

    async def __call__(self, connection: HTTPConnection) -> Principal:
        if "authorization" not in connection.headers:
            return await super().__call__(connection)
        return await retry_through_outage(
            get_service(connection), self._timeout_s, partial(super().__call__, connection)
        )
