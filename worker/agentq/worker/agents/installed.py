"""Which agents are on this host, and the labels by which runs find them. No process is started to find out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agentq.coordinator.turn import AGENT_LABEL, READY, SHUT
from agentq.worker.agents.launching import find
from agentq.worker.agents.profile import Profile
from agentq.worker.agents.profiles import Profiles


@dataclass(frozen=True, slots=True)
class Installed:
    """The programs of those that are here, by the names of the agents."""

    programs: Mapping[str, str]

    @classmethod
    def found(cls, profiles: Profiles, environment: Mapping[str, str] = os.environ) -> Installed:
        """Those of which every program is there that they need."""
        programs = {name: program_of(profiles.get(name), environment) for name in profiles.names()}
        return cls({name: program for name, program in programs.items() if program is not None})

    def labels(self, shut: Iterable[str] = ()) -> dict[str, str]:
        """What a worker here offers; an agent of which all accounts are at their limits is `shut`."""
        closed = set(shut)
        return {f"{AGENT_LABEL}{name}": SHUT if name in closed else READY for name in self.programs}


def program_of(profile: Profile, environment: Mapping[str, str]) -> str | None:
    """Where its program is; for one that comes with agentq and drives another, where that one is."""
    found = {need: find(need, environment) for need in (profile.command, *profile.needs)}
    if None in found.values():
        return None
    return found[profile.needs[0]] if profile.needs else found[profile.command]
