"""Retry policies: budgets and delays. `lua/shared/end_run.lua` applies them.

An exponential wait is thrown between nothing and its ceiling (full jitter), so that runs that failed together do not
come back together. A wait that was said exactly, as fixed (a factor of 1) or in a list, is kept to the letter.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from agentq.coordinator import bounds as most
from agentq.coordinator.model.field_types import DelayList, Milliseconds, OutcomeClasses
from agentq.coordinator.model.lifecycle import CLASS_BUDGETS, OutcomeClass, RetryBudget

RetryCount = Annotated[int, Field(ge=0, le=most.RETRIES_MAX)]
BackoffFactor = Annotated[float, Field(ge=1, le=100, allow_inf_nan=False)]


class OutcomeClassPolicy(BaseModel):
    """Overrides of the policy for failures of one class."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    retries: RetryCount | None = None
    """The number of retries after this class, which then has a budget of its own."""
    delay_ms: Milliseconds | None = None
    factor: BackoffFactor | None = None
    delay_ms_max: Milliseconds | None = None
    delays_ms: DelayList | None = None
    jitter: bool | None = None


class RetryPolicy(BaseModel):
    """How often a run is retried, after which failures, and when."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    failures: RetryCount = most.FAILURES
    crashes: RetryCount = most.CRASHES
    deferrals: RetryCount = most.DEFERRALS
    delay_ms: Milliseconds = most.DELAY_MS
    """The first delay; each is `factor` times the one before, up to `delay_ms_max`."""
    factor: BackoffFactor = most.DELAY_FACTOR
    delay_ms_max: Milliseconds = most.BACKOFF_MS_MAX
    delays_ms: DelayList = ()
    """Explicit delays, in order, in place of these three; the last one repeats."""
    jitter: bool = True
    max_elapsed_ms: Milliseconds | None = None
    """No attempt begins later than this after the submit, or after an operator's retry."""
    final: OutcomeClasses = ()
    """Classes that are never retried."""
    only: OutcomeClasses = ()
    """Of the classes that `failures` pays for, those that are retried; all if empty."""
    classes: Annotated[dict[Annotated[OutcomeClass, Field(strict=False)], OutcomeClassPolicy], Field(strict=False)] = {}

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        for name in ("final", "only", "classes"):
            unpaid = [str(class_) for class_ in getattr(self, name) if OutcomeClass(class_) not in CLASS_BUDGETS]
            if unpaid and name != "final":
                raise ValueError(f"a run that ended with {unpaid[0]!r} is never tried again")
        for class_ in self.only:
            if CLASS_BUDGETS[OutcomeClass(class_)] is not RetryBudget.FAILURES:
                raise ValueError(
                    f"{str(class_)!r} is paid from {CLASS_BUDGETS[OutcomeClass(class_)]}, which `only` does not narrow"
                )
        both = [str(class_) for class_ in self.final if class_ in (*self.only, *self.classes)]
        if both:
            raise ValueError(f"{both[0]!r} is never to be tried again, and is")
        return self
