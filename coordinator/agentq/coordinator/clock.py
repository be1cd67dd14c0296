"""The only place in Python that reads a clock.

Two clocks, never mixed: `wall_ms` stamps what people read and what goes into ids; `monotonic_ms` measures how long
something took, and how long a lease may still be trusted. What decides about leases and due times is neither of
them but the server's own time, read inside the scripts.
"""

from __future__ import annotations

import time


def wall_ms() -> int:
    """Milliseconds since 1970, by this machine."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Milliseconds on a clock that never jumps; only differences mean anything."""
    return time.monotonic_ns() // 1_000_000


def monotonic_ns() -> int:
    """The same in nanoseconds, for what takes next to no time."""
    return time.monotonic_ns()
