"""What differs between two states of the files, as git lists it."""

from __future__ import annotations

from dataclasses import dataclass

REPOSITORY = "160000"
"""The mode of a path that is a repository of its own."""
GONE = "000000"


@dataclass(frozen=True, slots=True)
class Entry:
    """A path that differs, and what it was and is."""

    path: str
    old_mode: str
    new_mode: str

    @property
    def is_new_repository(self) -> bool:
        return self.new_mode == REPOSITORY != self.old_mode

    @property
    def has_content(self) -> bool:
        return self.new_mode not in (REPOSITORY, GONE)


@dataclass(frozen=True, slots=True)
class Staged:
    """What differs, as git lists it."""

    entries: list[Entry]
    lines: list[tuple[int, int]]
    """Lines that came and went, by file."""

    @classmethod
    def read(cls, told: str) -> Staged:
        """From what `--raw` and `--numstat` print."""
        entries: list[Entry] = []
        lines: list[tuple[int, int]] = []
        words = iter(told.split("\0"))
        for word in words:
            if word.startswith(":"):
                old, new = word[1:].split(" ")[:2]
                entries.append(Entry(next(words), old, new))
            elif word:
                came, went, _ = word.split("\t", 2)
                lines.append((_number(came), _number(went)))
        return cls(entries, lines)


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
