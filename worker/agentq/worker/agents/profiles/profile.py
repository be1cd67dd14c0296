"""A profile: all that agentq knows of one coding agent, as data. The built-in ones are TOML files in `builtin/`.

In lists of arguments, `{session}`, `{model}`, `{prompt_file}`, `{system_file}`, `{cost_usd}` and `{turns}` stand for
what they name, and `{python}` for the interpreter that the worker runs in, each within an argument of its own; nothing
is ever put together for a shell.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from agentq.coordinator.model.field_types import Name, Text, TimeoutMs

Permissions = Literal["read", "edit", "full"]
PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
"""What is filled in, in an argument."""
PLACEHOLDERS = ("session", "model", "prompt_file", "system_file", "cost_usd", "turns", "python")
OWN_PREFIX = "AGENTQ_"
"""What the names of our own variables begin with, which no agent is given: an address, a token."""


def _check_placeholders(words: tuple[str, ...]) -> tuple[str, ...]:
    for name in (name for word in words for name in PLACEHOLDER.findall(word)):
        if name not in PLACEHOLDERS:
            near = get_close_matches(name, PLACEHOLDERS, 1) or PLACEHOLDERS
            raise ValueError(f"nothing stands for {{{name}}}; there is {', '.join(f'{{{each}}}' for each in near)}")
    return words


def _check_variable_patterns(words: tuple[str, ...]) -> tuple[str, ...]:
    for word in words:
        if word.startswith(OWN_PREFIX) or not word.rstrip("*") or "*" in word[:-1]:
            raise ValueError(f"{word!r} cannot be passed on; name a variable that is not agentq's, or GROUP_* for many")
    return words


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
    """Who is billed. Accounts of an agent take turns, in the order in which they stand."""

    env: Variables = {}
    """Variables that make the agent use it; `~`, `$NAME` and `${NAME:-default}` of the worker are filled in."""


class ModelPrice(_ProfileTable):
    """Dollars for a million tokens."""

    input: Annotated[float, Field(ge=0)]
    cached: Annotated[float, Field(ge=0)] = 0
    output: Annotated[float, Field(ge=0)]


class Profile(_ProfileTable):
    """One agent."""

    title: str = ""
    """What people call it."""
    command: Text
    """The program: a name that is looked up on the worker's PATH, or a path. Empty in one that others are like."""
    needs: Globs = ()
    """Other programs that must be there."""
    format: Literal["claude", "codex", "gemini", "opencode", "goose", "aider", "agentq", "text"]
    """The language of its stdout; see `formats/`."""
    args: Arguments = ()
    """What it is always given, before all else."""
    prompt: Literal["stdin", "file"] = "stdin"
    """Where it reads its prompt, which is never an argument."""
    prompt_args: Arguments = ()
    """What comes last: `-`, or `--message-file {prompt_file}`."""
    prompt_characters: Annotated[int, Field(gt=0)] | None = None
    """The longest prompt that it takes."""
    model_args: Arguments = ()
    """With `{model}`, if the run names one."""
    system_args: Arguments = ()
    """With `{system_file}`, if the run has a system prompt; without, that stands before the first prompt of a
    conversation."""
    begin_args: Arguments = ()
    """A new conversation. With `{session}` in it, the agent takes an id that we make, a UUID."""
    resume_args: Arguments = ()
    """Go on with a conversation; empty where that cannot be."""
    fork_args: Arguments = ()
    """Go on from a conversation, as another one."""
    resume_command: Arguments = ()
    """What stands in the place of `args`, when it goes on with a conversation and wants other words for that."""
    fork_command: Arguments = ()
    """The same, when it goes on from a conversation as another one."""
    permissions: dict[Permissions, Arguments]
    """By what the run may do. None of these may ever ask. Without an entry, the agent cannot be held to that."""
    env_permissions: dict[Permissions, Variables] = {}
    """The same, as variables."""
    trusted_args: Arguments = ()
    """For a run that trusts the repository."""
    untrusted_args: Arguments = ()
    """What keeps it from running the hooks, plugins and servers of the repository that it works on."""
    hostile: Globs = ()
    """Files of a repository that it would obey whatever it is told: untrusted, it is not started beside these."""
    cost_args: Arguments = ()
    """With `{cost_usd}`, what is left of a run's dollars, if it has a budget."""
    turns_args: Arguments = ()
    """With `{turns}`, how often it may still ask its model, if that is bounded."""
    env: Variables = {}
    """Variables that it is always given, as they stand here."""
    env_untrusted: Variables = {}
    """Variables for a run that does not trust the repository."""
    env_pass: Annotated[Globs, AfterValidator(_check_variable_patterns)] = ()
    """Variables of the worker's that it needs: its keys, its addresses. `ANTHROPIC_*` is all that begin so."""
    transcript: Text | None = None
    """Where it keeps a conversation, as a glob with `{session}`: what can travel to another host. `~` and `$NAME` or
    `${NAME:-default}` are filled in from the agent's environment. Without it, turns stay on the host."""
    tells_cost: bool = False
    """Whether it says what it cost, at its end at least. Otherwise its tokens are priced."""
    totals: Literal["conversation", "attempt"] = "conversation"
    """What the running totals are of that it tells, if it tells any."""
    prices: dict[Text, ModelPrice] = {}
    """By model: `input`, `cached` and `output`, dollars for a million tokens."""
    accounts: dict[Name, ProfileAccount] = {}
    """Who is billed, the first first; each with the variables, `env`, that make the agent use it."""
    startup_timeout_ms: TimeoutMs = 300_000
    """The longest until it says its first word, where the run does not say."""
    silence_timeout_ms: TimeoutMs = 1_800_000
    """The longest that it may say nothing, where the run does not say."""
    linger_timeout_ms: TimeoutMs = 60_000
    """The longest from its last word to its end, where the run does not say."""
    version_args: Arguments = ("--version",)
    """What makes it say its version; empty where nothing does."""
    login: dict[str, JsonValue] = {}
    """How `agentq agents check` sees whether somebody is logged in: `files` and `env`, of which one is enough, and
    `providers`: files in TOML whose `model_provider` names one of their `model_providers`, with its `env_key`."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        words = {"model_args": "model", "system_args": "system_file", "cost_args": "cost_usd", "turns_args": "turns"}
        for field, word in words.items():
            if getattr(self, field) and not self._fills(word, field):
                raise ValueError(f"{field} has no {{{word}}} in it")
        if (self.prompt == "file") != self._fills("prompt_file", "args", "resume_command", "prompt_args"):
            raise ValueError('{prompt_file} stands in prompt_args if prompt is "file", and only then')
        if self.transcript is not None and "session" not in PLACEHOLDER.findall(self.transcript):
            raise ValueError("transcript has no {session} in it")
        for how in ("resume", "fork"):
            given = getattr(self, f"{how}_args") or getattr(self, f"{how}_command")
            if given and not self._fills("session", f"{how}_args", f"{how}_command"):
                raise ValueError(f"{how}_args has no {{session}} in it")
        return self

    def _fills(self, name: str, *fields: str) -> bool:
        return any(name in PLACEHOLDER.findall(word) for field in fields for word in getattr(self, field))

    @property
    def takes_id(self) -> bool:
        """Whether we make the id of a new conversation, and not the agent."""
        return self._fills("session", "begin_args")

    @property
    def resumes(self) -> bool:
        return self._fills("session", "resume_args", "resume_command")

    @property
    def forks(self) -> bool:
        return self._fills("session", "fork_args", "fork_command")
