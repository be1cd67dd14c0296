"""Checks whether an agent can be used on this machine: its program, its version, a login, and a trial turn."""

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
from agentq.coordinator.model.agent_options import AgentTurnOptions
from agentq.coordinator.model.ids import new_nonce
from agentq.coordinator.package_version import installed_version
from agentq.worker.agents.accounts import billing
from agentq.worker.agents.formats.registry import create_reader
from agentq.worker.agents.profiles import templates
from agentq.worker.agents.profiles.command_line import AgentCommand, AgentLaunch, build_command, is_variable_passed
from agentq.worker.agents.profiles.installed import find_program
from agentq.worker.agents.profiles.profile import Profile
from agentq.worker.agents.reader import PriorConversation
from agentq.worker.agents.verdict_rules import AgentEnd, judge_end
from agentq.worker.agents.verdicts import VerdictKind
from agentq.worker.process.run_environment import RunEnvironment
from agentq.worker.process.run_process import ProcessExit, ProcessLaunch, RunProcess

VERSION_TIMEOUT_S = 30
TURN_TIMEOUT_S = 180
OUTPUT_BYTES = 4 << 20
"""How much of a trial turn's output is read."""
CHECK_PROMPT = "Answer with the one word: ready. Use no tools, and change nothing."


class AgentFinding(NamedTuple):
    """The result of one check: ok, warn or fail, and what to do about it."""

    check: str
    verdict: str
    found: str
    do: str = ""


class AgentCheck:
    """The checks of one agent in order. A failed program or version check ends them."""

    def __init__(self, agent: str, profile: Profile, inherited: Mapping[str, str] = os.environ) -> None:
        self.agent = agent
        self.profile = profile
        self._inherited = inherited
        self._passed = RunEnvironment("", "", inherited).passed()

    def findings(self, *, run: bool) -> Iterator[AgentFinding]:
        """Run the checks; with `run`, also a trial turn of each account, which may cost money."""
        program = find_program(self.profile, self._inherited)
        if program is None:
            yield self._absent()
            return
        yield AgentFinding("program", "ok", program)
        if self.profile.version_args:
            version = self._version(program)
            yield version
            if version.verdict == "fail":
                return
        for account in billing.order_accounts(self.profile):
            login = self._login(account)
            yield login
            if run and login.verdict != "fail":
                yield self._turn(account)

    def _absent(self) -> AgentFinding:
        names = sorted({self.profile.command, *self.profile.needs} - {"{python}"})
        for path in filter(os.path.isfile, names):
            return AgentFinding("program", "fail", f"{path} is not executable", f"make it so with `chmod +x {path}`")
        paths = [name for name in names if "/" in name]
        if paths:
            return AgentFinding("program", "fail", f"there is no {' or '.join(paths)}", "see what its profile says")
        return AgentFinding("program", "fail", f"there is no {' or '.join(names)} on PATH", "install it")

    def _version(self, program: str) -> AgentFinding:
        if program == sys.executable:
            return AgentFinding("version", "ok", f"of agentq, {installed_version()}")
        asked = [program, *self.profile.version_args]
        try:
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(
                    asked,
                    env=self._environment(billing.DEFAULT_ACCOUNT) | {"PATH": self._path(program)},
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=VERSION_TIMEOUT_S,
                    check=False,
                )
        except subprocess.TimeoutExpired:
            return AgentFinding(
                "version", "fail", f"it says nothing for {VERSION_TIMEOUT_S} s when it is asked for its version"
            )
        except OSError as error:
            return AgentFinding("version", "fail", f"it cannot be started: {error.strerror}", "install it again")
        output = (done.stdout or done.stderr).decode(errors="replace").strip()
        if done.returncode != 0:
            last = output.splitlines()[-1][:200] if output else "and says nothing"
            return AgentFinding("version", "fail", f"{' '.join(asked)} exits with {done.returncode}: {last}")
        number = re.search(r"\d+(\.\d+)+[\w.+-]*", output)
        return AgentFinding("version", "ok", number[0] if number else output[:60])

    def _path(self, program: str) -> str:
        return os.pathsep.join((self._inherited.get("PATH", os.defpath), os.path.dirname(program)))

    def _environment(self, account: str) -> dict[str, str]:
        """The agent's environment when it uses an account."""
        needed = {name: value for name, value in self._inherited.items() if is_variable_passed(self.profile, name)}
        account_variables = (
            billing.build_account_variables(self.profile, account, self._inherited)
            if account in self.profile.accounts
            else {}
        )
        return {**self._passed, **needed, **self.profile.env, **account_variables}

    def _login(self, account: str) -> AgentFinding:
        """Whether one of the files or variables exists that indicate a login."""
        name = f"login {account}" if self.profile.accounts else "login"
        try:
            variables = self._environment(account)
        except Invalid as invalid:
            return AgentFinding(name, "fail", str(invalid).rstrip("."))
        files, wanted = _collect_texts(self.profile.login.get("files")), _collect_texts(self.profile.login.get("env"))
        if not files and not wanted:
            return AgentFinding(name, "ok", "not needed")
        for variable in wanted:
            if variables.get(variable):
                return AgentFinding(name, "ok", f"by ${variable}")
        for file in _collect_texts(self.profile.login.get("providers")):
            variable = _find_provider_key(Path(templates.fill_text(file, variables)))
            if variables.get(variable):
                return AgentFinding(name, "ok", f"by ${variable}, for the provider of {self.agent}'s own settings")
            if variable:
                given = " and is not given it: name it in env_pass" if self._inherited.get(variable) else ""
                return AgentFinding(
                    name, "fail", f"its provider wants ${variable}{given}", f"set ${variable} for the worker"
                )
        for file in files:
            path = templates.fill_text(file, variables)
            if os.path.isfile(path):
                return AgentFinding(name, "ok", f"by {path}")
        keychain = sys.platform == "darwin"
        return AgentFinding(
            name,
            "warn" if keychain else "fail",
            "no login found" + (", unless it is in the keychain" if keychain else ""),
            f"log in, or set {' or '.join(f'${variable}' for variable in wanted[:3])} for the worker",
        )

    def _turn(self, account: str) -> AgentFinding:
        name = f"turn {account}" if self.profile.accounts else "turn"
        permissions = next(each for each in ("read", "edit", "full") if each in self.profile.permissions)
        with tempfile.TemporaryDirectory() as folder:
            try:
                launch = AgentLaunch(
                    agent=self.agent,
                    profile=self.profile,
                    prompt=CHECK_PROMPT,
                    turn=AgentTurnOptions.model_validate({"permissions": permissions}),
                    account=account,
                    prompt_file=Path(folder, "prompt"),
                )
                started = build_command(launch, self._inherited)
                if started.prompt_file is not None:
                    Path(folder, "prompt").write_bytes(started.prompt_file)
                exit_, out, error = asyncio.run(_run_turn(started, self._passed, Path(folder)))
            except TimeoutError:
                return AgentFinding(name, "fail", f"it did not end within {TURN_TIMEOUT_S} s, and was ended")
            except (AgentqError, OSError) as failed:
                return AgentFinding(name, "fail", str(failed).rstrip("."))
        return self._judged(name, exit_, out, error)

    def _judged(self, name: str, exit_: ProcessExit, out: str, error: str) -> AgentFinding:
        reader = create_reader(self.profile.format, PriorConversation())
        for line in out.splitlines():
            list(reader.read(line))
        for line in error.splitlines():
            list(reader.read_error(line))
        reader.finish()
        end = AgentEnd(exit_code=exit_.code, signal=exit_.signal, now_ms=wall_ms())
        verdict = judge_end(reader.facts, end)
        if verdict.kind in (VerdictKind.OK, VerdictKind.OK_WITH_DENIALS):
            return AgentFinding(name, "ok", f"it answered {' '.join(reader.facts.text.split())[:60] or 'nothing'!r}")
        return AgentFinding(name, "fail", f"{verdict.kind}: {verdict.error or verdict.consequence.means}".rstrip("."))


async def _run_turn(started: AgentCommand, passed: Mapping[str, str], folder: Path) -> tuple[ProcessExit, str, str]:
    """Run one turn in an empty folder, and end all processes that it started."""
    work = folder / "work"
    work.mkdir()
    cookie = f"check/{new_nonce()}"
    env = {**passed, **started.env}
    process = await RunProcess.spawn(ProcessLaunch(started.argv, env, work, cookie, stdin=started.stdin), cgroups=None)
    try:
        reading = asyncio.gather(_read_pipe(process.stdout), _read_pipe(process.stderr))
        exit_ = await asyncio.wait_for(process.wait(), TURN_TIMEOUT_S)
        await process.end(0)
        out, error = await asyncio.wait_for(reading, VERSION_TIMEOUT_S)
    finally:
        await process.end(0)
    return exit_, out, error


async def _read_pipe(end: int) -> str:
    """Read a pipe until it is closed; keeps the first OUTPUT_BYTES."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(end, "rb"))
    found = b""
    while piece := await reader.read(64 << 10):
        found += piece[: OUTPUT_BYTES - len(found)]
    transport.close()
    return found.decode(errors="replace")


def _find_provider_key(settings: Path) -> str:
    """The variable with the key of the provider that these settings choose, as Codex has them; empty if none."""
    try:
        settings_ = tomllib.loads(settings.read_text(encoding="utf-8"))
        key = settings_["model_providers"][settings_["model_provider"]]["env_key"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return key if isinstance(key, str) else ""


def _collect_texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
