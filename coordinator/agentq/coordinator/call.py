"""One call of a script: what is sent for it, and how a server that does not know the script gets it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis.exceptions import ResponseError

from agentq.coordinator import faults
from agentq.coordinator.link import Ask, Word


@dataclass(frozen=True, slots=True)
class Source:
    """A Lua script, and the digest by which the server knows it."""

    name: str
    text: str
    sha: str

    @property
    def only_reads(self) -> bool:
        """Whether the server is told so by the first line: then a user who may only read may run it."""
        return self.text.startswith("#!lua flags=no-writes\n")


Call = tuple[Source, str, Sequence[Word]]
"""A script, the key that it belongs to, and its arguments."""


def evaluate(ask: Ask, call: Call) -> Any:
    """Run one script and wait for its reply."""
    try:
        return ask(by_digest(call))
    except ResponseError as refusal:
        if faults.code(refusal) != "NOSCRIPT":
            raise
        source, key, args = call
        # EVAL runs it and remembers it in one step; nothing can be flushed between the two.
        return ask(("EVAL_RO" if source.only_reads else "EVAL", source.text, 1, key, *args))


def by_digest(call: Call) -> tuple[Word, ...]:
    """The words of a call to a server that knows the script already, which is nearly always so."""
    source, key, args = call
    return ("EVALSHA_RO" if source.only_reads else "EVALSHA", source.sha, 1, key, *args)
