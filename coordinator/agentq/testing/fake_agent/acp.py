"""The fake agent for the Agent Client Protocol, version 1: JSON-RPC lines on stdin and stdout.

A separate thread reads messages, so that a turn can be cancelled and questions answered while it runs.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import sys
import threading
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from agentq.testing.fake_agent.protocol import FakeTurn, TurnEnded
from agentq.testing.fake_agent.step_runner import StepRunner
from agentq.testing.fake_agent.transcript import TranscriptFile, claude_home, folder_slug

VERSION = "0.1 (Stand-in)"
AUTH_REQUIRED, NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR, METHOD_NOT_FOUND = -32000, -32002, -32602, -32603, -32601
TOOL_KINDS = {"Write": "edit", "Edit": "edit", "Bash": "execute", "Read": "read"}
STOP_REASONS = {
    "done": "end_turn",
    "turns": "max_turn_requests",
    "context": "max_tokens",
    "refused": "refusal",
    "interrupted": "cancelled",
}
ERROR_MESSAGES = {
    "throttled": "API Error: Request rejected (429)",
    "overloaded": "API Error: 529 Overloaded",
    "credit": "Credit balance is too low",
}


class AgentRpcError(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: int, message: str, details: object = None) -> None:
        super().__init__(message)
        self.body = {"code": code, "message": message} | ({"data": details} if details is not None else {})


def main(argv: list[str]) -> int:
    """Run one process until its stdin ends."""
    parser = argparse.ArgumentParser(prog="standin --as acp", description=__doc__)
    parser.add_argument("--mute", action="store_true", help="take everything, and answer nothing")
    parser.add_argument("-v", "--version", action="version", version=VERSION)
    return FakeAcpAgent(mute=parser.parse_args(argv).mute).serve()


class FakeAcpAgent:
    """The process: its sessions, and its connection."""

    def __init__(self, *, mute: bool = False) -> None:
        self.mute = mute
        self.sessions: dict[str, FakeAcpSession] = {}
        self.active_session: FakeAcpSession | None = None
        self.linger_ms: int | None = None
        self._requests = queue.SimpleQueue[dict[str, Any] | None]()
        self._answers: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._write_lock = threading.Lock()
        self._number = 0

    def serve(self) -> int:
        """Answer requests one after the other."""
        signal.signal(signal.SIGTERM, lambda *_: self._handle_signal(128 + signal.SIGTERM))
        signal.signal(signal.SIGINT, lambda *_: self._handle_signal(128 + signal.SIGINT))
        threading.Thread(target=self._read_messages, daemon=True).start()
        while (request := self._requests.get()) is not None:
            self._answer(request)
        if self.linger_ms is not None:
            threading.Event().wait(self.linger_ms / 1000 or None)
        return 0

    def _handle_signal(self, code: int) -> None:
        if self.active_session:
            self.active_session.step_runner.handle_signal(lambda: os._exit(code))
        else:
            os._exit(code)

    # ---- the wire

    def _read_messages(self) -> None:
        for line in sys.stdin:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if "method" not in message:
                if waiting := self._answers.pop(message["id"], None):
                    waiting.put(message)
            elif message["method"] == "session/cancel":
                self._cancel()
            elif not self.mute:
                self._requests.put(message)
        self._cancel()  # The client has gone.
        self._requests.put(None)

    def _cancel(self) -> None:
        if self.active_session:
            self.active_session.step_runner.interrupted.set()
            self.active_session.step_runner.end_tool()
        for number in list(self._answers):
            self._answers.pop(number).put({"result": {"outcome": {"outcome": "cancelled"}}})

    def send(self, **message: object) -> None:
        with self._write_lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False) + "\n")
            sys.stdout.flush()

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request to the client, and return its answer."""
        self._number += 1
        self._answers[self._number] = answer = queue.SimpleQueue[dict[str, Any]]()
        self.send(id=self._number, method=method, params=params)
        return dict(answer.get().get("result") or {})

    def _answer(self, request: dict[str, Any]) -> None:
        methods = {
            "initialize": self._initialize,
            "authenticate": lambda _params: {},
            "session/new": self._new,
            "session/load": self._load,
            "session/set_model": self._set_model,
            "session/set_mode": lambda _params: {},
            "session/prompt": self._prompt,
        }
        try:
            if request["method"] not in methods:
                raise AgentRpcError(METHOD_NOT_FOUND, f"Method not found: {request['method']}")
            answer: dict[str, Any] = {"result": methods[request["method"]](request.get("params") or {})}
        except AgentRpcError as fault:
            answer = {"error": fault.body}
        if "id" in request:
            self.send(id=request["id"], **answer)

    # ---- what it is asked

    def _initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        return {
            "protocolVersion": min(1, int(params.get("protocolVersion", 1))),
            "agentCapabilities": {"loadSession": True, "promptCapabilities": {}, "mcpCapabilities": {}},
            "agentInfo": {"name": "standin", "title": "Stand-in", "version": VERSION},
            "authMethods": [],
        }

    def _new(self, params: dict[str, Any]) -> dict[str, Any]:
        file = claude_home() / "projects" / folder_slug(params["cwd"]) / f"{uuid4()}.jsonl"
        session = FakeAcpSession(self, TranscriptFile(file))
        self.sessions[session.id] = session
        models = [{"modelId": name, "name": name} for name in ("standin-1", "standin-2")]
        return {"sessionId": session.id, "models": {"availableModels": models, "currentModelId": "standin-1"}}

    def _load(self, params: dict[str, Any]) -> dict[str, Any]:
        known = sorted((claude_home() / "projects").glob(f"*/{params['sessionId']}.jsonl"))
        if not known:
            raise AgentRpcError(NOT_FOUND, "Resource not found", {"uri": params["sessionId"]})
        session = self.sessions[params["sessionId"]] = FakeAcpSession(self, TranscriptFile(known[0]))
        session.replay()
        return {}

    def _set_model(self, params: dict[str, Any]) -> dict[str, Any]:
        self._session(params).turn.model = params["modelId"]
        return {}

    def _prompt(self, params: dict[str, Any]) -> dict[str, Any]:
        session = self.active_session = self._session(params)
        prompt = "\n".join(str(block.get("text") or "") for block in params["prompt"])
        try:
            return session.run_turn(prompt)
        finally:
            self.active_session = None
            self.linger_ms = session.step_runner.linger_ms

    def _session(self, params: dict[str, Any]) -> FakeAcpSession:
        if params.get("sessionId") not in self.sessions:
            raise AgentRpcError(INVALID_PARAMS, "Invalid params", {"sessionId": params.get("sessionId")})
        return self.sessions[params["sessionId"]]


class FakeAcpSession:
    """A session, which implements the agent protocol."""

    def __init__(self, agent: FakeAcpAgent, transcript: TranscriptFile) -> None:
        self.agent = agent
        self.transcript = transcript
        self.turn = FakeTurn("", allowed_tools=None)
        self.step_runner = StepRunner(self)
        self._totals_before = transcript.totals()

    @property
    def id(self) -> str:
        return self.transcript.id

    def run_turn(self, prompt: str) -> dict[str, Any]:
        """Run a turn; returns its stop reason."""
        model, self.turn = self.turn.model, FakeTurn(prompt, allowed_tools=None)
        self.turn.model = model
        self.step_runner = StepRunner(self)
        self._totals_before = self.transcript.totals()
        self.transcript.add("user", message={"role": "user", "content": prompt})
        end = self.step_runner.run(prompt)
        cost = self._totals_before.get("cost", 0) + self.turn.spending.cost_usd
        read = self._totals_before.get("read", 0) + self.turn.spending.input_tokens + self.turn.spending.output_tokens
        self.transcript.add("totals", totals={"cost": cost, "read": read})
        if cost or read:
            self._update("usage_update", used=read, size=200_000, cost={"amount": cost, "currency": "USD"})
        if end.why in STOP_REASONS:
            return {"stopReason": STOP_REASONS[end.why]}
        raise _turn_error(end)

    def replay(self) -> None:
        """Send all earlier messages."""
        for line in self.transcript.lines():
            if line["type"] in ("user", "assistant"):
                kind = "user_message_chunk" if line["type"] == "user" else "agent_message_chunk"
                self._update(kind, content={"type": "text", "text": line["message"]["content"]})

    # ---- the tongue

    def begin(self) -> None:
        """ACP has no message for this."""

    def say(self, text: str) -> None:
        self.turn.spending.turns += 1
        self.transcript.add("assistant", message={"role": "assistant", "content": text})
        self._update("agent_message_chunk", content={"type": "text", "text": text})

    def think(self, text: str) -> None:
        self._update("agent_thought_chunk", content={"type": "text", "text": text})

    def plan(self, items: list[str]) -> None:
        entries = [{"content": item, "priority": "medium", "status": "pending"} for item in items]
        self._update("plan", entries=entries)

    def call(self, tool: str, tool_input: dict[str, Any]) -> str:
        self.turn.spending.turns += 1
        use = f"call_{uuid4().hex[:12]}"
        self._update(
            "tool_call", toolCallId=use, status="pending", rawInput=tool_input, **_describe_tool_call(tool, tool_input)
        )
        return use

    def allowed(self, use: str, tool: str) -> bool:
        """Ask the client, every time."""
        options = [
            {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
            {"optionId": "always", "name": "Always allow", "kind": "allow_always"},
            {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
        ]
        call = {"toolCallId": use, "title": tool, "kind": TOOL_KINDS.get(tool, "other"), "status": "pending"}
        answer = self.agent.ask(
            "session/request_permission", {"sessionId": self.id, "toolCall": call, "options": options}
        )
        outcome = answer.get("outcome") or {}
        if outcome.get("outcome") == "cancelled":
            raise TurnEnded("interrupted")
        return outcome.get("optionId") in ("allow", "always")

    def denied(self, use: str, _tool: str, _tool_input: dict[str, Any]) -> None:
        self._update("tool_call_update", toolCallId=use, status="failed")

    def returned(self, use: str, _tool: str, text: str, *, ok: bool) -> None:
        content = [{"type": "content", "content": {"type": "text", "text": text}}]
        self._update("tool_call_update", toolCallId=use, status="completed" if ok else "failed", content=content)

    def wake(self, _delay_ms: int, _prompt: str) -> bool:
        self.say("I cannot be woken.")
        return False

    def answer(self, value: object) -> None:
        self.say(json.dumps(value))

    def prompts(self) -> list[str]:
        return self.transcript.prompts()

    def _update(self, what: str, **fields: object) -> None:
        self.agent.send(
            method="session/update", params={"sessionId": self.id, "update": {"sessionUpdate": what, **fields}}
        )


def _describe_tool_call(tool: str, tool_input: dict[str, Any]) -> dict[str, Any]:
    title = tool_input.get("command") or tool_input.get("file_path") or tool
    shown: dict[str, Any] = {"title": title, "kind": TOOL_KINDS.get(tool, "other")}
    return shown | ({"locations": [{"path": tool_input["file_path"]}]} if "file_path" in tool_input else {})


def _turn_error(end: TurnEnded) -> AgentRpcError:
    if end.why == "auth":
        return AgentRpcError(AUTH_REQUIRED, "Authentication required")
    if end.until_ms is not None:
        reset = f"{datetime.fromtimestamp(end.until_ms / 1000, UTC):%-I:%M%p}".lower()
        return AgentRpcError(INTERNAL_ERROR, f"Internal error: You've hit your 5-hour limit · resets {reset} (UTC)")
    return AgentRpcError(INTERNAL_ERROR, f"Internal error: {end.text or ERROR_MESSAGES.get(end.why, 'It failed.')}")
