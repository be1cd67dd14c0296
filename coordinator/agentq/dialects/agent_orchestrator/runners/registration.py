"""The registration of a runner in any dialect, and the worker identity that it becomes.

Which fields identify the dialect and the runner is defined in dialect_table.py. A runner that lacks a part of its
identity gets a random id, `rnr_` and 12 digits.

A runner can use tags for settings that its program has no option for: `slots=4` takes four runs at a time,
`queue=nightly` serves that queue.
"""

from __future__ import annotations

import re
import secrets
from hashlib import blake2b, sha256
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.agent_options import AGENT_LABEL, AGENT_READY, ANY_AGENT_LABEL
from agentq.coordinator.model.demands import HOST_LABEL
from agentq.coordinator.model.field_types import Name, describe_error
from agentq.coordinator.workers.identity import WorkerIdentity
from agentq.coordinator.workers.placement import EXECUTOR_TYPE_LABEL
from agentq.dialects.agent_orchestrator.dialect_table import Dialect, match_registration

BoundedText = Annotated[str, Field(max_length=4096)]

HOSTNAME_LABEL, PROJECT_LABEL, PROFILE_LABEL, TAG_LABEL_PREFIX, OWNS_LABEL_PREFIX = (
    "hostname",
    "project_dir",
    "executor_profile",
    "tag.",
    "owns.",
)
TYPE_LABEL = EXECUTOR_TYPE_LABEL
"""Labels for the demands of the dialects."""
HOOKS_LABEL = "hooks"
"""The label of runners, which apply the answers of start hooks."""
YES = "yes"
SLOTS_TAG_PREFIX, QUEUE_TAG_PREFIX = "slots=", "queue="
"""Prefixes of tags that are settings."""
PROCEDURAL, AUTONOMOUS = "procedural", "autonomous"
IDENTITY_PARTS_MIN = 3
"""The first parts of an identity, which a runner needs for a stable id: its host, folder and executor."""
TAGS_MAX = 32
SLOTS_MAX = 1000
"""Runs at a time of a runner that names no number; the runner programs have no limit."""

_LABEL_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@/+-]{0,127}")
_PATH_PATTERN = re.compile(r"/[A-Za-z0-9_.@/+-]{0,120}")
_RUNNER_ID_PATTERN = re.compile(r"(lnch|rnr)_[0-9a-f]{12}")


def is_runner_id(text: str) -> bool:
    """Whether a text has the format of a runner's id."""
    return _RUNNER_ID_PATTERN.fullmatch(text) is not None


def make_label(text: str) -> str:
    """Any text as a valid label value: unchanged if valid, readable for a path, otherwise a digest."""
    if _LABEL_PATTERN.fullmatch(text):
        return text
    if _PATH_PATTERN.fullmatch(text):
        return f"root{text}"
    return f"sha.{blake2b(text.encode(), digest_size=9).hexdigest()}"


class RunnerExecutor(BaseModel):
    """The executor of a runner of dialect C."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: BoundedText | None = None
    command: BoundedText | None = None
    config: JsonValue = None


class OwnedAgent(BaseModel):
    """An agent that only this runner has."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Name


class RunnerRegistration(BaseModel):
    """The body of a registration, with the fields of all dialects."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    hostname: BoundedText | None = None
    project_dir: BoundedText | None = None
    executor_type: BoundedText | None = None
    executor_profile: BoundedText | None = None
    executor: RunnerExecutor | None = None
    tags: Annotated[tuple[BoundedText, ...], Field(max_length=TAGS_MAX, fail_fast=True)] = ()
    require_matching_tags: bool = False
    agents: Annotated[tuple[OwnedAgent, ...], Field(max_length=TAGS_MAX, fail_fast=True)] = ()
    slots: Annotated[int, Field(ge=1, le=SLOTS_MAX)] | None = None
    queues: Annotated[tuple[Name, ...], Field(fail_fast=True)] = ()

    @classmethod
    def read(cls, body: Any) -> RunnerRegistration:
        """Parse a body, or raise Invalid."""
        try:
            return cls.model_validate({} if body is None else body)
        except ValidationError as error:
            raise Invalid(describe_error(error)) from error

    @property
    def dialect(self) -> Dialect:
        """The dialect, recognised by the fields of the body."""
        fields = self.model_dump(exclude_none=True)
        return match_registration(fields, fields.get("executor", {}))

    def runner_id(self) -> str:
        """The id: derived from the identity if it is complete, otherwise random."""
        parts = [self._identity_part(name) for name in self.dialect.identity_fields]
        if None in parts[:IDENTITY_PARTS_MIN]:
            return f"rnr_{secrets.token_hex(6)}"
        return "lnch_" + sha256(":".join(part or "" for part in parts).encode()).hexdigest()[:12]

    def _identity_part(self, name: str) -> str | None:
        if name == "executor.command":
            return self.executor.command if self.executor is not None else None
        found: str | None = getattr(self, name)
        return found

    @property
    def concurrency(self) -> int:
        """How many runs it takes at a time; without a limit unless a tag or field sets one."""
        slots_tag = next(
            (tag.removeprefix(SLOTS_TAG_PREFIX) for tag in self.tags if tag.startswith(SLOTS_TAG_PREFIX)), ""
        )
        if slots_tag.isdecimal() and 1 <= int(slots_tag) <= SLOTS_MAX:
            return int(slots_tag)
        return self.slots or SLOTS_MAX

    @property
    def requested_queues(self) -> tuple[str, ...]:
        """The queues named by tags and by the field."""
        return *(
            tag.removeprefix(QUEUE_TAG_PREFIX) for tag in self.tags if tag.startswith(QUEUE_TAG_PREFIX)
        ), *self.queues

    def with_default_queues(self, queues: tuple[str, ...]) -> RunnerRegistration:
        """The registration with these queues if it names none."""
        return self if self.requested_queues or not queues else self.model_copy(update={"queues": queues})

    @property
    def is_procedural(self) -> bool:
        """Whether it executes only procedural agents."""
        kind = self.executor.type if self.executor is not None else None
        return PROCEDURAL in (kind, self.executor_type)

    def identity(self, runner: str) -> WorkerIdentity:
        """The worker identity."""
        try:
            return WorkerIdentity(
                id=runner,
                queues=self.requested_queues or ("default",),
                labels=self._labels(runner),
                slots=self.concurrency,
                only_matching=self.require_matching_tags,
                only_agents=True,
                about={"host": self.hostname, "runner": self.dialect.name},
            )
        except ValidationError as error:
            raise Invalid(describe_error(error)) from error

    def _labels(self, runner: str) -> dict[str, str]:
        profile = self.executor_profile or self.executor_type
        texts = {
            HOST_LABEL: self.hostname or runner,
            HOSTNAME_LABEL: self.hostname,
            PROJECT_LABEL: self.project_dir,
            PROFILE_LABEL: profile,
        }
        labels = {name: make_label(value) for name, value in texts.items() if value}
        labels |= {
            TYPE_LABEL: PROCEDURAL if self.is_procedural else AUTONOMOUS,
            HOOKS_LABEL: YES,
            ANY_AGENT_LABEL: AGENT_READY,
        }
        for agent in self.agents:
            labels |= {f"{AGENT_LABEL}{agent.name}": AGENT_READY, f"{OWNS_LABEL_PREFIX}{agent.name}": YES}
        tags = (tag for tag in self.tags if not tag.startswith((SLOTS_TAG_PREFIX, QUEUE_TAG_PREFIX)))
        return labels | {f"{TAG_LABEL_PREFIX}{make_label(tag)}": YES for tag in tags}
