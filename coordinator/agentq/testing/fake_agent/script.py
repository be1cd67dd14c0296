"""The script language of prompts: a line that begins with a step word is a step; other lines are output.

`AT 2 STEP` is a step only in the second attempt of its run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

STEP_WORDS = {
    "SAY": "say this; so is every line that begins with no such word",
    "THINK": "think this, which is not for whoever asked",
    "PLAN": "tell a plan: `PLAN look; mend; test`",
    "WRITE": "write a file with the tool for that: `WRITE path text`, and `\\n` is a new line",
    "RUN": "run a command with the tool for that; it is a session of its own, as with real agents",
    "ASK": "ask whether a tool of this name is allowed, and say the answer",
    "DENY": "be refused a tool of this name",
    "SLEEP": "do nothing for so long: `SLEEP 30s`",
    "HANG": "never go on",
    "SILENT": "never go on; as the first line, without having said that it is up",
    "LINGER": "end well, and stay for so long all the same; for ever by itself",
    "WAKE": "ask to be woken later: `WAKE 2m look again`",
    "COST": "have spent so many dollars more",
    "TOKENS": "have read and written so many tokens more: `TOKENS 1000 100`",
    "TURNS": "ask the model so many times more",
    "LIMIT": "be at the account's limit, for so long: `LIMIT 10m`",
    "THROTTLE": "be asked by the service to slow down",
    "OVERLOAD": "find the service overloaded",
    "AUTH": "not be logged in",
    "CREDIT": "have no money left",
    "CONTEXT": "have too long a conversation",
    "REFUSE": "be declined by the model",
    "FAIL": "end badly, with this as the reason",
    "CRASH": "end at once without a word, by SIGKILL or with this exit code",
    "STUBBORN": "take no notice of SIGTERM and SIGINT from now on",
    "GRANDCHILD": "leave a process behind, in a session of its own, for so long; ten minutes by itself",
    "NOISE": "print so many kilobytes that are no event",
    "RAW": "print this line as it stands",
    "ERR": "print this line on stderr",
    "REPORT": "say what it sees: `REPORT args`, `REPORT cwd`, `REPORT prompts`, `REPORT env NAME`, `REPORT open`",
    "ANSWER": "answer this JSON, where a schema was asked for",
    "MODEL": "say which model was asked for",
}
_STEP_PATTERN = re.compile(rf"(?:AT (?P<attempt>\d+) )?(?P<word>{'|'.join(STEP_WORDS)})(?: (?P<rest>.*))?")


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """One step."""

    word: str
    rest: str = ""


def parse_steps(prompt: str) -> Iterator[ScriptStep]:
    """The steps of a prompt. Consecutive output lines are one step."""
    attempt = int(os.environ.get("AGENTQ_ATTEMPT") or 1)
    spoken_lines = list[str]()
    for line in prompt.splitlines():
        found = _STEP_PATTERN.fullmatch(line.rstrip())
        if found is None:
            spoken_lines.append(line)
            continue
        if text := "\n".join(spoken_lines).strip():
            yield ScriptStep("SAY", text)
        spoken_lines = []
        if found["attempt"] is None or int(found["attempt"]) == attempt:
            yield ScriptStep(found["word"], found["rest"] or "")
    if text := "\n".join(spoken_lines).strip():
        yield ScriptStep("SAY", text)
