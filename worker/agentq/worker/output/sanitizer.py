"""Turns bytes into text that is harmless on a terminal, in JSON and in a web page.

1. Decodes UTF-8, also where a character is split over two pieces; invalid bytes become U+FFFD.
2. Removes colours. Every other control character, above all the escape that begins a terminal command, becomes its
   picture (U+2400 and on), visible and without effect.
3. A carriage return ends a line, with or without a newline after it, so that overpainted progress bars stay readable.

The file on the worker keeps the bytes unchanged.
"""

from __future__ import annotations

import codecs
import re

_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_COLOUR_ESCAPE = re.compile(r"\x1b\[[0-9;:]{0,32}m")
_PARTIAL_ESCAPE = re.compile(r"\x1b(\[[0-9;:]{0,32})?\Z")
_ESCAPE_CHARACTERS_MAX = 34
_CONTROL_PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"}
_CONTROL_PICTURES |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


class TextSanitizer:
    """Sanitizes the pieces of one stream of bytes."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._returned = False
        self._begun = ""

    def text(self, piece: bytes | bytearray, *, final: bool = False) -> str:
        """The text of the next piece; an incomplete character at its end waits for the rest, unless it is `final`."""
        text = self._begun + self._decoder.decode(piece, final)
        self._begun = ""
        if not text:
            return text
        if self._returned and text[0] == "\n":
            text = text[1:]
        broken_off = None if final else _PARTIAL_ESCAPE.search(text, max(0, len(text) - _ESCAPE_CHARACTERS_MAX))
        if broken_off is not None:
            text, self._begun = text[: broken_off.start()], broken_off[0]
        self._returned = text.endswith("\r")
        return sanitize_text(text)

    def skip(self) -> None:
        """Forget the incomplete end: the next piece does not follow the last one."""
        self._decoder.reset()
        self._returned = False
        self._begun = ""


def sanitize_text(text: str) -> str:
    """Sanitize a text."""
    if _CONTROL_CHARACTER.search(text) is None:
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\x1b" in text:
        text = _COLOUR_ESCAPE.sub("", text)
    return text.translate(_CONTROL_PICTURES)
