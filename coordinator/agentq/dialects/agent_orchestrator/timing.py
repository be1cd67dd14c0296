"""Times of the runner protocol: settings of the server, which variables with the protocol's own names override."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from agentq.coordinator.config.server_settings import ServerSettings
from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.field_types import describe_error

LEASE_BEATS = 2.5
"""A runner may miss one heartbeat and be late with the next."""
SETTING_NAMES = (
    *("runner_poll_timeout", "runner_heartbeat_interval", "runner_heartbeat_timeout"),
    *("run_no_match_timeout", "runner_agent"),
)


@dataclass(frozen=True, slots=True)
class RunnerTiming:
    """Times in seconds, as in the protocol. Clients give up a poll after 35 s, so it is held for at most 30 s."""

    runner_poll_timeout: float = 30
    runner_heartbeat_interval: float = 60
    runner_heartbeat_timeout: float = 120
    run_no_match_timeout: float = 0
    runner_agent: str = "claude"

    @property
    def lease_ms(self) -> int:
        """How long a silent runner keeps its runs."""
        return round(1000 * max(self.runner_heartbeat_timeout, LEASE_BEATS * self.runner_heartbeat_interval))

    @property
    def expires_ms(self) -> int | None:
        """How long a run waits for a runner; None means without end."""
        return round(1000 * self.run_no_match_timeout) or None

    @classmethod
    def from_settings(cls, server: ServerSettings, environment: Mapping[str, str] = os.environ) -> RunnerTiming:
        """The settings, overridden by environment variables."""
        variables = {name: environment[name.upper()] for name in SETTING_NAMES if name.upper() in environment}
        try:
            checked = ServerSettings.model_validate({**server.model_dump(include=set(SETTING_NAMES)), **variables})
        except ValidationError as error:
            wrong = str(error.errors()[0]["loc"][0]).upper()
            raise Invalid(f"A setting in {wrong} is wrong: {describe_error(error)}") from error
        return cls(**{name: getattr(checked, name) for name in SETTING_NAMES})
