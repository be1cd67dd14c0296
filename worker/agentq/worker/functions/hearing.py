"""What becomes of what children say: outcomes go to the exchange, the rest to whom it concerns.

Nearly all of it is outcomes of class `ok`, which are passed on in bulk, unread. An outcome of a run that has written to
its log goes the way of a command's, behind what it wrote; see `narration`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

from agentq.coordinator.lease import Ended
from agentq.coordinator.lifecycle import OutcomeClass
from agentq.coordinator.limits import LOG_CHUNK_CHARACTERS
from agentq.coordinator.logs import Chunk
from agentq.coordinator.queue import Claim
from agentq.coordinator.run import Outcome
from agentq.coordinator.waiting import Wait
from agentq.worker.cleaning import clean
from agentq.worker.functions import wire
from agentq.worker.functions.child import Child, Key
from agentq.worker.functions.stops import Stops
from agentq.worker.narration import Narration
from agentq.worker.reports import Report, report_of


@dataclass(frozen=True, slots=True)
class Ears:
    """Who is told what; called in the engine's thread, under its lock."""

    tell: Callable[[Sequence[Ended]], None]
    say: Callable[[Report], None]
    narration: Narration
    receive: Callable[[Child, Claim], None]
    again: Callable[[Claim], None]
    """This call has to be made by another child."""
    replace: Callable[[Child], None]
    awaited: Callable[[str], None]
    """The function of this path is asynchronous."""


class Hearing:
    """See above."""

    def __init__(self, calls: Mapping[Key, Claim], stops: Stops, ears: Ears) -> None:
        self._calls = calls
        self._stops = stops
        self._ears = ears
        self._narrated: set[Key] = set()

    def hear(self, child: Child, lines: list[str]) -> None:
        """Take in what a child has said."""
        words = lines[2::4]
        keys = list(zip(lines[0::4], lines[1::4], strict=True))
        if words.count("ok") == len(words) and not (self._narrated or self._stops or child.started):
            claims = list(map(self._calls.get, keys))
            if None not in claims:
                for key in keys:
                    child.calls.pop(key, None)
                ended = map(Ended._make, zip(claims, words, lines[3::4], repeat(None)))
                child.asynchronous.difference_update(keys)
                child.answered(len(keys))
                self._ears.tell(list(ended))
                return
        for key, word, text in zip(keys, words, lines[3::4], strict=True):
            self._hear_one(child, key, word, text)

    def _hear_one(self, child: Child, key: Key, word: str, text: str) -> None:
        if word == wire.FULL:
            self._ears.replace(child)
            return
        claim = self._calls.get(key)
        if key not in child.calls:
            return
        if word == wire.REFUSED and child.calls[key] != int(text):
            return
        if not word.startswith("+") or word in (wire.PARK, wire.DELAYED, wire.REFUSED):
            del child.calls[key]
            child.started.discard(key)
            child.asynchronous.discard(key)
        if claim is None:
            # It was superseded: nobody wants to hear of it.
            self._stops.forget(key)
            self._narrated.discard(key)
        elif word == wire.REFUSED:
            self._ears.again(claim)
        elif word in (wire.LOG, wire.PROGRESS):
            self._narrate(key, claim, word, text)
        elif word == wire.TIMED:
            self._stops.limit(child, key, *map(int, text.split()))
        elif word == wire.ASYNC:
            child.asynchronous.add(key)
            self._ears.awaited(text)
        elif word == wire.RECEIVE:
            self._ears.receive(child, claim)
        else:
            child.answered(1)
            self._end(key, claim, word, text)

    def _narrate(self, key: Key, claim: Claim, word: str, text: str) -> None:
        self._narrated.add(key)
        if word == wire.PROGRESS:
            self._ears.narration.progress(claim, json.loads(text))
            return
        self._stops.heard(key)
        stream, written = json.loads(text)
        written = clean(written)
        cut = range(0, len(written), LOG_CHUNK_CHARACTERS)
        self._ears.narration.log(claim, [Chunk(stream, written[at : at + LOG_CHUNK_CHARACTERS]) for at in cut])

    def _end(self, key: Key, claim: Claim, word: str, text: str) -> None:
        delay_ms = None
        if word == wire.DELAYED:
            word, delay, text = text.split(" ", 2)
            delay_ms = int(delay)
        stop = self._stops.forget(key)
        if stop is not None and stop.released and word != "ok":
            self.release(claim, stop.reason)
        elif word == wire.PARK:
            wait, reason = json.loads(text)
            self._narrated.discard(key)
            self._ears.say(Report("park", claim, wait=Wait.model_validate_json(wait), reason=reason))
        else:
            if stop is not None and stop.reason and word in (OutcomeClass.CANCELLED, OutcomeClass.TIMEOUT):
                word = stop.class_.value
                text = json.dumps(json.loads(text) | {"class": word, "error": stop.reason})
            self.end(claim, word, text, delay_ms)

    # ---- the ends of calls

    def end(self, claim: Claim, class_: str, outcome: str, delay_ms: int | None = None) -> None:
        """Say how a call ended, after all that it wrote."""
        key = claim[:2]
        if key not in self._narrated:
            self._ears.tell([Ended(claim, class_, outcome, delay_ms)])
            return
        self._narrated.discard(key)
        self._ears.say(report_of(claim, class_, outcome, delay_ms))

    def fail(self, claim: Claim, class_: OutcomeClass, error: str, tail: str = "") -> None:
        outcome = Outcome(class_=class_, error=error, tail=tail or None)
        self.end(claim, class_.value, outcome.to_wire())

    def release(self, claim: Claim, reason: str) -> None:
        self._narrated.discard(claim[:2])
        self._ears.say(Report("release", claim, reason=reason))
