"""Chooses the model's answers by a line of the newest prompt, `SCN:word argument`, and by the progress of the
conversation.

No state is kept between requests: an agent sends its whole conversation each time, and finished tool calls are counted
from it. Without such a line the model answers with the prompt that it has read.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath

from agentq.coordinator.clock import wall_ms

SCENARIO_PATTERN = re.compile(r"\bSCN:([\w-]+)[ \t]*([^\n]*)")
FOLDER_PATTERN = re.compile(r"(?:[Ww]orking directory:|<cwd>)\s*(/[^\s<]+)")
FILE_TEXT = "made by the stub\n"
FIVE_HOURS_S = 5 * 3600


@dataclass(frozen=True, slots=True)
class ModelConversation:
    """A request of an agent, in any API."""

    prompts: tuple[str, ...]
    """The prompts, the newest last."""
    done: int
    """Tool calls since the newest prompt."""
    tools: tuple[str, ...]
    """The names of the offered tools."""
    system: str
    model: str
    refused: int = 0
    """How many requests with this prompt were refused before."""

    @property
    def prompt(self) -> str:
        return self.prompts[-1] if self.prompts else ""

    @property
    def scenario(self) -> tuple[str, str]:
        """The scenario and argument of the newest prompt."""
        found = SCENARIO_PATTERN.search(self.prompt)
        return (found[1], found[2].strip()) if found else ("text", "")


@dataclass(frozen=True, slots=True)
class TextAnswer:
    """A text answer, which ends the turn."""

    text: str
    pause_s: float = 0
    """The pause before each word."""
    stop: str = "end"
    """`end`, `refusal` or `length`."""
    cut: bool = False
    """Whether the connection breaks in the middle."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call of one of the agent's tools."""

    tool: str
    input: dict[str, object]


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """An error of the service."""

    why: str
    """`throttled`, `quota`, `overloaded`, `auth`, `credit`, `context` or `input`."""
    after_s: int = 0
    """When to retry; for a quota, when it ends."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The request is never answered."""


ModelAnswer = TextAnswer | ToolUse | ErrorAnswer | NoAnswer


def choose_answer(conversation: ModelConversation) -> ModelAnswer:
    """The model's next answer."""
    word, argument = conversation.scenario
    return SCENARIOS.get(word, _unknown_scenario)(conversation, argument)


def _unknown_scenario(conversation: ModelConversation, _argument: str) -> ModelAnswer:
    return TextAnswer(f"There is no scenario {conversation.scenario[0]}. These are: {', '.join(SCENARIOS)}.")


def _text(conversation: ModelConversation, argument: str) -> ModelAnswer:
    return TextAnswer(argument or f"Prompt {len(conversation.prompts)} was: {conversation.prompt.strip()[:200]}")


def _tool(conversation: ModelConversation, path: str) -> ModelAnswer:
    path = path or "made.txt"
    return TextAnswer(f"I wrote {path}.") if conversation.done else _write_file(conversation, path)


def _shell(conversation: ModelConversation, command: str) -> ModelAnswer:
    return TextAnswer("I ran it.") if conversation.done else _run_command(conversation, command or "true")


def _toolloop(conversation: ModelConversation, times: str) -> ModelAnswer:
    if times and conversation.done >= int(times):
        return TextAnswer(f"I used it {conversation.done} times.")
    return _write_file(conversation, f"made-{conversation.done}.txt")


def _toolsleep(conversation: ModelConversation, seconds: str) -> ModelAnswer:
    """A resumed conversation does not sleep again."""
    if len(conversation.prompts) > 1:
        return TextAnswer(f"I go on, with prompt {len(conversation.prompts)}.")
    # Claude refuses a plain `sleep`.
    return (
        TextAnswer("I slept.")
        if conversation.done
        else _run_command(conversation, f"timeout {int(seconds or 600)} tail -f /dev/null")
    )


def _wakeup(conversation: ModelConversation, argument: str) -> ModelAnswer:
    if conversation.done or "ScheduleWakeup" not in conversation.tools:
        return TextAnswer("I shall go on later.")
    seconds, _, prompt = argument.partition(" ")
    arguments = {
        "delaySeconds": int(seconds or 60),
        "reason": "the build needs a while",
        "prompt": prompt or "Go on: SCN:text It is done.",
    }
    return ToolUse("ScheduleWakeup", arguments)


def _slow(_conversation: ModelConversation, seconds: str) -> ModelAnswer:
    return TextAnswer("one two three four five six seven eight nine ten", pause_s=float(seconds or 3) / 10)


def _error_scenario(why: str, after_s: int = 0) -> Callable[[ModelConversation, str], ModelAnswer]:
    """`SCN:429 2` refuses twice and then answers; without a number, always."""

    def refuse(conversation: ModelConversation, times: str) -> ModelAnswer:
        if times and conversation.refused >= int(times):
            return TextAnswer(f"I was let in after {conversation.refused} refusals.")
        return ErrorAnswer(why, after_s)

    return refuse


def _quota(_conversation: ModelConversation, seconds: str) -> ModelAnswer:
    return ErrorAnswer("quota", int(seconds or FIVE_HOURS_S))


Scenario = Callable[[ModelConversation, str], ModelAnswer]
SCENARIOS: dict[str, Scenario] = {
    "text": _text,
    "tool": _tool,
    "shell": _shell,
    "toolloop": _toolloop,
    "toolsleep": _toolsleep,
    "wakeup": _wakeup,
    "slow": _slow,
    "hang": lambda _talk, _argument: NoAnswer(),
    "cut": lambda _talk, _argument: TextAnswer("This will not be said to its end.", cut=True),
    "refusal": lambda _talk, _argument: TextAnswer("I cannot help with that.", stop="refusal"),
    "length": lambda _talk, _argument: TextAnswer("This is as far as I may", stop="length"),
    "429": _error_scenario("throttled", 1),
    "529": _error_scenario("overloaded"),
    "401": _error_scenario("auth"),
    "credit": _error_scenario("credit"),
    "context": _error_scenario("context"),
    "400": _error_scenario("input"),
    "quota": _quota,
}


# ---- tools: what each agent calls those two that every one has


def _print_command(path: str, text: str) -> str:
    return f"printf %s {shlex.quote(text)} > {shlex.quote(path)}"


WRITERS: dict[str, Callable[[str, str], dict[str, object]]] = {
    "Write": lambda path, text: {"file_path": path, "content": text},
    "write": lambda path, text: {"filePath": path, "content": text},
    "write_file": lambda path, text: {"file_path": path, "content": text},
    "exec_command": lambda path, text: {"cmd": _print_command(path, text)},
    "shell_command": lambda path, text: {"command": _print_command(path, text)},
    "shell": lambda path, text: {"command": ["sh", "-c", _print_command(path, text)]},
}
SHELLS: dict[str, Callable[[str], dict[str, object]]] = {
    "Bash": lambda command: {"command": command, "description": "Run it"},
    "bash": lambda command: {"command": command, "description": "Run it"},
    "run_shell_command": lambda command: {"command": command, "description": "Run it"},
    "exec_command": lambda command: {"cmd": command},
    "shell_command": lambda command: {"command": command},
    "shell": lambda command: {"command": ["sh", "-c", command]},
}


def _write_file(conversation: ModelConversation, path: str) -> ModelAnswer:
    found = FOLDER_PATTERN.search(conversation.system) or FOLDER_PATTERN.search("\n".join(conversation.prompts))
    full_path = str(PurePosixPath(found[1]) / path) if found else path
    for name, make in WRITERS.items():
        if name in conversation.tools:
            return ToolUse(name, make(full_path, FILE_TEXT))
    return TextAnswer("I was given no tool that writes.")


def _run_command(conversation: ModelConversation, command: str) -> ModelAnswer:
    for name, make in SHELLS.items():
        if name in conversation.tools:
            return ToolUse(name, make(command))
    return TextAnswer("I was given no tool that runs commands.")


def quota_reset_s(refusal: ErrorAnswer) -> int:
    """The end of a quota, in seconds since 1970."""
    return wall_ms() // 1000 + refusal.after_s
