"""A profile: everything agentq knows of one coding agent, as data. The built-in ones are TOML files in `builtin/`.

Lists of arguments may contain the placeholders `{session}`, `{model}`, `{prompt_file}`, `{system_file}`, `{cost_usd}`,
`{turns}` and `{python}` (the worker's interpreter). A value never splits into several arguments; no shell is used.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from agentq.coordinator.model.field_types import Name, Text, TimeoutMs

Permissions = Literal["read", "edit", "full"]
PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
"""A placeholder in an argument."""
PLACEHOLDERS = ("session", "model", "prompt_file", "system_file", "cost_usd", "turns", "python")
OWN_PREFIX = "AGENTQ_"
"""The prefix of agentq's own variables, such as address and token, which no agent is given."""


def _check_placeholders(arguments: tuple[str, ...]) -> tuple[str, ...]:
    for name in (name for argument in arguments for name in PLACEHOLDER.findall(argument)):
        if name not in PLACEHOLDERS:
            similar = get_close_matches(name, PLACEHOLDERS, 1) or PLACEHOLDERS
            raise ValueError(f"there is no {{{name}}}; there is {', '.join(f'{{{each}}}' for each in similar)}")
    return arguments


def _check_variable_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in patterns:
        if pattern.startswith(OWN_PREFIX) or not pattern.rstrip("*") or "*" in pattern[:-1]:
            raise ValueError(
                f"{pattern!r} cannot be passed on; name a variable that is not agentq's, or GROUP_* for many"
            )
    return patterns


def _refuse_own_variables(variables: dict[str, str]) -> dict[str, str]:
    for name in variables:
        if not name or "=" in name or name.startswith(OWN_PREFIX):
            raise ValueError(f"{name!r} is not the name of a variable that an agent can be given")
    return variables


Arguments = Annotated[tuple[Text, ...], Field(strict=False), AfterValidator(_check_placeholders)]
Globs = Annotated[tuple[Text, ...], Field(strict=False)]
Variables = Annotated[dict[Text, Text], AfterValidator(_refuse_own_variables)]


class _ProfileTable(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class ProfileAccount(_ProfileTable):
    """One account that is billed. The accounts of an agent are used in the order in which they are listed."""

    env: Variables = {}
    """Variables that select it; `~`, `$NAME` and `${NAME:-default}` are expanded from the worker's environment."""


class ModelPrice(_ProfileTable):
    """Dollars per million tokens."""

    input: Annotated[float, Field(ge=0)]
    cached: Annotated[float, Field(ge=0)] = 0
    output: Annotated[float, Field(ge=0)]


class Profile(_ProfileTable):
    """One agent."""

    title: str = ""
    """The name shown to people."""
    command: Text
    """The program: a name on the worker's PATH, or a path. Empty in a profile that is only a base for others."""
    needs: Globs = ()
    """Other programs that must be installed."""
    format: Literal["claude", "codex", "gemini", "opencode", "goose", "aider", "agentq", "text"]
    """The format of its stdout; see `formats/`."""
    args: Arguments = ()
    """Arguments of every start; they come first."""
    prompt: Literal["stdin", "file"] = "stdin"
    """Where it reads its prompt. A prompt is never an argument."""
    prompt_args: Arguments = ()
    """The last arguments, such as `-` or `--message-file {prompt_file}`."""
    prompt_characters: Annotated[int, Field(gt=0)] | None = None
    """The length limit of a prompt."""
    model_args: Arguments = ()
    """Arguments with `{model}`, used if the run names a model."""
    system_args: Arguments = ()
    """Arguments with `{system_file}`, used if the run has a system prompt. Without them, it is put before the first
    prompt of a conversation."""
    begin_args: Arguments = ()
    """Arguments for a new conversation. With `{session}`, agentq chooses its id, a UUID."""
    resume_args: Arguments = ()
    """Arguments to continue a conversation; empty if it cannot."""
    fork_args: Arguments = ()
    """Arguments to start a new conversation from an existing one; empty if it cannot."""
    resume_command: Arguments = ()
    """Replaces `args` when a conversation is continued, if that needs another subcommand."""
    fork_command: Arguments = ()
    """Replaces `args` when a new conversation is started from an existing one."""
    permissions: dict[Permissions, Arguments]
    """Arguments by permission; with them the agent must never ask. Without an entry, runs with it are refused."""
    env_permissions: dict[Permissions, Variables] = {}
    """Variables by permission."""
    trusted_args: Arguments = ()
    """Arguments for a run that trusts the repository."""
    untrusted_args: Arguments = ()
    """Arguments that stop it from running hooks, plugins and servers of the repository."""
    unsafe_files: Globs = ()
    """Files of a repository that it always obeys; with them, a run that does not trust the repository is refused."""
    cost_args: Arguments = ()
    """Arguments with `{cost_usd}`, the rest of the run's cost budget, used if it has one."""
    turns_args: Arguments = ()
    """Arguments with `{turns}`, the model requests that are left, used if they are limited."""
    env: Variables = {}
    """Variables of every start, without expansion."""
    env_untrusted: Variables = {}
    """Variables for a run that does not trust the repository."""
    env_pass: Annotated[Globs, AfterValidator(_check_variable_patterns)] = ()
    """Variables passed on from the worker, such as keys and addresses. `ANTHROPIC_*` matches a prefix."""
    transcript: Text | None = None
    """Files of a conversation, as a glob with `{session}`; copied to another host when needed. `~`, `$NAME` and
    `${NAME:-default}` are expanded from the agent's environment. Without it, a conversation stays on its host."""
    reports_cost: bool = False
    """Whether it reports its cost, at least at its end. Otherwise the cost is computed from tokens and `prices`."""
    totals: Literal["conversation", "attempt"] = "conversation"
    """What its running totals count, if it reports any."""
    prices: dict[Text, ModelPrice] = {}
    """By model: `input`, `cached` and `output`, dollars per million tokens."""
    accounts: dict[Name, ProfileAccount] = {}
    """The accounts in order of use, each with the variables, `env`, that select it."""
    startup_timeout_ms: TimeoutMs = 300_000
    """Time limit until its first output; a run can set its own."""
    silence_timeout_ms: TimeoutMs = 1_800_000
    """Time limit between outputs; a run can set its own."""
    linger_timeout_ms: TimeoutMs = 60_000
    """Time limit from its result to its exit; a run can set its own."""
    version_args: Arguments = ("--version",)
    """Arguments that print its version; empty if there are none."""
    login: dict[str, JsonValue] = {}
    """How `agentq agents check` detects a login: `files` and `env`, of which one is enough, and `providers`: TOML files
    whose `model_provider` names one of their `model_providers`, with its `env_key`."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        placeholders = {
            "model_args": "model",
            "system_args": "system_file",
            "cost_args": "cost_usd",
            "turns_args": "turns",
        }
        for field, placeholder in placeholders.items():
            if getattr(self, field) and not self._has_placeholder(placeholder, field):
                raise ValueError(f"{field} has no {{{placeholder}}} in it")
        if (self.prompt == "file") != self._has_placeholder("prompt_file", "args", "resume_command", "prompt_args"):
            raise ValueError('{prompt_file} stands in prompt_args if prompt is "file", and only then')
        if self.transcript is not None and "session" not in PLACEHOLDER.findall(self.transcript):
            raise ValueError("transcript has no {session} in it")
        for mode in ("resume", "fork"):
            given = getattr(self, f"{mode}_args") or getattr(self, f"{mode}_command")
            if given and not self._has_placeholder("session", f"{mode}_args", f"{mode}_command"):
                raise ValueError(f"{mode}_args has no {{session}} in it")
        return self

    def _has_placeholder(self, name: str, *fields: str) -> bool:
        return any(name in PLACEHOLDER.findall(each) for field in fields for each in getattr(self, field))

    @property
    def takes_id(self) -> bool:
        """Whether agentq, not the agent, chooses the id of a new conversation."""
        return self._has_placeholder("session", "begin_args")

    @property
    def resumes(self) -> bool:
        return self._has_placeholder("session", "resume_args", "resume_command")

    @property
    def forks(self) -> bool:
        return self._has_placeholder("session", "fork_args", "fork_command")
