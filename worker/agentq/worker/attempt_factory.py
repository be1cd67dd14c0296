"""Creates the attempt that executes a claim."""

from __future__ import annotations

from agentq.coordinator.model.spec import parse_spec
from agentq.coordinator.runs.verbs import Claim
from agentq.worker.agents.agent_context import AgentContext
from agentq.worker.attempt import AttemptContext, RunAttempt


def create_attempt(claim: Claim, context: AttemptContext, agents: AgentContext) -> RunAttempt:
    """The attempt for the claim's kind of run; raises if the spec cannot be parsed."""
    spec = parse_spec(claim.spec, claim.lane)
    if spec.kind == "agent":
        from agentq.worker.agents.agent_attempt import AgentAttempt  # which most workers never need

        return AgentAttempt(claim, spec, context, agents)
    return RunAttempt(claim, spec, context)
