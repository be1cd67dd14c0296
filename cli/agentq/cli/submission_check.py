"""Checks runs against what the server has, before they are submitted."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from agentq.cli.connect import print_note

if TYPE_CHECKING:
    from agentq.coordinator.explain.submission import SubmissionCheck
    from agentq.coordinator.model.spec import RunSpec
    from agentq.sdk.backend import Backend


def check_specs(backend: Backend, specs: Iterable[RunSpec]) -> SubmissionCheck | None:
    """What is strange about runs; None if they name nothing that could be. An agent is refused that neither this
    machine has a profile of nor a worker offers."""
    asked = [spec for spec in specs if spec.limits or spec.demands or spec.agent is not None]
    if not asked:
        return None
    found = backend.check(asked)
    if found.unoffered_agents:
        from agentq.worker.agents.profiles.registry import ProfileRegistry

        profiles = ProfileRegistry.load()
        for name in found.unoffered_agents:
            profiles.get(name)
    return found


def check_agent_name(backend: Backend, name: str) -> None:
    """Refuse an agent that neither this machine has a profile of nor a worker offers."""
    from agentq.coordinator.model.spec import RunSpec

    check_specs(backend, [RunSpec(kind="agent", agent=name, prompt="a first turn")])


def note_unset_limits(found: SubmissionCheck | None, *, but: Collection[str] = ()) -> None:
    """Name the limits that are not set, each once; `but` are those that are about to be set."""
    for key, sentence in found.unset_limits.items() if found is not None else ():
        if key not in but:
            print_note(sentence)


def note_unmet_demands(found: SubmissionCheck | None) -> None:
    """Say what no worker offers."""
    for problem in found.unmet.values() if found is not None else ():
        print_note(problem.because)
