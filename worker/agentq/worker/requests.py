"""What a run may ask of agentq, by its door: to have children, and to look after them. Its tasks:

1. Understand a request, or say in one sentence what is wrong with it.
2. Grant it if it is of the run's own business, and gives a child no more than the run has itself.
3. Do it, in a thread, as the attempt that asks: the server's scripts decide whether that still holds its run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from agentq.coordinator import limits
from agentq.coordinator.errors import Invalid, NotAllowed, TryLater
from agentq.coordinator.events import BEGINNING
from agentq.coordinator.fields import PLACE, RunId, one_sentence
from agentq.coordinator.life import Run
from agentq.coordinator.offspring import Kin, Offspring
from agentq.coordinator.queue import Claim
from agentq.coordinator.run import RunSpec
from agentq.coordinator.turn import Turn

WAIT_MS = 600_000
LOG_CHARACTERS = 256 << 10
PERMISSIONS = ("read", "edit", "full")
NOT_ITS_OWN = ("plan", "session", "dedupe_key")
"""What would let it reach the runs of others."""


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Submit(_Request):
    verb: Literal["submit"]
    spec: dict[str, Any]
    """As in `agentq submit --from-jsonl`."""


class Show(_Request):
    verb: Literal["show"]
    run: RunId


class Wait(_Request):
    verb: Literal["wait"]
    run: RunId
    timeout_ms: Annotated[int, Field(ge=0, le=WAIT_MS)] = WAIT_MS


class Log(_Request):
    verb: Literal["logs"]
    run: RunId
    after: Annotated[str, Field(pattern=PLACE)] = BEGINNING


class Cancel(_Request):
    verb: Literal["cancel"]
    run: RunId
    reason: str = "cancelled by its parent"


class Progress(_Request):
    verb: Literal["progress"]
    progress: dict[str, Any]


Request = Annotated[Submit | Show | Wait | Log | Cancel | Progress, Field(discriminator="verb")]
_request: TypeAdapter[Request] = TypeAdapter(Request)


def request_of(line: bytes) -> Request:
    """What a line asks for."""
    try:
        return _request.validate_json(line)
    except ValidationError as error:
        raise Invalid(f"The request is not understood: {one_sentence(error)}") from error


def _spec_of(fields: dict[str, Any]) -> RunSpec:
    try:
        return RunSpec.model_validate_json(to_json(fields))
    except ValidationError as error:
        raise Invalid(one_sentence(error)) from error


@dataclass(frozen=True)
class Asker:
    """The attempt that asks, and what it may do."""

    kin: Kin
    claim: Claim
    spec: RunSpec

    @cached_property
    def offspring(self) -> Offspring:
        return self.kin.of(self.claim)

    @cached_property
    def _depth(self) -> int:
        return self.offspring.depth()

    def submit(self, asked: Submit) -> dict[str, Any]:
        """Have a child."""
        child = _spec_of(self._with_what_it_has(asked.spec))
        if self._depth >= limits.GENERATIONS:
            raise TryLater(f"There are {limits.GENERATIONS} generations above this run already, which is the most.")
        self._refuse_more(child)
        for other in child.after:
            self._refuse_foreign(other)
        return {"id": self.offspring.submit(child, most=limits.CHILDREN_AN_AGENT)}

    def _with_what_it_has(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What a child is said to be, with what is its parent's where nothing is said."""
        own, turn = self.spec, self.spec.turn or Turn()
        fields = {"queue": own.queue, "priority": own.priority, **asked}
        if own.fair_key is not None:
            fields.setdefault("fair_key", own.fair_key)
        if fields.get("kind") in ("agent", "command") and own.cwd is not None:
            fields.setdefault("cwd", own.cwd)
        said = fields.get("turn", {})
        if fields.get("kind") == "agent" and isinstance(said, dict):
            bounds = turn.model_dump(include={"account", "budgets"}, exclude_none=True)
            fields["turn"] = {**bounds, **said}
        return fields

    def show(self, asked: Show | Wait) -> Run:
        """Look at a child, or at itself."""
        return self.offspring.get(asked.run)

    def logs(self, asked: Log) -> dict[str, Any]:
        """What a child wrote, a piece at a time."""
        self._refuse_foreign(asked.run)
        entries, more = self.offspring.written(asked.run, asked.after, LOG_CHARACTERS)
        return {"entries": [entry.model_dump(mode="json") for entry in entries], "more": more}

    def cancel(self, asked: Cancel) -> dict[str, Any]:
        """End a child."""
        self._refuse_foreign(asked.run)
        return {"state": self.offspring.cancel(asked.run, asked.reason).value}

    def _refuse_foreign(self, run_id: str) -> None:
        if run_id == self.claim.id or self.offspring.get(run_id).id == self.claim.id:
            raise NotAllowed("A run can do that with its children only, not with itself.")

    def _refuse_more(self, child: RunSpec) -> None:
        """A child has no more rights than its parent."""
        own, said = self.spec, child.model_fields_set
        if child.parent not in (None, self.claim.id):
            raise NotAllowed(f"A run has children of its own only, not of {child.parent}.")
        if child.queue != own.queue:
            raise NotAllowed(f"A child is in the queue of its parent, {own.queue!r}, not in {child.queue!r}.")
        if child.priority > own.priority:
            raise NotAllowed(f"A child has the priority of its parent, {own.priority}, at the most.")
        if child.fair_key != own.fair_key:
            raise NotAllowed("A child takes turns under the fair key of its parent.")
        for name in NOT_ITS_OWN:
            if name in said:
                raise NotAllowed(f"A child has no {name}: that would concern runs of others.")
        if strange := sorted(child.limits.keys() - own.limits.keys()):
            raise NotAllowed(f"A child may need room only under the limits of its parent, not under {strange[0]!r}.")
        if own.kind == "agent":
            self._refuse_more_of_agent(own.turn or Turn(), child)

    def _refuse_more_of_agent(self, own: Turn, child: RunSpec) -> None:
        if child.kind != "agent" and own.permissions != "full":
            raise NotAllowed(f"An agent that may only {own.permissions} has no children but agents.")
        turn = child.turn or Turn()
        if child.kind == "agent" and PERMISSIONS.index(turn.permissions) > PERMISSIONS.index(own.permissions):
            raise NotAllowed(f"An agent that may only {own.permissions} has no children that may {turn.permissions}.")
        if turn.trust == "repo" and own.trust != "repo":
            raise NotAllowed("An agent that does not trust its repository has no children that do.")
        if child.kind == "agent":
            _refuse_to_pay_more(own, turn)
        if own.permissions != "full":
            self._refuse_ways_out(own.permissions, child)

    def _refuse_ways_out(self, permissions: str, child: RunSpec) -> None:
        """What would let an agent do, as its child, what it may not do itself."""
        if strange := sorted(name for name, value in child.env.items() if self.spec.env.get(name) != value):
            raise NotAllowed(
                f"An agent that may only {permissions} gives its children no variables but its own, not {strange[0]}."
            )
        here, there = (Path(os.path.realpath(each or Path.home())) for each in (self.spec.cwd, child.cwd))
        if not there.is_relative_to(here):
            raise NotAllowed(f"An agent that may only {permissions} has children in its own folder, not in {there}.")


def _refuse_to_pay_more(own: Turn, turn: Turn) -> None:
    if own.account is not None and turn.account != own.account:
        raise NotAllowed(f"A child bills the account of its parent, {own.account}.")
    for name, most in own.budgets or ():
        asked = getattr(turn.budgets, name, None)
        if most is not None and (asked is None or asked > most):
            raise NotAllowed(f"A child has the budget of its parent, {most} for {name}, at the most.")
