"""One turn with an agent that speaks the Agent Client Protocol. Its tasks:

1. Start the agent and open the conversation, each in bounded time.
2. Send the prompt; print the agent's events, one a line, and answer its requests by the run's permissions.
3. On a stop, ask the agent to cancel its turn, and wait only briefly.
4. Report how it ended in every case, and leave no process behind.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from agentq.coordinator.model.agent_events import AgentEvent, ResultEvent, StartedEvent, ToolDeniedEvent, UnknownEvent
from agentq.worker.agents.acp import protocol_v1
from agentq.worker.agents.acp.json_rpc import RpcClosed, RpcError, RpcProcess
from agentq.worker.agents.acp.permissions import Permissions, find_refusal
from agentq.worker.agents.acp.protocol_v1 import AcpConversation, ConversationRequest, TurnRefused
from agentq.worker.agents.acp.updates import TEXT_CHUNK_MS, AcpUpdates
from agentq.worker.agents.verdicts import VerdictKind

CANCEL_GRACE_S = 3.0
"""How long an agent may take to cancel its turn."""
END_GRACE_S = 2.0
"""How long it may take to end after its turn, and again after SIGTERM."""
DENIALS_MAX = 100

EXIT_OK, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 128 + signal.SIGTERM
FactFields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AcpTurnOptions:
    """The options of the bridge."""

    argv: Sequence[str]
    prompt: str
    cwd: Path
    env: Mapping[str, str]
    model: str | None = None
    resume: str | None = None
    fork: str | None = None
    permissions: Permissions = "edit"
    startup_s: float = 120


class AcpStopped(Exception):
    """The bridge was told to end."""


class AcpTurn:
    """Runs one turn."""

    def __init__(self, options: AcpTurnOptions) -> None:
        self._options = options
        self._name = Path(options.argv[0]).name
        self._updates = AcpUpdates(self._emit)
        self._denials: list[str] = []
        self._totals: dict[str, float] = {}
        self._stop_requests = 0
        self._stopped = asyncio.Event()
        self._kill_now = asyncio.Event()

    async def run(self) -> int:
        """Run the turn; returns the bridge's exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop)
        try:
            asked = self._options
            child = await RpcProcess.start(asked.argv, asked.env, asked.cwd, self._on_notification, self._on_request)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            return self._fail(VerdictKind.STARTUP, f"it cannot be started: {why}")
        try:
            return await self._turn(child)
        except BrokenPipeError:
            return EXIT_FAILED  # the worker that reads our output is gone
        finally:
            await child.end(0.0 if self._kill_now.is_set() else END_GRACE_S)

    async def _turn(self, child: RpcProcess) -> int:
        opened: AcpConversation | None = None
        asked = self._options
        try:
            wanted = ConversationRequest(str(asked.cwd), asked.resume, asked.fork, asked.model, asked.permissions)
            opened = await self._unless_stopped(
                protocol_v1.open_conversation(child, wanted, asked.env, asked.startup_s)
            )
            self._emit(StartedEvent(session=opened.id, model=opened.model))
            self._emit_facts(session=opened.id, model=opened.model)
            self._updates.live = True
            return await self._prompt(child, opened)
        except TurnRefused as refused:
            return self._fail(refused.kind, str(refused))
        except RpcError as error:
            return self._fail(protocol_v1.classify_error(error), protocol_v1.format_error(error))
        except TimeoutError:
            return self._fail(VerdictKind.STARTUP, f"it did not answer within {asked.startup_s:g} s of its start")
        except RpcClosed as gone:
            return self._on_agent_exit(child, str(gone), began=opened is not None)
        except AcpStopped:
            self._fail(VerdictKind.INTERRUPTED, "it was told to stop")
            return EXIT_INTERRUPTED

    async def _prompt(self, child: RpcProcess, conversation: AcpConversation) -> int:
        turn = asyncio.ensure_future(protocol_v1.send_prompt(child, conversation, self._options.prompt))
        flushing = asyncio.ensure_future(self._flush_in_time())
        try:
            answer = await self._unless_stopped(asyncio.shield(turn))
        except AcpStopped:
            with suppress(RpcClosed, RpcError):
                await protocol_v1.cancel_turn(child, conversation)
                hurried = asyncio.ensure_future(self._kill_now.wait())
                await asyncio.wait({turn, hurried}, timeout=CANCEL_GRACE_S, return_when=asyncio.FIRST_COMPLETED)
                hurried.cancel()
            raise
        finally:
            flushing.cancel()
            turn.cancel()
            self._updates.flush()
        self._updates.set_usage(answer.get("usage"))
        return self._end(answer.get("stopReason"))

    def _end(self, reason: object) -> int:
        kind, why = protocol_v1.STOP_REASONS.get(
            str(reason), (VerdictKind.AGENT_ERROR, f"its turn ended by {reason!r}")
        )
        if kind is None and not self._updates.did_something:
            kind, why = VerdictKind.NO_RESULT, "its turn is over, and it did and said nothing"
        if kind is not None:
            return self._fail(kind, why)
        self._emit_totals()
        self._emit(ResultEvent(ok=True, text=self._updates.answer))
        self._emit_facts(concluded=True, ok=True, text=self._updates.answer)
        return EXIT_OK

    def _fail(self, kind: VerdictKind, why: str) -> int:
        sentence = f"{self._name}: {why}."
        self._emit_totals()
        self._emit(ResultEvent(ok=False, text=sentence))
        self._emit_facts(concluded=True, ok=False, kind=kind, error=sentence, text=self._updates.answer)
        return EXIT_FAILED

    def _on_agent_exit(self, child: RpcProcess, why: str, *, began: bool) -> int:
        if not began:
            return self._fail(VerdictKind.STARTUP, f"{why} before it was ready")
        killed = child.exited.done() and child.exited.result() < 0
        return self._fail(VerdictKind.KILLED if killed else VerdictKind.NO_RESULT, f"{why} in the middle of its turn")

    # ---- being stopped

    def _stop(self) -> None:
        self._stop_requests += 1
        self._stopped.set()
        if self._stop_requests > 1:
            self._kill_now.set()

    async def _unless_stopped(self, work: Any) -> Any:
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stopped.wait())
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if task.done():
            return task.result()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        raise AcpStopped

    # ---- what the agent says

    def _on_notification(self, method: str, params: dict[str, Any]) -> None:
        update = params.get("update")
        if method == protocol_v1.UPDATE_METHOD and isinstance(update, dict):
            self._updates.take(update)
            if self._updates.live:
                self._emit_totals()
        elif self._updates.live and method != protocol_v1.UPDATE_METHOD:
            self._emit(UnknownEvent(raw={"method": method}))

    def _on_request(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        if method != protocol_v1.PERMISSION_METHOD:
            return None
        about = params.get("toolCall")
        call = self._updates.call(about if isinstance(about, dict) else {}, known=True)
        permissions = self._options.permissions
        why = find_refusal(permissions, call.kind, call.names(), self._options.cwd)
        if why is None:
            answer = protocol_v1.choose_permission_option(params, allow=True, always=permissions == "full")
            if answer is not None:
                return answer
            why = "it can only be allowed for ever"
        tool = call.title or call.kind
        if len(self._denials) < DENIALS_MAX:
            self._denials.append(tool)
        self._emit(ToolDeniedEvent(tool=tool, why=why))
        return protocol_v1.choose_permission_option(params, allow=False, always=False)

    async def _flush_in_time(self) -> None:
        while True:
            await asyncio.sleep(TEXT_CHUNK_MS / 1000)
            self._updates.flush_in_time()

    # ---- what we say

    def _emit(self, event: AgentEvent) -> None:
        _print_line(event.model_dump_json())

    def _emit_totals(self) -> None:
        if self._updates.totals != self._totals:
            self._emit_facts()

    def _emit_facts(self, **facts: object) -> None:
        """Print the known facts; totals are of the conversation, which may be older than this turn."""
        self._totals = dict(self._updates.totals)
        known = {name: value for name, value in facts.items() if value is not None}
        _print_line(to_json({"type": "facts", **known, "totals": self._totals, "denials": self._denials}).decode())


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
