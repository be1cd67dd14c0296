"""Replaces secrets in what a run writes before it is stored or shown. Its tasks:

1. Replace the run's own secrets (`secret_values.py`), and text that looks like a key of a well-known service, a token,
   or the password in an address.
2. Do so in a stream of bytes that arrives in pieces, wherever it was cut. A possible beginning of a secret is held back
   until it is clear, never more than `HELD_BYTES`.
3. Count replacements.

It does not protect against a program that wants to reveal its secrets, which can encode them in its own way.
"""

from __future__ import annotations

import re

from pydantic import JsonValue

from agentq.coordinator.security.secret_patterns import PATTERN_BYTES_MAX, PREFIX_PATTERN, SECRET_PATTERNS, find_secrets
from agentq.worker.output.secret_values import NEEDLE_BYTES_MAX, SecretValues

REDACTED = b"[redacted]"


_PARTIAL_BEGINNINGS = frozenset(
    begin[:end] for shape in SECRET_PATTERNS for begin in shape.begins for end in range(1, len(begin))
)
_SHORTER_BEGINNINGS = {begin: shape.shorter for shape in SECRET_PATTERNS for begin in shape.begins}
_SECRET_LETTERS = {begin: re.compile(shape.letters + b"*") for shape in SECRET_PATTERNS for begin in shape.begins}


class Redactor:
    """Redacts one stream of bytes."""

    def __init__(self, secrets: SecretValues) -> None:
        self.count = 0
        """The number of replacements."""
        self._secrets = secrets
        self._beginnings = secrets.beginnings | _PARTIAL_BEGINNINGS
        self._firsts = re.compile(b"[" + re.escape(bytes(sorted({one[0] for one in self._beginnings}))) + b"]")
        self._before = b""
        """The last byte passed on: text that looks like a key must not begin within a word."""
        self._held = b""
        self._goes_on: re.Pattern[bytes] | None = None
        """Whether following secret letters belong to a secret whose beginning was replaced."""

    def feed(self, piece: bytes) -> bytes:
        """What may be shown after this piece."""
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
        """The stream has ended: what was held back may be shown."""
        held, self._held = self._held, b""
        return self._without_needles(held, final=True)

    def skip(self) -> None:
        """Forget the context: the next piece does not follow the last one."""
        self._held, self._before, self._goes_on = b"", b"", None

    def text(self, text: str) -> str:
        """Redact a complete text."""
        alone = Redactor(self._secrets)
        shown = alone.feed(text.encode("utf-8", "surrogatepass")) + alone.flush()
        self.count += alone.count
        return shown.decode("utf-8", "surrogatepass") if alone.count else text

    def value(self, value: JsonValue) -> JsonValue:
        """Redact all texts in a value, at any depth."""
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
            if not final and whole[match.start() : match.start() + NEEDLE_BYTES_MAX] in self._beginnings:
                break  # it may become a longer one
            self.count += 1
            shown += [whole[at : match.start()], REDACTED]
            at = match.end()
        return b"".join([*shown, whole[at:]])

    def _without_shapes(self, whole: bytes) -> bytes:
        if PREFIX_PATTERN.search(whole) is None:
            return whole
        at, shown = len(self._before), list[bytes]()
        whole = self._before + whole
        for match, begin in find_secrets(whole, at):
            self.count += 1
            shown += [whole[at : match.start()], match["kept"], REDACTED]
            at = match.end()
            if at == len(whole):
                self._goes_on = _SECRET_LETTERS[begin]
        return b"".join([*shown, whole[at:]])

    def _without_the_rest(self, piece: bytes) -> bytes:
        assert self._goes_on is not None
        match = self._goes_on.match(piece)
        rest = piece[match.end() :] if match else piece
        if rest:
            self._goes_on = None
        return rest

    def _open(self, whole: bytes) -> int:
        """How many bytes at the end may be the beginning of a secret."""
        if whole.endswith((b"\n", REDACTED)):
            return 0
        tail, ends = whole[-PATTERN_BYTES_MAX:], dict[bytes, int]()
        begun = (one.start() for one in PREFIX_PATTERN.finditer(tail) if _is_open(tail, one, ends))
        firsts = self._firsts.finditer(tail, max(0, len(tail) - NEEDLE_BYTES_MAX))
        short = (one.start() for one in firsts if tail[one.start() :] in self._beginnings)
        return len(tail) - min(next(begun, len(tail)), next(short, len(tail)))


def _is_open(tail: bytes, likely: re.Match[bytes], ends: dict[bytes, int]) -> bool:
    """Whether a secret may begin here that continues after the tail. `ends` caches, by beginning, where the last run of
    letters ended, because all that begin within it have the same end.
    """
    begin = likely[0]
    if likely.end() > ends.get(begin, 0):
        letters = _SECRET_LETTERS[begin].match(tail, likely.end())
        ends[begin] = letters.end() if letters else likely.end()
    return ends[begin] == len(tail) and len(tail) - likely.end() <= _SHORTER_BEGINNINGS[begin]
