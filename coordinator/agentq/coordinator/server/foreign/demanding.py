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
from agentq.coordinator.fields import one_sentence
from agentq.coordinator.server.foreign.registration import (
    HOSTNAME,
    PROCEDURAL,
    PROFILE,
    PROJECT,
    TAG,
    TAGS,
    TYPE,
    YES,
    Said,
    label_of,
)

LABELS = {"hostname": HOSTNAME, "project_dir": PROJECT, "executor_profile": PROFILE}


class Wanted(BaseModel):
    """Demands as foreign requests and blueprints spell them."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    hostname: Said | None = None
    project_dir: Said | None = None
    executor_profile: Said | None = None
    executor_type: Said | None = None
    tags: Annotated[tuple[Said, ...], Field(max_length=TAGS, fail_fast=True)] = ()

    @classmethod
    def read(cls, body: Any) -> Wanted:
        """Read demands, or say in one sentence what is wrong with them."""
        try:
            return cls.model_validate(body or {})
        except ValidationError as error:
            raise Invalid(f"The demands are wrong: {one_sentence(error)}") from error

    def below(self, higher: Wanted) -> Wanted:
        """These together with those that stand higher."""
        said = higher.model_dump(exclude_none=True, exclude={"tags"})
        return self.model_copy(update={**said, "tags": tuple(dict.fromkeys((*higher.tags, *self.tags)))})

    def demands(self) -> dict[str, str]:
        """As demands of ours."""
        told: Mapping[str, str | None] = self.model_dump(exclude={"tags"})
        asked = {LABELS[name]: label_of(text) for name, text in told.items() if text and name in LABELS}
        kind = PROCEDURAL if self.executor_type == PROCEDURAL else f"!={PROCEDURAL}"
        return asked | {TYPE: kind} | {f"{TAG}{label_of(tag)}": YES for tag in self.tags}
