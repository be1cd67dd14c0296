"""Options of a run of an agent beside its prompt."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from agentq.coordinator.bounds import PROMPT_BYTES
from agentq.coordinator.model.field_types import ModelName, Name, TimeoutMs, limit_bytes

AGENT_LABEL = "agent."
"""Prefix of the labels that tell which agents a worker has: `agent.claude=ready`."""
ANY_AGENT_LABEL = f"{AGENT_LABEL}@any"
"""The label of a worker that takes runs of any agent; no agent can have that name."""
AGENT_READY, AGENT_BLOCKED = "ready", "shut"
"""Whether a worker can take runs of an agent; or all accounts that it has there are at their limits."""


def account_limit_key(agent: str, account: str) -> str:
    """The key of the limit that admits no run while an account is at its limit."""
    return f"account:{agent}:{account}"


class AgentBudgets(BaseModel):
    """Upper bounds of what an agent may spend."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    cost_usd: Annotated[float, Field(gt=0, strict=False)] | None = None
    tokens: Annotated[int, Field(gt=0)] | None = None
    turns: Annotated[int, Field(gt=0)] | None = None
    """Requests to the model."""


class AgentTurnOptions(BaseModel):
    """How the agent is to work. A field that is None is taken from the agent's profile."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    model: ModelName | None = None
    system_prompt: Annotated[str, limit_bytes(PROMPT_BYTES, "the system prompt")] | None = None
    """Instructions for the agent, in addition to its own."""
    permissions: Literal["read", "edit", "full"] = "edit"
    """What the agent may do without asking; a run has no one to ask."""
    trust: Literal["none", "repo"] = "none"
    """Whether hooks, plugins and servers of the repository may run."""
    account: Name | None = None
    """The account that is billed; by default the next one in turn."""
    budgets: AgentBudgets | None = None
    """The budgets of this run, all attempts together."""
    expects: Literal["anything", "changes"] = "anything"
    """With `changes`, an end without any in its folder is `no_output`, unless the agent declares it right."""
    on_limit: Literal["defer", "fail"] = "defer"
    """What happens to the run when the account is at its limit."""
    startup_timeout_ms: TimeoutMs | None = None
    linger_timeout_ms: TimeoutMs | None = None
