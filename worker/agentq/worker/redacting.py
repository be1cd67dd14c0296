"""Secrets in what a run writes are replaced before anybody sees them. Its tasks:

1. Replace the run's own secrets (`secrets.py`), and what looks like a key of a well-known service, a token, or the
   password in an address.
2. Do so in a stream of bytes that comes in pieces, wherever it was cut. What may be the beginning of a secret waits
   until it is clear what it is: never more than `HELD_BYTES`.
3. Count what was replaced.

It is no protection against a program that wants to tell its secrets: that can show them in a form of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic import JsonValue

from agentq.worker.secrets import NEEDLE_BYTES, Secrets

MARK = b"[redacted]"
HELD_BYTES = 4 << 10


@dataclass(frozen=True, slots=True)
class Shape:
    """What some kind of secret looks like."""

    begins: tuple[bytes, ...]
    """One of these is in each."""
    whole: bytes
    letters: bytes
    """What it is made of after its beginning; a whole one goes on as long as there are such."""
    shorter: int
    """So many letters after its beginning do not tell yet."""
    kept: bytes = b"(?P<kept>)"
    """What stands before what is secret in it."""


_WORD = rb"[A-Za-z0-9_-]"
_ALNUM = rb"[A-Za-z0-9]"
_IN_ADDRESS = rb"[^\s/@\"'`<>\\]"
SHAPES = (
    Shape((b"sk-",), rb"(?<![A-Za-z0-9_-])sk-(?=[A-Za-z_-]{0,40}[0-9])[A-Za-z0-9_-]{20,}", _WORD, 40),
    Shape((b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_"), rb"gh[pousr]_[A-Za-z0-9]{30,}", _ALNUM, 29),
    Shape((b"github_pat_",), rb"github_pat_[A-Za-z0-9_]{40,}", rb"[A-Za-z0-9_]", 39),
    Shape((b"glpat-",), rb"glpat-[A-Za-z0-9_-]{20,}", _WORD, 19),
    Shape((b"AKIA", b"ASIA"), rb"(?<![A-Za-z0-9])A[KS]IA[A-Z0-9]{16}(?![A-Za-z0-9])", rb"[A-Z0-9]", 15),
    Shape((b"AIza",), rb"AIza[A-Za-z0-9_-]{35,}", _WORD, 34),
    Shape((b"xox",), rb"xox[a-z]-[A-Za-z0-9-]{10,}", rb"[A-Za-z0-9-]", 11),
    Shape(
        (b"eyJ",),
        rb"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,4000}\.eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",
        rb"[A-Za-z0-9_.-]",
        HELD_BYTES - 3,
    ),
    Shape(
        (b"://",),
        rb"[^\s/@\"'`<>\\]{1,1000}(?=@)",
        _IN_ADDRESS,
        1_201,
        rb"(?P<kept>://[^\s/@:\"'`<>\\]{0,200}:)",
    ),
)
_BEGINNINGS = frozenset(begin[:end] for shape in SHAPES for begin in shape.begins for end in range(1, len(begin)))
_LIKELY = re.compile(b"|".join(re.escape(begin) for shape in SHAPES for begin in shape.begins))
_WHOLE = {begin: re.compile(shape.kept + shape.whole) for shape in SHAPES for begin in shape.begins}
_OPEN = {
    begin: re.compile(re.escape(begin) + shape.letters + b"{0,%d}" % shape.shorter)
    for shape in SHAPES
    for begin in shape.begins
}
_GOES_ON = {begin: re.compile(shape.letters + b"*") for shape in SHAPES for begin in shape.begins}
"""Each by its beginning: to look at where there is one is fifty times faster than to look for any of them."""


class Redactor:
    """Of one stream of bytes."""

    def __init__(self, secrets: Secrets) -> None:
        self.count = 0
        """How many were replaced."""
        self._secrets = secrets
        self._beginnings = secrets.beginnings | _BEGINNINGS
        self._firsts = re.compile(b"[" + re.escape(bytes(sorted({one[0] for one in self._beginnings}))) + b"]")
        self._before = b""
        """The last byte that was let through: what looks like a key must not begin within a word."""
        self._held = b""
        self._goes_on: re.Pattern[bytes] | None = None
        """More of such letters belong to a secret whose beginning was replaced."""

    def feed(self, piece: bytes) -> bytes:
        """What can be shown after this piece."""
        if self._goes_on is not None:
            piece = self._without_the_rest(piece)
        if not piece:
            return b""
        whole = self._without_shapes(self._without_needles(self._held + piece))
        held = self._open(whole)
        shown, self._held = (whole[:-held], whole[-held:]) if held else (whole, b"")
        self._before = shown[-1:] or self._before
        return shown

    def flush(self) -> bytes:
        """There is nothing more: what was held can be shown."""
        held, self._held = self._held, b""
        return self._without_needles(held, final=True)

    def skip(self) -> None:
        """Forget what came before: the next piece is not what came next."""
        self._held, self._before, self._goes_on = b"", b"", None

    def text(self, text: str) -> str:
        """A text that stands alone."""
        alone = Redactor(self._secrets)
        shown = alone.feed(text.encode("utf-8", "surrogatepass")) + alone.flush()
        self.count += alone.count
        return shown.decode("utf-8", "surrogatepass") if alone.count else text

    def value(self, value: JsonValue) -> JsonValue:
        """A value with all texts that are in it, at any depth."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(one) for one in value]
        if isinstance(value, dict):
            return {self.text(name): self.value(one) for name, one in value.items()}
        return value

    def _without_needles(self, whole: bytes, *, final: bool = False) -> bytes:
        found = self._secrets.found
        # To ask for each whether it is there at all is ten times faster than to look for any of them.
        if found is None or not any(needle in whole for needle in self._secrets.needles):
            return whole
        shown, at = list[bytes](), 0
        for match in found.finditer(whole):
            if not final and whole[match.start() : match.start() + NEEDLE_BYTES] in self._beginnings:
                break  # it may become a longer one
            self.count += 1
            shown += [whole[at : match.start()], MARK]
            at = match.end()
        return b"".join([*shown, whole[at:]])

    def _without_shapes(self, whole: bytes) -> bytes:
        if _LIKELY.search(whole) is None:
            return whole
        begins, shown = len(self._before), list[bytes]()
        whole, at = self._before + whole, begins
        for likely in _LIKELY.finditer(whole, begins):
            match = _WHOLE[likely[0]].match(whole, likely.start()) if likely.start() >= at else None
            if match is None:
                continue
            self.count += 1
            shown += [whole[at : match.start()], match["kept"], MARK]
            at = match.end()
            if at == len(whole):
                self._goes_on = _GOES_ON[likely[0]]
        return b"".join([*shown, whole[at:]])

    def _without_the_rest(self, piece: bytes) -> bytes:
        assert self._goes_on is not None
        match = self._goes_on.match(piece)
        rest = piece[match.end() :] if match else piece
        if rest:
            self._goes_on = None
        return rest

    def _open(self, whole: bytes) -> int:
        """How many bytes at its end may be the beginning of a secret."""
        if whole.endswith((b"\n", MARK)):
            return 0
        tail = whole[-HELD_BYTES:]
        begun = (one.start() for one in _LIKELY.finditer(tail) if _OPEN[one[0]].fullmatch(tail, one.start()))
        firsts = self._firsts.finditer(tail, max(0, len(tail) - NEEDLE_BYTES))
        short = (one.start() for one in firsts if tail[one.start() :] in self._beginnings)
        return len(tail) - min(next(begun, len(tail)), next(short, len(tail)))
