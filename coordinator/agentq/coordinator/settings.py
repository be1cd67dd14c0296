"""What a user may set, from the environment, with the relations that must hold between the times."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agentq.coordinator.errors import Invalid
from agentq.coordinator.limits import PARTITIONS
from agentq.coordinator.run import one_sentence

PREFIX = "AGENTQ_"

Milliseconds = Annotated[int, Field(gt=0, le=86_400_000)]


class Settings(BaseModel):
    """Each field can be set as AGENTQ_<NAME> in capitals."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: Annotated[str, Field(description="the server; without it, agentq brings its own")] = ""
    namespace: Annotated[str, Field(description="a name that keeps installations on one server apart")] = "default"
    partitions: Annotated[
        int, Field(ge=1, le=PARTITIONS, description="slots of a cluster that the namespace is spread over")
    ] = 1
    heartbeat_ms: Annotated[Milliseconds, Field(description="how often a worker renews its lease")] = 5_000
    lease_ms: Annotated[Milliseconds, Field(description="how long a silent worker is taken to be alive")] = 30_000
    reap_grace_ms: Annotated[Milliseconds, Field(description="time between a reaper's mark and its sweep")] = 2_500
    forget_ms: Annotated[
        Milliseconds, Field(description="how long a live worker may not know of a run that it holds")
    ] = 15_000
    tick_ms: Annotated[Milliseconds, Field(description="the longest time between two rounds of a duty")] = 5_000

    @model_validator(mode="after")
    def _times_fit(self) -> Self:
        if self.heartbeat_ms * 3 > self.lease_ms:
            raise ValueError("lease_ms must be at least three times heartbeat_ms, or one late heartbeat costs the runs")
        if self.forget_ms < 2 * self.heartbeat_ms:
            raise ValueError("forget_ms must be at least twice heartbeat_ms, or a reply on its way looks forgotten")
        if self.reap_grace_ms > self.lease_ms:
            raise ValueError("reap_grace_ms must not exceed lease_ms")
        return self

    @classmethod
    def checked(cls, **values: object) -> Settings:
        """Make settings, or say in one sentence what is wrong with them."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise Invalid(f"A setting is wrong: {one_sentence(error)}") from error

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read what is set; everything else has its default."""
        names = {PREFIX + name.upper(): name for name in cls.model_fields}
        return cls.checked(**{names[key]: value for key, value in environment.items() if key in names})
