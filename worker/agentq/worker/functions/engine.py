"""The function runs of a worker: taken in batches, spread over children, watched, and told how they ended. Its tasks:

1. Give what was claimed to the children, from whichever thread it comes, so that it begins without a detour.
2. Listen to the children, in a thread of its own; what has ended goes to the exchange, which brings the next.
3. Stop calls, by exception first and then by force; find out how a child died, and let only its own calls fail.
4. Hand back in a drain what has not begun, at once.

One lock keeps these apart; it is held for moments only, never while the server is spoken to.
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
"""How long an awaited call that was superseded may take to end, before it takes its neighbours along."""
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
    """A child has ended: see that nothing is left of what it started."""
    dispatch_run: Callable[[Claim], None]
    """A run that is no function was claimed by the exchange."""
    request_calls: Callable[[], None]
    """More calls are wanted from the claiming thread."""
    on_idle: Callable[[], None]
    """There is no function run in hand any more."""
    on_ended: Callable[[Sequence[FunctionOutcome], Sequence[AgentqError | None]], None]
    on_failure: Callable[[AgentqError], None]


class FunctionEngine:
    """See above."""

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
        """Calls that are being taken back because they are to stop."""
        self._draining = False
        self._receive_pool = ThreadPoolExecutor(1, "agentq-receive")
        self._watcher = ChildWatcher(self, self._lock)

    def start(self) -> None:
        self._watcher.start()
        self.exchange.start()

    # ---- calls come in

    def call_room(self) -> int:
        """How many more calls would find a place at once."""
        with self._lock:
            if self._draining or self.exchange.is_full:
                return 0
            return self.children.call_room(eager=not self.exchange.is_paused)

    def room_here(self) -> int:
        """How many of them the claiming thread should get."""
        return self.call_room() if self.exchange.is_paused else 0

    def claims_itself(self) -> bool:
        return not self.exchange.is_paused

    def take(self, claims: Sequence[Claim], requested: int | None = None) -> None:
        """These were claimed; `asked` is how many were asked for."""
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
        """The claiming thread has nothing more to do now. Only then is the one that watches woken, which would
        otherwise take the processor from the child that is about to begin."""
        self._watcher.wake()

    def _stop_earlier_attempts(self, claims: Sequence[Claim]) -> None:
        """The server has taken a run from us, or forgotten that we had it, and given it to us once more."""
        again = {claim.id for claim in claims if not claim.fence.startswith("1-")}
        for claim in [each for each in self._slots.function_claims.values() if each.id in again] if again else ():
            self.stop(claim, AttemptStop.FENCED)

    def _on_exchanged(
        self, ended: Sequence[FunctionOutcome], refusals: Sequence[AgentqError | None], claims: Sequence[Claim]
    ) -> None:
        """The server has heard how these ended, or refused to, as they were superseded; and has given more."""
        if claims:  # first, so that a worker that ends when nothing is left does not see its hands empty
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
        """Whether there is something to do, besides telling the server of it."""
        with self._lock:
            children = self.children
            return bool(children.waiting or children.need_own_child or any(child.calls for child in children.all))

    def check_idle(self) -> None:
        """Something may be over."""
        if (self._bounded and not self._slots.function_claims) or (self._draining and not self.is_busy()):
            self._context.on_idle()

    def find_claim(self, key: CallKey) -> Claim | None:
        return self._slots.function_claims.get(key)

    def send_report(self, report: AttemptReport) -> None:
        self._context.send_report(report)

    # ---- calls are stopped

    def stop(self, claim: Claim, why: AttemptStop, reason: str = "", within_ms: int | None = None) -> None:
        """End a call, or take it back if it has not begun."""
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
                return  # it has ended
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
        """A call that has not begun is over."""
        if why is AttemptStop.CANCELLED:
            self.replies.fail(claim, OutcomeClass.CANCELLED, reason)
        elif why is AttemptStop.RELEASED:
            self._slots.uncount(1)
            self.replies.release(claim, reason)
        else:
            self._slots.drop(claim)

    def stop_all(self, reason: str, within_ms: int | None = None) -> None:
        """Hand back everything in hand."""
        with self._lock:
            for claim in list(self._slots.function_claims.values()):
                self.stop(claim, AttemptStop.RELEASED, reason, within_ms)

    def on_refused(self, claim: Claim, refusal: AgentqError) -> None:
        """The server did not take `start`."""
        if isinstance(refusal, Stopping):
            self.stop(claim, AttemptStop.CANCELLED, "cancelled on request")
        else:
            self.stop(claim, AttemptStop.FENCED)

    def on_withdrawn(self, child: ChildProcess) -> None:
        """What a child had not begun is ours again."""
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
        """This one has had its time."""
        if not child.retiring:
            try:
                self.children.replace(child)
            except ChildNotStarted:
                self._watcher.wake()  # it is tried again when a call needs it
            self._watcher.withdraw(child)

    def on_child_ended(self, child: ChildProcess) -> None:
        """A child has ended: what had begun in it fails, the rest goes on in others."""
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
                message = f"The child that was to call it {error} before it could."
                self.replies.fail(claim, OutcomeClass.SPAWN, message, tail)
            elif stop is not None and stop.is_overdue(now) and stop.released:
                self.replies.release(claim, stop.reason)
            elif stop is not None and stop.is_overdue(now):
                self.replies.fail(claim, stop.class_, stop.reason, tail)
            elif child.killed:
                self.replies.fail(claim, OutcomeClass.LOST, "its process was killed because of another run in it")
            else:
                self.replies.fail(claim, kind, error, tail)
        child.calls.clear()
        self.children.remove(child)
        self._context.end_tree(child.tree)
        child.close()
        if self._draining:
            self._release_waiting()

    def on_watcher_failed(self, error: Exception) -> None:
        """There is a fault in here: nothing can be told of any call, and others will make them."""
        for child in self.children.all:
            child.kill()
        self.children.all.clear()
        self.children.take_back_all()
        self._context.on_failure(AgentqError(f"The worker cannot go on: {type(error).__name__}: {error}."))

    def maintain_children(self, now: int) -> bool:
        """Start, fill and send away children as it is time for; whether something waits for a place."""
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
        """Hand back what has found no place."""
        self._release(self.children.take_back_all(), NO_ROOM_REASON)

    def request_calls(self) -> None:
        """More calls are wanted. Where they come from may know already, and not be told again."""
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
        """Tell what is left, and end the children; false if the server did not hear it all in time."""
        all_sent = self.exchange.close(patience_ms)
        self._watcher.close()
        self._receive_pool.shutdown(wait=False, cancel_futures=True)
        return all_sent

    def _request_resumption(self, child: ChildProcess, claim: Claim) -> None:
        self._receive_pool.submit(self._fetch_resumption, child, claim)

    def _fetch_resumption(self, child: ChildProcess, claim: Claim) -> None:
        """What it resumes with, as soon as the server says."""
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
    """Only a run that says more than its call says how long it may take to stop."""
    if not claim.spec.startswith("{"):
        return STOP_GRACE_MS
    return int(json.loads(claim.spec).get("stop_grace_ms", STOP_GRACE_MS))


def _classify_child_exit(child: ChildProcess, status: int) -> tuple[OutcomeClass, str]:
    """How a child ended by itself, for those that it took along."""
    killed = status == -signal.SIGKILL and not child.killed and procfs.count_oom_kills() > child.kills_before
    if killed or (child.leaf is not None and child.leaf.out_of_memory()):
        return OutcomeClass.OOM, "ran out of memory"
    if status < 0:
        return OutcomeClass.SIGNAL, f"was killed by signal {-status} ({signal.strsignal(-status)})"
    return OutcomeClass.EXIT, f"exited with code {status}"
