"""The times that foreign runners live by, under the names that their own documentation gives them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentq.coordinator.errors import Invalid
from agentq.coordinator.fields import Name, one_sentence

Seconds = Annotated[float, Field(gt=0, le=86_400)]

HOLD_S_MAX = 30.0
"""Their clients give up after 35 s."""
LEASE_BEATS = 2.5
"""A runner may miss one heartbeat and be late with the next."""


class Timing(BaseModel):
    """Each field can be set as a variable of the same name in capitals."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    runner_poll_timeout: Annotated[
        float, Field(gt=0, le=HOLD_S_MAX, description="seconds for which a poll waits for something to come")
    ] = HOLD_S_MAX
    runner_heartbeat_interval: Annotated[Seconds, Field(description="seconds between two heartbeats of a runner")] = 60
    runner_heartbeat_timeout: Annotated[
        Seconds, Field(description="seconds without a word after which a runner is shown as stale")
    ] = 120
    run_no_match_timeout: Annotated[
        float,
        Field(ge=0, le=31 * 86_400, description="seconds after which a run fails that no runner took; 0 is never"),
    ] = 0
    runner_agent: Annotated[Name, Field(description="the agent of a run that names none")] = "claude"

    @property
    def lease_ms(self) -> int:
        """How long a silent runner keeps what it holds."""
        return round(1000 * max(self.runner_heartbeat_timeout, LEASE_BEATS * self.runner_heartbeat_interval))

    @property
    def expires_ms(self) -> int | None:
        """How long a run waits for a runner at the most; None is for as long as it takes."""
        return round(1000 * self.run_no_match_timeout) or None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Timing:
        """Read what is set; everything else has its default."""
        names = {name.upper(): name for name in cls.model_fields}
        found = {names[key]: value for key, value in environment.items() if key in names}
        try:
            return cls.model_validate(found)
        except ValidationError as error:
            wrong = str(error.errors()[0]["loc"][0]).upper()
            raise Invalid(f"A setting in {wrong} is wrong: {one_sentence(error)}") from error
