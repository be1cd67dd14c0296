"""Limits how many unknown tokens an address may send: each costs a call of the store, and may be a guess.

A token that was valid here before is not counted, so clients that share the address with a guesser are served.
"""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv6Network

from agentq.coordinator.clock import monotonic_ms
from agentq.server.http.problems import TooMany

GUESSES_MAX = 200
"""The size of the burst."""
GUESS_REFILL_MS = 500
"""The time after which an address may send one more."""
ADDRESSES_MAX = 10_000
IPV6_PREFIX_BITS = 64
"""One client can own all IPv6 addresses with a common prefix."""


class GuessLimit:
    """The remaining guesses of each address, in this process."""

    def __init__(self) -> None:
        self._left: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def take(self, address: str) -> None:
        """Use one guess; refused if none is left."""
        name, now_ms = _normalize_address(address), monotonic_ms()
        left, at_ms = self._left.pop(name, (float(GUESSES_MAX), now_ms))
        left = min(GUESSES_MAX, left + (now_ms - at_ms) / GUESS_REFILL_MS)
        self._left[name] = (left - 1 if left >= 1 else left, now_ms)
        if len(self._left) > ADDRESSES_MAX:
            self._left.popitem(last=False)
        if left < 1:
            message = "Too many unknown tokens from this address; wait as long as Retry-After says."
            raise TooMany(max(1, round((1 - left) * GUESS_REFILL_MS)), message)

    def give_back(self, address: str) -> None:
        """Return a guess: the token is valid."""
        name = _normalize_address(address)
        left, at_ms = self._left.get(name, (float(GUESSES_MAX), 0))
        self._left[name] = (min(GUESSES_MAX, left + 1), at_ms)


def _normalize_address(address: str) -> str:
    return (
        str(IPv6Network(f"{address.partition('%')[0]}/{IPV6_PREFIX_BITS}", strict=False)) if ":" in address else address
    )
