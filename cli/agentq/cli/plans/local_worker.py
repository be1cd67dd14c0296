"""The workers that `agentq run` starts: real `agentq worker` processes, for this plan alone, that end with it.

1. They are in sessions of their own, so that Ctrl-C reaches `agentq run` alone, which then tells them to drain.
2. They notice any death of `agentq run`: then they finish the runs that they hold, and end.
3. One that dies is started again, and what it held is handed back at once; one that keeps dying is not started again,
   and its last words are told.
4. A lock of the plan on this machine: its holder has the workers, and other processes only watch.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from agentq.cli.plans.plan_host import PlanHost
from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.model.demands import PLAN_LABEL
from agentq.coordinator.security.environment_memory import hide_environment

DRAIN_GRACE = "30d"
"""How long tasks may go on in a drain: until the workers are told to stop."""
CRASHES_MAX = 5
CRASH_WINDOW_MS = 60_000
"""So many deaths of a worker in so long a time are not an accident."""
LOG_TAIL_LINES = 5
FORCE_STOP_MS = 60_000
"""The longest that a worker may take to end what it holds when it is told to hurry."""
_PR_SET_PDEATHSIG = 1


class LocalWorker:
    """The worker of one plan on this machine: one process, with a number of slots."""

    def __init__(
        self,
        host: PlanHost,
        home: Path,
        plan: str,
        queues: Sequence[str],
        labels: Mapping[str, str],
        *,
        alone: bool,
    ) -> None:
        self._host = host
        self._queues = queues
        self._labels = {**labels, **({PLAN_LABEL: plan} if alone else {})}
        self._alone = alone
        self._folder = home / "plans" / plan
        self._deaths: deque[int] = deque(maxlen=CRASHES_MAX)
        self._lock: IO[bytes] | None = None
        self._worker: subprocess.Popen[bytes] | None = None
        self._slots = 0
        self.draining = False

    @property
    def log(self) -> Path:
        """What the workers say."""
        return self._folder / "worker.log"

    def take(self) -> bool:
        """Whether no other process on this machine has workers for the plan."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = (self._folder / "lock").open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        self._lock = file
        return True

    def start(self, slots: int) -> None:
        """Start to work."""
        self._slots = slots
        argv = [sys.executable, "-m", __name__, str(os.getpid()), "worker", "--slots", str(slots)]
        argv += ["--drain-grace", DRAIN_GRACE]
        argv += [word for queue in self._queues for word in ("--queue", queue)]
        argv += [word for name, value in self._labels.items() for word in ("--label", f"{name}={value}")]
        if self._alone:
            argv += ["--only-matching"]
        argv += self._host.worker_options
        with self.log.open("ab") as log:
            self._worker = subprocess.Popen(
                argv,
                env=self._host.worker_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def works(self) -> bool:
        """Whether a worker is there."""
        return self._worker is not None and self._worker.poll() is None

    def look(self, say: Callable[[str], None]) -> str:
        """See that a worker is there; why there will be none any more, or nothing."""
        if self._worker is None or self.works or self.draining:
            return ""
        say(self._bury(self._worker))
        now_ms = monotonic_ms()
        self._deaths.append(now_ms)
        if len(self._deaths) == CRASHES_MAX and now_ms - self._deaths[0] < CRASH_WINDOW_MS:
            return f"the worker here has ended {CRASHES_MAX} times within a minute: {self._last_words()}"
        self.start(self._slots)
        return ""

    def _bury(self, worker: subprocess.Popen[bytes]) -> str:
        """Hand back what a dead worker held; how it ended. Without a server now, the next worker hands it back."""
        with suppress(AgentqError):
            self._host.take_over()
        how = f"killed by signal {-worker.returncode}" if worker.returncode < 0 else f"exit code {worker.returncode}"
        return f"the worker here has died ({how}); its tasks go back into the queue."

    def _last_words(self) -> str:
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        return " / ".join(line for line in lines[-LOG_TAIL_LINES:] if line.strip()) or f"see {self.log}"

    def tidy(self) -> None:
        """Keep nothing of a plan that has ended, but for what is told of one that went on in the background."""
        if self._slots and not (self._folder / "run.log").exists():
            shutil.rmtree(self._folder, ignore_errors=True)

    def drain(self) -> None:
        """Let nothing more begin; said again, do not wait for what runs."""
        self.draining = True
        if self._worker is not None and self.works:
            self._worker.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """End the workers; they hand back the runs that they hold."""
        if self._worker is not None and self.works:
            self._hurry(self._worker)
        if self._worker is not None and self._worker.returncode:
            self._bury(self._worker)
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _hurry(self, worker: subprocess.Popen[bytes]) -> None:
        """Two signals at once may be heard as one, so it is told again until it has ended."""
        until_ms = monotonic_ms() + FORCE_STOP_MS
        while monotonic_ms() < until_ms:
            self.drain()
            try:
                worker.wait(1)
            except subprocess.TimeoutExpired:
                continue
            return
        worker.kill()
        worker.wait()


def main(argv: Sequence[str]) -> int:
    """A worker that notices the death of the process that started it."""
    from agentq.cli.main import main as agentq

    hide_environment()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != int(argv[0]):
            return 0  # it has died already
    return agentq(argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
