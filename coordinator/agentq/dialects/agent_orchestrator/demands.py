"""What a foreign run demands of its runner, as demands of ours.

    hostname, project_dir, executor_profile    the label of that name is that
    tags                                       all of them: the label `tag.NAME` is `yes`
    executor_type                              `procedural` is that; anything else may go to whoever is not procedural,
                                               our own workers too

Demands only add to one another. Of two that name the same property differently, the one that stands higher counts: the
runner that brings the agent along, where its conversation is, the blueprint, what the agent is, the request.
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
    """Demands as foreign requests and blueprints spell them."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    hostname: BoundedText | None = None
    project_dir: BoundedText | None = None
    executor_profile: BoundedText | None = None
    executor_type: BoundedText | None = None
    tags: Annotated[tuple[BoundedText, ...], Field(max_length=TAGS_MAX, fail_fast=True)] = ()

    @classmethod
    def read(cls, body: Any) -> DialectDemands:
        """Read demands, or say in one sentence what is wrong with them."""
        try:
            return cls.model_validate(body or {})
        except ValidationError as error:
            raise Invalid(f"The demands are wrong: {describe_error(error)}") from error

    def merge_below(self, higher: DialectDemands) -> DialectDemands:
        """These together with those that stand higher."""
        fields = higher.model_dump(exclude_none=True, exclude={"tags"})
        return self.model_copy(update={**fields, "tags": tuple(dict.fromkeys((*higher.tags, *self.tags)))})

    def to_demands(self) -> dict[str, str]:
        """As demands of ours."""
        fields: Mapping[str, str | None] = self.model_dump(exclude={"tags"})
        labels = {
            LABEL_BY_FIELD[name]: make_label(text) for name, text in fields.items() if text and name in LABEL_BY_FIELD
        }
        kind = PROCEDURAL if self.executor_type == PROCEDURAL else f"!={PROCEDURAL}"
        return labels | {TYPE_LABEL: kind} | {f"{TAG_LABEL_PREFIX}{make_label(tag)}": YES for tag in self.tags}
