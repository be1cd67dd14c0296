"""How an agent is started: its arguments, what it reads, and its environment, made of a profile and of what is asked.

Nothing here looks at the world: `start` says all that is to be done, or in one sentence why it cannot be. The prompt
goes by stdin or in a file, never as an argument; no shell sees anything.
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
"""What every agent is given of the worker's environment: the way to its service, and where it keeps its own."""
PROGRAM_FOLDERS = (".local/bin", ".claude/local", ".opencode/bin", ".npm-global/bin", ".bun/bin", "bin")
"""Where agents' installers put them, below the home: looked at after PATH, which a service often has not set so."""

ConversationMode = Literal["begin", "resume", "fork"]


@dataclass(frozen=True, slots=True)
class AgentLaunch:
    """What is to be started."""

    agent: str
    profile: Profile
    prompt: str
    turn: AgentTurnOptions = field(default_factory=AgentTurnOptions)
    account: str = billing.DEFAULT_ACCOUNT
    mode: ConversationMode = "begin"
    session: str | None = None
    """The agent's own id of the conversation: what to go on with or from, or the one that we made for a new one."""
    model: str | None = None
    """Where the turn names none: the conversation's."""
    remaining: AgentBudgets | None = None
    """What may still be spent; the turn's budgets, if nothing has been."""
    prompt_file: Path | None = None
    """Where a prompt that goes in a file is going to be."""
    system_file: Path | None = None
    """Where a system prompt that goes in a file is going to be."""

    @property
    def gives_system_file(self) -> bool:
        """Whether the agent reads its system prompt from a file."""
        return bool(self.turn.system_prompt and self.profile.system_args)


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """What it takes."""

    argv: tuple[str, ...]
    stdin: bytes
    prompt_file: bytes | None
    """What to write into the file; None for an agent that reads its prompt on stdin."""
    system_file: bytes | None
    """What to write into that file; None where there is no system prompt, or it stands before the prompt."""
    env: dict[str, str]
    """What it is given beneath the run's own variables, and above what every run is passed."""


def build_command(launch: AgentLaunch, inherited: Mapping[str, str] = os.environ) -> AgentCommand:
    """How to start it, with what a worker has in its environment."""
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
    """The program of a profile, as an absolute path; None where there is none."""
    import shutil

    if command == "{python}":
        return sys.executable
    found = shutil.which(command, path=inherited.get("PATH", os.defpath))
    if found is None and "/" not in command and "HOME" in inherited:
        found = shutil.which(command, path=os.pathsep.join(f"{inherited['HOME']}/{each}" for each in PROGRAM_FOLDERS))
    return os.path.abspath(found) if found else None


def _build_prompt_bytes(launch: AgentLaunch) -> bytes:
    most, prompt = launch.profile.prompt_characters, launch.prompt
    if not prompt.strip():
        raise Invalid("The prompt is empty; say what the agent is to do.")
    if launch.turn.system_prompt and launch.mode == "begin" and not launch.gives_system_file:
        prompt = f"{launch.turn.system_prompt}\n\n{prompt}"
    if most is not None and len(prompt) > most:
        raise Invalid(
            f"The prompt has {len(prompt)} characters, and {launch.agent} takes {most} at the most; put the rest "
            "in a file of its folder."
        )
    return _encode_text(prompt)


def _encode_text(text: str) -> bytes:
    """A NUL ends the text for some programs, and half a character is none for others."""
    return text.replace("\0", "\ufffd").encode(errors="replace")


def _build_arguments(launch: AgentLaunch) -> list[str]:
    """In this order: what it always gets, model, system prompt, permissions, trust, budgets, conversation, prompt."""
    profile, turn, left = launch.profile, launch.turn, launch.remaining or launch.turn.budgets
    values = {"python": sys.executable}
    words = _build_opening(launch)
    model = launch.model if turn.model is None else turn.model
    if model is not None:
        words += _require_supported(profile.model_args, launch, "be told which model to use")
        values["model"] = model
    if launch.gives_system_file:
        words += profile.system_args
        values["system_file"] = str(launch.system_file)
    if turn.permissions not in profile.permissions:
        raise Invalid(
            f"The agent {launch.agent} cannot be held to {turn.permissions!r}; it takes the permissions "
            f"{' or '.join(profile.permissions)}."
        )
    words += profile.permissions[turn.permissions]
    words += profile.trusted_args if turn.trust == "repo" else profile.untrusted_args
    if left is not None and left.cost_usd is not None and profile.cost_args:
        words += profile.cost_args
        values["cost_usd"] = f"{left.cost_usd:.6f}".rstrip("0").rstrip(".")
    if left is not None and left.turns is not None and profile.turns_args:
        words += profile.turns_args
        values["turns"] = str(left.turns)
    if launch.session is not None:
        values["session"] = launch.session
    if launch.prompt_file is not None:
        values["prompt_file"] = str(launch.prompt_file)
    return templates.fill_arguments([*words, *_build_conversation(launch), *profile.prompt_args], values)


def _build_opening(launch: AgentLaunch) -> list[str]:
    instead = {"begin": (), "resume": launch.profile.resume_command, "fork": launch.profile.fork_command}[launch.mode]
    return list(instead or launch.profile.args)


def _build_conversation(launch: AgentLaunch) -> list[str]:
    """What says whether it begins, or goes on."""
    profile = launch.profile
    if launch.mode == "begin":
        return list(profile.begin_args if launch.session is not None or not profile.takes_id else ())
    can, what = {
        "resume": (profile.resumes, "go on with a conversation"),
        "fork": (profile.forks, "go on from a conversation as another one"),
    }[launch.mode]
    if not can:
        raise Invalid(f"The agent {launch.agent} cannot {what}.")
    return list(profile.resume_args if launch.mode == "resume" else profile.fork_args)


def _require_supported(words: tuple[str, ...], launch: AgentLaunch, what: str) -> tuple[str, ...]:
    if not words:
        raise Invalid(f"The agent {launch.agent} cannot {what}.")
    return words


def _build_environment(launch: AgentLaunch, inherited: Mapping[str, str], program: str) -> dict[str, str]:
    """Later ones win: the worker's that it needs, its profile's, those of its permissions and trust, its account's."""
    profile, turn = launch.profile, launch.turn
    variables = {name: value for name, value in inherited.items() if is_variable_passed(profile, name)}
    variables |= _extend_path(inherited, program)
    own = dict(profile.env)
    own |= profile.env_permissions.get(turn.permissions, {})
    own |= {} if turn.trust == "repo" else profile.env_untrusted
    return variables | own | billing.build_account_variables(profile, launch.account, inherited)


def is_variable_passed(profile: Profile, name: str) -> bool:
    """Whether an agent is given a variable of the worker's; of agentq's own, never one."""
    if name.startswith(OWN_PREFIX):
        return False
    return name in PASSED_VARIABLES or any(
        name.startswith(each[:-1]) if each.endswith("*") else name == each for each in profile.env_pass
    )


def _extend_path(inherited: Mapping[str, str], program: str) -> dict[str, str]:
    """A PATH with the folder of the program, where it was found elsewhere: what it is made of often lies beside it."""
    path, folder = inherited.get("PATH", os.defpath), os.path.dirname(program)
    if program == sys.executable or folder in path.split(os.pathsep):
        return {}
    return {"PATH": f"{path}{os.pathsep}{folder}"}
