"""Text that does no harm, however the bytes are cut."""

from __future__ import annotations

import random
import re

import pytest

from agentq.worker.output.sanitizer import TextSanitizer, sanitize_text

PARTS = (
    b"word ",
    b"\n",
    b"\r\n",
    b"\r",
    b"\x1b[1;31m",
    b"\x1b[0m",
    b"\x1b",
    b"\x1b[2J",
    b"\0",
    b"\xc3\xa4",
    b"\xf0\x9f\x98\x80",
)
MORE = (b"\xff", b"\xe2\x82", b"[", b"m", b"\x7f", b"\xc2\x9b", b"1;" * 20)


@pytest.mark.parametrize("seed", range(20))
def test_the_text_does_not_depend_on_where_the_bytes_were_cut(seed: int) -> None:
    chance = random.Random(seed)
    whole = b"".join(chance.choices(PARTS + MORE, k=200))
    cleaner, pieces, at = TextSanitizer(), [], 0
    while at < len(whole):
        end = at + chance.randrange(1, 12)
        pieces.append(cleaner.text(whole[at:end]))
        at = end
    pieces.append(cleaner.text(b"", final=True))

    assert "".join(pieces) == sanitize_text(whole.decode("utf-8", "replace"))
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "".join(pieces)) is None


def test_clean_text_stays_as_it_is() -> None:
    text = "plain\ttext, größer\n" * 1000

    assert sanitize_text(text) is text
