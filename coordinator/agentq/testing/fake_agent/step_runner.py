"""Executes the steps of a prompt through an output protocol."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.model.durations import parse_duration_ms
from agentq.testing.fake_agent.protocol import AgentProtocol, TurnEnded
from agentq.testing.fake_agent.script import ScriptStep, parse_steps

USAGE_LIMIT_MS = 5 * 3_600_000
ORPHAN_LIFETIME_MS = 600_000
KILOBYTE = 1024
END_REASONS = {
    "THROTTLE": "throttled",
    "OVERLOAD": "overloaded",
    "AUTH": "auth",
    "CREDIT": "credit",
    "CONTEXT": "context",
    "REFUSE": "refused",
    "FAIL": "failed",
}


class StepRunner:
    """Executes the steps of one process."""

    def __init__(self, protocol: AgentProtocol) -> None:
        self.protocol = protocol
        self.turn = protocol.turn
        self.linger_ms: int | None = None
        """How long the process stays after its end; 0 means for ever."""
        self.interrupted = threading.Event()
        """Set when the turn is cancelled; ends a wait at once."""
        self.tool: subprocess.Popen[bytes] | None = None
        self._is_starting_tool = False
        self._end_process: Callable[[], None] | None = None
        self._last_text = ""

    def run(self, prompt: str) -> TurnEnded:
        """Run a prompt; returns how it ended."""
        try:
            self._run_steps(prompt)
        except TurnEnded as over:
            return over
        return TurnEnded("done", self._last_text)

    def _run_steps(self, prompt: str) -> None:
        steps = list(parse_steps(prompt))
        if steps and steps[0].word == "SILENT":
            self._wait(None)
        self.protocol.begin()
        for step in steps:
            if self.interrupted.is_set():
                raise TurnEnded("interrupted")
            self._run_step(step)
            self._check_budgets()
        if not self._last_text:
            self._say("Done.")

    def _run_step(self, step: ScriptStep) -> None:
        if why := END_REASONS.get(step.word):
            raise TurnEnded(why, step.rest)
        method: Callable[[str], None] = getattr(self, f"_{step.word.lower()}")
        method(step.rest)

    def _check_budgets(self) -> None:
        spent = self.turn.spending
        if self.turn.turns_max is not None and spent.turns > self.turn.turns_max:
            raise TurnEnded("turns")
        if self.turn.cost_max_usd is not None and spent.cost_usd > self.turn.cost_max_usd:
            raise TurnEnded("budget")

    def _wait(self, milliseconds: int | None) -> None:
        if self.interrupted.wait(None if milliseconds is None else milliseconds / 1000):
            raise TurnEnded("interrupted")

    # ---- words

    def _say(self, text: str) -> None:
        self._last_text = text
        self.protocol.say(text)

    def _think(self, text: str) -> None:
        self.protocol.think(text)

    def _plan(self, items: str) -> None:
        self.protocol.plan([item.strip() for item in items.split(";") if item.strip()])

    def _model(self, _rest: str) -> None:
        self._say(self.turn.model)

    def _answer(self, text: str) -> None:
        self.protocol.answer(json.loads(text))

    def _report(self, what: str) -> None:
        what, _, name = what.partition(" ")
        seen: dict[str, Callable[[], object]] = {
            "args": lambda: sys.argv[1:],
            "cwd": os.getcwd,
            "prompts": lambda: len(self.protocol.prompts()),
            "env": lambda: os.environ.get(name) if name else sorted(os.environ),
            "open": lambda: sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in _open_descriptors()),
        }
        self._say(json.dumps(seen[what]()) if what in seen else f"I cannot tell {what!r}, only {', '.join(seen)}.")

    def _raw(self, line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def _err(self, line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def _noise(self, kilobytes: str) -> None:
        for _ in range(int(kilobytes or 1)):
            sys.stdout.write("no event " * (KILOBYTE // 9) + "\n")
        sys.stdout.flush()

    # ---- spending

    def _cost(self, dollars: str) -> None:
        self.turn.spending.cost_usd += float(dollars)

    def _tokens(self, counts: str) -> None:
        read, _, written = counts.partition(" ")
        self.turn.spending.input_tokens += int(read)
        self.turn.spending.output_tokens += int(written or 0)

    def _turns(self, count: str) -> None:
        for number in range(int(count)):
            self.protocol.say(f"Turn {number + 1} of {count}.")
            self._check_budgets()

    # ---- tools

    def _write(self, rest: str) -> None:
        path, _, text = rest.partition(" ")
        text = text.replace("\\n", "\n") + "\n"

        def write() -> tuple[str, bool]:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text, encoding="utf-8")
            return f"File created successfully at: {path}", True

        self._use("Write", {"file_path": path, "content": text}, write)

    def _run(self, command: str) -> None:
        self._use("Bash", {"command": command}, lambda: self._run_tool(command))

    def _run_tool(self, command: str) -> tuple[str, bool]:
        """Run a command in its own session, which survives if only the agent is killed."""
        with self._start_tool(command) as tool:
            if self.interrupted.is_set():
                self.end_tool()
            text = tool.communicate()[0].decode(errors="replace")
        code, self.tool = tool.returncode, None
        if self.interrupted.is_set():
            raise TurnEnded("interrupted")
        return (f"Exit code {code}\n{text}", False) if code else (text, True)

    def _start_tool(self, command: str) -> subprocess.Popen[bytes]:
        """Start the command; a signal that arrives meanwhile is handled when `self.tool` is set."""
        self._is_starting_tool = True
        try:
            self.tool = subprocess.Popen(
                ["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        finally:
            self._is_starting_tool = False
            if self._end_process is not None:
                self.handle_signal(self._end_process)
        return self.tool

    def _ask(self, tool: str) -> None:
        tool_input = {"command": tool}
        use = self.protocol.call(tool, tool_input)
        if self.protocol.allowed(use, tool):
            self.protocol.returned(use, tool, "", ok=True)
            self._say(f"{tool} is allowed.")
        else:
            self.protocol.denied(use, tool, tool_input)
            self._say(f"{tool} is not allowed.")

    def _deny(self, tool: str) -> None:
        tool_input = {"command": tool}
        self.protocol.denied(self.protocol.call(tool, tool_input), tool, tool_input)

    def _use(self, tool: str, tool_input: dict[str, Any], work: Callable[[], tuple[str, bool]]) -> None:
        use = self.protocol.call(tool, tool_input)
        if not self.protocol.allowed(use, tool):
            self.protocol.denied(use, tool, tool_input)
            return
        try:
            text, ok = work()
        except OSError as error:
            text, ok = str(error), False
        self.protocol.returned(use, tool, text, ok=ok)

    # ---- time, and its end

    def _sleep(self, duration: str) -> None:
        self._wait(parse_duration_ms(duration))

    def _hang(self, _rest: str) -> None:
        self._wait(None)

    def _silent(self, _rest: str) -> None:
        self._wait(None)

    def _linger(self, duration: str) -> None:
        self.linger_ms = parse_duration_ms(duration) if duration else 0

    def _wake(self, rest: str) -> None:
        duration, _, prompt = rest.partition(" ")
        if self.protocol.wake(parse_duration_ms(duration), prompt):
            self._say("I shall go on later.")

    def _limit(self, duration: str) -> None:
        raise TurnEnded("limit", until_ms=wall_ms() + (parse_duration_ms(duration) if duration else USAGE_LIMIT_MS))

    def _crash(self, code: str) -> None:
        sys.stdout.flush()
        if code:
            os._exit(int(code))
        os.kill(os.getpid(), signal.SIGKILL)

    def _stubborn(self, _rest: str) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)

    def _grandchild(self, duration: str) -> None:
        seconds = (parse_duration_ms(duration) if duration else ORPHAN_LIFETIME_MS) / 1000
        quiet = subprocess.DEVNULL
        child = subprocess.Popen(
            ["sleep", str(seconds)], stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
        )
        self._say(f"I leave process {child.pid} behind.")

    def handle_signal(self, end: Callable[[], None]) -> None:
        """End the tool, then the process."""
        self._end_process = end
        if not self._is_starting_tool:
            self.end_tool()
            end()

    def end_tool(self) -> None:
        """Kill the running tool and all processes of its session."""
        tool = self.tool
        if tool is not None and tool.poll() is None:
            os.killpg(tool.pid, signal.SIGKILL)


def _open_descriptors() -> list[str]:
    """The open file descriptors, without the one used to list them."""
    return [fd for fd in os.listdir("/proc/self/fd") if Path(f"/proc/self/fd/{fd}").exists()]
