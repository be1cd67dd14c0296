"""What the model does: said by a line of the newest prompt, `SCN:word argument`, and by how far it has come with it.

Nothing is remembered between two requests. An agent sends its whole conversation every time, and what has been done
already is counted from that. With no such line, the model says which prompt of the conversation it has read.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath

from agentq.coordinator.clock import wall_ms

WORD = re.compile(r"\bSCN:([\w-]+)[ \t]*([^\n]*)")
PLACE = re.compile(r"(?:[Ww]orking directory:|<cwd>)\s*(/[^\s<]+)")
WRITTEN = "made by the stub\n"
FIVE_HOURS_S = 5 * 3600


@dataclass(frozen=True, slots=True)
class Conversation:
    """What an agent sent, whatever the dialect."""

    prompts: tuple[str, ...]
    """What was asked, the newest last."""
    done: int
    """Tools that were used since the newest of them."""
    tools: tuple[str, ...]
    """The names of the tools that it offers."""
    system: str
    model: str
    refused: int = 0
    """How many of its requests with this same prompt were refused before."""

    @property
    def prompt(self) -> str:
        return self.prompts[-1] if self.prompts else ""

    @property
    def scenario(self) -> tuple[str, str]:
        """The word of the newest prompt, and its argument."""
        found = WORD.search(self.prompt)
        return (found[1], found[2].strip()) if found else ("text", "")


@dataclass(frozen=True, slots=True)
class Words:
    """It says something, word by word, and that is its turn."""

    text: str
    pause_s: float = 0
    """Before each word."""
    stop: str = "end"
    """`end`, `refusal` or `length`."""
    cut: bool = False
    """The connection breaks in the middle."""


@dataclass(frozen=True, slots=True)
class Use:
    """It uses a tool of the agent."""

    tool: str
    input: dict[str, object]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The service does not let it get that far."""

    why: str
    """`throttled`, `quota`, `overloaded`, `auth`, `credit`, `context` or `input`."""
    after_s: int = 0
    """How soon to come again; for a quota, when it ends."""


@dataclass(frozen=True, slots=True)
class Silence:
    """The request is taken, and nothing ever comes."""


Answer = Words | Use | Refusal | Silence


def answer(talk: Conversation) -> Answer:
    """What the model does next."""
    word, argument = talk.scenario
    return SCENARIOS.get(word, _unknown)(talk, argument)


def _unknown(talk: Conversation, _argument: str) -> Answer:
    return Words(f"There is no scenario {talk.scenario[0]}. These are: {', '.join(SCENARIOS)}.")


def _text(talk: Conversation, argument: str) -> Answer:
    return Words(argument or f"Prompt {len(talk.prompts)} was: {talk.prompt.strip()[:200]}")


def _tool(talk: Conversation, path: str) -> Answer:
    path = path or "made.txt"
    return Words(f"I wrote {path}.") if talk.done else _written(talk, path)


def _shell(talk: Conversation, command: str) -> Answer:
    return Words("I ran it.") if talk.done else _run(talk, command or "true")


def _toolloop(talk: Conversation, times: str) -> Answer:
    if times and talk.done >= int(times):
        return Words(f"I used it {talk.done} times.")
    return _written(talk, f"made-{talk.done}.txt")


def _toolsleep(talk: Conversation, seconds: str) -> Answer:
    """Whoever goes on after an interruption is not put to sleep again."""
    if len(talk.prompts) > 1:
        return Words(f"I go on, with prompt {len(talk.prompts)}.")
    # Claude refuses a plain `sleep`.
    return Words("I slept.") if talk.done else _run(talk, f"timeout {int(seconds or 600)} tail -f /dev/null")


def _wakeup(talk: Conversation, argument: str) -> Answer:
    if talk.done or "ScheduleWakeup" not in talk.tools:
        return Words("I shall go on later.")
    seconds, _, prompt = argument.partition(" ")
    asked = {
        "delaySeconds": int(seconds or 60),
        "reason": "the build needs a while",
        "prompt": prompt or "Go on: SCN:text It is done.",
    }
    return Use("ScheduleWakeup", asked)


def _slow(_talk: Conversation, seconds: str) -> Answer:
    return Words("one two three four five six seven eight nine ten", pause_s=float(seconds or 3) / 10)


def _refusing(why: str, after_s: int = 0) -> Callable[[Conversation, str], Answer]:
    """`SCN:429 2` refuses twice and then answers; without a number, always."""

    def refuse(talk: Conversation, times: str) -> Answer:
        if times and talk.refused >= int(times):
            return Words(f"I was let in after {talk.refused} refusals.")
        return Refusal(why, after_s)

    return refuse


def _quota(_talk: Conversation, seconds: str) -> Answer:
    return Refusal("quota", int(seconds or FIVE_HOURS_S))


Scenario = Callable[[Conversation, str], Answer]
SCENARIOS: dict[str, Scenario] = {
    "text": _text,
    "tool": _tool,
    "shell": _shell,
    "toolloop": _toolloop,
    "toolsleep": _toolsleep,
    "wakeup": _wakeup,
    "slow": _slow,
    "hang": lambda _talk, _argument: Silence(),
    "cut": lambda _talk, _argument: Words("This will not be said to its end.", cut=True),
    "refusal": lambda _talk, _argument: Words("I cannot help with that.", stop="refusal"),
    "length": lambda _talk, _argument: Words("This is as far as I may", stop="length"),
    "429": _refusing("throttled", 1),
    "529": _refusing("overloaded"),
    "401": _refusing("auth"),
    "credit": _refusing("credit"),
    "context": _refusing("context"),
    "400": _refusing("input"),
    "quota": _quota,
}


# ---- tools: what each agent calls those two that every one has


def _printing(path: str, text: str) -> str:
    return f"printf %s {shlex.quote(text)} > {shlex.quote(path)}"


WRITERS: dict[str, Callable[[str, str], dict[str, object]]] = {
    "Write": lambda path, text: {"file_path": path, "content": text},
    "write": lambda path, text: {"filePath": path, "content": text},
    "write_file": lambda path, text: {"file_path": path, "content": text},
    "exec_command": lambda path, text: {"cmd": _printing(path, text)},
    "shell_command": lambda path, text: {"command": _printing(path, text)},
    "shell": lambda path, text: {"command": ["sh", "-c", _printing(path, text)]},
}
SHELLS: dict[str, Callable[[str], dict[str, object]]] = {
    "Bash": lambda command: {"command": command, "description": "Run it"},
    "bash": lambda command: {"command": command, "description": "Run it"},
    "run_shell_command": lambda command: {"command": command, "description": "Run it"},
    "exec_command": lambda command: {"cmd": command},
    "shell_command": lambda command: {"command": command},
    "shell": lambda command: {"command": ["sh", "-c", command]},
}


def _written(talk: Conversation, path: str) -> Answer:
    found = PLACE.search(talk.system) or PLACE.search("\n".join(talk.prompts))
    whole = str(PurePosixPath(found[1]) / path) if found else path
    for name, make in WRITERS.items():
        if name in talk.tools:
            return Use(name, make(whole, WRITTEN))
    return Words("I was given no tool that writes.")


def _run(talk: Conversation, command: str) -> Answer:
    for name, make in SHELLS.items():
        if name in talk.tools:
            return Use(name, make(command))
    return Words("I was given no tool that runs commands.")


def reset_at_s(refusal: Refusal) -> int:
    """When a quota ends, in seconds since 1970."""
    return wall_ms() // 1000 + refusal.after_s
