"""Builds the command that starts an agent: arguments, input and environment, from a profile and a launch request.

Starts nothing. The prompt goes to stdin or into a file, never into an argument; no shell is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.agent_options import AgentBudgets, AgentTurnOptions
from agentq.worker.agents.accounts import billing
from agentq.worker.agents.profiles import templates
from agentq.worker.agents.profiles.profile import OWN_PREFIX, Profile

PASSED_VARIABLES = frozenset(
    (
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        *("NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"),
        *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"),
    )
)
"""Variables of the worker that every agent gets: proxies, certificates, folders for its files."""
PROGRAM_FOLDERS = (".local/bin", ".claude/local", ".opencode/bin", ".npm-global/bin", ".bun/bin", "bin")
"""Folders below the home that installers of agents use. Searched after PATH, which often lacks them in a service."""

ConversationMode = Literal["begin", "resume", "fork"]


@dataclass(frozen=True, slots=True)
class AgentLaunch:
    """A request to start an agent."""

    agent: str
    profile: Profile
    prompt: str
    turn: AgentTurnOptions = field(default_factory=AgentTurnOptions)
    account: str = billing.DEFAULT_ACCOUNT
    mode: ConversationMode = "begin"
    session: str | None = None
    """The agent's id of the conversation to continue or fork; for a new one, the id that agentq chose."""
    model: str | None = None
    """The conversation's model, used if the turn names none."""
    remaining: AgentBudgets | None = None
    """The remaining budgets; None if nothing has been spent of the turn's budgets."""
    prompt_file: Path | None = None
    """The path of the prompt file, for an agent that reads one."""
    system_file: Path | None = None
    """The path of the system prompt file, for an agent that reads one."""

    @property
    def gives_system_file(self) -> bool:
        """Whether the agent reads its system prompt from a file."""
        return bool(self.turn.system_prompt and self.profile.system_args)


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """A command to start, with its input and environment."""

    argv: tuple[str, ...]
    stdin: bytes
    prompt_file: bytes | None
    """The content of the prompt file; None for an agent that reads its prompt from stdin."""
    system_file: bytes | None
    """The content of the system prompt file; None without a system prompt, or if it is part of the prompt."""
    env: dict[str, str]
    """Variables that override those of every run; the run's own variables override them."""


def build_command(launch: AgentLaunch, inherited: Mapping[str, str] = os.environ) -> AgentCommand:
    """Build the command, with the worker's environment. Raises `Invalid` if the agent cannot do what is requested."""
    profile = launch.profile
    prompt = _build_prompt_bytes(launch)
    program = find_executable(profile.command, inherited)
    if program is None:
        raise Invalid(f"The agent {launch.agent} is not installed here: there is no {profile.command}.")
    in_file = profile.prompt == "file"
    if in_file and launch.prompt_file is None:
        raise Invalid(f"The agent {launch.agent} reads its prompt from a file, and there is none.")
    return AgentCommand(
        argv=(program, *_build_arguments(launch)),
        stdin=b"" if in_file else prompt,
        prompt_file=prompt if in_file else None,
        system_file=_encode_text(launch.turn.system_prompt or "") if launch.gives_system_file else None,
        env=_build_environment(launch, inherited, program),
    )


def find_executable(command: str, inherited: Mapping[str, str]) -> str | None:
    """The absolute path of a profile's program; None if it is not installed."""
    import shutil

    if command == "{python}":
        return sys.executable
    found = shutil.which(command, path=inherited.get("PATH", os.defpath))
    if found is None and "/" not in command and "HOME" in inherited:
        found = shutil.which(command, path=os.pathsep.join(f"{inherited['HOME']}/{each}" for each in PROGRAM_FOLDERS))
    return os.path.abspath(found) if found else None


def _build_prompt_bytes(launch: AgentLaunch) -> bytes:
    length_max, prompt = launch.profile.prompt_characters, launch.prompt
    if not prompt.strip():
        raise Invalid("The prompt is empty; say what the agent is to do.")
    if launch.turn.system_prompt and launch.mode == "begin" and not launch.gives_system_file:
        prompt = f"{launch.turn.system_prompt}\n\n{prompt}"
    if length_max is not None and len(prompt) > length_max:
        raise Invalid(
            f"The prompt has {len(prompt)} characters, and {launch.agent} takes {length_max} at the most; put the rest "
            "in a file of its folder."
        )
    return _encode_text(prompt)


def _encode_text(text: str) -> bytes:
    """Encode without NUL, which ends the text for some programs, and without lone surrogates."""
    return text.replace("\0", "\ufffd").encode(errors="replace")


def _build_arguments(launch: AgentLaunch) -> list[str]:
    """In this order: fixed arguments, model, system prompt, permissions, trust, budgets, conversation, prompt."""
    profile, turn, budgets = launch.profile, launch.turn, launch.remaining or launch.turn.budgets
    values = {"python": sys.executable}
    arguments = _build_opening(launch)
    model = launch.model if turn.model is None else turn.model
    if model is not None:
        arguments += _require_supported(profile.model_args, launch, "be told which model to use")
        values["model"] = model
    if launch.gives_system_file:
        arguments += profile.system_args
        values["system_file"] = str(launch.system_file)
    if turn.permissions not in profile.permissions:
        raise Invalid(
            f"The agent {launch.agent} cannot be held to {turn.permissions!r}; it takes the permissions "
            f"{' or '.join(profile.permissions)}."
        )
    arguments += profile.permissions[turn.permissions]
    arguments += profile.trusted_args if turn.trust == "repo" else profile.untrusted_args
    if budgets is not None and budgets.cost_usd is not None and profile.cost_args:
        arguments += profile.cost_args
        values["cost_usd"] = f"{budgets.cost_usd:.6f}".rstrip("0").rstrip(".")
    if budgets is not None and budgets.turns is not None and profile.turns_args:
        arguments += profile.turns_args
        values["turns"] = str(budgets.turns)
    if launch.session is not None:
        values["session"] = launch.session
    if launch.prompt_file is not None:
        values["prompt_file"] = str(launch.prompt_file)
    return templates.fill_arguments([*arguments, *_build_conversation(launch), *profile.prompt_args], values)


def _build_opening(launch: AgentLaunch) -> list[str]:
    profile = launch.profile
    replacement = {"begin": (), "resume": profile.resume_command, "fork": profile.fork_command}[launch.mode]
    return list(replacement or profile.args)


def _build_conversation(launch: AgentLaunch) -> list[str]:
    """The arguments to begin, continue or fork a conversation."""
    profile = launch.profile
    if launch.mode == "begin":
        return list(profile.begin_args if launch.session is not None or not profile.takes_id else ())
    is_supported, action = {
        "resume": (profile.resumes, "go on with a conversation"),
        "fork": (profile.forks, "go on from a conversation as another one"),
    }[launch.mode]
    if not is_supported:
        raise Invalid(f"The agent {launch.agent} cannot {action}.")
    return list(profile.resume_args if launch.mode == "resume" else profile.fork_args)


def _require_supported(arguments: tuple[str, ...], launch: AgentLaunch, action: str) -> tuple[str, ...]:
    if not arguments:
        raise Invalid(f"The agent {launch.agent} cannot {action}.")
    return arguments


def _build_environment(launch: AgentLaunch, inherited: Mapping[str, str], program: str) -> dict[str, str]:
    """Variables passed on from the worker, overridden by those of profile, permissions, trust and account, in order."""
    profile, turn = launch.profile, launch.turn
    variables = {name: value for name, value in inherited.items() if is_variable_passed(profile, name)}
    variables |= _extend_path(inherited, program)
    configured = dict(profile.env)
    configured |= profile.env_permissions.get(turn.permissions, {})
    configured |= {} if turn.trust == "repo" else profile.env_untrusted
    return variables | configured | billing.build_account_variables(profile, launch.account, inherited)


def is_variable_passed(profile: Profile, name: str) -> bool:
    """Whether a variable of the worker is passed on to an agent. agentq's own never are."""
    if name.startswith(OWN_PREFIX):
        return False
    return name in PASSED_VARIABLES or any(
        name.startswith(each[:-1]) if each.endswith("*") else name == each for each in profile.env_pass
    )


def _extend_path(inherited: Mapping[str, str], program: str) -> dict[str, str]:
    """PATH extended by the program's folder, if it is not on PATH: what it depends on is often there too."""
    path, folder = inherited.get("PATH", os.defpath), os.path.dirname(program)
    if program == sys.executable or folder in path.split(os.pathsep):
        return {}
    return {"PATH": f"{path}{os.pathsep}{folder}"}
