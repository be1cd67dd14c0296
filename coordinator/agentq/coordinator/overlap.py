"""Script calls under way on one link: the next one is written while the server works on the one before.

A call whose reply did not come, or that the server could not take just then, is made again by itself, in its turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from redis.exceptions import RedisError, ResponseError

from agentq.coordinator import faults
from agentq.coordinator.call import Call, by_digest
from agentq.coordinator.link import Link, send


class Overlap:
    """Calls that were sent and not yet answered, on a link that nobody else uses."""

    def __init__(self, take: Callable[[], Link], again: Callable[[Call], Any]) -> None:
        self._take = take
        self._again = again
        self._link: Link | None = None
        self._under_way: deque[tuple[Call, Link | None]] = deque()

    def __len__(self) -> int:
        return len(self._under_way)

    def send(self, call: Call) -> None:
        """Send a call without waiting. That it failed comes out when its reply is asked for."""
        try:
            if self._link is None:
                self._link = self._take()
            send(self._link, by_digest(call))
        except RedisError:
            self._cut()
        self._under_way.append((call, self._link))

    def receive(self) -> Any:
        """The reply to the oldest call, or the refusal of it."""
        call, link = self._under_way.popleft()
        if link is None or link is not self._link:
            return self._again(call)
        try:
            return link.read_response()
        except ResponseError as refusal:
            if not faults.passes(refusal) and faults.code(refusal) != "NOSCRIPT":
                raise
        except RedisError:
            self._cut()
        return self._again(call)

    def release(self) -> Link | None:
        """The link, if it is fit for further use: one on which replies are still to come is cut."""
        if self._under_way:
            self._cut()
        return self._link

    def _cut(self) -> None:
        if self._link is not None:
            self._link.disconnect()
            self._link = None
