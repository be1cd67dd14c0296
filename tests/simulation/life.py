"""What the model knows of one run, and of one worker."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from agentq.coordinator import limits
from agentq.coordinator.lifecycle import BUDGETS, OutcomeClass

TERMINAL = frozenset({"completed", "failed", "cancelled", "skipped"})
HELD = frozenset({"claimed", "running"})


@dataclass(slots=True)
class Life:
    """A run: what was asked for, where it stands, what it has spent, and which words of workers were accepted."""

    id: str
    lane: str
    spec: Any
    door: dict[str, Any]
    state: str
    due_at: int | None
    until: int | None
    open: bool
    attempt: int = 0
    fence: str = ""
    worker: str = ""
    claimed_at: int = 0
    forget_at: int = 0
    stop_at: int | None = None
    unnamed_at: int | None = None
    number: int = 0
    wanted: bool = False
    stop_told: bool = False
    doomed: bool = False
    operation: str = ""
    in_line: bool = False
    reserved: bool = False
    needs: set[str] = field(default_factory=set)
    spent: Counter[str] = field(default_factory=Counter)
    said: set[str] = field(default_factory=set)
    awaits: set[str] = field(default_factory=set)
    awaits_children: str = ""
    awaits_until: int | None = None
    parked: bool = False
    operations: set[str] = field(default_factory=set)
    """Of signals that it was ever sent."""
    mail: dict[str, str] = field(default_factory=dict)
    """Operation → name."""
    children: set[str] = field(default_factory=set)
    returns: int = 0
    returned: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Place → child and how it ended."""
    handed: tuple[str, list[str], int] = ("", [], 0)
    """The fence of the attempt that received; which signals, and the children up to which place."""

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL

    @property
    def held(self) -> bool:
        return self.state in HELD

    @property
    def line(self) -> str:
        return f"{self.id} {self.state} {self.attempt} {self.fence} {self.worker}"

    def keys(self, implied: Iterable[str]) -> list[str]:
        """What it needs room under, where those limits apply that nobody names."""
        own = self.door.get("limits", "").split()[::2]
        return [*own, *(key for key in implied if key in ("global", "queue:" + self.lane.split(":")[0]))]

    @property
    def family_met(self) -> bool:
        """Whether it has what it waits for of its children."""
        return bool(self.awaits_children) and (
            not self.children or (self.awaits_children == "any" and bool(self.returned))
        )

    @property
    def met(self) -> bool:
        """Whether something that it waits for is there."""
        return self.family_met or not self.awaits.isdisjoint(self.mail.values())

    @property
    def policy(self) -> dict[str, Any]:
        return dict(json.loads(self.door["retry"])) if "retry" in self.door else {}

    @property
    def on_failed(self) -> str:
        return str(self.door.get("on_failed", "skip"))

    def patient(self, now: int) -> bool:
        """Whether its patience has not ended; it counts until the first attempt."""
        return self.attempt > 0 or self.until is None or self.until > now

    def late(self, now: int) -> bool:
        """Whether it was claimed long ago, and has not started."""
        return self.state == "claimed" and now - self.claimed_at >= limits.START_MS

    def told(self, parent_state: str) -> None:
        """A parent has ended."""
        if parent_state != "completed" and self.on_failed != "run":
            self.doomed = True

    def pays(self, class_: str) -> bool:
        """Whether there is budget for one more failure of a class."""
        budget = BUDGETS.get(OutcomeClass(class_))
        if budget is None or class_ in self.policy.get("final", ()):
            return False
        default = {"failures": limits.FAILURES, "crashes": limits.CRASHES, "deferrals": limits.DEFERRALS}[budget]
        return self.spent[budget] < int(self.policy.get(budget, default))

    def backoff_ms(self, spent: int, dice: str) -> int:
        """Exponential, with full jitter."""
        policy = self.policy
        ceiling = policy.get("delay_ms", limits.DELAY_MS) * policy.get("factor", limits.DELAY_FACTOR) ** spent
        return max(1, int(min(ceiling, policy.get("delay_ms_max", limits.BACKOFF_MS_MAX)) * float(dice)))

    @property
    def next_at(self) -> int | None:
        """When time next does something to it; that it is forgotten some time does not count."""
        if self.ended or self.stop_at is not None:
            return self.stop_at
        due = self.due_at if self.state in ("scheduled", "waiting") else None
        until = None if self.held or self.attempt or self.state == "waiting" else self.until
        return min((at for at in (due, until) if at is not None), default=None)

    def overdue(self, now: int) -> str | None:
        """What time should have done to it by now."""
        if self.ended:
            return None
        if self.stop_at is not None and self.stop_at <= now:
            return "end the stop"
        if not self.held and self.state != "waiting" and not self.patient(now):
            return "expire"
        due = self.due_at is not None and self.due_at <= now
        return "promote" if due and self.state in ("scheduled", "waiting") else None


@dataclass(slots=True)
class Seat:
    """A worker: until when its lease lasts, and since when the reaper has missed it."""

    epoch: str
    operation: str
    state: str = "ready"
    lease_until: int = 0
    missing_at: int | None = None

    @property
    def present(self) -> bool:
        return self.state in ("ready", "draining")
