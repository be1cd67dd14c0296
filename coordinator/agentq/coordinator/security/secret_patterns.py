"""Patterns of secrets: keys of well-known services, tokens, passwords in URLs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

PATTERN_BYTES_MAX = 4 << 10
"""No pattern needs more bytes than these to be recognised."""


@dataclass(frozen=True, slots=True)
class SecretPattern:
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


JWT_PREFIX = b"eyJ"
JWT_HEAD_BYTES = 4_003
_WORD_CHARACTER = rb"[A-Za-z0-9_-]"
_ALNUM_CHARACTER = rb"[A-Za-z0-9]"
_URL_CHARACTER = rb"[^\s/@\"'`<>\\]"
SECRET_PATTERNS = (
    SecretPattern((b"sk-",), rb"(?<![A-Za-z0-9_-])sk-(?=[A-Za-z_-]{0,40}[0-9])[A-Za-z0-9_-]{20,}", _WORD_CHARACTER, 40),
    SecretPattern((b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_"), rb"gh[pousr]_[A-Za-z0-9]{30,}", _ALNUM_CHARACTER, 29),
    SecretPattern((b"github_pat_",), rb"github_pat_[A-Za-z0-9_]{40,}", rb"[A-Za-z0-9_]", 39),
    SecretPattern((b"glpat-",), rb"glpat-[A-Za-z0-9_-]{20,}", _WORD_CHARACTER, 19),
    SecretPattern((b"AKIA", b"ASIA"), rb"(?<![A-Za-z0-9])A[KS]IA[A-Z0-9]{16}(?![A-Za-z0-9])", rb"[A-Z0-9]", 15),
    SecretPattern((b"AIza",), rb"AIza[A-Za-z0-9_-]{35,}", _WORD_CHARACTER, 34),
    SecretPattern((b"xox",), rb"xox[a-z]-[A-Za-z0-9-]{10,}", rb"[A-Za-z0-9-]", 11),
    SecretPattern((b"k_live_",), rb"(?<=[rs])k_live_[A-Za-z0-9]{16,}", _ALNUM_CHARACTER, 15),
    SecretPattern(
        (b"AccountKey=", b"AccessKey="),
        rb"[A-Za-z0-9+/]{20,}={0,2}",
        rb"[A-Za-z0-9+/=]",
        19,
        rb"(?P<kept>Acc(?:ount|ess)Key=)",
    ),
    SecretPattern(
        (b".slack.com/services/",),
        rb"[A-Za-z0-9/_-]{20,}",
        rb"[A-Za-z0-9/_-]",
        19,
        rb"(?P<kept>\.slack\.com/services/)",
    ),
    SecretPattern(
        (JWT_PREFIX,),
        rb"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,4000}\.eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",
        rb"[A-Za-z0-9_.-]",
        PATTERN_BYTES_MAX - 3,
    ),
    SecretPattern(
        (b"://",),
        rb"[^\s/@\"'`<>\\]{1,1000}(?=@)",
        _URL_CHARACTER,
        1_201,
        rb"(?P<kept>://[^\s/@:\"'`<>\\]{0,200}:)",
    ),
)
PREFIX_PATTERN = re.compile(b"|".join(re.escape(begin) for shape in SECRET_PATTERNS for begin in shape.begins))
_PATTERNS_BY_PREFIX = {
    begin: re.compile(shape.kept + shape.whole) for shape in SECRET_PATTERNS for begin in shape.begins
}
"""Each by its beginning: to look at where there is one is fifty times faster than to look for any of them."""
_JWT_HEAD = re.compile(_WORD_CHARACTER + b"*")
_JWT_REST = re.compile(rb"\.eyJ[A-Za-z0-9_-]{8}")


def find_secrets(whole: bytes, at: int = 0) -> Iterator[tuple[re.Match[bytes], bytes]]:
    """Each secret from a place on, with its beginning. The time is linear in the length, whatever is in it."""
    head_end, has_rest = 0, False
    for likely in PREFIX_PATTERN.finditer(whole, at):
        begin, start = likely[0], likely.start()
        if start < at:
            continue
        if begin == JWT_PREFIX:
            # All beginnings in one row of letters have the same end, which is looked at once.
            if start >= head_end:
                head = _JWT_HEAD.match(whole, start)
                head_end = head.end() if head else start
                has_rest = _JWT_REST.match(whole, head_end) is not None
            if not has_rest or head_end - start > JWT_HEAD_BYTES:
                continue
        if match := _PATTERNS_BY_PREFIX[begin].match(whole, start):
            yield match, begin
            at = match.end()


def redact_secrets(text: str, mark: str) -> str:
    """A text with a mark in the place of each secret."""
    raw = text.encode("utf-8", "surrogatepass")
    if PREFIX_PATTERN.search(raw) is None:
        return text
    shown, at = list[bytes](), 0
    for match, _ in find_secrets(raw):
        shown += [raw[at : match.start()], match["kept"], mark.encode()]
        at = match.end()
    return b"".join([*shown, raw[at:]]).decode("utf-8", "surrogatepass")
