"""What a script needs of the files that scripts share: only that is sent.

Lua allows a chunk 200 local names, and makes every function anew in each call; so a script gets the pieces that its
body leads to, by name, and no others. A piece is a statement that begins at the margin: a function, a `local`, or
something done at once, which is always taken along.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

_WORD = re.compile(r"\w+")
_COMMENT = re.compile(r"--.*")
_DEFINES = re.compile(r"(?:local )?function (\w+)|local ((?:\w+, )*\w+)")
_GOES_ON = ("end", "}", ")", "else")


class Piece(NamedTuple):
    """A statement of a shared file."""

    text: str
    names: tuple[str, ...]
    """What it defines; nothing if it only does something."""
    words: frozenset[str]


def linked(files: Sequence[str], body: str) -> str:
    """What a body needs of these files, in their order."""
    pieces = [piece for file in files for piece in pieces_of(file)]
    owners: dict[str, list[int]] = {}
    for place, piece in enumerate(pieces):
        for name in piece.names:
            owners.setdefault(name, []).append(place)
    taken: set[int] = set()
    wanted = [_words(body), *(piece.words for piece in pieces if not piece.names)]
    taken |= {place for place, piece in enumerate(pieces) if not piece.names}
    while wanted:
        for word in wanted.pop() & owners.keys():
            for place in owners.pop(word):
                if place not in taken:
                    taken.add(place)
                    wanted.append(pieces[place].words)
    return "\n".join(pieces[place].text for place in sorted(taken))


def words_in(texts: Iterable[str]) -> set[str]:
    """Every word of these texts that is not in a comment."""
    return {word for text in texts for word in _words(text)}


@lru_cache(64)
def pieces_of(text: str) -> tuple[Piece, ...]:
    """The statements of a file, without the comments between them."""
    gathered: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("--") or not line:
            continue
        if gathered and (line[0] == " " or line.startswith(_GOES_ON)):
            gathered[-1].append(line)
        else:
            gathered.append([line])
    return tuple(_piece(lines) for lines in gathered)


def _piece(lines: list[str]) -> Piece:
    text = "\n".join(lines)
    found = _DEFINES.match(text)
    names = (found[1] or found[2]).split(", ") if found else ()
    return Piece(text, tuple(names), _words(text))


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_COMMENT.sub("", text)))
