"""What may be said of an agent's run, and the spec that it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict, TypeVar

from pydantic import BaseModel, ValidationError

from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.agent_options import AgentBudgets, AgentTurnOptions
from agentq.coordinator.model.field_types import describe_error
from agentq.coordinator.model.spec import RunSpec
from agentq.sdk.options import Duration, Options, build_spec_fields


class AgentOptions(Options, total=False):
    """What may be said of one run of an agent, beside what may be said of any."""

    cwd: str
    """The folder that it works in, on the worker's machine."""
    env: Mapping[str, str]
    model: str
    permissions: Literal["read", "edit", "full"]
    """What the agent may do without asking; a run has no one to ask."""
    trust: Literal["none", "repo"]
    """Whether the hooks, plugins and servers of the repository that it works on may run."""
    account: str
    max_cost: float
    """In dollars, for the run in all its attempts; so are the next two."""
    max_tokens: int
    max_turns: int
    """How often the model may be asked."""
    expects: Literal["anything", "changes"]
    on_limit: Literal["defer", "fail"]
    """What becomes of it when the account is at its limit."""
    silence_timeout: Duration
    startup_timeout: Duration
    linger_timeout: Duration


class SessionOptions(TypedDict, total=False):
    """What may be said of a session that is to begin."""

    agent: str
    cwd: str
    """The folder that it works in, on the worker's machine."""
    model: str
    max_cost: float
    """In dollars, for all turns together; so are the next two."""
    max_tokens: int
    max_turns: int
    fork: str
    """The session to go on from, which goes on by itself."""


_BUDGETS = {"max_cost": "cost_usd", "max_tokens": "tokens", "max_turns": "turns"}
_OPTION_NAMES = {field: option for option, field in _BUDGETS.items()} | {
    "startup_timeout_ms": "startup_timeout",
    "linger_timeout_ms": "linger_timeout",
}
M = TypeVar("M", bound=BaseModel)


def build_agent_spec(agent: str, prompt: str, options: Mapping[str, Any]) -> RunSpec:
    """The spec of a run of this agent."""
    fields = build_spec_fields(options, AgentOptions.__annotations__)
    budgets = take_budgets(fields)
    turn: dict[str, Any] = {name: fields.pop(name) for name in AgentTurnOptions.model_fields.keys() & fields.keys()}
    if budgets is not None:
        turn["budgets"] = budgets
    if turn:
        fields["turn"] = _build_model(AgentTurnOptions, turn)
    return RunSpec.checked(kind="agent", agent=agent, prompt=prompt, **fields)


def take_budgets(fields: dict[str, Any]) -> AgentBudgets | None:
    """The budgets among the options, which are taken out of them."""
    budgets = {_BUDGETS[name]: fields.pop(name) for name in _BUDGETS.keys() & fields.keys()}
    return _build_model(AgentBudgets, budgets) if budgets else None


def _build_model(model: type[M], fields: Mapping[str, Any]) -> M:
    try:
        return model(**fields)
    except ValidationError as error:
        place, _, fault = describe_error(error).partition(": ")
        raise Invalid(f"The option {_OPTION_NAMES.get(place, place)!r}: {fault}") from error
