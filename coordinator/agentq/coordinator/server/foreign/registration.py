"""What a foreign runner says of itself when it registers, in any dialect, and the worker that it is to us.

Which fields tell the dialect, and what its id is made of, stands in dialects.py. A runner that lacks a part of its
identity gets an id by chance, `rnr_` and 12 digits.

A runner that cannot say more than its program lets it can still say it in its tags: `slots=4` that it takes four runs
at a time, `queue=nightly` which queue it serves.
"""

from __future__ import annotations

import re
import secrets
from hashlib import blake2b, sha256
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from agentq.coordinator.demands import HOST
from agentq.coordinator.errors import Invalid
from agentq.coordinator.fields import Name, one_sentence
from agentq.coordinator.fitting import EXECUTOR_TYPE
from agentq.coordinator.server.foreign.dialects import Dialect, of_registration
from agentq.coordinator.serving import Identity
from agentq.coordinator.turn import AGENT_LABEL, ANY_AGENT, READY

Said = Annotated[str, Field(max_length=4096)]

HOSTNAME, PROJECT, PROFILE, TAG, OWNS = "hostname", "project_dir", "executor_profile", "tag.", "owns."
TYPE = EXECUTOR_TYPE
"""The labels that foreign demands are about."""
HOOKS = "hooks"
"""The label of those that have a start hook's answer applied."""
YES = "yes"
SLOTS, QUEUE = "slots=", "queue="
"""What tags begin with that say more."""
PROCEDURAL, AUTONOMOUS = "procedural", "autonomous"
IDENTIFYING = 3
"""Parts of an identity without which a runner has none: where it is, and what it executes with."""
TAGS = 32
SLOTS_MAX = 1000
"""Runs at a time of a runner that says no number: none of their programs has a limit."""

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@/+-]{0,127}")
_ROOTED = re.compile(r"/[A-Za-z0-9_.@/+-]{0,120}")
_RUNNER = re.compile(r"(lnch|rnr)_[0-9a-f]{12}")


def is_runner_id(text: str) -> bool:
    """Whether it has the form of an id that a runner gets here."""
    return _RUNNER.fullmatch(text) is not None


def label_of(text: str) -> str:
    """Any text as the value of a label: itself where it can be, readable for a path, and else a digest."""
    if _LABEL.fullmatch(text):
        return text
    if _ROOTED.fullmatch(text):
        return f"root{text}"
    return f"sha.{blake2b(text.encode(), digest_size=9).hexdigest()}"


class Executor(BaseModel):
    """What a runner of dialect C executes with."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: Said | None = None
    command: Said | None = None
    config: JsonValue = None


class OwnedAgent(BaseModel):
    """An agent that a runner brings along, and nobody else has."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Name


class Registration(BaseModel):
    """The body of a registration, in the union of the dialects."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    hostname: Said | None = None
    project_dir: Said | None = None
    executor_type: Said | None = None
    executor_profile: Said | None = None
    executor: Executor | None = None
    tags: Annotated[tuple[Said, ...], Field(max_length=TAGS, fail_fast=True)] = ()
    require_matching_tags: bool = False
    agents: Annotated[tuple[OwnedAgent, ...], Field(max_length=TAGS, fail_fast=True)] = ()
    slots: Annotated[int, Field(ge=1, le=SLOTS_MAX)] | None = None
    queues: Annotated[tuple[Name, ...], Field(fail_fast=True)] = ()

    @classmethod
    def read(cls, body: Any) -> Registration:
        """Read a body, or say in one sentence what is wrong with it."""
        try:
            return cls.model_validate({} if body is None else body)
        except ValidationError as error:
            raise Invalid(one_sentence(error)) from error

    @property
    def dialect(self) -> Dialect:
        """Its dialect, known from the fields that it has."""
        fields = self.model_dump(exclude_none=True)
        return of_registration(fields, fields.get("executor", {}))

    def runner_id(self) -> str:
        """Its id: the same for the same identity, where it says all that its dialect makes one of."""
        parts = [self._part(name) for name in self.dialect.identity]
        if None in parts[:IDENTIFYING]:
            return f"rnr_{secrets.token_hex(6)}"
        return "lnch_" + sha256(":".join(part or "" for part in parts).encode()).hexdigest()[:12]

    def _part(self, name: str) -> str | None:
        if name == "executor.command":
            return self.executor.command if self.executor is not None else None
        found: str | None = getattr(self, name)
        return found

    @property
    def concurrency(self) -> int:
        """How many runs it takes at a time: as many as there are, unless it says how many."""
        said = next((tag.removeprefix(SLOTS) for tag in self.tags if tag.startswith(SLOTS)), "")
        if said.isdecimal() and 1 <= int(said) <= SLOTS_MAX:
            return int(said)
        return self.slots or SLOTS_MAX

    @property
    def said_queues(self) -> tuple[str, ...]:
        """The queues that it says it serves, in either way."""
        return *(tag.removeprefix(QUEUE) for tag in self.tags if tag.startswith(QUEUE)), *self.queues

    def within(self, queues: tuple[str, ...]) -> Registration:
        """The same for these queues where it names none."""
        return self if self.said_queues or not queues else self.model_copy(update={"queues": queues})

    @property
    def is_procedural(self) -> bool:
        """Whether it runs what is procedural, and nothing else."""
        kind = self.executor.type if self.executor is not None else None
        return PROCEDURAL in (kind, self.executor_type)

    def identity(self, runner: str) -> Identity:
        """The worker that it is."""
        try:
            return Identity(
                id=runner,
                queues=self.said_queues or ("default",),
                labels=self._labels(runner),
                slots=self.concurrency,
                only_matching=self.require_matching_tags,
                only_agents=True,
                about={"host": self.hostname, "runner": self.dialect.name},
            )
        except ValidationError as error:
            raise Invalid(one_sentence(error)) from error

    def _labels(self, runner: str) -> dict[str, str]:
        profile = self.executor_profile or self.executor_type
        said = {HOST: self.hostname or runner, HOSTNAME: self.hostname, PROJECT: self.project_dir, PROFILE: profile}
        labels = {name: label_of(value) for name, value in said.items() if value}
        labels |= {TYPE: PROCEDURAL if self.is_procedural else AUTONOMOUS, HOOKS: YES, ANY_AGENT: READY}
        for agent in self.agents:
            labels |= {f"{AGENT_LABEL}{agent.name}": READY, f"{OWNS}{agent.name}": YES}
        tags = (tag for tag in self.tags if not tag.startswith((SLOTS, QUEUE)))
        return labels | {f"{TAG}{label_of(tag)}": YES for tag in tags}
