"""Executes one claimed run. Its tasks:

1. Start the processes, or fail with class `spawn` and one sentence.
2. Watch output, progress, wall clock timeout, silence timeout and stop orders.
3. Kill the whole process tree, however the attempt ended.
4. Report the outcome, or park the run. A fenced attempt reports nothing.

`attempt.py` decides; `run_process.py`, `output_pipes.py` and `result_channel.py` obey. This class executes commands and
holds what all kinds of process runs share; `agents/agent_attempt.py` executes agents.
"""

# Over 400 lines: the whole life of an attempt, which an agent's attempt changes step by step.

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any, TypeVar

from agentq.coordinator import bounds
from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError, Fenced, Invalid, NotAllowed, Stopping, TryLater, Unreachable
from agentq.coordinator.model.lifecycle import COMPLETING_CLASSES, OutcomeClass
from agentq.coordinator.model.spec import Outcome, ProcessUsage, ResourceLimits, RunSpec
from agentq.coordinator.runs.logs import LogChunk
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.runs.wait import Resumption, RunWait
from agentq.worker.attempt_context import AttemptContext as AttemptContext
from agentq.worker.attempt_stop import AttemptStop, NotStarted
from agentq.worker.output.output_pipes import OutputPipes
from agentq.worker.output.redaction import Redactor
from agentq.worker.output.sanitizer import sanitize_text
from agentq.worker.output.secret_values import SecretValues
from agentq.worker.process.exit_outcome import classify_exit
from agentq.worker.process.process_tree import Cgroups, end_dead_trees
from agentq.worker.process.run_process import ProcessExit, ProcessLaunch, RunProcess, SpawnFailed
from agentq.worker.reporting.report_sender import AttemptReport
from agentq.worker.run_api.result_channel import ProgressFields, ResultChannel

if TYPE_CHECKING:
    from agentq.worker.workspace.delivery import WorkDelivery

OUTPUT_DRAIN_MS = 2_000
"""How long to wait for the last output once no process is left."""
RETRY_MS = 1_000
PROGRESS_CHARACTERS = 200

Answer = TypeVar("Answer")


class RunAttempt:
    """One claim being executed. Lives on the worker's event loop."""

    def __init__(self, claim: Claim, spec: RunSpec, context: AttemptContext) -> None:
        self.claim = claim
        self.spec = spec
        self.stopped = asyncio.Event()
        self.merge_signal = asyncio.Event()
        """Set when it may be this run's turn to merge."""
        self.delivery: WorkDelivery | None = None
        """Delivers the work, if the run has a workspace."""
        self.context = context
        self._kill_now = asyncio.Event()
        self._limits_changed = asyncio.Event()
        """Set when something changed that the limits depend on."""
        self._interrupted = True
        """Whether the process was ended before it ended by itself."""
        self._stop: AttemptStop | None = None
        self._reason = ""
        self._process: RunProcess | None = None
        self._draining = False
        self._secrets: SecretValues | None = None
        self._resumes = False
        self._wait: RunWait | None = None
        """What the run wants to wait for, if the attempt ends well."""

    def stop(self, why: AttemptStop, reason: str = "", *, within_ms: int | None = None) -> None:
        """Stop the attempt. The first reason counts, except that FENCED replaces any other.

        The processes get the run's stop grace, or `within_ms` if that is less; those of a fenced attempt get none.
        """
        if self._stop is None or why is AttemptStop.FENCED:
            self._stop, self._reason = why, reason
        self.stopped.set()
        if self.delivery is not None and (why is not AttemptStop.RELEASED or within_ms is not None):
            self.delivery.cancellation.cancel()
        if why is AttemptStop.FENCED:
            self._kill_now.set()
        elif within_ms is not None:
            asyncio.get_running_loop().call_later(within_ms / 1000, self._kill_now.set)

    def drain(self) -> None:
        """The worker drains: send the run's `on_drain` signal to its process, so that it can save its work."""
        self._draining = True
        if self.spec.on_drain is not None and self._process is not None:
            self._process.send_signal(Signals[self.spec.on_drain])

    def on_refused(self, refusal: AgentqError) -> None:
        """The server refused `start`: the run is to be cancelled, or another attempt has it."""
        if isinstance(refusal, Stopping):
            self.stop(AttemptStop.CANCELLED, "cancelled on request")
        else:
            self.stop(AttemptStop.FENCED)

    @property
    def superseded(self) -> bool:
        return self._stop is AttemptStop.FENCED

    async def run(self) -> None:
        """Execute the run and report the outcome."""
        await self._end_earlier_attempts()
        resumption = await self._receive_resumption()
        try:
            self.check_not_stopped()
            # Before the worktree is made: a run that stays `claimed` for too long is taken from its worker.
            self.context.send_report(AttemptReport("start", self.claim))
            outcome = await self._execute_with_workspace(resumption)
        except NotStarted as undone:
            outcome = undone.outcome
        if self.delivery is not None:
            await self.delivery.hand_over(outcome)
        self._report_outcome(outcome)
        if self.delivery is not None:
            await self.delivery.close(outcome)

    async def _execute_with_workspace(self, resumption: Resumption | None) -> Outcome:
        """Execute; with a workspace, prepare it before and deliver the work after."""
        self._resumes = resumption is not None
        if self.spec.workspace is None:
            return await self._execute_in(lambda spec: spec, resumption)
        from agentq.worker.workspace.delivery import WorkDelivery  # which most runs never need

        self.delivery = WorkDelivery(self, self.spec)
        return await self.delivery.run(lambda placed: self._execute_in(placed, resumption))

    async def _execute_in(self, place_spec: Callable[[RunSpec], RunSpec], resumption: Resumption | None) -> Outcome:
        """Fill in the outcomes of earlier tasks, place the spec in its worktree, and execute it."""
        spec = self.spec
        if spec.inputs or spec.context != "none":
            from agentq.worker.task_inputs import TaskInputs

            try:
                spec = await self.ask_server(lambda: TaskInputs(self.context.queue, self.claim).fill(spec))
            except (Invalid, NotAllowed) as refused:
                raise NotStarted(Outcome(class_=OutcomeClass.REJECTED, error=str(refused))) from refused
        self.spec = place_spec(spec)
        return await self._execute(resumption)

    def check_not_stopped(self) -> None:
        """Raise `NotStarted` if the attempt was stopped meanwhile."""
        if self._stop is not None:
            raise NotStarted(Outcome(class_=OutcomeClass.CANCELLED, error=self._reason or None))

    async def _end_earlier_attempts(self) -> None:
        """End what an earlier attempt left on this host when its worker was killed."""
        if self.claim.fence.partition("-")[0] != "1":
            await end_dead_trees(f"{self.context.environment.namespace}/{self.claim.id}", cgroups=self.context.cgroups)

    async def _receive_resumption(self) -> Resumption | None:
        """What the run resumes with; None for the first attempt."""
        if self.claim.fence.partition("-")[0] == "1":
            return None
        return await self.ask_until_stopped(partial(self.context.queue.receive, self.claim))

    async def ask_server(self, ask: Callable[[], Answer]) -> Answer:
        """Ask the server until it answers. Raises `NotStarted` if the attempt is stopped before."""
        answers: list[Answer] = []
        await self.ask_until_stopped(lambda: answers.append(ask()))
        self.check_not_stopped()
        return answers[0]

    async def ask_until_stopped(self, ask: Callable[[], Answer]) -> Answer | None:
        """Ask the server, in a thread, until it answers; None if the attempt was stopped before that."""
        while self._stop is None:
            try:
                return await asyncio.to_thread(ask)
            except (Unreachable, TryLater):
                await self._pause()
            except Fenced:
                self.stop(AttemptStop.FENCED)
        return None

    async def _pause(self) -> None:
        """Wait before the next retry, unless the attempt is stopped."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.stopped.wait(), random.uniform(RETRY_MS / 10, RETRY_MS) / 1000)

    # ---- called by the workspace

    @property
    def continues_earlier(self) -> bool:
        """Whether it continues what an earlier attempt left: a command only after a wait."""
        return self._resumes

    def delivers(self, outcome: Outcome) -> bool:
        """Whether the work is done and is to be delivered."""
        stopped = self._stop in (AttemptStop.FENCED, AttemptStop.CANCELLED) or (
            self._stop is not None and self._interrupted
        )
        return outcome.class_ in COMPLETING_CLASSES and self._wait is None and not stopped

    def expects_changes(self, outcome: Outcome) -> bool:  # noqa: ARG002
        """Whether the run fails if it changed nothing."""
        return False

    @property
    def continues_later(self) -> bool:
        """Whether it was handed back or waits: another attempt continues in its worktree."""
        return self._wait is not None or (self._stop is AttemptStop.RELEASED and self._interrupted)

    def interrupt(self) -> Outcome:
        """The outcome of an attempt that is stopped before its work is merged."""
        self._interrupted = True
        return Outcome(class_=OutcomeClass.CANCELLED, error=self._reason or None)

    def log(self, chunks: list[LogChunk]) -> None:
        self.context.log_upload.log(self.claim, chunks)

    def note(self, sentence: str) -> None:
        """Add a sentence of agentq's own to the log."""
        self.log([LogChunk("note", f"{sanitize_text(sentence)}\n")])

    def progress(self, sentence: str) -> None:
        """Report what the attempt does now."""
        self.context.log_upload.progress(self.claim, {"note": sanitize_text(sentence)[:PROGRESS_CHARACTERS]})

    # ---- how it ended

    def _report_outcome(self, outcome: Outcome) -> None:
        send, claim = self.context.send_report, self.claim
        if self._stop is AttemptStop.FENCED:
            return
        if self._stop is AttemptStop.RELEASED and self._interrupted:
            # For any exit code: many programs exit with 0 on SIGTERM with their work unfinished.
            send(AttemptReport("release", claim, reason=self._reason))
        elif outcome.class_ is OutcomeClass.OK and self._wait is not None:
            send(AttemptReport("park", claim, wait=self._wait))
        elif outcome.class_ in COMPLETING_CLASSES:
            send(AttemptReport("finish", claim, outcome))
        else:
            send(AttemptReport("fail", claim, outcome))

    async def _execute(self, resumption: Resumption | None) -> Outcome:
        channel = self.context.channels.open(self.claim)
        try:
            return await self._execute_with(channel, resumption)
        finally:
            self.context.channels.release(channel)

    async def _execute_with(self, channel: ResultChannel, resumption: Resumption | None) -> Outcome:
        try:
            if resumption is not None:
                channel.resume(resumption)
            launch = await self._build_launch(channel, resumption)
            self.check_not_stopped()
            self._secrets = self.context.environment.secrets(launch.env)
            process = await RunProcess.spawn(launch, cgroups=self._needed_cgroups())
        except (SpawnFailed, OSError) as failed:
            return Outcome(class_=OutcomeClass.SPAWN, error=str(failed))
        self._process = process
        if self._draining:
            self.drain()
        output = self._open_output(process)
        channel.listen(self._on_progress, output.note)
        try:
            return await self._watch(process, output, channel)
        except BaseException:
            await process.end(0)
            output.close()
            raise

    async def _watch(self, process: RunProcess, output: OutputPipes, channel: ResultChannel) -> Outcome:
        ended = asyncio.ensure_future(process.wait())
        late = await self._wait_for_end(ended, output)
        self._interrupted = not ended.done()
        leaked = await self._end(process, self.spec.stop_grace_ms if self._interrupted else 0)
        exit_ = await ended
        await output.drain(OUTPUT_DRAIN_MS)
        if leaked:
            output.note(f"killed {leaked} process{'es' if leaked > 1 else ''} that had left the run's process group")
        return await self._build_outcome(late, exit_, output, channel)

    async def _end(self, process: RunProcess, grace_ms: int) -> int:
        """End its processes. The grace is cut short when the attempt has to end at once."""
        ending = asyncio.ensure_future(process.end(grace_ms))
        hurried = asyncio.ensure_future(self._kill_now.wait())
        await asyncio.wait({ending, hurried}, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if ending.done():
            return ending.result()
        ending.cancel()
        with suppress(asyncio.CancelledError):
            await ending
        return await process.end(0)

    async def _wait_for_end(self, ended: asyncio.Future[ProcessExit], output: OutputPipes) -> OutcomeClass | None:
        """Wait until the process ends, is stopped, or breaks a limit; returns the broken limit, if any."""
        started_ms = monotonic_ms()
        stopped, changed = (
            asyncio.ensure_future(self.stopped.wait()),
            asyncio.ensure_future(self._limits_changed.wait()),
        )
        try:
            while True:
                left = self._limits_left(started_ms, output)
                late = next((limit for limit, left_ms in left.items() if left_ms <= 0), None)
                if late is not None or ended.done() or stopped.done():
                    return None if ended.done() or stopped.done() else late
                timeout = min(left.values()) / 1000 if left else None
                futures: list[asyncio.Future[Any]] = [ended, stopped, changed]
                await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                if changed.done():
                    self._limits_changed.clear()
                    changed = asyncio.ensure_future(self._limits_changed.wait())
        finally:
            stopped.cancel()
            changed.cancel()

    def _limits_left(self, started_ms: int, output: OutputPipes) -> dict[OutcomeClass, int]:
        now, left = monotonic_ms(), dict[OutcomeClass, int]()
        if self.spec.timeout_ms is not None:
            left[OutcomeClass.TIMEOUT] = started_ms + self.spec.timeout_ms - now
        if self.spec.silence_timeout_ms is not None:
            heard_ms = max(output.last_byte_ms or 0, started_ms)
            left[OutcomeClass.SILENCE] = heard_ms + self.spec.silence_timeout_ms - now
        return left

    async def _build_outcome(
        self, late: OutcomeClass | None, exit_: ProcessExit, output: OutputPipes, channel: ResultChannel
    ) -> Outcome:
        result, fields = channel.result(), self._outcome_fields(exit_, output)
        if self._stop is AttemptStop.CANCELLED:
            return Outcome.model_validate({"class": OutcomeClass.CANCELLED, "error": self._reason, **fields})
        kind, error = classify_exit(late, exit_, self.spec)
        if kind is OutcomeClass.OK and result.error:
            kind, error = OutcomeClass.CHECK, result.error
        self._wait = result.wait
        return Outcome.model_validate({"class": kind, "error": error, "result": self._redact(result.value), **fields})

    def _outcome_fields(self, exit_: ProcessExit, output: OutputPipes) -> dict[str, Any]:
        """The fields that every outcome has."""
        return {
            "exit_code": exit_.code,
            "signal": exit_.signal,
            "tail": output.tail()[-bounds.TAIL_CHARACTERS :] or None,
            "usage": self._usage(exit_),
        }

    def _open_output(self, process: RunProcess) -> OutputPipes:
        log = partial(self.context.log_upload.log, self.claim)
        return OutputPipes(process.stdout, process.stderr, self._log_file(), log, secrets=self._secrets)

    def _on_progress(self, progress: ProgressFields) -> None:
        self.context.log_upload.progress(self.claim, self._redact(progress))

    def _redact(self, value: Any) -> Any:
        """Replace secrets in values that do not come through the output."""
        return value if self._secrets is None else Redactor(self._secrets).value(value)

    def _needed_cgroups(self) -> Cgroups | None:
        """A cgroup only for a run with a memory limit: without one, starting a process costs half as much."""
        caps = self.spec.caps
        return self.context.cgroups if caps is not None and caps.memory_bytes is not None else None

    def _usage(self, exit_: ProcessExit) -> ProcessUsage:
        return ProcessUsage(
            pid=self._process.pid if self._process is not None else 0,
            host=socket.gethostname(),
            cwd=str(self._cwd()),
            user_ms=exit_.user_ms,
            system_ms=exit_.system_ms,
            peak_memory_bytes=exit_.peak_memory_bytes,
        )

    def _cwd(self) -> Path:
        return Path(self.spec.cwd) if self.spec.cwd else Path.home()

    async def _build_launch(self, channel: ResultChannel, resumption: Resumption | None) -> ProcessLaunch:  # noqa: ARG002
        """Prepare everything that the process needs to start."""
        spec = self.spec
        if spec.kind != "command":
            refusal = f"this worker does not execute runs of kind {spec.kind!r}"
            raise NotStarted(Outcome(class_=OutcomeClass.REJECTED, error=refusal))
        return ProcessLaunch(
            argv=spec.argv,
            env=self.context.environment.build(self.claim, spec, channel.variables()),
            cwd=self._cwd(),
            cookie=self.context.environment.cookie(self.claim),
            caps=spec.caps or ResourceLimits(),
            stdin=(spec.stdin or "").encode(),
        )

    def _log_file(self) -> Path:
        return self.context.log_folder / self.claim.id / f"{self.claim.fence}.log"
