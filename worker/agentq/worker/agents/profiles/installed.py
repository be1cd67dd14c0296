"""Finds the agents installed on this host, and the labels by which runs select them. Starts no process."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agentq.coordinator.model.agent_options import AGENT_BLOCKED, AGENT_LABEL, AGENT_READY
from agentq.worker.agents.profiles.command_line import find_executable
from agentq.worker.agents.profiles.profile import Profile
from agentq.worker.agents.profiles.registry import ProfileRegistry


@dataclass(frozen=True, slots=True)
class InstalledAgents:
    """The programs of those that are here, by the names of the agents."""

    programs: Mapping[str, str]

    @classmethod
    def detect(cls, profiles: ProfileRegistry, environment: Mapping[str, str] = os.environ) -> InstalledAgents:
        """Those of which every program is there that they need."""
        programs = {name: find_program(profiles.get(name), environment) for name in profiles.names()}
        return cls({name: program for name, program in programs.items() if program is not None})

    def labels(self, shut: Iterable[str] = ()) -> dict[str, str]:
        """What a worker here offers; an agent of which all accounts are at their limits is `shut`."""
        closed = set(shut)
        return {f"{AGENT_LABEL}{name}": AGENT_BLOCKED if name in closed else AGENT_READY for name in self.programs}


def find_program(profile: Profile, environment: Mapping[str, str]) -> str | None:
    """Where its program is; for one that comes with agentq and drives another, where that one is."""
    found = {need: find_executable(need, environment) for need in (profile.command, *profile.needs)}
    if None in found.values():
        return None
    return found[profile.needs[0]] if profile.needs else found[profile.command]
