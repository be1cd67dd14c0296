"""The fake agent for Codex: `exec --json`, with threads that can be resumed and cumulative usage."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from agentq.coordinator.clock import wall_ms
from agentq.testing.fake_agent.protocol import FakeTurn, TurnEnded
from agentq.testing.fake_agent.step_runner import StepRunner
from agentq.testing.fake_agent.transcript import TranscriptFile, codex_home

VERSION = "codex-cli 0.169.0 (Stand-in)"
SANDBOXES = ("read-only", "workspace-write", "danger-full-access")
ERROR_MESSAGES = {
    "throttled": "exceeded retry limit, last status: 429 Too Many Requests",
    "overloaded": "exceeded retry limit, last status: 503 Service Unavailable",
    "auth": "unexpected status 401 Unauthorized: Incorrect API key provided.",
    "credit": "Quota exceeded. Check your plan and billing details.",
    "context": "Codex ran out of room in the model's context window. Start a new thread or clear earlier history.",
    "refused": "The model declined.",
    "failed": "It failed.",
}


def build_parser() -> argparse.ArgumentParser:
    """The supported flags, and those that are accepted and ignored."""
    parser = argparse.ArgumentParser(prog="standin --as codex exec", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("-m", "--model", default="standin-1")
    parser.add_argument("-s", "--sandbox", choices=SANDBOXES, default="read-only")
    parser.add_argument("-C", "--cd")
    parser.add_argument("-c", "--config", action="append", default=[])
    parser.add_argument("-o", "--output-last-message")
    parser.add_argument("--output-schema")
    parser.add_argument("--last", action="store_true")
    parser.add_argument("--dangerously-bypass-approvals-and-sandbox", dest="bypass", action="store_true")
    for ignored in ("--skip-git-repo-check", "--ephemeral", "--ignore-user-config", "--ignore-rules"):
        parser.add_argument(ignored, action="store_true")
    parser.add_argument("words", nargs="*")
    return parser


def main(argv: list[str]) -> int:
    """Run one process."""
    if argv[:1] == ["--version"]:
        sys.stdout.write(f"{VERSION}\n")
        return 0
    if argv[:1] != ["exec"]:
        sys.stderr.write("error: the stand-in only knows `exec`\n")
        return 2
    verb = argv[1] if argv[1:2] in (["resume"], ["fork"]) else ""
    options = build_parser().parse_intermixed_args(argv[2:] if verb else argv[1:])
    thread = options.words.pop(0) if verb and not options.last else ""
    prompt = sys.stdin.read() if options.words in ([], ["-"]) else options.words[0]
    if not prompt.strip():
        sys.stderr.write("No prompt provided via stdin.\n")
        return 1
    if options.cd:
        os.chdir(options.cd)
    transcript = open_conversation(verb, thread)
    if transcript is None:
        failed = f"thread/resume failed: no rollout found for thread id {thread}"
        sys.stderr.write(f"Error: thread/resume: {failed} (code -32600)\n")
        return 1
    return FakeCodex(options, transcript, prompt).run()


def open_conversation(verb: str, thread: str) -> TranscriptFile | None:
    """A new conversation, or the requested one; None if it does not exist."""
    folder = codex_home() / "sessions"
    if verb:
        known = sorted(folder.glob(f"*/*/*/rollout-*{thread}.jsonl"))
        if not known:
            return None
        if verb == "resume":
            return TranscriptFile(known[-1])
    now = datetime.fromtimestamp(wall_ms() / 1000, UTC)
    new = TranscriptFile(folder / f"{now:%Y/%m/%d}" / f"rollout-{now:%Y-%m-%dT%H-%M-%S}-{uuid4()}.jsonl")
    if verb:
        new.copy(TranscriptFile(known[-1]))
    return new


class FakeCodex:
    """One process, which implements the agent protocol."""

    def __init__(self, options: argparse.Namespace, transcript: TranscriptFile, prompt: str) -> None:
        self.options = options
        self.transcript = transcript
        sandbox = "danger-full-access" if options.bypass else options.sandbox
        for setting in options.config:
            name, _, value = setting.partition("=")
            if name == "sandbox_mode":
                sandbox = value.strip('"')
        self.turn = FakeTurn(prompt, options.model, frozenset() if sandbox == "read-only" else None)
        self.step_runner = StepRunner(self)
        self._totals_before = transcript.totals()
        self._items = 0
        self._commands: dict[str, dict[str, Any]] = {}

    def run(self) -> int:
        """Run the prompt; returns the exit code."""
        signal.signal(signal.SIGINT, lambda *_: self.step_runner.handle_signal(lambda: self._end(signal.SIGINT)))
        signal.signal(signal.SIGTERM, lambda *_: self.step_runner.handle_signal(lambda: self._end(signal.SIGTERM)))
        self.transcript.add("user", message={"role": "user", "content": self.turn.prompt})
        end = self.step_runner.run(self.turn.prompt)
        self._ended(end)
        if self.step_runner.linger_ms is not None:
            threading.Event().wait(self.step_runner.linger_ms / 1000 or None)
        return int(end.why != "done")

    def _end(self, number: signal.Signals) -> None:
        sys.stdout.flush()
        if number == signal.SIGINT:
            os._exit(1)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    # ---- the tongue

    def begin(self) -> None:
        self._event("thread.started", thread_id=self.transcript.id[-36:])
        self._event("turn.started")

    def say(self, text: str) -> None:
        self.turn.spending.turns += 1
        self.transcript.add("assistant", message={"role": "assistant", "content": text})
        self._item("agent_message", text=text)

    def think(self, text: str) -> None:
        self._item("reasoning", text=text)

    def plan(self, items: list[str]) -> None:
        self._item("todo_list", items=[{"text": item, "completed": False} for item in items])

    def call(self, tool: str, tool_input: dict[str, Any]) -> str:
        self.turn.spending.turns += 1
        use = self._new_id()
        self._commands[use] = _command_item(tool_input)
        if tool != "Write":
            self._event("item.started", item={"id": use, **self._commands[use]})
        return use

    def allowed(self, _use: str, tool: str) -> bool:
        return self.turn.allows(tool)

    def denied(self, use: str, _tool: str, _tool_input: dict[str, Any]) -> None:
        """A sandbox denies, and the turn continues as after a failed command."""
        denied = {"aggregated_output": "Read-only file system", "exit_code": 1, "status": "failed"}
        self._event("item.completed", item={"id": use, **self._commands.pop(use), **denied})

    def returned(self, use: str, tool: str, text: str, *, ok: bool) -> None:
        command = self._commands.pop(use)
        if tool == "Write":
            path = text.rpartition(": ")[2]
            change = {"type": "file_change", "changes": [{"path": str(Path.cwd() / path), "kind": "add"}]}
            self._event("item.completed", item={"id": use, **change, "status": "completed" if ok else "failed"})
            return
        ended = {"aggregated_output": text, "exit_code": 0 if ok else 1, "status": "completed" if ok else "failed"}
        self._event("item.completed", item={"id": use, **command, **ended})

    def wake(self, _delay_ms: int, _prompt: str) -> bool:
        self.say("I cannot be woken.")
        return False

    def answer(self, value: object) -> None:
        self.say(json.dumps(value))

    def prompts(self) -> list[str]:
        return self.transcript.prompts()

    # ---- lines

    def _event(self, kind: str, **fields: object) -> None:
        if self.options.json:
            sys.stdout.write(json.dumps({"type": kind, **fields}, ensure_ascii=False) + "\n")
            sys.stdout.flush()

    def _item(self, kind: str, **fields: object) -> None:
        self._event("item.completed", item={"id": self._new_id(), "type": kind, **fields})

    def _new_id(self) -> str:
        self._items += 1
        return f"item_{self._items - 1}"

    def _ended(self, end: TurnEnded) -> None:
        spent = self.turn.spending
        read = self._totals_before.get("read", 0) + spent.input_tokens
        written = self._totals_before.get("written", 0) + spent.output_tokens
        self.transcript.add("totals", totals={"read": read, "written": written})
        if end.why == "done":
            usage = {"input_tokens": read, "cached_input_tokens": 0, "cache_write_input_tokens": 0}
            self._event("turn.completed", usage={**usage, "output_tokens": written, "reasoning_output_tokens": 0})
            if self.options.output_last_message:
                Path(self.options.output_last_message).write_text(end.text, encoding="utf-8")
            if not self.options.json:
                sys.stdout.write(f"{end.text}\n")
            return
        message = end.text or ERROR_MESSAGES.get(end.why, end.why)
        if end.until_ms is not None:
            message = f"You’ve hit your usage limit. Upgrade to Pro or try again at {_format_moment(end.until_ms)}."
        self._event("error", message=message)
        self._event("turn.failed", error={"message": message})


def _command_item(tool_input: dict[str, Any]) -> dict[str, Any]:
    command = tool_input.get("command") or f"write {tool_input.get('file_path', '')}"
    running = {"aggregated_output": "", "exit_code": None, "status": "in_progress"}
    return {"type": "command_execution", "command": command, **running}


def _format_moment(at_ms: int) -> str:
    """A time as Codex writes it: local, with the date only if it is another day."""
    at, now = datetime.fromtimestamp(at_ms / 1000), datetime.fromtimestamp(wall_ms() / 1000)
    time = f"{at:%-I:%M %p}"
    if at.date() == now.date():
        return time
    ending = "th" if 11 <= at.day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(at.day % 10, "th")
    return f"{at:%b} {at.day}{ending}, {at:%Y} {time}"
