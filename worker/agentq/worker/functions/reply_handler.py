"""What becomes of what children say: outcomes go to the exchange, the rest to whom it concerns.

Nearly all of it is outcomes of class `ok`, which are passed on in bulk, unread. An outcome of a run that has written to
its log goes the way of a command's, behind what it wrote; see `log_upload`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

from agentq.coordinator.bounds import LOG_CHUNK_CHARACTERS
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.runs.logs import LogChunk
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.runs.wait import RunWait
from agentq.coordinator.workers.lease import FunctionOutcome
from agentq.worker.functions import protocol
from agentq.worker.functions.call_stops import CallStops
from agentq.worker.functions.child_process import CallKey, ChildProcess
from agentq.worker.output.sanitizer import sanitize_text
from agentq.worker.reporting.log_upload import LogUpload
from agentq.worker.reporting.report_sender import AttemptReport, build_report


@dataclass(frozen=True, slots=True)
class ReplyListener:
    """Who is told what; called in the engine's thread, under its lock."""

    tell: Callable[[Sequence[FunctionOutcome]], None]
    say: Callable[[AttemptReport], None]
    narration: LogUpload
    receive: Callable[[ChildProcess, Claim], None]
    again: Callable[[Claim], None]
    """This call has to be made by another child."""
    replace: Callable[[ChildProcess], None]
    awaited: Callable[[str], None]
    """The function of this path is asynchronous."""


class ReplyHandler:
    """See above."""

    def __init__(self, calls: Mapping[CallKey, Claim], stops: CallStops, ears: ReplyListener) -> None:
        self._calls = calls
        self._stops = stops
        self._ears = ears
        self._narrated: set[CallKey] = set()

    def hear(self, child: ChildProcess, lines: list[str]) -> None:
        """Take in what a child has said."""
        words = lines[2::4]
        keys = list(zip(lines[0::4], lines[1::4], strict=True))
        if words.count("ok") == len(words) and not (self._narrated or self._stops or child.started):
            claims = list(map(self._calls.get, keys))
            if None not in claims:
                for key in keys:
                    child.calls.pop(key, None)
                ended = map(FunctionOutcome._make, zip(claims, words, lines[3::4], repeat(None)))
                child.asynchronous.difference_update(keys)
                child.answered(len(keys))
                self._ears.tell(list(ended))
                return
        for key, word, text in zip(keys, words, lines[3::4], strict=True):
            self._hear_one(child, key, word, text)

    def _hear_one(self, child: ChildProcess, key: CallKey, word: str, text: str) -> None:
        if word == protocol.FULL:
            self._ears.replace(child)
            return
        claim = self._calls.get(key)
        if key not in child.calls:
            return
        if word == protocol.REFUSED and child.calls[key] != int(text):
            return
        if not word.startswith("+") or word in (protocol.PARK, protocol.DELAYED, protocol.REFUSED):
            del child.calls[key]
            child.started.discard(key)
            child.asynchronous.discard(key)
        if claim is None:
            # It was superseded: nobody wants to hear of it.
            self._stops.forget(key)
            self._narrated.discard(key)
        elif word == protocol.REFUSED:
            self._ears.again(claim)
        elif word in (protocol.LOG, protocol.PROGRESS):
            self._narrate(key, claim, word, text)
        elif word == protocol.TIMED:
            self._stops.limit(child, key, *map(int, text.split()))
        elif word == protocol.ASYNC:
            child.asynchronous.add(key)
            self._ears.awaited(text)
        elif word == protocol.RECEIVE:
            self._ears.receive(child, claim)
        else:
            child.answered(1)
            self._end(key, claim, word, text)

    def _narrate(self, key: CallKey, claim: Claim, word: str, text: str) -> None:
        self._narrated.add(key)
        if word == protocol.PROGRESS:
            self._ears.narration.progress(claim, json.loads(text))
            return
        self._stops.heard(key)
        stream, written = json.loads(text)
        written = sanitize_text(written)
        cut = range(0, len(written), LOG_CHUNK_CHARACTERS)
        self._ears.narration.log(claim, [LogChunk(stream, written[at : at + LOG_CHUNK_CHARACTERS]) for at in cut])

    def _end(self, key: CallKey, claim: Claim, word: str, text: str) -> None:
        delay_ms = None
        if word == protocol.DELAYED:
            word, delay, text = text.split(" ", 2)
            delay_ms = int(delay)
        stop = self._stops.forget(key)
        if stop is not None and stop.released and word != "ok":
            self.release(claim, stop.reason)
        elif word == protocol.PARK:
            wait, reason = json.loads(text)
            self._narrated.discard(key)
            self._ears.say(AttemptReport("park", claim, wait=RunWait.model_validate_json(wait), reason=reason))
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
            self._ears.tell([FunctionOutcome(claim, class_, outcome, delay_ms)])
            return
        self._narrated.discard(key)
        self._ears.say(build_report(claim, class_, outcome, delay_ms))

    def fail(self, claim: Claim, class_: OutcomeClass, error: str, tail: str = "") -> None:
        outcome = Outcome(class_=class_, error=error, tail=tail or None)
        self.end(claim, class_.value, outcome.to_wire())

    def release(self, claim: Claim, reason: str) -> None:
        self._narrated.discard(claim[:2])
        self._ears.say(AttemptReport("release", claim, reason=reason))
