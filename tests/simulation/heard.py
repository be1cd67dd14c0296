"""One script call, as the model overhears it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from agentq.coordinator.model.lifecycle import TRANSITIONS
from agentq.coordinator.storage.connection import CommandArgument
from agentq.coordinator.storage.scripts import SCRIPTS


class Event(NamedTuple):
    """One entry of the stream of events."""

    event: str
    run: str
    state: str
    attempt: str
    worker: str
    detail: str
    plan: str = ""


def events_of(values: Sequence[str]) -> list[Event]:
    """The events of an entry."""
    entry = Event(*values)
    each = zip(entry.run.split(" "), entry.attempt.split(" "), strict=True)
    return [entry._replace(run=run, attempt=attempt) for run, attempt in each]


class Heard:
    """What was asked, when, and what the server answered."""

    def __init__(self, script: str, words: Sequence[CommandArgument], reply: Any) -> None:
        header = SCRIPTS[script].header
        self.script = script
        self.reply = reply
        told, _, asks = str(words[0]).partition(" ")
        self.now = int(told)
        self.reach = asks.partition(" ")[2]
        """The queues that the token of whoever asks is good for; empty for all."""
        self.verbs = header.verbs
        first = len(header.arguments) + 1
        self._arguments = dict(zip(header.arguments, words[1:first], strict=True))
        rest, width = words[first:], len(header.rows)
        self._columns = header.rows
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
    def verb(self) -> str:
        """What the script is called within its subject."""
        return self.script.partition("/")[2]

    @property
    def method(self) -> str:
        """The script as a part of the name of a method."""
        return self.script.replace("/", "_")

    @property
    def refusal(self) -> str | None:
        """The word by which something was refused as a whole."""
        if self.script == "worker/finish_and_claim":
            return None if self.reply[0] == "ok" else str(self.reply[0])
        return self.reply if isinstance(self.reply, str) else None

    def words_of_worker(self) -> list[tuple[str, str, str]]:
        """(run, fence, answer) for each run that a worker spoke of."""
        if self.script == "worker/finish_and_claim":
            answers = dict(zip(self._answers[::2], self._answers[1::2], strict=True))
            return [(row[0], row[1], answers.get(place, "ok")) for place, row in enumerate(self.rows)]
        if self.script in ("attempt/start", "attempt/finish"):
            return [(row[0], row[1], word) for row, word in zip(self.rows, self.reply, strict=True)]
        return [(self["id"], self["fence"], self.reply)]

    @property
    def _answers(self) -> list[Any]:
        """What an exchange answers of ends: places and words."""
        return list(self.reply[3 : 3 + 2 * self.reply[2]])

    @property
    def granted(self) -> list[str]:
        """The runs that were given, each with fence, lane and spec."""
        return list(self.reply[3 + 2 * self.reply[2] :] if self.script == "worker/finish_and_claim" else self.reply[2:])

    def verb_of(self, run: str) -> str:
        """What a worker said of a run."""
        if self.script != "worker/finish_and_claim":
            return self.verb
        return "finish" if self.of(run, "class") == "ok" else "fail"

    def of(self, run: str, name: str) -> Any:
        """An argument of the call, or of the row that speaks of a run."""
        return self._arguments[name] if name in self._arguments else self.row(run)[self._columns.index(name)]

    def dice_of(self, run: str) -> float:
        """The chance that a run has been given."""
        place = self.rows.index(self.row(run)) if self.script == "worker/finish_and_claim" else 0
        return (float(self["random"]) + place * 0.618034) % 1

    def fence_of(self, run: str) -> str:
        """The fence that was shown for a run."""
        return str(self.row(run)[1] if self.rows else self["fence"])


def options_of(text: Any) -> dict[str, Any]:
    """What a submit says of a run, beyond its lane and spec."""
    return dict(json.loads(text)) if text else {}


@cache
def arrows(event: str, source: str | None, target: str, verbs: tuple[str, ...]) -> list[str]:
    """The verbs, of those that a script may say, that take a run along an arrow with this event."""
    rows = [row for row in TRANSITIONS if row.verb in verbs and row.event == event]
    return [row.verb for row in rows if (source, target) in row.arrows()]
