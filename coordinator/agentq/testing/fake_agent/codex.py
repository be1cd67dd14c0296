"""The stand-in as Codex: `exec --json`, with threads that can be resumed and usage that is told as a running total."""

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
    """The flags that matter, and those that are only taken."""
    words = argparse.ArgumentParser(prog="standin --as codex exec", description=__doc__)
    words.add_argument("--json", action="store_true")
    words.add_argument("-m", "--model", default="standin-1")
    words.add_argument("-s", "--sandbox", choices=SANDBOXES, default="read-only")
    words.add_argument("-C", "--cd")
    words.add_argument("-c", "--config", action="append", default=[])
    words.add_argument("-o", "--output-last-message")
    words.add_argument("--output-schema")
    words.add_argument("--last", action="store_true")
    words.add_argument("--dangerously-bypass-approvals-and-sandbox", dest="bypass", action="store_true")
    for taken in ("--skip-git-repo-check", "--ephemeral", "--ignore-user-config", "--ignore-rules"):
        words.add_argument(taken, action="store_true")
    words.add_argument("words", nargs="*")
    return words


def main(argv: list[str]) -> int:
    """One process of it."""
    if argv[:1] == ["--version"]:
        sys.stdout.write(f"{VERSION}\n")
        return 0
    if argv[:1] != ["exec"]:
        sys.stderr.write("error: the stand-in only knows `exec`\n")
        return 2
    verb = argv[1] if argv[1:2] in (["resume"], ["fork"]) else ""
    chosen = build_parser().parse_intermixed_args(argv[2:] if verb else argv[1:])
    thread = chosen.words.pop(0) if verb and not chosen.last else ""
    prompt = sys.stdin.read() if chosen.words in ([], ["-"]) else chosen.words[0]
    if not prompt.strip():
        sys.stderr.write("No prompt provided via stdin.\n")
        return 1
    if chosen.cd:
        os.chdir(chosen.cd)
    talk = open_conversation(verb, thread)
    if talk is None:
        failed = f"thread/resume failed: no rollout found for thread id {thread}"
        sys.stderr.write(f"Error: thread/resume: {failed} (code -32600)\n")
        return 1
    return FakeCodex(chosen, talk, prompt).live()


def open_conversation(verb: str, thread: str) -> TranscriptFile | None:
    """A new one, or the one that was asked for; None if there is no such."""
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
    """One process; a tongue, and what becomes of it in the end."""

    def __init__(self, chosen: argparse.Namespace, talk: TranscriptFile, prompt: str) -> None:
        self.chosen = chosen
        self.talk = talk
        sandbox = "danger-full-access" if chosen.bypass else chosen.sandbox
        for setting in chosen.config:
            name, _, value = setting.partition("=")
            if name == "sandbox_mode":
                sandbox = value.strip('"')
        self.turn = FakeTurn(prompt, chosen.model, frozenset() if sandbox == "read-only" else None)
        self.actor = StepRunner(self)
        self._before = talk.totals()
        self._items = 0
        self._commands: dict[str, dict[str, Any]] = {}

    def live(self) -> int:
        """From the prompt to the exit code."""
        signal.signal(signal.SIGINT, lambda *_: self.actor.strike(lambda: self._end(signal.SIGINT)))
        signal.signal(signal.SIGTERM, lambda *_: self.actor.strike(lambda: self._end(signal.SIGTERM)))
        self.talk.add("user", message={"role": "user", "content": self.turn.prompt})
        over = self.actor.act(self.turn.prompt)
        self._ended(over)
        if self.actor.lingers_ms is not None:
            threading.Event().wait(self.actor.lingers_ms / 1000 or None)
        return int(over.why != "done")

    def _end(self, number: signal.Signals) -> None:
        sys.stdout.flush()
        if number == signal.SIGINT:
            os._exit(1)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    # ---- the tongue

    def begin(self) -> None:
        self._event("thread.started", thread_id=self.talk.id[-36:])
        self._event("turn.started")

    def say(self, text: str) -> None:
        self.turn.spent.turns += 1
        self.talk.add("assistant", message={"role": "assistant", "content": text})
        self._item("agent_message", text=text)

    def think(self, text: str) -> None:
        self._item("reasoning", text=text)

    def plan(self, items: list[str]) -> None:
        self._item("todo_list", items=[{"text": item, "completed": False} for item in items])

    def call(self, tool: str, about: dict[str, Any]) -> str:
        self.turn.spent.turns += 1
        use = self._new_id()
        self._commands[use] = _command_item(about)
        if tool != "Write":
            self._event("item.started", item={"id": use, **self._commands[use]})
        return use

    def allowed(self, _use: str, tool: str) -> bool:
        return self.turn.allows(tool)

    def denied(self, use: str, _tool: str, _about: dict[str, Any]) -> None:
        """A sandbox refuses, and the turn goes on as if a command had failed."""
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
        return self.talk.prompts()

    # ---- lines

    def _event(self, kind: str, **fields: object) -> None:
        if self.chosen.json:
            sys.stdout.write(json.dumps({"type": kind, **fields}, ensure_ascii=False) + "\n")
            sys.stdout.flush()

    def _item(self, kind: str, **fields: object) -> None:
        self._event("item.completed", item={"id": self._new_id(), "type": kind, **fields})

    def _new_id(self) -> str:
        self._items += 1
        return f"item_{self._items - 1}"

    def _ended(self, over: TurnEnded) -> None:
        spent = self.turn.spent
        read = self._before.get("read", 0) + spent.input_tokens
        written = self._before.get("written", 0) + spent.output_tokens
        self.talk.add("totals", totals={"read": read, "written": written})
        if over.why == "done":
            usage = {"input_tokens": read, "cached_input_tokens": 0, "cache_write_input_tokens": 0}
            self._event("turn.completed", usage={**usage, "output_tokens": written, "reasoning_output_tokens": 0})
            if self.chosen.output_last_message:
                Path(self.chosen.output_last_message).write_text(over.text, encoding="utf-8")
            if not self.chosen.json:
                sys.stdout.write(f"{over.text}\n")
            return
        message = over.text or ERROR_MESSAGES.get(over.why, over.why)
        if over.until_ms is not None:
            message = f"You’ve hit your usage limit. Upgrade to Pro or try again at {_format_moment(over.until_ms)}."
        self._event("error", message=message)
        self._event("turn.failed", error={"message": message})


def _command_item(about: dict[str, Any]) -> dict[str, Any]:
    command = about.get("command") or f"write {about.get('file_path', '')}"
    running = {"aggregated_output": "", "exit_code": None, "status": "in_progress"}
    return {"type": "command_execution", "command": command, **running}


def _format_moment(at_ms: int) -> str:
    """As Codex tells it: in local time, with the date only where it is another day."""
    at, now = datetime.fromtimestamp(at_ms / 1000), datetime.fromtimestamp(wall_ms() / 1000)
    time = f"{at:%-I:%M %p}"
    if at.date() == now.date():
        return time
    ending = "th" if 11 <= at.day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(at.day % 10, "th")
    return f"{at:%b} {at.day}{ending}, {at:%Y} {time}"
