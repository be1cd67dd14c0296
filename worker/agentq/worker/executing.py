"""Which kind of attempt a claim becomes."""

from __future__ import annotations

from agentq.coordinator.queue import Claim
from agentq.coordinator.run import spec_from_wire
from agentq.worker.agents.surroundings import Agents
from agentq.worker.attempt import Attempt, Surroundings


def attempt_of(claim: Claim, surroundings: Surroundings, agents: Agents) -> Attempt:
    """What executes it; raises where it cannot be read."""
    spec = spec_from_wire(claim.spec, claim.lane)
    if spec.kind == "agent":
        from agentq.worker.agents.attempt import AgentAttempt  # which most workers never need

        return AgentAttempt(claim, spec, surroundings, agents)
    return Attempt(claim, spec, surroundings)
