"""What the kernel knows of a process and its descendants: who they are, their processor time, their memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

TICKS = os.sysconf("SC_CLK_TCK")
STATE, PARENT, SESSION, USER, SYSTEM, CHILDREN_USER, CHILDREN_SYSTEM = 0, 1, 3, 11, 12, 13, 14
"""Where the fields of /proc/<pid>/stat stand after the name, which may hold anything."""


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for other, fields in _everyone():
        children.setdefault(int(fields[PARENT]), []).append(other)
    found, open_ends = [], [pid]
    while open_ends:
        each = open_ends.pop()
        if os.path.exists(f"/proc/{each}"):
            found.append(each)
        open_ends += children.get(each, [])
    return found


def family(pid: int) -> set[int]:
    """The same, and whatever is in its session still, though its parent is gone."""
    session = {other for other, fields in _everyone() if int(fields[SESSION]) == pid and fields[STATE] != "Z"}
    return session | set(tree(pid))


def cpu_of(pid: int, *, children: bool = False) -> float:
    """Seconds of processor time, on request with those of children that have ended."""
    fields = _fields(pid)
    if fields is None:
        return 0.0
    counted = (USER, SYSTEM, CHILDREN_USER, CHILDREN_SYSTEM) if children else (USER, SYSTEM)
    return sum(int(fields[each]) for each in counted) / TICKS


def cpu_of_tree(pid: int) -> float:
    return sum(cpu_of(each, children=True) for each in tree(pid))


def memory_of_tree(pid: int) -> dict[str, int]:
    """Bytes resident, and bytes where shared pages are split between those who share them."""
    found = {"rss": 0, "pss": 0, "processes": 0}
    for each in tree(pid):
        with suppress(OSError), open(f"/proc/{each}/smaps_rollup", encoding="ascii") as file:
            for line in file:
                name = line.partition(":")[0].lower()
                if name in ("rss", "pss"):
                    found[name] += int(line.split()[1]) * 1024
            found["processes"] += 1
    return found


def _everyone() -> Iterator[tuple[int, list[str]]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _fields(int(name))
            if fields is not None:
                yield int(name), fields


def _fields(pid: int) -> list[str] | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(") ")[2].split()
    except OSError:
        return None
