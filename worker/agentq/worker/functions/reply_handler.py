"""Handles records from children: outcomes go to the exchange, the rest to the engine, the log upload or the reports.

Nearly all records are outcomes of class `ok`, passed on in bulk without parsing. The outcome of a run that wrote to its
log goes through the report sender like a command's, after its output; see `log_upload`.
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
    """Callbacks of the reply handler; called in the engine's thread, under its lock."""

    report_outcomes: Callable[[Sequence[FunctionOutcome]], None]
    send_report: Callable[[AttemptReport], None]
    log_upload: LogUpload
    request_resumption: Callable[[ChildProcess, Claim], None]
    call_again: Callable[[Claim], None]
    """Another child has to make this call."""
    replace_child: Callable[[ChildProcess], None]
    on_async: Callable[[str], None]
    """The function of this path is asynchronous."""


class ReplyHandler:
    """Interprets the records of children."""

    def __init__(self, calls: Mapping[CallKey, Claim], stops: CallStops, listener: ReplyListener) -> None:
        self._calls = calls
        self._stops = stops
        self._listener = listener
        self._logged: set[CallKey] = set()

    def handle(self, child: ChildProcess, lines: list[str]) -> None:
        """Handle the records that a child has sent."""
        kinds = lines[2::4]
        keys = list(zip(lines[0::4], lines[1::4], strict=True))
        if kinds.count("ok") == len(kinds) and not (self._logged or self._stops or child.started):
            claims = list(map(self._calls.get, keys))
            if None not in claims:
                for key in keys:
                    child.calls.pop(key, None)
                ended = map(FunctionOutcome._make, zip(claims, kinds, lines[3::4], repeat(None)))
                child.asynchronous.difference_update(keys)
                child.adjust_window(len(keys))
                self._listener.report_outcomes(list(ended))
                return
        for key, kind, text in zip(keys, kinds, lines[3::4], strict=True):
            self._handle_one(child, key, kind, text)

    def _handle_one(self, child: ChildProcess, key: CallKey, kind: str, text: str) -> None:
        if kind == protocol.FULL:
            self._listener.replace_child(child)
            return
        claim = self._calls.get(key)
        if key not in child.calls:
            return
        if kind == protocol.REFUSED and child.calls[key] != int(text):
            return
        if not kind.startswith("+") or kind in (protocol.PARK, protocol.DELAYED, protocol.REFUSED):
            del child.calls[key]
            child.started.discard(key)
            child.asynchronous.discard(key)
        if claim is None:
            # The attempt was fenced: its records are dropped.
            self._stops.forget(key)
            self._logged.discard(key)
        elif kind == protocol.REFUSED:
            self._listener.call_again(claim)
        elif kind in (protocol.LOG, protocol.PROGRESS):
            self._upload(key, claim, kind, text)
        elif kind == protocol.TIMED:
            self._stops.limit(child, key, *map(int, text.split()))
        elif kind == protocol.ASYNC:
            child.asynchronous.add(key)
            self._listener.on_async(text)
        elif kind == protocol.RECEIVE:
            self._listener.request_resumption(child, claim)
        else:
            child.adjust_window(1)
            self._end(key, claim, kind, text)

    def _upload(self, key: CallKey, claim: Claim, kind: str, text: str) -> None:
        self._logged.add(key)
        if kind == protocol.PROGRESS:
            self._listener.log_upload.progress(claim, json.loads(text))
            return
        self._stops.reset_silence(key)
        stream, written = json.loads(text)
        written = sanitize_text(written)
        cut = range(0, len(written), LOG_CHUNK_CHARACTERS)
        self._listener.log_upload.log(claim, [LogChunk(stream, written[at : at + LOG_CHUNK_CHARACTERS]) for at in cut])

    def _end(self, key: CallKey, claim: Claim, kind: str, text: str) -> None:
        delay_ms = None
        if kind == protocol.DELAYED:
            kind, delay, text = text.split(" ", 2)
            delay_ms = int(delay)
        stop = self._stops.forget(key)
        if stop is not None and stop.released and kind != "ok":
            self.release(claim, stop.reason)
        elif kind == protocol.PARK:
            wait, reason = json.loads(text)
            self._logged.discard(key)
            self._listener.send_report(
                AttemptReport("park", claim, wait=RunWait.model_validate_json(wait), reason=reason)
            )
        else:
            if stop is not None and stop.reason and kind in (OutcomeClass.CANCELLED, OutcomeClass.TIMEOUT):
                kind = stop.class_.value
                text = json.dumps(json.loads(text) | {"class": kind, "error": stop.reason})
            self.end(claim, kind, text, delay_ms)

    # ---- the ends of calls

    def end(self, claim: Claim, class_: str, outcome: str, delay_ms: int | None = None) -> None:
        """Report how a call ended, after its output."""
        key = claim[:2]
        if key not in self._logged:
            self._listener.report_outcomes([FunctionOutcome(claim, class_, outcome, delay_ms)])
            return
        self._logged.discard(key)
        self._listener.send_report(build_report(claim, class_, outcome, delay_ms))

    def fail(self, claim: Claim, class_: OutcomeClass, error: str, tail: str = "") -> None:
        outcome = Outcome(class_=class_, error=error, tail=tail or None)
        self.end(claim, class_.value, outcome.to_wire())

    def release(self, claim: Claim, reason: str) -> None:
        self._logged.discard(claim[:2])
        self._listener.send_report(AttemptReport("release", claim, reason=reason))
