"""Processes, as tests look at them and signal them: any of them may end in between."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def alive(pid: int) -> bool:
    """Whether any thread of it is left; its files stay open until the last one has gone."""
    with suppress(OSError):
        return stat(pid)[0] not in "ZX" or len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    return False


def stat(pid: int) -> list[str]:
    """The state of a process, its parent and so on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def send(number: signal.Signals, pids: Iterable[int]) -> None:
    """A signal to those that are there: one goes with another."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
