"""Process descriptors, which never refer to a later process with the same number.

Python has them only if it was built on a Linux that had them; many builds, including uv's, are made on older ones. The
system calls have the same numbers on every machine, so they are made directly in that case.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from functools import cache
from typing import Any

_SYSCALL_SEND_SIGNAL = 424
_SYSCALL_OPEN = 434


def open_pidfd(pid: int) -> int:
    """A descriptor, readable once the process has ended; OSError where the system has none."""
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open(pid)
    return _syscall(_SYSCALL_OPEN, pid, 0)


def send_signal(pidfd: int, number: signal.Signals) -> None:
    """Send a signal to the process; ProcessLookupError if it is gone."""
    if hasattr(signal, "pidfd_send_signal"):
        signal.pidfd_send_signal(pidfd, number)
    else:
        _syscall(_SYSCALL_SEND_SIGNAL, pidfd, int(number), None, 0)


def _syscall(number: int, *args: int | None) -> int:
    if sys.platform != "linux":
        raise OSError("this system has no pidfds")
    result = int(_load_libc().syscall(ctypes.c_long(number), *args))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


@cache
def _load_libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)
