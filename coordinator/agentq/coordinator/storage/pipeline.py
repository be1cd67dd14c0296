"""Pipelines script calls on one socket: the next is written while the server executes the one before.

A call whose reply did not come, or that the server could not take just then, is made again by itself. Nothing new is
sent before that, so that the calls still take effect in the order in which they were made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from redis.exceptions import RedisError, ResponseError

from agentq.coordinator.storage import server_errors
from agentq.coordinator.storage.script_call import ScriptCall, evalsha_command
from agentq.coordinator.storage.socket_link import SocketLink, send_commands

RETRY_CALL: Final = object()
"""Stands for a reply that did not come."""


class CallPipeline:
    """Calls that were sent and whose replies are still to be read, on a link of their own."""

    def __init__(self, take: Callable[[], SocketLink], again: Callable[[ScriptCall], Any], window: int) -> None:
        assert window > 0
        self._take = take
        self._again = again
        self._window = window
        self._link: SocketLink | None = None
        self._under_way: deque[ScriptCall] = deque()
        self._outcomes: deque[tuple[ScriptCall, Any]] = deque()

    def __bool__(self) -> bool:
        return bool(self._under_way or self._outcomes)

    @property
    def due(self) -> bool:
        """Whether a reply should be taken before the next call is sent: the window is full, or something went wrong."""
        return len(self._under_way) >= self._window or (bool(self) and (self._link is None or bool(self._outcomes)))

    def send(self, *calls: ScriptCall) -> None:
        """Send calls, at once and without waiting. That one failed comes out when its reply is taken."""
        assert not self.due
        try:
            if self._link is None:
                self._link = self._take()
            send_commands(self._link, *map(evalsha_command, calls))
        except RedisError:
            self._cut()
        self._under_way.extend(calls)

    def receive(self) -> Any:
        """The reply to the oldest call, or the refusal of it."""
        if not self._outcomes:
            self._read_one()
            while self._outcomes[0][1] is RETRY_CALL and self._under_way:
                self._read_one()
        call, outcome = self._outcomes.popleft()
        if outcome is RETRY_CALL:
            return self._again(call)
        if isinstance(outcome, ResponseError):
            raise outcome
        return outcome

    def release(self) -> SocketLink | None:
        """The link, if it is fit for further use: one on which replies are still to come is cut."""
        if self._under_way:
            self._cut()
        return self._link

    def _read_one(self) -> None:
        outcome = RETRY_CALL
        if self._link is not None:
            try:
                outcome = self._link.read_response()
            except ResponseError as refusal:
                if not server_errors.is_transient(refusal) and server_errors.error_code(refusal) != "NOSCRIPT":
                    outcome = refusal
            except RedisError:
                self._cut()
        self._outcomes.append((self._under_way.popleft(), outcome))

    def _cut(self) -> None:
        if self._link is not None:
            self._link.disconnect()
            self._link = None
