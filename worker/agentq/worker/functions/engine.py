"""Executes the function runs of a worker: takes batches, spreads them over children, and reports the outcomes. Its
tasks:

1. Give claimed calls to the children at once, in whichever thread they arrive.
2. Read the children in a thread of its own; ended calls go to the exchange, which brings the next ones.
3. Stop calls, by exception first and then by force. Find out how a child died, and fail only the calls it had begun.
4. In a drain, hand back at once what has not begun.

One lock protects the state. It is held for moments only, never during a call to the server.
"""

# Over 400 lines: the life of a function's run in a worker, from claim to report.

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from agentq.coordinator.bounds import STOP_GRACE_MS
from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError, Stopping
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import is_function_lane
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.runs.wait import Resumption
from agentq.coordinator.workers.lease import FunctionOutcome, WorkerLease
from agentq.worker.attempt_stop import AttemptStop
from agentq.worker.functions import protocol
from agentq.worker.functions.call_stops import CallStops
from agentq.worker.functions.child_config import ChildConfig
from agentq.worker.functions.child_pool import ChildNotStarted, ChildPool
from agentq.worker.functions.child_process import CallKey, ChildProcess
from agentq.worker.functions.child_watcher import ChildWatcher
from agentq.worker.functions.exchange import FunctionExchange
from agentq.worker.functions.reply_handler import ReplyHandler, ReplyListener
from agentq.worker.process import procfs
from agentq.worker.process.process_tree import ProcessTree
from agentq.worker.reporting.log_upload import LogUpload
from agentq.worker.reporting.report_sender import AttemptReport
from agentq.worker.slots import WorkerSlots

FENCED_GRACE_MS = 2_000
"""How long a fenced asynchronous call may take to end before its child is killed, with its other calls."""
NO_ROOM_REASON = "no child had room for it"
LEAVING_REASON = "its worker is leaving"
SURPLUS_REASON = "its worker has had its runs"


@dataclass(frozen=True, slots=True)
class EngineContext:
    """What the engine needs of its worker. Called in any thread."""

    send_report: Callable[[AttemptReport], None]
    log_upload: LogUpload
    receive: Callable[[Claim], Resumption | None]
    end_tree: Callable[[ProcessTree], None]
    """A child has ended: end what is left of its process tree."""
    dispatch_run: Callable[[Claim], None]
    """The exchange claimed a run that is no function."""
    request_calls: Callable[[], None]
    """The claiming thread should claim more calls."""
    on_idle: Callable[[], None]
    """No function run is held any more."""
    on_ended: Callable[[Sequence[FunctionOutcome], Sequence[AgentqError | None]], None]
    on_failure: Callable[[AgentqError], None]


class FunctionEngine:
    """Owns the children, the exchange with the server, and the thread that watches the children."""

    def __init__(
        self,
        lease: WorkerLease,
        slots: WorkerSlots,
        child_config: ChildConfig,
        children_max: Callable[[], int],
        context: EngineContext,
        *,
        bounded: bool,
    ) -> None:
        self._slots = slots
        self._context = context
        self._bounded = bounded
        self._lock = threading.RLock()
        self.children = ChildPool(child_config, slots, children_max)
        self.stops = CallStops()
        self.exchange = FunctionExchange(
            lease, self.call_room, self._on_exchanged, context.request_calls, context.on_failure
        )
        listener = ReplyListener(
            report_outcomes=self.exchange.report,
            send_report=context.send_report,
            log_upload=context.log_upload,
            request_resumption=self._request_resumption,
            call_again=self.children.waiting.append,
            replace_child=self.replace,
            on_async=self.children.async_paths.add,
        )
        self.replies = ReplyHandler(slots.function_claims, self.stops, listener)
        self._to_stop: dict[CallKey, tuple[AttemptStop, str, int | None]] = {}
        """Calls that are being withdrawn because they are to stop."""
        self._draining = False
        self._receive_pool = ThreadPoolExecutor(1, "agentq-receive")
        self._watcher = ChildWatcher(self, self._lock)

    def start(self) -> None:
        self._watcher.start()
        self.exchange.start()

    # ---- calls come in

    def call_room(self) -> int:
        """How many more calls could be placed at once."""
        with self._lock:
            if self._draining or self.exchange.is_full:
                return 0
            return self.children.call_room(eager=not self.exchange.is_paused)

    def room_here(self) -> int:
        """How many of them the claiming thread should claim."""
        return self.call_room() if self.exchange.is_paused else 0

    def claims_itself(self) -> bool:
        return not self.exchange.is_paused

    def take(self, claims: Sequence[Claim], requested: int | None = None) -> None:
        """Place claimed calls; `requested` is how many were asked for."""
        with self._lock:
            self._stop_earlier_attempts(claims)
            self._slots.take_functions(claims)
            accepted = max(0, len(claims) - self._slots.surplus())
            self._release(claims[accepted:], SURPLUS_REASON)
            self.children.take(claims[:accepted])
            if self._draining:
                self._release_waiting()
            else:
                self.children.distribute()
            urgent = self.children.needs_watcher()
        if urgent or not self.exchange.is_paused:
            self._watcher.wake()
        if requested is not None and len(claims) >= requested:
            self.exchange.resume()

    def on_claiming_done(self) -> None:
        """The claiming thread is idle. Only now wake the watcher: earlier it would take the processor from the child
        that is about to begin.
        """
        self._watcher.wake()

    def _stop_earlier_attempts(self, claims: Sequence[Claim]) -> None:
        """Fence held attempts of runs that the server gave to this worker once more."""
        again = {claim.id for claim in claims if not claim.fence.startswith("1-")}
        for claim in [each for each in self._slots.function_claims.values() if each.id in again] if again else ():
            self.stop(claim, AttemptStop.FENCED)

    def _on_exchanged(
        self, ended: Sequence[FunctionOutcome], refusals: Sequence[AgentqError | None], claims: Sequence[Claim]
    ) -> None:
        """The server accepted or refused these outcomes, and granted more calls."""
        if claims:  # first, so that a bounded worker does not find itself idle in between
            functions = claims
            if not all(map(is_function_lane, {claim.lane for claim in claims})):
                functions = [claim for claim in claims if is_function_lane(claim.lane)]
                for claim in claims:
                    if not is_function_lane(claim.lane):
                        self._context.dispatch_run(claim)
            self.take(functions)
        for each in ended:
            self._slots.function_claims.pop(each.claim[:2], None)
        self._context.on_ended(ended, refusals)
        if self._watcher.ignores_children and not self.exchange.is_full:
            self._watcher.wake()
        self.check_idle()

    def is_busy(self) -> bool:
        """Whether there is more to do than reporting outcomes."""
        with self._lock:
            children = self.children
            return bool(children.waiting or children.need_own_child or any(child.calls for child in children.all))

    def check_idle(self) -> None:
        """Call `on_idle` if no calls are left."""
        if (self._bounded and not self._slots.function_claims) or (self._draining and not self.is_busy()):
            self._context.on_idle()

    def find_claim(self, key: CallKey) -> Claim | None:
        return self._slots.function_claims.get(key)

    def send_report(self, report: AttemptReport) -> None:
        self._context.send_report(report)

    # ---- calls are stopped

    def stop(self, claim: Claim, why: AttemptStop, reason: str = "", within_ms: int | None = None) -> None:
        """Stop a call, or withdraw it if it has not begun."""
        with self._lock:
            key = claim[:2]
            if self._slots.function_claims.get(key) != claim:
                return
            if self.children.forget(claim):
                self._end_not_begun(claim, why, reason)
                return
            child = next((child for child in self.children.all if key in child.calls), None)
            if why is AttemptStop.FENCED:
                self._slots.drop(claim)
            if child is None:
                return  # the call has ended
            if child.has_begun(key):
                self._stop_begun(child, claim, why, reason, within_ms)
            else:
                self._to_stop[key] = (why, reason, within_ms)
                self._watcher.withdraw(child)

    def _stop_begun(
        self, child: ChildProcess, claim: Claim, why: AttemptStop, reason: str, within_ms: int | None
    ) -> None:
        key = claim[:2]
        if why is not AttemptStop.FENCED:
            grace_ms = _get_stop_grace_ms(claim)
            grace_ms = grace_ms if within_ms is None else min(grace_ms, within_ms)
            self.stops.stop(child, key, reason, grace_ms, released=why is AttemptStop.RELEASED)
        elif key in child.asynchronous:
            self.stops.stop(child, key, reason, FENCED_GRACE_MS)
        else:
            child.kill()
        self._watcher.wake()

    def _end_not_begun(self, claim: Claim, why: AttemptStop, reason: str) -> None:
        """End a call that has not begun."""
        if why is AttemptStop.CANCELLED:
            self.replies.fail(claim, OutcomeClass.CANCELLED, reason)
        elif why is AttemptStop.RELEASED:
            self._slots.uncount(1)
            self.replies.release(claim, reason)
        else:
            self._slots.drop(claim)

    def stop_all(self, reason: str, within_ms: int | None = None) -> None:
        """Hand back every held call."""
        with self._lock:
            for claim in list(self._slots.function_claims.values()):
                self.stop(claim, AttemptStop.RELEASED, reason, within_ms)

    def on_refused(self, claim: Claim, refusal: AgentqError) -> None:
        """The server refused `start`."""
        if isinstance(refusal, Stopping):
            self.stop(claim, AttemptStop.CANCELLED, "cancelled on request")
        else:
            self.stop(claim, AttemptStop.FENCED)

    def on_withdrawn(self, child: ChildProcess) -> None:
        """Place again, or end, the calls that a child had not begun."""
        keys = child.take_withdrawn()
        claims = [claim for key in keys if (claim := self._slots.function_claims.get(key)) is not None]
        for claim in claims:
            why, reason, _ = self._to_stop.pop(claim[:2], (None, "", None))
            if why is not None:
                self._end_not_begun(claim, why, reason)
            else:
                self.children.waiting.append(claim)
        for key in [key for key in self._to_stop if key in child.calls]:
            why, reason, within_ms = self._to_stop.pop(key)
            held = self._slots.function_claims.get(key) or Claim(*key, "", "")
            self._stop_begun(child, held, why, reason, within_ms)
        for key in [key for key in keys if key in self._to_stop]:
            del self._to_stop[key]
        if self._draining:
            self._release_waiting()
        else:
            self.children.distribute()

    # ---- children end

    def replace(self, child: ChildProcess) -> None:
        """Replace a child that has reached its limits."""
        if not child.retiring:
            try:
                self.children.replace(child)
            except ChildNotStarted:
                self._watcher.wake()  # retried when a call needs it
            self._watcher.withdraw(child)

    def on_child_ended(self, child: ChildProcess) -> None:
        """A child has ended: the calls it had begun fail, the others go to other children."""
        begun = set(child.begun())
        status = child.reap()
        kind, error = _classify_child_exit(child, status)
        now, tail = monotonic_ms(), child.errors.tail()
        for position, key in enumerate(list(child.calls)):
            claim = self._slots.function_claims.get(key)
            stop, ordered = self.stops.forget(key), self._to_stop.pop(key, None)
            if claim is None:
                continue
            if key not in begun and ordered is not None:
                self._end_not_begun(claim, ordered[0], ordered[1])
            elif key not in begun and (position or child.proven):
                self.children.waiting.append(claim)
            elif key not in begun:
                message = f"The child {error} before it could call the function."
                self.replies.fail(claim, OutcomeClass.SPAWN, message, tail)
            elif stop is not None and stop.is_overdue(now) and stop.released:
                self.replies.release(claim, stop.reason)
            elif stop is not None and stop.is_overdue(now):
                self.replies.fail(claim, stop.class_, stop.reason, tail)
            elif child.killed:
                self.replies.fail(claim, OutcomeClass.LOST, "its process was killed because of another run")
            else:
                self.replies.fail(claim, kind, error, tail)
        child.calls.clear()
        self.children.remove(child)
        self._context.end_tree(child.tree)
        child.close()
        if self._draining:
            self._release_waiting()

    def on_watcher_failed(self, error: Exception) -> None:
        """The watcher thread has failed: no outcome of a call can be known, so the worker ends."""
        for child in self.children.all:
            child.kill()
        self.children.all.clear()
        self.children.take_back_all()
        self._context.on_failure(AgentqError(f"The worker cannot go on: {type(error).__name__}: {error}."))

    def maintain_children(self, now: int) -> bool:
        """Start, fill and dismiss children as needed; returns whether calls wait for a place."""
        calls_max = self.children.config.calls_max
        for child in list(self.children.all):
            if calls_max is not None and child.own is None and child.sent >= calls_max:
                self.replace(child)
            if child.idle and not child.is_leaving and (child.retiring or (child.own is not None and child.sent)):
                child.leave(now)
        try:
            while self.children.start() is not None:
                self.children.distribute()
        except ChildNotStarted as failed:
            claim = failed.claim
            if claim is not None:
                self.children.forget(claim)
                self.replies.fail(claim, OutcomeClass.SPAWN, str(failed))
        self.children.distribute()
        return bool(self.children.waiting or self.children.need_own_child)

    def release_unplaced(self) -> None:
        """Hand back calls that found no place."""
        self._release(self.children.take_back_all(), NO_ROOM_REASON)

    def request_calls(self) -> None:
        """Request more calls, unless they are requested already."""
        if self.exchange.is_paused:
            self._context.request_calls()
        elif self.exchange.is_idle:
            self.exchange.resume()

    # ---- the end

    def drain(self) -> None:
        """Take nothing more, and hand back at once what has not begun."""
        with self._lock:
            self._draining = True
            self._release_waiting()
            for child in self.children.all:
                self._watcher.withdraw(child)
        self.check_idle()

    def _release_waiting(self) -> None:
        self._release(self.children.take_back_all(), LEAVING_REASON)

    def _release(self, claims: Sequence[Claim], reason: str) -> None:
        self._slots.uncount(len(claims))
        for claim in claims:
            self.replies.release(claim, reason)

    def close(self, patience_ms: int) -> bool:
        """Send the remaining outcomes and end the children; false if the server did not acknowledge all in time."""
        all_sent = self.exchange.close(patience_ms)
        self._watcher.close()
        self._receive_pool.shutdown(wait=False, cancel_futures=True)
        return all_sent

    def _request_resumption(self, child: ChildProcess, claim: Claim) -> None:
        self._receive_pool.submit(self._fetch_resumption, child, claim)

    def _fetch_resumption(self, child: ChildProcess, claim: Claim) -> None:
        """Send the child what the run resumes with, once the server answers."""
        try:
            resumption = self._watcher.ask_until_answered(lambda: self._context.receive(claim))
        except AgentqError:
            self.stop(claim, AttemptStop.FENCED)
            return
        text = "null" if resumption is None else resumption.model_dump_json()
        with self._lock:
            if claim[:2] in child.calls:
                child.send_lines(protocol.ANSWER, claim.id, claim.fence, text)
        self._watcher.wake()


def _get_stop_grace_ms(claim: Claim) -> int:
    """The stop grace of a run; only a run with a JSON spec can have one of its own."""
    if not claim.spec.startswith("{"):
        return STOP_GRACE_MS
    return int(json.loads(claim.spec).get("stop_grace_ms", STOP_GRACE_MS))


def _classify_child_exit(child: ChildProcess, status: int) -> tuple[OutcomeClass, str]:
    """The outcome class and error for calls in a child that ended by itself."""
    killed = status == -signal.SIGKILL and not child.killed and procfs.count_oom_kills() > child.kills_before
    if killed or (child.leaf is not None and child.leaf.out_of_memory()):
        return OutcomeClass.OOM, "ran out of memory"
    if status < 0:
        return OutcomeClass.SIGNAL, f"was killed by signal {-status} ({signal.strsignal(-status)})"
    return OutcomeClass.EXIT, f"exited with code {status}"
