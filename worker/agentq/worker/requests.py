"""What a run may ask of agentq, by its door: to have children, and to look after them. Its tasks:

1. Understand a request, or say in one sentence what is wrong with it.
2. Grant it if it is of the run's own business. That a child has no more rights than the run, the server sees to.
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
from agentq.coordinator.errors import Invalid, NotAllowed
from agentq.coordinator.events import BEGINNING
from agentq.coordinator.fields import FREE, PLACE, RunId, check_members, check_text, one_sentence
from agentq.coordinator.life import Run
from agentq.coordinator.offspring import Kin, Offspring
from agentq.coordinator.queue import Claim
from agentq.coordinator.run import RunSpec, spec_from_wire
from agentq.coordinator.turn import Turn

WAIT_MS = 600_000
LOG_CHARACTERS = 256 << 10
INHERITED = {"fair_key", "demands", "caps", "timeout_ms", "silence_timeout_ms", "stop_grace_ms", "keep_ms"}
"""What a child has of its parent where nothing else is said, so that it stays within its bounds."""


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
    check_text(line, FREE)
    try:
        return _request.validate_json(line)
    except ValidationError as error:
        raise Invalid(f"The request is not understood: {one_sentence(error)}") from error


def _spec_of(fields: dict[str, Any]) -> RunSpec:
    check_members(fields, FREE)
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

    def submit(self, asked: Submit) -> dict[str, Any]:
        """Have a child. The script that makes it sees to it that it has no more rights than its parent."""
        child = self._placed(_spec_of(self._with_what_it_has(asked.spec)))
        return {"id": self.offspring.submit(child, most=limits.CHILDREN_AN_AGENT)}

    @cached_property
    def _own(self) -> RunSpec:
        """The run as it was submitted, which is not where it works."""
        return spec_from_wire(self.claim.spec, self.claim.lane)

    def _with_what_it_has(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What a child is said to be, with what is its parent's where nothing is said."""
        own = self._own
        had = own.model_dump(mode="json", include=INHERITED, exclude_none=True, exclude_defaults=True)
        fields = {"queue": own.queue, "priority": own.priority, **had, **asked}
        if "demands" in asked and isinstance(asked["demands"], dict):
            fields["demands"] = {**own.demands, **asked["demands"]}
        if fields.get("kind") in ("agent", "command") and "workspace" not in asked and self._has_folder:
            fields.setdefault("cwd", self.spec.cwd)
        said = fields.get("turn", {})
        if fields.get("kind") == "agent" and isinstance(said, dict):
            bounds = (own.turn or Turn()).model_dump(include={"account", "budgets"}, exclude_none=True)
            fields["turn"] = {**bounds, **said}
        return fields

    @property
    def _has_folder(self) -> bool:
        """Whether it works elsewhere than in the home of the worker's user."""
        own = self._own
        return own.cwd is not None or own.workspace is not None or own.session is not None

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

    def _placed(self, child: RunSpec) -> RunSpec:
        """A child in its parent's folder, by the name that the server knows; only this host knows where links lead."""
        turn = self.spec.turn or Turn()
        if self.spec.kind != "agent" or turn.permissions == "full" or child.workspace is not None:
            return child
        here, there = (Path(os.path.realpath(each or Path.home())) for each in (self.spec.cwd, child.cwd))
        if not there.is_relative_to(here):
            raise NotAllowed(
                f"An agent that may only {turn.permissions} has children in its own folder, not in {there}."
            )
        if self._has_folder:
            named = Path(self.spec.cwd or "", there.relative_to(here))
            return child.model_copy(update={"cwd": str(named)})
        return child.model_copy(update={"cwd": None}) if there == here else child
