"""One script call, as the model overhears it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from agentq.coordinator.connection import Word
from agentq.coordinator.lifecycle import TRANSITIONS
from agentq.coordinator.scripts import SCRIPTS


class Event(NamedTuple):
    """One entry of the stream of events."""

    event: str
    run: str
    state: str
    attempt: str
    worker: str
    detail: str


def events_of(values: Sequence[str]) -> list[Event]:
    """The events of an entry."""
    entry = Event(*values)
    each = zip(entry.run.split(" "), entry.attempt.split(" "), strict=True)
    return [entry._replace(run=run, attempt=attempt) for run, attempt in each]


class Heard:
    """What was asked, when, and what the server answered."""

    def __init__(self, script: str, words: Sequence[Word], reply: Any) -> None:
        header = SCRIPTS[script].header
        self.script = script
        self.reply = reply
        self.now = int(words[0])
        self.verbs = header.verbs
        first = len(header.arguments) + 1
        self._arguments = dict(zip(header.arguments, words[1:first], strict=True))
        rest, width = words[first:], len(header.rows)
        self.rows: list[tuple[Any, ...]] = (
            [tuple(rest[at : at + width]) for at in range(0, len(rest), width)] if width else []
        )
        self.changed: set[str] = set()
        """The runs of which the call appended an event."""
        self.replaced: set[str] = set()
        self.put_off_since: int | None = None
        """Of a run that the next one replaces, since when its key has put it off."""

    def __getitem__(self, name: str) -> Any:
        return self._arguments[name]

    def row(self, run: str) -> tuple[Any, ...]:
        """The row that speaks of a run."""
        return next(row for row in self.rows if row[0] == run)

    @property
    def refusal(self) -> str | None:
        """The word of a reply that is one word."""
        return self.reply if isinstance(self.reply, str) else None

    def words_of_worker(self) -> list[tuple[str, str, str]]:
        """(run, fence, answer) for each run that a worker spoke of."""
        if self.script in ("start", "finish"):
            return [(row[0], row[1], word) for row, word in zip(self.rows, self.reply, strict=True)]
        return [(self["id"], self["fence"], self.reply)]

    def fence_of(self, run: str) -> str:
        """The fence that was shown for a run."""
        return str(self.row(run)[1] if self.rows else self["fence"])


def door_of(text: Any) -> dict[str, Any]:
    """What a submit says of a run, beyond its lane and spec."""
    return dict(json.loads(text)) if text else {}


@cache
def arrows(event: str, source: str | None, target: str, verbs: tuple[str, ...]) -> list[str]:
    """The verbs, of those that a script may say, that take a run along an arrow with this event."""
    rows = [row for row in TRANSITIONS if row.verb in verbs and row.event == event]
    return [row.verb for row in rows if (source, target) in row.arrows()]
