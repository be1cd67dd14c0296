"""A profile: all that agentq knows of one coding agent, as data. The built-in ones are TOML files in `builtin/`.

In lists of arguments, `{session}`, `{model}`, `{prompt_file}`, `{cost_usd}` and `{turns}` stand for what they name,
each within an argument of its own; nothing is ever put together for a shell.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from agentq.coordinator.fields import Name, Text, Timeout

Permissions = Literal["read", "edit", "full"]
Words = Annotated[tuple[Text, ...], Field(strict=False)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Account(_Table):
    """Who is billed. Accounts of an agent take turns, in the order in which they stand."""

    env: dict[Text, Text] = {}
    """Variables that make the agent use it; `~` and `$NAME` of the worker are filled in."""


class Price(_Table):
    """Dollars for a million tokens."""

    input: Annotated[float, Field(ge=0)]
    cached: Annotated[float, Field(ge=0)] = 0
    output: Annotated[float, Field(ge=0)]


class Profile(_Table):
    """One agent."""

    title: str = ""
    command: Text
    """The program: a name that is looked up on the worker's PATH, or a path."""
    format: Literal["claude", "codex", "gemini", "opencode", "goose", "aider", "agentq", "text"]
    """The language of its stdout; see `formats/`."""
    args: Words = ()
    """What it is always given, before all else."""
    prompt: Literal["stdin", "file"] = "stdin"
    prompt_args: Words = ()
    """What comes last: `-`, or `--message-file {prompt_file}`."""
    model_args: Words = ()
    begin_args: Words = ()
    """A new conversation. With `{session}` in it, the agent takes an id that we make, a UUID."""
    resume_args: Words = ()
    """Go on with a conversation; empty where that cannot be."""
    fork_args: Words = ()
    """Go on from a conversation, as another one."""
    resume_command: Words = ()
    """What stands in the place of `args`, when it goes on with a conversation and wants other words for that."""
    permissions: dict[Permissions, Words]
    """By what the run may do. None of these may ever ask."""
    trusted_args: Words = ()
    untrusted_args: Words = ()
    """What keeps it from running the hooks, plugins and servers of the repository that it works on."""
    hostile: Words = ()
    """Files of a repository that it would obey whatever it is told: untrusted, it is not started beside these."""
    cost_args: Words = ()
    turns_args: Words = ()
    env: dict[Text, Text] = {}
    env_untrusted: dict[Text, Text] = {}
    env_pass: Words = ()
    """Variables of the worker's that it needs: its keys, its addresses."""
    transcript: Text | None = None
    """Where it keeps a conversation, as a glob with `{session}`: what can travel to another host. `~` and `$NAME` or
    `${NAME:-default}` are filled in from the agent's environment. Without it, turns stay on the host."""
    totals: Literal["run", "session"] = "run"
    """Whether the numbers that it tells are of one process, or of the whole conversation."""
    tells_cost: bool = False
    prices: dict[Text, Price] = {}
    accounts: dict[Name, Account] = {}
    startup_timeout_ms: Timeout = 300_000
    silence_timeout_ms: Timeout = 1_800_000
    linger_timeout_ms: Timeout = 60_000
    version_args: Words = ("--version",)
    login: dict[str, JsonValue] = {}
    """How `agentq agents check` sees whether somebody is logged in: `files` and `env`, of which one is enough."""
