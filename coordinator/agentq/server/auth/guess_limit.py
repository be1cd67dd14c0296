"""How many tokens that are not known an address may show: each costs a look at the store, and may be a guess.

A token that was good here before is not counted, so that who shares the address with somebody who guesses is served.
"""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv6Network

from agentq.coordinator.clock import monotonic_ms
from agentq.server.http.problems import TooMany

GUESSES_MAX = 200
"""So many at once."""
GUESS_REFILL_MS = 500
"""After so long an address has one more."""
ADDRESSES_MAX = 10_000
IPV6_PREFIX_BITS = 64
"""One client can have all addresses of IPv6 that begin alike."""


class GuessLimit:
    """What each address has left, in this process."""

    def __init__(self) -> None:
        self._left: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def take(self, address: str) -> None:
        """Use up one; refused if none is left."""
        name, now_ms = _normalize_address(address), monotonic_ms()
        left, at_ms = self._left.pop(name, (float(GUESSES_MAX), now_ms))
        left = min(GUESSES_MAX, left + (now_ms - at_ms) / GUESS_REFILL_MS)
        self._left[name] = (left - 1 if left >= 1 else left, now_ms)
        if len(self._left) > ADDRESSES_MAX:
            self._left.popitem(last=False)
        if left < 1:
            message = "Too many tokens that are not known came from this address; wait as long as Retry-After says."
            raise TooMany(max(1, round((1 - left) * GUESS_REFILL_MS)), message)

    def give_back(self, address: str) -> None:
        """It was no guess: the token is good."""
        name = _normalize_address(address)
        left, at_ms = self._left.get(name, (float(GUESSES_MAX), 0))
        self._left[name] = (min(GUESSES_MAX, left + 1), at_ms)


def _normalize_address(address: str) -> str:
    return (
        str(IPv6Network(f"{address.partition('%')[0]}/{IPV6_PREFIX_BITS}", strict=False)) if ":" in address else address
    )
