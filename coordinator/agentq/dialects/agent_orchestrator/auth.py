"""Scopes of requests from runners; such a request is held while the store cannot check its token."""

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
"""How long a report is held through an outage of the store. Runners give up after 35 s, their gateway after 30 s."""
EVENT_TIMEOUT_S = 4.0
"""How long an executor's report is held; executors give up after 5 s."""


class PollScope(RequiredScope):
    """The scope of a poll. While the token's rate limit is used up or the store cannot check the token, the poll is
    held and answered 204, because a runner that is refused three times in a row gives up for good."""

    async def __call__(self, connection: HTTPConnection) -> Principal:
        if "authorization" not in connection.headers:
            return await super().__call__(connection)  # which does not use the store
        timeout_s: float = connection.app.state.agent_orchestrator.timing.runner_poll_timeout
        until_ms = monotonic_ms() + round(timeout_s * 1000)
        authenticating = asyncio.create_task(super().__call__(connection))
        # Not cancelled: the same call of the store checks the tokens of other requests.
        await asyncio.wait({authenticating}, timeout=timeout_s)
        if authenticating.done():
            try:
                return authenticating.result()
            except (Unreachable, TryLater) as wait:
                await self._hold(connection, wait, until_ms)
        authenticating.add_done_callback(lambda task: task.cancelled() or task.exception())
        raise HTTPException(204)

    async def _hold(self, connection: HTTPConnection, refusal: AgentqError, until_ms: int) -> None:
        """Wait until the store can be used again, or for as long as a poll is held."""
        service = get_service(connection)
        is_rate_limited = isinstance(refusal, TooMany)
        pause_s = refusal.wait_ms / 1000 if isinstance(refusal, TooMany) else OUTAGE_PAUSE_S
        # No run has this id: the watch ends early only when the server stops.
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
    """Call `action` until it succeeds, while the store cannot be reached, for at most `timeout_s`.

    For reports, which runners and executors send only once: a run whose end was lost would run for ever.
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
    """The scope of a report. The report is held while the store cannot check its token."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(TokenScope.WORK, bound=True, for_runners=True)
        self._timeout_s = timeout_s

    async def __call__(self, connection: HTTPConnection) -> Principal:
        if "authorization" not in connection.headers:
            return await super().__call__(connection)
        return await retry_through_outage(
            get_service(connection), self._timeout_s, partial(super().__call__, connection)
        )
