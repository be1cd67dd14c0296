"""Reasons why an attempt ends before its process does: a stop from outside, or a process that never starts."""

from __future__ import annotations

from enum import Enum

from agentq.coordinator.model.spec import Outcome


class AttemptStop(Enum):
    """Why an attempt is stopped from outside."""

    CANCELLED = "cancelled"
    FENCED = "fenced"
    RELEASED = "released"


class NotStarted(Exception):
    """The attempt ends before its process starts; the argument is its outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome
