"""The fake agent for Claude Code: its flags, its JSON stream, its conversations, its exit codes."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn
from uuid import UUID, uuid4

from agentq.testing.fake_agent.failures import describe_failure
from agentq.testing.fake_agent.protocol import FakeTurn, TurnEnded
from agentq.testing.fake_agent.step_runner import StepRunner
from agentq.testing.fake_agent.transcript import TranscriptFile, claude_home, folder_slug

VERSION = "2.1.327 (Stand-in)"
EDITS = frozenset({"Write", "Edit"})
MODES: Mapping[str, frozenset[str] | None] = {
    "default": frozenset(),
    "dontAsk": frozenset(),
    "manual": frozenset(),
    "plan": frozenset(),
    "acceptEdits": EDITS | {"Bash"},
    "auto": None,
    "bypassPermissions": None,
}


class ClaudeArgumentParser(argparse.ArgumentParser):
    """Reports wrong arguments as Claude does."""

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"error: {message}\n")
        sys.exit(1)


def build_parser() -> ClaudeArgumentParser:
    """The supported flags, and those that are accepted and ignored."""
    parser = ClaudeArgumentParser(prog="standin --as claude", description=__doc__)
    parser.add_argument("prompt", nargs="?")
    parser.add_argument("-p", "--print", action="store_true")
    parser.add_argument("-v", "--version", action="version", version=VERSION)
    parser.add_argument("--output-format", choices=("text", "json", "stream-json"), default="text")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--session-id")
    parser.add_argument("-r", "--resume")
    parser.add_argument("--fork-session", action="store_true")
    parser.add_argument("--model", default="standin-1")
    parser.add_argument("--max-turns", type=int)
    parser.add_argument("--max-budget-usd", type=float)
    parser.add_argument("--permission-mode", choices=tuple(MODES), default="default")
    parser.add_argument("--allowedTools", "--allowed-tools", default="")
    parser.add_argument("--disallowedTools", "--disallowed-tools", default="")
    for ignored in (
        "--setting-sources",
        "--settings",
        "--mcp-config",
        "--append-system-prompt",
        "--append-system-prompt-file",
        "--effort",
    ):
        parser.add_argument(ignored)
    for ignored in ("--strict-mcp-config", "--bare", "--restricted", "--safe-mode"):
        parser.add_argument(ignored, action="store_true")
    return parser


def main(argv: list[str]) -> int:
    """Run one process."""
    options = build_parser().parse_args(argv)
    if options.output_format == "stream-json" and not options.verbose:
        return _print_error("Error: When using --print, --output-format=stream-json requires --verbose")
    prompt = options.prompt or sys.stdin.buffer.read().decode(errors="replace")
    if not prompt.strip():
        return _print_error(
            "Error: Input must be provided either through stdin or as a prompt argument when using --print"
        )
    transcript = open_conversation(options)
    claude = FakeClaude(options, transcript, prompt)
    return claude.run()


def open_conversation(options: argparse.Namespace) -> TranscriptFile:
    """The requested conversation or a new one; exits if it does not exist or is in use."""
    folder = claude_home() / "projects"
    here = folder / folder_slug(os.getcwd())
    if options.session_id and not _is_uuid(options.session_id):
        sys.exit(_print_error("Error: Invalid session ID. Must be a valid UUID."))
    if options.resume:
        known = sorted(folder.glob(f"*/{options.resume}.jsonl")) if _is_uuid(options.resume) else []
        if not known:
            sys.exit(_print_error(f"No conversation found with session ID: {options.resume}"))
        if not options.fork_session:
            return TranscriptFile(known[0])
        forked = TranscriptFile(here / f"{options.session_id or uuid4()}.jsonl")
        forked.copy(TranscriptFile(known[0]))
        return forked
    new = TranscriptFile(here / f"{options.session_id or uuid4()}.jsonl")
    if any(folder.glob(f"*/{new.id}.jsonl")):
        sys.exit(_print_error(f"Error: Session ID {new.id} is already in use."))
    return new


class FakeClaude:
    """One process, which implements the agent protocol."""

    def __init__(self, options: argparse.Namespace, transcript: TranscriptFile, prompt: str) -> None:
        self.options = options
        self.transcript = transcript
        may = MODES[options.permission_mode]
        allowed = frozenset(options.allowedTools.replace(" ", ",").split(","))
        self.turn = FakeTurn(prompt, options.model, None if may is None else may | allowed)
        self.turn.turns_max, self.turn.cost_max_usd = options.max_turns, options.max_budget_usd
        self.step_runner = StepRunner(self)
        self._totals_before = transcript.totals()
        self._denials: list[dict[str, Any]] = []
        self._tokens_reported = (0, 0)
        self._results = 0
        self._wakeup: tuple[int, str] | None = None
        self._structured: object = None

    def run(self) -> int:
        """Run the prompt; returns the exit code."""
        signal.signal(
            signal.SIGTERM, lambda *_: self.step_runner.handle_signal(lambda: self._end(128 + signal.SIGTERM))
        )
        signal.signal(signal.SIGHUP, lambda *_: self.step_runner.handle_signal(lambda: self._end(128 + signal.SIGHUP)))
        signal.signal(signal.SIGINT, lambda *_: self.step_runner.handle_signal(self._interrupted))
        prompt = self.turn.prompt
        while True:
            self.transcript.add("user", message={"role": "user", "content": prompt})
            end = self.step_runner.run(prompt)
            self._result(end)
            if self._wakeup is None:
                break
            # The process continues after a result, when its wakeup is due.
            (delay_ms, prompt), self._wakeup = self._wakeup, None
            threading.Event().wait(delay_ms / 1000)
        if self.step_runner.linger_ms is not None:
            threading.Event().wait(self.step_runner.linger_ms / 1000 or None)
        return int(end.why != "done")

    def _end(self, code: int) -> None:
        """Exit without further output."""
        with suppress(RuntimeError):  # interrupted while it was writing
            sys.stdout.flush()
        os._exit(code)

    def _interrupted(self) -> None:
        """As Claude does: report the interruption, and exit with 0."""
        text = [{"type": "text", "text": "[Request interrupted by user]"}]
        self._event("user", message={"role": "user", "content": text}, parent_tool_use_id=None)
        self._end(0)

    # ---- the tongue

    def begin(self) -> None:
        self._event(
            "system", subtype="init", cwd=os.getcwd(), tools=["Bash", "Edit", "Read", "ScheduleWakeup", "Write"],
            mcp_servers=[], model=self.turn.model, permissionMode=self.options.permission_mode,
            apiKeySource="none", claude_code_version=VERSION,
        )  # fmt: skip

    def say(self, text: str) -> None:
        self.transcript.add("assistant", message={"role": "assistant", "content": text})
        self._message({"type": "text", "text": text})

    def think(self, text: str) -> None:
        self._message({"type": "thinking", "thinking": text, "signature": ""}, asks=False)

    def plan(self, items: list[str]) -> None:
        todos = [{"content": item, "status": "pending", "activeForm": item} for item in items]
        use = self.call("TodoWrite", {"todos": todos})
        self.returned(use, "TodoWrite", "Todos have been modified successfully.", ok=True)

    def call(self, tool: str, tool_input: dict[str, Any]) -> str:
        use = f"toolu_{uuid4().hex[:24]}"
        self._message({"type": "tool_use", "id": use, "name": tool, "input": tool_input})
        return use

    def allowed(self, _use: str, tool: str) -> bool:
        return self.turn.allows(tool)

    def denied(self, use: str, tool: str, tool_input: dict[str, Any]) -> None:
        text = f"Claude requested permissions to use {tool}, but you haven't granted it yet."
        self._denials.append({"tool_name": tool, "tool_use_id": use, "tool_input": tool_input})
        self._event("system", subtype="permission_denied", tool_name=tool, tool_use_id=use, message=text)
        self.returned(use, tool, text, ok=False)

    def returned(self, use: str, _tool: str, text: str, *, ok: bool) -> None:
        content: dict[str, Any] = {"type": "tool_result", "content": text, "tool_use_id": use}
        if not ok:
            content["is_error"] = True
        self._event("user", message={"role": "user", "content": [content]}, parent_tool_use_id=None)

    def wake(self, delay_ms: int, prompt: str) -> bool:
        if "ScheduleWakeup" in self.options.disallowedTools:
            self.denied(self.call("ScheduleWakeup", {}), "ScheduleWakeup", {})
            return False
        seconds = max(1, delay_ms // 1000)
        tool_input = {"delaySeconds": seconds, "reason": "there is something to wait for", "prompt": prompt}
        use = self.call("ScheduleWakeup", tool_input)
        self.returned(use, "ScheduleWakeup", f"Next wakeup scheduled (in {seconds}s).", ok=True)
        self._wakeup = (delay_ms, prompt)
        return True

    def answer(self, value: object) -> None:
        self._structured = value

    def prompts(self) -> list[str]:
        return self.transcript.prompts()

    # ---- lines

    def _event(self, kind: str, **fields: object) -> None:
        if self.options.output_format == "stream-json":
            line = {"type": kind, **fields, "session_id": self.transcript.id, "uuid": str(uuid4())}
            sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
            sys.stdout.flush()

    def _message(self, block: dict[str, Any], *, asks: bool = True) -> None:
        """Write a message with the usage since the previous one; each counts as a model call."""
        spent = self.turn.spending
        spent.turns += asks
        read, written = spent.input_tokens - self._tokens_reported[0], spent.output_tokens - self._tokens_reported[1]
        self._tokens_reported = (spent.input_tokens, spent.output_tokens)
        usage = {"input_tokens": read, "output_tokens": written, "cache_read_input_tokens": 0}
        message = {"id": f"msg_{uuid4().hex[:24]}", "type": "message", "role": "assistant", "model": self.turn.model}
        self._event(
            "assistant",
            message={**message, "content": [block], "stop_reason": None, "usage": usage},
            parent_tool_use_id=None,
        )

    def _result(self, end: TurnEnded) -> None:
        spent = self.turn.spending
        totals = {
            "cost": self._totals_before.get("cost", 0) + spent.cost_usd,
            "read": self._totals_before.get("read", 0) + spent.input_tokens,
            "written": self._totals_before.get("written", 0) + spent.output_tokens,
        }
        self.transcript.add("totals", totals=totals)
        failure = describe_failure(end)
        for event in failure.events:
            self._event(**event)
        usage = {"input_tokens": spent.input_tokens, "output_tokens": spent.output_tokens, "cache_read_input_tokens": 0}
        of_model = {"inputTokens": totals["read"], "outputTokens": totals["written"], "costUSD": totals["cost"]}
        result = {
            "is_error": end.why != "done", "num_turns": spent.turns, "total_cost_usd": totals["cost"],
            "usage": usage, "modelUsage": {self.turn.model: {**of_model, "cacheReadInputTokens": 0}},
            "permission_denials": self._denials, "duration_ms": 1, "result_index": self._results,
            **failure.result,
        }  # fmt: skip
        if self._structured is not None:
            result["structured_output"] = self._structured
        self._results += 1
        if self.options.output_format == "text":
            sys.stdout.write(f"{result.get('result', '')}\n")
        elif self.options.output_format == "json":
            sys.stdout.write(json.dumps({"type": "result", "session_id": self.transcript.id, **result}) + "\n")
        else:
            self._event("result", **result)
        sys.stdout.flush()


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False


def _print_error(sentence: str) -> int:
    sys.stderr.write(sentence + "\n")
    return 1
