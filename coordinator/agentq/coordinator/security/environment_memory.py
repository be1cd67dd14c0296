"""Hides the environment of this process from /proc/PID/environ, which every process of the same user can read.

To take a variable out of `os.environ` is not enough: the kernel shows the memory in which the environment was handed
over. So its values are overwritten there, after the variables were copied elsewhere. Programs that are started later
inherit them as before. Where there is no /proc, nothing is shown and nothing is done.

Programs that last have the kernel keep all of their memory from other processes of the same user, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress

VISIBLE_VARIABLES = (b"AGENTQ_RUN", b"AGENTQ_KEEPER", b"AGENTQ_WORKER", b"HOME")
"""Variables by which processes are recognised; nothing in them is secret."""
_PR_SET_DUMPABLE = 4
_FIRST_FIELD_NUMBER = 3
_ENV_START_FIELD, _ENV_END_FIELD = 50 - _FIRST_FIELD_NUMBER, 51 - _FIRST_FIELD_NUMBER
"""Where in /proc/PID/stat the addresses are, counted from the field after the program's name."""


def hide_environment() -> None:
    """Overwrite it. The caller has one thread yet, as a program does at its start."""
    with suppress(OSError):  # no /proc, or none that may be written to
        with open("/proc/self/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        begin, end = int(fields[_ENV_START_FIELD]), int(fields[_ENV_END_FIELD])
        memory = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
        try:
            area = os.pread(memory, end - begin, begin)
            for name, value in os.environb.items():
                os.unsetenv(name)  # else the C library may keep the variable where it is
                os.putenv(name, value)
            for at, length in _find_hidden_values(area):
                os.pwrite(memory, bytes(length), begin + at)
        finally:
            os.close(memory)


def hide_memory() -> None:
    """Have the kernel refuse the memory of this process to others of its user, and to core dumps; what it starts is as
    others are. A process within a run is left as it is: its worker knows it by its environment."""
    if sys.platform == "linux" and "AGENTQ_RUN" not in os.environ:
        import ctypes  # which costs as much as a short command does

        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _find_hidden_values(area: bytes) -> Iterator[tuple[int, int]]:
    """Where each value begins that is not to be shown, and its length."""
    at = 0
    for variable in area.split(b"\0"):
        name, equals, value = variable.partition(b"=")
        if equals and value and name not in VISIBLE_VARIABLES:
            yield at + len(name) + 1, len(value)
        at += len(variable) + 1
