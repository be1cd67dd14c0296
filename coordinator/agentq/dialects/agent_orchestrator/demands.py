"""Translates the demands of a request or blueprint into demands of a run.

    hostname, project_dir, executor_profile    the label of that name has that value
    tags                                       for each tag, the label `tag.NAME` is `yes`
    executor_type                              `procedural` demands that; any other value allows every runner that is
                                               not procedural, our own workers too

Demands are merged. If two sources name the same property, the first of these wins: the runner that brings the agent
along, the affinity of the conversation, the blueprint, the agent's type, the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.field_types import describe_error
from agentq.dialects.agent_orchestrator.runners.registration import (
    HOSTNAME_LABEL,
    PROCEDURAL,
    PROFILE_LABEL,
    PROJECT_LABEL,
    TAG_LABEL_PREFIX,
    TAGS_MAX,
    TYPE_LABEL,
    YES,
    BoundedText,
    make_label,
)

LABEL_BY_FIELD = {"hostname": HOSTNAME_LABEL, "project_dir": PROJECT_LABEL, "executor_profile": PROFILE_LABEL}


class DialectDemands(BaseModel):
    """Demands in the format of requests and blueprints."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    hostname: BoundedText | None = None
    project_dir: BoundedText | None = None
    executor_profile: BoundedText | None = None
    executor_type: BoundedText | None = None
    tags: Annotated[tuple[BoundedText, ...], Field(max_length=TAGS_MAX, fail_fast=True)] = ()

    @classmethod
    def read(cls, body: Any) -> DialectDemands:
        """Parse demands, or raise Invalid."""
        try:
            return cls.model_validate(body or {})
        except ValidationError as error:
            raise Invalid(f"The demands are wrong: {describe_error(error)}") from error

    def merge_below(self, higher: DialectDemands) -> DialectDemands:
        """These demands, overridden by `higher`."""
        fields = higher.model_dump(exclude_none=True, exclude={"tags"})
        return self.model_copy(update={**fields, "tags": tuple(dict.fromkeys((*higher.tags, *self.tags)))})

    def to_demands(self) -> dict[str, str]:
        """As demands of a run's spec."""
        fields: Mapping[str, str | None] = self.model_dump(exclude={"tags"})
        labels = {
            LABEL_BY_FIELD[name]: make_label(text) for name, text in fields.items() if text and name in LABEL_BY_FIELD
        }
        kind = PROCEDURAL if self.executor_type == PROCEDURAL else f"!={PROCEDURAL}"
        return labels | {TYPE_LABEL: kind} | {f"{TAG_LABEL_PREFIX}{make_label(tag)}": YES for tag in self.tags}
