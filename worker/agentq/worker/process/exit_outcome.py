"""Maps the exit of a process to an outcome class."""

from __future__ import annotations

import signal

from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import RunSpec
from agentq.worker.process.run_process import ProcessExit


def classify_exit(late: OutcomeClass | None, exit_: ProcessExit, spec: RunSpec) -> tuple[OutcomeClass, str | None]:
    """The outcome class of an exit, and a sentence that explains it."""
    if late is OutcomeClass.TIMEOUT:
        return late, f"ran longer than {spec.timeout_ms} ms"
    if late is OutcomeClass.SILENCE:
        return late, f"was silent for {spec.silence_timeout_ms} ms"
    if exit_.oom:
        return OutcomeClass.OOM, "ran out of memory"
    if exit_.signal is not None:
        return OutcomeClass.SIGNAL, f"was killed by signal {exit_.signal} ({signal.strsignal(exit_.signal)})"
    if exit_.code is None:
        return OutcomeClass.INTERNAL, "ended, and its exit code was taken by somebody else"
    if exit_.code:
        return OutcomeClass.EXIT, f"exited with code {exit_.code}"
    return OutcomeClass.OK, None
