"""What `--json` prints, without what differs from day to day and from machine to machine: words stay, all else becomes
its type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

PATTERNS = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", "<time>"),
    (r"run_[0-9A-Za-z]{20,}", "<run>"),
    (r"aq_[A-Za-z0-9_-]{8,}", "<token>"),
    (r"whsec_[A-Za-z0-9+/=_-]+", "<secret>"),
    (r"\b\d{13}-\d+\b", "<place>"),
    (r"\b[0-9a-f]{12,64}\b", "<digest>"),
    (r"(?<![\d.])\d+\.\d+\.\d+(?![\d.])", "<version>"),
    (r"\b\d+(\.\d+)? (ms|s|m|h|d)\b( \d+ (s|m|h)\b)?", "<duration>"),
    (r"(?<![\w.<])\d+(\.\d+)?(?!\w|\.\d)", "<number>"),
)


class Shapes:
    """Of one scenario, which names what differs."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """`names` are words that are another ones each time, such as folders, with what stands for them."""
        self._names = sorted(names.items(), key=lambda pair: -len(pair[0]))

    def of(self, value: Any) -> Any:
        """The shape of something that was printed."""
        if isinstance(value, dict):
            return {self.text(name): self.of(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self.of(each) for each in value]
        if isinstance(value, str):
            return self.text(value)
        return "<number>" if isinstance(value, int | float) and not isinstance(value, bool) else value

    def named(self, text: str) -> str:
        """A text in which only what was named is another."""
        for name, stands in self._names:
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", stands, text)
        return re.sub(*PATTERNS[1], text)

    def text(self, text: str) -> str:
        text = self.named(text)
        for pattern, stands in PATTERNS:
            text = re.sub(pattern, stands, text)
        return text
