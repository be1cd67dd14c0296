"""What the model knows of one run, and of one worker."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from agentq.coordinator import bounds
from agentq.coordinator.model.lifecycle import CLASS_BUDGETS, OutcomeClass
from agentq.coordinator.model.spec import RunSpec, parse_spec

TERMINAL = frozenset({"completed", "failed", "cancelled", "skipped"})
HELD = frozenset({"claimed", "running"})


@dataclass(slots=True)
class Life:
    """A run: what was asked for, where it stands, what it has spent, and which words of workers were accepted."""

    id: str
    lane: str
    spec: Any
    options: dict[str, Any]
    state: str
    due_at: int | None
    until: int | None
    open: bool
    attempt: int = 0
    fence: str = ""
    worker: str = ""
    begun: int = 0
    """Its place among all submits and requeues: a blocked run waits only for those that began before it."""
    begun_at: int = 0
    """Since when its policy counts: its submit, or the last time it was requeued."""
    claimed_at: int = 0
    ended_at: int = 0
    forget_at: int = 0
    stop_at: int | None = None
    unnamed_at: int | None = None
    number: int = 0
    wanted: bool = False
    stop_told: bool = False
    doomed: bool = False
    follows: str = ""
    """The run whose end it waits for, to have the dedupe key after it."""
    follower: str = ""
    taken_until: int = 0
    put_off_since: int = 0
    operation: str = ""
    reach: str = ""
    """The queues whose results it may be given, beside its own; empty for all."""
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

    @property
    def queue(self) -> str:
        return self.lane.partition(":")[0]

    @property
    def asked(self) -> RunSpec:
        """Its spec, read back."""
        return parse_spec(self.spec if isinstance(self.spec, str) else self.spec.decode(), self.lane)

    def keys(self, implied: Iterable[str]) -> list[str]:
        """What it needs room under, where those limits apply that nobody names."""
        own = self.options.get("limits", "").split()[::2]
        return [*own, *(key for key in implied if key in ("global", f"queue:{self.queue}"))]

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
        return dict(json.loads(self.options["retry"])) if "retry" in self.options else {}

    @property
    def on_failed(self) -> str:
        return str(self.options.get("on_failed", "skip"))

    def patient(self, now: int) -> bool:
        """Whether its patience has not ended; it counts until the first attempt."""
        return self.attempt > 0 or self.until is None or self.until > now

    def late(self, now: int) -> bool:
        """Whether it was claimed long ago, and has not started."""
        return self.state == "claimed" and now - self.claimed_at >= bounds.START_DEADLINE_MS

    def told(self, parent_state: str) -> None:
        """A parent has ended."""
        if parent_state != "completed" and self.on_failed != "run":
            self.doomed = True

    def purse(self, class_: str) -> str:
        """What pays for another try after a class; nothing, or a count of its own, or a budget."""
        budget = CLASS_BUDGETS.get(OutcomeClass(class_))
        if budget is None or class_ in self.policy.get("final", ()):
            return ""
        if "retries" in self.policy.get("classes", {}).get(class_, {}):
            return class_
        return "" if budget == "failures" and class_ not in self.policy.get("only", [class_]) else budget.value

    def pays(self, class_: str) -> bool:
        """Whether there is budget for one more failure of a class."""
        return self.spent[self.purse(class_)] < self.most(class_)

    def most(self, class_: str) -> int:
        """How much there is of what pays for a class."""
        purse = self.purse(class_)
        own = self.policy.get("classes", {}).get(class_, {}).get("retries")
        default = {"": 0, "failures": bounds.FAILURES, "crashes": bounds.CRASHES, "deferrals": bounds.DEFERRALS}
        return int(own if purse == class_ else self.policy.get(purse, default[purse]))

    def in_time(self, at: int) -> bool:
        """Whether another try may begin at a time."""
        return "max_elapsed_ms" not in self.policy or at <= self.begun_at + int(self.policy["max_elapsed_ms"])

    def backoff_ms(self, class_: str, spent: int, dice: float) -> int:
        """Listed, fixed, or exponential with full jitter."""
        own = self.policy.get("classes", {}).get(class_, {})
        policy = {
            name: each for name, each in self.policy.items() if name != "delays_ms" or "delay_ms" not in own
        } | own
        if policy.get("delays_ms"):
            return int(policy["delays_ms"][min(spent, len(policy["delays_ms"]) - 1)])
        first, factor = policy.get("delay_ms", bounds.DELAY_MS), policy.get("factor", bounds.DELAY_FACTOR)
        if factor == 1:
            return int(first)
        ceiling = min(first * factor**spent, max(first, policy.get("delay_ms_max", bounds.BACKOFF_MS_MAX)))
        return max(1, int(ceiling * dice if policy.get("jitter", True) else ceiling))

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
    lapsed: int | None = None
    """The lease whose key the server has deleted, which no clock brings back."""

    @property
    def present(self) -> bool:
        return self.state in ("ready", "draining")
