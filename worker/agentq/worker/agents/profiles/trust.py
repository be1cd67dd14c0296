"""Stops a repository from running its own programs through the agent that works on it.

Most agents are told by their arguments not to. Some obey certain files in any case; if those exist, they are
not started unless the submitter trusts the repository.
"""

from __future__ import annotations

import os
from pathlib import Path

from agentq.coordinator.model.agent_options import AgentTurnOptions
from agentq.worker.agents.profiles.profile import Profile


def find_refusal(agent: str, profile: Profile, turn: AgentTurnOptions, folder: Path) -> str | None:
    """One sentence, if the agent must not be started in a folder; None if it may."""
    if turn.trust == "repo":
        return None
    found = find_hostile_file(profile, folder)
    if found is None:
        return None
    return (
        f"{agent} would obey {found}, which is the repository's, and cannot be told not to; look at it, and say "
        "--trust repo if it may."
    )


def find_hostile_file(profile: Profile, folder: Path) -> Path | None:
    """The first of the files that the agent would obey: in its folder, or in one above it, below the home.

    A link counts as what it is called, wherever it leads; the agent would follow it. What lies in the home itself is
    the user's own.
    """
    if not profile.unsafe_files:
        return None
    here = Path(os.path.realpath(folder))
    home = Path(os.path.realpath(os.path.expanduser("~")))
    for above in (here, *here.parents):
        if above == home:
            return None
        for pattern in profile.unsafe_files:
            if os.path.lexists(above / pattern):
                return above / pattern
    return None
