"""One worker process: claims runs into its slots, executes them and reports the outcomes. Its tasks:

1. Clean up after a predecessor on this host that was killed, then register.
2. Fill the slots (`claims.py`), renew the lease (`heartbeat.py`), send reports (`report_sender.py`) and logs
   (`log_upload.py`), each in a thread of its own. Execute attempts on the event loop (`attempt.py`) and function runs
   in persistent children (`functions/`). Take a share of the duties.
3. Execute orders: stop a run, drain, leave at once.
4. On SIGHUP read the settings again and apply those that can change during work (`settings_reload.py`).
5. Drain on SIGTERM or when there is no more work: claim nothing, let runs finish within the grace time, hand back the
   rest, deregister. A second signal or a `hurry` order skips the grace time.
"""

# Over 400 lines: the main loop of the worker, with what starts, stops and connects its threads.

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec

from agentq.coordinator.bounds import ERROR_CHARACTERS
from agentq.coordinator.duties.ticker import Ticker
from agentq.coordinator.errors import AgentqError, Invalid, TryLater, Unreachable
from agentq.coordinator.model.ids import new_nonce
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome, is_function_lane
from agentq.coordinator.runs.merge_queue import MERGE_ORDER
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.workers.lease import WorkerIdentity, WorkerOrder
from agentq.worker.attempt import AttemptContext, RunAttempt
from agentq.worker.attempt_factory import create_attempt
from agentq.worker.attempt_stop import AttemptStop
from agentq.worker.claims import ClaimListener, ClaimLoop
from agentq.worker.cleanup.host_cleanup import HostCleanup, clean_home
from agentq.worker.cleanup.takeover import describe_process
from agentq.worker.functions.child_config import ChildConfig
from agentq.worker.functions.engine import LEAVING_REASON, SURPLUS_REASON, EngineContext, FunctionEngine
from agentq.worker.heartbeat import Heartbeat, HeartbeatListener
from agentq.worker.labels import WorkerLabels
from agentq.worker.options import WorkerOptions
from agentq.worker.process.process_tree import Cgroups, become_subreaper
from agentq.worker.process.run_environment import RunEnvironment
from agentq.worker.reporting.log_upload import LogUpload
from agentq.worker.reporting.report_sender import AttemptReport, ReportSender
from agentq.worker.reporting.run_log import RunLog
from agentq.worker.reporting.spill import SpillFile
from agentq.worker.reporting.unsent_reports import UnsentReports
from agentq.worker.run_api.agent_socket import AgentSocket
from agentq.worker.run_api.result_channel import ResultChannels
from agentq.worker.server_backends import WorkerBackend
from agentq.worker.settings_reload import ControllingTerminal, SettingsReload, apply_settings
from agentq.worker.slots import WorkerSlots
from agentq.worker.tracing import WorkerTracing
from agentq.worker.worker_thread import wrap_unexpected_error
from agentq.worker.workspace.workspaces import WorkerWorkspaces

P = ParamSpec("P")
log = logging.getLogger("agentq.worker")

FINAL_REPORTS_MS = 30_000
"""How long a leaving worker retries unsent reports. The next worker on this host sends the rest."""
HURRIED_REPORTS_MS = 1_000
"""The same limit when the worker hurries and the server does not answer."""
START_RETRY_S = 0.5
"""Pause before the next attempt to register, after the connection broke."""
ORDER_NAMES = ("stop", MERGE_ORDER, "drain", "hurry", "timers", "lanes")
"""The known orders. `lanes` only wakes the worker, which then reads the lanes."""
LEASE_LOST_REASON = "its worker could not reach the server in time"


class WorkerProcess:
    """Owns the worker's threads, attempts and lease, and runs its event loop."""

    def __init__(
        self, backend: WorkerBackend, options: WorkerOptions, home: Path, reload: SettingsReload | None = None
    ) -> None:
        self.options = options
        self.id = f"{options.name or socket.gethostname()}-{os.getpid()}-{new_nonce()}"
        self.backend = backend
        self._notify = reload.notify if reload is not None else lambda _: None
        waits = None if options.is_bounded else lambda fault: self._notify(f"{fault} The worker waits for it.")
        self.queue = backend.open(self.id, waits)
        self.settings = backend.settings
        self.labels = WorkerLabels(self.id, self.queue, self._update_labels)
        self.identity = WorkerIdentity(
            id=self.id,
            queues=options.queues,
            labels=self.labels.combine(options.labels),
            only_matching=options.only_matching,
            slots=options.slots,
            about={"host": socket.gethostname(), "pid": os.getpid(), **describe_process()},
        )
        self.lease = self.backend.lease(self.queue, self.identity)
        self.run_log = RunLog()
        self.slots = WorkerSlots(options.slots, options.max_runs, self.run_log)
        self.tracing = WorkerTracing.from_environment(self._notify)
        failed = self._on_loop(self._fail)
        self.log_upload = LogUpload(
            self.queue, SpillFile(home / "spill"), lambda: self.heartbeat.answering_since_ms, failed
        )
        self.reports = ReportSender(
            self.queue, SpillFile(home / "spill"), self._on_report_answered, failed, self.log_upload.may_report_end
        )
        self.log_upload.on_uploaded(self.reports.wake)
        self.unsent_reports = UnsentReports(home, self.settings.namespace)
        self.heartbeat = self._build_heartbeat()
        self.context = self._build_context(home)
        self.host_cleanup = HostCleanup(
            self.settings.namespace, self.context.cgroups, lambda: clean_home(home, self.options)
        )
        self.engine = self._build_engine()
        self.claims = self._build_claims()
        duties = self.backend.duties(self.queue, self._on_loop(self.host_cleanup.on_worker_lost))
        self.ticker = Ticker(self.queue.store, duties, self.settings.tick_ms, owner=self.id)
        self._attempts: dict[Claim, RunAttempt] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """The newest attempt of each run. It waits for an older attempt that is still ending."""
        self._reload = reload
        self._terminal = ControllingTerminal()
        self._functions_idle = asyncio.Event()
        self._draining, self._hurry = asyncio.Event(), asyncio.Event()
        self._fault: AgentqError | None = None

    def _build_context(self, home: Path) -> AttemptContext:
        return AttemptContext(
            environment=RunEnvironment(
                self.settings.namespace, self.id, redacts=self.options.redact, traced=self.tracing.traceparent
            ),
            cgroups=Cgroups.detect(),
            log_folder=home / "logs",
            channels=ResultChannels(home / "channels"),
            send_report=self.tracing.trace_reports(self.reports.send),
            log_upload=self.log_upload,
            agent_socket=AgentSocket(self.backend.children(self.queue), home / "sockets"),
            queue=self.queue,
            workspaces=WorkerWorkspaces(home, self.id, self.options.idle_worktrees),
            profiles=lambda: self.labels.agents.profiles,
        )

    def _build_heartbeat(self) -> Heartbeat:
        listener = HeartbeatListener(
            on_order=self._on_loop(self._execute_order),
            on_fenced=self._on_loop(self._abandon),
            on_registered=lambda: self.claims.lanes_changed(),
            on_lease_lost=self._on_loop(self._stop_all_untrusted),
            on_failure=self._on_loop(self._fail),
            on_answering=self._on_loop(self._notify_answering),
        )
        return Heartbeat(self.lease, self.slots, listener)

    def _build_claims(self) -> ClaimLoop:
        listener = ClaimListener(
            on_claim=self._on_loop(self._start_attempt),
            on_surplus=lambda claim: self.reports.send(AttemptReport("release", claim, reason=SURPLUS_REASON)),
            on_order=self.heartbeat.beat_now,
            on_idle=self._on_nothing_claimed,
            on_failure=self._on_loop(self._fail),
        )
        return ClaimLoop(self.lease, self.slots, listener, self.engine)

    def _build_engine(self) -> FunctionEngine:
        context = EngineContext(
            send_report=self.reports.send,
            log_upload=self.log_upload,
            receive=self.queue.receive,
            end_tree=self._on_loop(self.host_cleanup.end_tree),
            dispatch_run=lambda claim: self.claims.dispatch_run(claim),
            request_calls=lambda: self.claims.functions_wanted(),
            on_idle=self._on_loop(self._on_functions_idle),
            on_ended=self.run_log.calls_ended,
            on_failure=self._on_loop(self._fail),
        )
        child_config = ChildConfig.of(self.settings, self.options, self.id, self.context.cgroups)
        return FunctionEngine(
            self.lease, self.slots, child_config, self._children_max, context, bounded=self.options.is_bounded
        )

    def _children_max(self) -> int:
        return self.options.children or self.options.slots

    async def run(self) -> int:
        """Work until stopped, or until there is no more work; returns the exit code."""
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_stop_signal)
        if self._reload is not None:
            self._loop.add_signal_handler(signal.SIGHUP, self._on_hangup, self._reload)
        become_subreaper()
        await self.host_cleanup.sweep()
        while not await self._register():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._draining.wait(), START_RETRY_S)
        for thread in (self.heartbeat, self.reports, self.log_upload, self.engine, self.claims, self.ticker):
            thread.start()
        sweeping = asyncio.ensure_future(self.host_cleanup.run())
        await self._draining.wait()
        await self._drain()
        sweeping.cancel()
        self.context.channels.close()
        self.labels.agents.availability.close()
        await self.context.agent_socket.close()
        if self._fault is not None:
            raise self._fault
        return 0

    async def _register(self) -> bool:
        """Take over from dead workers of this host and register. False: the connection broke, and all steps can be
        repeated.
        """
        try:
            # Before the leases of dead workers end: their outcomes are refused once the runs are claimed again.
            await asyncio.to_thread(self._send_unsent_reports)
            for worker in await self.backend.take_over(self.queue, self.host_cleanup.sweep):
                self._notify(f"the process of worker {worker} is dead; its runs were requeued.")
            self.lease.register()
        except (TryLater, Unreachable):
            if self.options.is_bounded or self._draining.is_set():
                raise
            return False
        return True

    async def _drain(self) -> None:
        """Claim nothing, let runs finish, hand back the rest, send all reports, deregister."""
        with suppress(AgentqError):
            # First, because a claim may be in flight. A server that cannot be reached grants no claim either.
            await asyncio.to_thread(self.lease.drain)
        await asyncio.to_thread(self.claims.close)
        self.engine.drain()
        for attempt in () if self._hurry.is_set() else self._attempts.values():
            attempt.drain()
        await self._wait_for_attempts(self.options.drain_grace_ms)
        for attempt in list(self._attempts.values()):
            attempt.stop(AttemptStop.RELEASED, LEAVING_REASON)
        self.engine.stop_all(LEAVING_REASON)
        await self._wait_for_attempts(None)
        hurried = self._hurry.is_set() and self.heartbeat.answering_since_ms is None
        patience_ms = HURRIED_REPORTS_MS if hurried else FINAL_REPORTS_MS
        closing = (asyncio.to_thread(each.close, patience_ms) for each in (self.log_upload, self.reports, self.engine))
        _, reports_sent, outcomes_sent = await asyncio.gather(*closing)
        if unsent := [*self.reports.unsent(), *self.engine.exchange.unsent()]:
            self._fail(Unreachable(self.unsent_reports.save(self.id, unsent)))
        # Do not wait: the current tick may have hundreds of calls left, which takes minutes on a slow line.
        self.ticker.stop(wait=False)
        await asyncio.to_thread(self.heartbeat.stop)
        if reports_sent and outcomes_sent:
            with suppress(Unreachable, TryLater):
                # If this fails, the lease expires by itself, and no run is held.
                await asyncio.to_thread(self.lease.deregister)
        await asyncio.to_thread(self.backend.close)
        await asyncio.to_thread(self.tracing.flush)

    def _send_unsent_reports(self) -> None:
        self.unsent_reports.send_all(lambda worker: self.backend.as_worker(self.queue, worker), self._notify)

    async def _wait_for_attempts(self, grace_ms: int | None) -> None:
        if (self._tasks or self.engine.is_busy()) and not (grace_ms is not None and self._hurry.is_set()):
            hurry = asyncio.ensure_future(self._hurry.wait() if grace_ms is not None else asyncio.Event().wait())
            over = asyncio.ensure_future(self._wait_until_idle())
            timeout = None if grace_ms is None else grace_ms / 1000
            await asyncio.wait({hurry, over}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            hurry.cancel()
            over.cancel()

    async def _wait_until_idle(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks.values())
        self._functions_idle.clear()
        while self.engine.is_busy():
            await self._functions_idle.wait()
            self._functions_idle.clear()

    # ---- on the loop

    def _start_attempt(self, claim: Claim) -> None:
        try:
            attempt = create_attempt(claim, self.context, self.labels.agents)
        except Exception as error:  # noqa: BLE001 - any unreadable spec fails its run
            self._report_fault(claim, error)
            return
        self.tracing.on_claim(claim, attempt.spec)
        if self.lease.trusted_ms <= 0:
            # The reply to the claim took so long that another worker may hold the run by now.
            attempt.stop(AttemptStop.RELEASED, LEASE_LOST_REASON)
        for other in self._attempts.keys() if claim.id in self._tasks else ():
            # The server requeued the run, or lost our claim, and this worker claimed it again.
            if other.id == claim.id:
                self._attempts[other].stop(AttemptStop.FENCED)
        self._attempts[claim] = attempt
        task = asyncio.ensure_future(self._run_attempt(attempt, self._tasks.get(claim.id)))
        self._tasks[claim.id] = task
        task.add_done_callback(lambda task: self._on_attempt_ended(claim.id, task))
        self._drain_if_max_runs()

    def _drain_if_max_runs(self) -> None:
        """max_runs reached: claim nothing more, finish the function runs already claimed."""
        if (
            self.options.max_runs is not None
            and self.slots.taken >= self.options.max_runs
            and not self.engine.is_busy()
        ):
            self._draining.set()

    def _on_attempt_ended(self, run: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(run) is task:
            del self._tasks[run]

    async def _run_attempt(self, attempt: RunAttempt, earlier: asyncio.Task[None] | None) -> None:
        try:
            if earlier is not None:
                await asyncio.wait({earlier})
            await attempt.run()
        except Exception as error:  # noqa: BLE001 - any error becomes the run's outcome
            self._report_fault(attempt.claim, error)
        finally:
            del self._attempts[attempt.claim]
            if attempt.superseded:
                self.tracing.forget(attempt.claim)
                self.log_upload.forget(attempt.claim)
                self.slots.drop(attempt.claim)

    def _report_fault(self, claim: Claim, error: Exception) -> None:
        message = f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS]
        self.reports.send(AttemptReport("fail", claim, Outcome(class_=OutcomeClass.INTERNAL, error=message)))

    def _execute_order(self, order: WorkerOrder) -> None:
        claim = self.slots.find(order.run, order.fence)
        if order.order == "stop" and claim in self._attempts:
            self._attempts[claim].stop(AttemptStop.CANCELLED, order.detail)
        elif order.order == "stop" and claim is not None:
            self.engine.stop(claim, AttemptStop.CANCELLED, order.detail)
        elif order.order == MERGE_ORDER and claim in self._attempts:
            self._attempts[claim].merge_signal.set()
        elif order.order in ("drain", "hurry"):
            if order.order == "hurry":
                self._hurry.set()
            self._draining.set()
        elif order.order == "timers":
            self.ticker.wake()
        elif order.order not in ORDER_NAMES:
            log.warning("ignoring unknown order: %s", order)
        self.heartbeat.applied(order)

    def _abandon(self, claim: Claim) -> None:
        """Stop a fenced attempt: its processes end, and it reports nothing."""
        if claim in self._attempts:
            self._attempts[claim].stop(AttemptStop.FENCED)
        elif is_function_lane(claim.lane):
            self.engine.stop(claim, AttemptStop.FENCED)
        else:
            self.slots.drop(claim)

    def _stop_all_untrusted(self) -> None:
        """Stop everything. The lease margin is one heartbeat; the last process has to be gone after half of it."""
        for attempt in self._attempts.values():
            attempt.stop(AttemptStop.RELEASED, LEASE_LOST_REASON, within_ms=self.settings.heartbeat_ms // 2)
        self.engine.stop_all(LEASE_LOST_REASON, within_ms=self.settings.heartbeat_ms // 2)

    def _on_start_refused(self, claim: Claim, refusal: AgentqError) -> None:
        if claim in self._attempts:
            self._attempts[claim].on_refused(refusal)
        elif is_function_lane(claim.lane):
            self.engine.on_refused(claim, refusal)

    def _on_nothing_claimed(self) -> None:
        """Called in the claiming thread after a claim without result."""
        self._on_loop(self._drain_if_burst)()

    def _drain_if_burst(self) -> None:
        if self.options.burst and self.slots.is_empty():
            self._draining.set()

    def _on_functions_idle(self) -> None:
        """The engine holds no function run any more."""
        self._functions_idle.set()
        self._drain_if_max_runs()
        if self.options.burst and not self._draining.is_set():
            self.claims.claim_again()

    def _on_stop_signal(self) -> None:
        if self._draining.is_set():
            self._hurry.set()
        self._draining.set()

    def _on_hangup(self, reload: SettingsReload) -> None:
        """SIGHUP: the settings have changed, or the terminal is gone."""
        if self._terminal.is_gone():
            self._on_stop_signal()
            return
        with suppress(OSError):
            for sentence in self._reload_settings(reload):
                reload.notify(sentence)

    def _reload_settings(self, reload: SettingsReload) -> list[str]:
        """Apply all changed settings or none; returns sentences that say what was done."""
        try:
            fresh = reload.read()
            options, changes = apply_settings(self.options, fresh.options)
            self.labels.reload()
            labels = self.labels.combine(options.labels)
            advertised = {"slots": options.slots, "queues": options.queues, "labels": labels}
            identity = self.identity.model_copy(update=advertised)
            identity.check_size()
        except (AgentqError, OSError) as error:
            return [f"the settings stay as they were. {error}"]
        self.options = options
        self.slots.resize(options.slots)
        if identity != self.identity:
            self.identity = identity
            self.heartbeat.change(identity)
        sentences = [f"read the settings again: {'; '.join(changes) or 'nothing to change'}."]
        if fresh.unchanged:
            sentences.append(
                f"{', '.join(fresh.unchanged)} cannot change while a worker works; start it again for that."
            )
        return sentences

    def _update_labels(self) -> None:
        """The set of available agents has changed: advertise the new labels."""
        self.identity = self.identity.model_copy(update={"labels": self.labels.combine(self.options.labels)})
        self.heartbeat.change(self.identity)

    def _notify_answering(self, fault: AgentqError | None) -> None:
        """Notify the starter of the worker when the server stops answering and when it answers again."""
        with suppress(OSError):
            self._notify("the server answers again." if fault is None else f"{fault} What runs here goes on meanwhile.")

    def _fail(self, fault: AgentqError) -> None:
        if self._fault is not None:
            log.error("%s", fault)
        self._fault = self._fault or fault
        self._hurry.set()
        self._draining.set()

    # ---- from other threads

    def _on_loop(self, act: Callable[P, None]) -> Callable[P, None]:
        def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                act(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - any unexpected error ends the worker
                self._fail(wrap_unexpected_error(error, f"in {act.__name__}"))

        def later(*args: P.args, **kwargs: P.kwargs) -> None:
            self._loop.call_soon_threadsafe(lambda: guarded(*args, **kwargs))

        return later

    def _on_report_answered(self, report: AttemptReport, refused: AgentqError | None) -> None:
        self.tracing.on_answered(report, refused)
        if report.is_final:
            self.run_log.ended(report, refused)
            self.log_upload.forget(report.claim)
            self.slots.drop(report.claim)
            self.engine.check_idle()
        elif refused is not None:
            self._on_loop(self._on_start_refused)(report.claim, refused)


def serve_worker(
    backend: WorkerBackend, options: WorkerOptions, home: Path, reload: SettingsReload | None = None
) -> int:
    """Run a worker in this process until it is stopped; returns the exit code. `reload` makes SIGHUP reload
    settings.
    """
    if not options.queues:
        raise Invalid("A worker needs at least one queue.")
    return asyncio.run(WorkerProcess(backend, options, home, reload).run())
