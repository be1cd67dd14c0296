"""The real agents, as `npm install` has put them here, and what each needs to work against the stub models.

`package.json` says which, and at which versions; `.ci/run` installs them. They are looked for in `AGENTQ_TEST_AGENTS`,
a folder like `node_modules`, and else in `.agents/node_modules` at the top of the repository.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from agents.sealed import URL, Sealed
from support.agent_workers import Agents
from support.requirements import agent_programs
from support.servers import until

from agentq.coordinator.runs.run_record import RunRecord


class RealAgents:
    """A studio whose workers have the real agents, where these reach nothing but the stub models."""

    def __init__(self, studio: Agents, sealed: Sealed, home: Path) -> None:
        self.studio = studio
        self.sealed = sealed
        self.home = home
        studio.crew.within = sealed.joined(folder=studio.folder)

    def worker(self, *, subscription: bool = False, **options: Any) -> subprocess.Popen[bytes]:
        """One more, whose agents are all logged in."""
        settled = settle(self.home, subscription=subscription)
        return self.studio.crew.worker(None, settled, **options)

    def submit(self, agent: str, prompt: str, **fields: Any) -> str:
        return self.studio.submit(prompt, agent=agent, **fields)

    def run(self, agent: str, prompt: str, **fields: Any) -> RunRecord:
        """Ask, and wait for the end."""
        return self.done(self.submit(agent, prompt, **fields))

    def done(self, run: str) -> RunRecord:
        """The run, once it has ended; some of them take their time on a busy machine."""
        return self.studio.done(run, 90_000)

    def until_kept(self) -> None:
        """Wait until the agent has its tool's call in the file of its conversation: it writes that a moment later."""

        def look() -> bool:
            texts = (path.read_text(errors="replace") for path in self.home.rglob("*.jsonl"))
            return any("tool_use" in text or "function_call" in text for text in texts)

        until(look, "the conversation to be on the disk", 40)

    def process(self, run: str, argument: str) -> int:
        """The first process of a run that has such a word among its arguments, once there is one.

        One that it has just forked has the same arguments for a moment, until it becomes something else.
        """
        found = list[int]()

        def look() -> bool:
            found[:] = [pid for pid, words in processes(run) if any(argument in word for word in words)]
            return bool(found)

        until(look, f"a process with {argument!r}", 40)
        return min(found, key=_began)


def _began(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return sys.maxsize


def processes(run: str) -> Iterator[tuple[int, list[str]]]:
    """All processes of a run, by the variable that marks them, with their arguments."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"AGENTQ_RUN_ID={run}\0".encode() in (folder / "environ").read_bytes():
                yield int(folder.name), (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")


def settle(home: Path, *, subscription: bool = False) -> dict[str, str]:
    """Configure all of them in a home folder, and return the variables that they need.

    With a subscription, Claude is logged in as somebody who pays by the month, and meets other limits.
    """
    for name, text in _files().items():
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    login = "CLAUDE_CODE_OAUTH_TOKEN" if subscription else "ANTHROPIC_API_KEY"
    return {
        "HOME": str(home),
        "PATH": f"{agent_programs()}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        login: "stub",
        "ANTHROPIC_BASE_URL": URL,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CODEX_HOME": str(home / "codex"),
        "CODEX_STUB_KEY": "stub",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "GEMINI_API_KEY": "stub",
        "GOOGLE_GEMINI_BASE_URL": URL,
    }


def _files() -> dict[str, str]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "stub",
        "options": {"baseURL": f"{URL}/v1", "apiKey": "stub"},
        "models": {"stub-model": {"name": "stub", "cost": {"input": 1, "output": 2}}},
    }
    return {
        "codex/config.toml": CODEX,
        ".config/opencode/opencode.json": json.dumps({"provider": {"stub": provider}, "model": "stub/stub-model"}),
        ".gemini/settings.json": json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}}),
    }


CODEX = f"""\
model = "stub-model"
model_provider = "stub"

[model_providers.stub]
name = "stub"
base_url = "{URL}/v1"
env_key = "CODEX_STUB_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 1
"""
