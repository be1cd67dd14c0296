"""Whose token makes what: told to each script beside the time, and kept with what it makes, as `made_by`; and for which
queues the token is good, if not for all, kept with its runs as `readable_queues`.

It stands in a context variable, so that no way in can forget it: each request of the HTTP server sets it once it knows
who asks. Who writes to the store without a server has no token, and `made_by` is empty then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_current_token: ContextVar[str] = ContextVar("agentq_maker", default="")


def current_token() -> str:
    """The id of the token that asks, and behind it its queues, if it is not good for all; empty without one."""
    return _current_token.get()


def set_current_token(token: str, *queues: str) -> None:
    """From now on in this context."""
    _current_token.set(" ".join((token, *queues)))


@contextmanager
def use_token(token: str, *queues: str) -> Iterator[None]:
    """What is made within is this token's."""
    before = _current_token.set(" ".join((token, *queues)))
    try:
        yield
    finally:
        _current_token.reset(before)
