"""Options of a run of an agent beside its prompt."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from agentq.coordinator.bounds import PROMPT_BYTES
from agentq.coordinator.model.field_types import ModelName, Name, TimeoutMs, limit_bytes

AGENT_LABEL = "agent."
"""What the labels of workers begin with that tell which agents are there: `agent.claude=ready`."""
ANY_AGENT_LABEL = f"{AGENT_LABEL}@any"
"""The label of a worker that takes runs of whatever agent; no agent can have that name."""
AGENT_READY, AGENT_BLOCKED = "ready", "shut"
"""Whether a worker can take runs of an agent; or all accounts that it has there are at their limits."""


def account_limit_key(agent: str, account: str) -> str:
    """The key under which nobody is let in while an account is at its limit."""
    return f"account:{agent}:{account}"


class AgentBudgets(BaseModel):
    """What may be spent, at the most."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    cost_usd: Annotated[float, Field(gt=0, strict=False)] | None = None
    tokens: Annotated[int, Field(gt=0)] | None = None
    turns: Annotated[int, Field(gt=0)] | None = None
    """How often the model may be asked."""


class AgentTurnOptions(BaseModel):
    """How the agent is to work. What is None is as its profile has it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    model: ModelName | None = None
    system_prompt: Annotated[str, limit_bytes(PROMPT_BYTES, "the system prompt")] | None = None
    """What the agent is told of its task in general, beside the instructions that it has by itself."""
    permissions: Literal["read", "edit", "full"] = "edit"
    """What it may do without asking; there is nobody to ask."""
    trust: Literal["none", "repo"] = "none"
    """Whether the hooks, plugins and servers of the repository that it works on may run."""
    account: Name | None = None
    """Who is billed, if not whoever's turn it is."""
    budgets: AgentBudgets | None = None
    """Of this run, in all its attempts."""
    expects: Literal["anything", "changes"] = "anything"
    """With `changes`, an end without any in its folder is `no_output`, unless the agent declares that it is right."""
    on_limit: Literal["defer", "fail"] = "defer"
    """What becomes of the run when the account is at its limit."""
    startup_timeout_ms: TimeoutMs | None = None
    linger_timeout_ms: TimeoutMs | None = None
