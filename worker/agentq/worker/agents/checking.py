"""Whether an agent is of use here: its program, its version, whether somebody is logged in, and a turn to try it."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import AgentqError, Invalid
from agentq.coordinator.identity import new_nonce
from agentq.coordinator.release import installed_version
from agentq.coordinator.turn import Turn
from agentq.worker.agents import accounts, filling
from agentq.worker.agents.formats.readers import reader_of
from agentq.worker.agents.installed import program_of
from agentq.worker.agents.judge import End, judged
from agentq.worker.agents.launching import Start, Started, is_passed, start
from agentq.worker.agents.profile import Profile
from agentq.worker.agents.reading import Before
from agentq.worker.agents.verdicts import VerdictKind
from agentq.worker.environment import Environment
from agentq.worker.process import Exit, Launch, Process

VERSION_S = 30
TURN_S = 180
OUTPUT_BYTES = 4 << 20
"""What is read of one turn's output; a turn that says a word has no more."""
PROMPT = "Answer with the one word: ready. Use no tools, and change nothing."


class Finding(NamedTuple):
    """What one check found: ok, warn or fail, and what to do about it."""

    check: str
    verdict: str
    found: str
    do: str = ""


class Checkup:
    """The checks of one agent, one after the other; after one that fails, the next ones make no sense."""

    def __init__(self, agent: str, profile: Profile, inherited: Mapping[str, str] = os.environ) -> None:
        self.agent = agent
        self.profile = profile
        self._inherited = inherited
        self._passed = Environment("", "", inherited).passed()

    def findings(self, *, run: bool) -> Iterator[Finding]:
        """All of them; with `run`, a turn of each account as well, which may cost a little."""
        program = program_of(self.profile, self._inherited)
        if program is None:
            yield self._absent()
            return
        yield Finding("program", "ok", program)
        if self.profile.version_args:
            version = self._version(program)
            yield version
            if version.verdict == "fail":
                return
        for account in accounts.in_order(self.profile):
            login = self._login(account)
            yield login
            if run and login.verdict != "fail":
                yield self._turn(account)

    def _absent(self) -> Finding:
        names = sorted({self.profile.command, *self.profile.needs} - {"{python}"})
        for path in filter(os.path.isfile, names):
            return Finding("program", "fail", f"{path} is not executable", f"make it so with `chmod +x {path}`")
        paths = [name for name in names if "/" in name]
        if paths:
            return Finding("program", "fail", f"there is no {' or '.join(paths)}", "see what its profile says")
        return Finding("program", "fail", f"there is no {' or '.join(names)} on PATH", "install it")

    def _version(self, program: str) -> Finding:
        if program == sys.executable:
            return Finding("version", "ok", f"of agentq, {installed_version()}")
        asked = [program, *self.profile.version_args]
        try:
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(
                    asked,
                    env=self._environment(accounts.DEFAULT) | {"PATH": self._path(program)},
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=VERSION_S,
                    check=False,
                )
        except subprocess.TimeoutExpired:
            return Finding("version", "fail", f"it says nothing for {VERSION_S} s when it is asked for its version")
        except OSError as error:
            return Finding("version", "fail", f"it cannot be started: {error.strerror}", "install it again")
        said = (done.stdout or done.stderr).decode(errors="replace").strip()
        if done.returncode != 0:
            last = said.splitlines()[-1][:200] if said else "and says nothing"
            return Finding("version", "fail", f"{' '.join(asked)} exits with {done.returncode}: {last}")
        number = re.search(r"\d+(\.\d+)+[\w.+-]*", said)
        return Finding("version", "ok", number[0] if number else said[:60])

    def _path(self, program: str) -> str:
        return os.pathsep.join((self._inherited.get("PATH", os.defpath), os.path.dirname(program)))

    def _environment(self, account: str) -> dict[str, str]:
        """What the agent is given when it uses an account; one that cannot be used adds nothing."""
        needed = {name: value for name, value in self._inherited.items() if is_passed(self.profile, name)}
        own = accounts.variables(self.profile, account, self._inherited) if account in self.profile.accounts else {}
        return {**self._passed, **needed, **self.profile.env, **own}

    def _login(self, account: str) -> Finding:
        """Whether one of the files or variables is there that are there when somebody is logged in."""
        name = f"login {account}" if self.profile.accounts else "login"
        try:
            variables = self._environment(account)
        except Invalid as invalid:
            return Finding(name, "fail", str(invalid).rstrip("."))
        files, wanted = _texts(self.profile.login.get("files")), _texts(self.profile.login.get("env"))
        if not files and not wanted:
            return Finding(name, "ok", "nobody has to be")
        for variable in wanted:
            if variables.get(variable):
                return Finding(name, "ok", f"by ${variable}")
        for file in _texts(self.profile.login.get("providers")):
            variable = _key_of_provider(Path(filling.text(file, variables)))
            if variables.get(variable):
                return Finding(name, "ok", f"by ${variable}, for the provider of {self.agent}'s own settings")
            if variable:
                given = " and is not given it: name it in env_pass" if self._inherited.get(variable) else ""
                return Finding(
                    name, "fail", f"its provider wants ${variable}{given}", f"set ${variable} for the worker"
                )
        for file in files:
            path = filling.text(file, variables)
            if os.path.isfile(path):
                return Finding(name, "ok", f"by {path}")
        keychain = sys.platform == "darwin"
        return Finding(
            name,
            "warn" if keychain else "fail",
            "nobody seems to be logged in" + (", unless the keychain knows" if keychain else ""),
            f"log in, or set {' or '.join(f'${variable}' for variable in wanted[:3])} for the worker",
        )

    def _turn(self, account: str) -> Finding:
        name = f"turn {account}" if self.profile.accounts else "turn"
        permissions = next(each for each in ("read", "edit", "full") if each in self.profile.permissions)
        with tempfile.TemporaryDirectory() as folder:
            try:
                asked = Start(
                    agent=self.agent,
                    profile=self.profile,
                    prompt=PROMPT,
                    turn=Turn.model_validate({"permissions": permissions}),
                    account=account,
                    prompt_file=Path(folder, "prompt"),
                )
                started = start(asked, self._inherited)
                if started.prompt_file is not None:
                    Path(folder, "prompt").write_bytes(started.prompt_file)
                exit_, out, error = asyncio.run(_run(started, self._passed, Path(folder)))
            except TimeoutError:
                return Finding(name, "fail", f"it did not end within {TURN_S} s, and was ended")
            except (AgentqError, OSError) as failed:
                return Finding(name, "fail", str(failed).rstrip("."))
        return self._judged(name, exit_, out, error)

    def _judged(self, name: str, exit_: Exit, out: str, error: str) -> Finding:
        reader = reader_of(self.profile.format, Before())
        for line in out.splitlines():
            list(reader.read(line))
        for line in error.splitlines():
            list(reader.read_error(line))
        reader.ended()
        end = End(exit_code=exit_.code, signal=exit_.signal, now_ms=wall_ms())
        verdict = judged(reader.facts, end)
        if verdict.kind in (VerdictKind.OK, VerdictKind.OK_WITH_DENIALS):
            return Finding(name, "ok", f"it answered {' '.join(reader.facts.text.split())[:60] or 'nothing'!r}")
        return Finding(name, "fail", f"{verdict.kind}: {verdict.error or verdict.consequence.means}".rstrip("."))


async def _run(started: Started, passed: Mapping[str, str], folder: Path) -> tuple[Exit, str, str]:
    """One turn in an empty folder, and the end of all that it has started."""
    work = folder / "work"
    work.mkdir()
    cookie = f"check/{new_nonce()}"
    env = {**passed, **started.env}
    process = await Process.spawn(Launch(started.argv, env, work, cookie, stdin=started.stdin), cgroups=None)
    try:
        reading = asyncio.gather(_all_of(process.stdout), _all_of(process.stderr))
        exit_ = await asyncio.wait_for(process.wait(), TURN_S)
        await process.end(0)
        out, error = await asyncio.wait_for(reading, VERSION_S)
    finally:
        await process.end(0)
    return exit_, out, error


async def _all_of(end: int) -> str:
    """What comes out of a pipe, until nobody holds its other end; the beginning, where it is too much."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(end, "rb"))
    found = b""
    while piece := await reader.read(64 << 10):
        found += piece[: OUTPUT_BYTES - len(found)]
    transport.close()
    return found.decode(errors="replace")


def _key_of_provider(settings: Path) -> str:
    """The variable with the key of the provider that these settings choose, as Codex has them; empty if none."""
    try:
        told = tomllib.loads(settings.read_text(encoding="utf-8"))
        key = told["model_providers"][told["model_provider"]]["env_key"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return key if isinstance(key, str) else ""


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
