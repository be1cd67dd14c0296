"""A wall clock that can be set while programs look at it, as an operator, a VM or a bad time server does."""

from __future__ import annotations

import os
from pathlib import Path

from support.requirements import faketime
from support.servers import Server, valkey_binary

HOUR_S = 3600


class Clock:
    """What programs that are started with its environment take for the time of day.

    Only that. The clock that counts since boot never jumps on a real machine either; nor do the times of files.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._ahead_s = 0
        self.environment = {
            "LD_PRELOAD": str(faketime()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DISABLE_SHM": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
        self.jump(0)

    def jump(self, seconds: int) -> None:
        """So far ahead, or back, all at once."""
        self._ahead_s += seconds
        whole = self._file.with_suffix(".new")
        whole.write_text(f"{self._ahead_s:+d}\n")
        os.replace(whole, self._file)


def durable_server(folder: Path, clock: Clock | None) -> Server:
    """A server that syncs every write, and looks at that clock."""
    options = ("--appendonly", "yes", "--appendfsync", "always")
    environment = clock.environment if clock else None
    return Server(valkey_binary(), folder / "server", *options, environment=environment)
