"""What can go wrong with a Python function as a run, and what a function may raise to say what becomes of it.

AgentqError
├── Invalid                    fix the input (agentq.coordinator.errors)
│   └── ImportFailed             the function cannot be imported here
├── WaitTimedOut
│   └── StillGoing               the wait is over and the run goes on; also a TimeoutError
├── RunFailed                  the run ended without completing
│   ├── RunCancelled             the run was cancelled
│   └── RunSkipped               a run that it waited for did not complete
└── NotInARun                  there is no current run here

raised in a function, and handled by the worker that executes it
├── Fail, Retry                its own decision
├── SoftTimeout                raised in it when its time is over
├── Cancelled                  raised in it when it is to stop
└── Parked                     leaves it when it goes to sleep (agentq.sdk.run_context)
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from agentq.coordinator.errors import AgentqError, Invalid, WaitTimedOut
from agentq.coordinator.model.lifecycle import OutcomeClass


class ImportFailed(Invalid):
    """The function cannot be imported here."""


class StillGoing(WaitTimedOut, TimeoutError):
    """The wait is over; the run goes on."""


class NotInARun(AgentqError):
    """There is no current run: this code was not started by a worker."""


class RunFailed(AgentqError):
    """The run ended without completing."""

    def __init__(self, message: str = "", *, run: str = "", class_: str = "", error: str = "", tail: str = "") -> None:
        super().__init__(message)
        self.run = run
        self.class_ = class_
        """The class of its outcome: `exit`, `timeout`, `rejected` and so on."""
        self.error = error
        self.tail = tail
        """The end of what it wrote, or of its traceback."""


class RunCancelled(RunFailed):
    """The run was cancelled."""


class RunSkipped(RunFailed):
    """The run was skipped, because one that it waited for did not complete."""


class PartlyRefused(AgentqError):
    """Some of the runs that were submitted together were refused."""

    def __init__(self, runs: Sequence[Any], refused: Sequence[tuple[str, AgentqError]]) -> None:
        first = refused[0][1]
        super().__init__(
            f"{len(refused)} of {len(runs)} runs were refused and the others submitted. The first: {first}"
        )
        self.runs = list(runs)
        """The handles of all of them, in order."""
        self.refused = dict(refused)
        """By run id, why."""


class Fail(Exception):
    """Raised in a function: this attempt has failed, with this class of outcome."""

    def __init__(self, message: str = "", *, class_: OutcomeClass | str = OutcomeClass.REJECTED) -> None:
        super().__init__(message)
        self.class_ = OutcomeClass(class_)
        """By default one that is final: the function knows that another try would not help."""


class Retry(Exception):
    """Raised in a function: this attempt has failed; if its policy allows one more, try again after this time."""

    def __init__(self, message: str = "", *, after: str | timedelta | None = None) -> None:
        from agentq.sdk.options import to_duration_ms

        super().__init__(message)
        self.delay_ms = None if after is None else to_duration_ms(after)
        """None for the wait of its policy."""


class SoftTimeout(TimeoutError):
    """Raised in a function when its time is over, so that it can tidy up."""


class Cancelled(BaseException):
    """Raised in a function when it is to stop. Not an Exception, so that `except Exception` lets it pass."""
