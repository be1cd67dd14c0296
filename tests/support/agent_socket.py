"""A worker's agent socket, an admitted run, and its clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from support.world import World

from agentq.coordinator.model.agent_options import AgentTurnOptions
from agentq.coordinator.model.spec import parse_spec
from agentq.coordinator.runs.children import WorkerChildren
from agentq.worker.run_api.agent_socket import AgentSocket

Answer = dict[str, Any]


class AdmittedRun:
    """An agent socket, and an agent's run that it admitted."""

    def __init__(self, world: World, folder: Path, **fields: Any) -> None:
        self.world = world
        self.socket = AgentSocket(WorkerChildren(world.queue), folder / "sockets")
        agent = {"kind": "agent", "agent": "claude", "prompt": "x", "argv": (), "turn": {"permissions": "full"}}
        agent["may_submit"] = ("agent", "command")
        fields = {**agent, **fields}
        self.run = world.submit(**{**fields, "turn": AgentTurnOptions.model_validate(fields["turn"])})
        self.worker = world.worker("w1", labels={"agent.claude": "ready"})
        (self.claim,) = self.worker.claim(1)
        self.told: list[dict[str, object]] = []
        self.entry: dict[str, str] = {}

    async def open(self) -> AdmittedRun:
        spec = parse_spec(self.claim.spec, self.claim.lane)
        self.entry = await self.socket.admit(self.claim, spec, self.told.append)
        return self

    async def say(self, *lines: bytes) -> Answer:
        reader, writer = await asyncio.open_unix_connection(self.entry["AGENTQ_AGENT_SOCKET"], limit=1 << 24)
        try:
            writer.writelines(lines)
            return json.loads(await reader.readline() or b"{}")  # type: ignore[no-any-return]
        finally:
            writer.close()

    async def ask(self, as_: str = "", token: str = "", **request: Any) -> Answer:
        greeting = {"run": as_ or self.run, "token": token or self.entry["AGENTQ_TOKEN"]}
        return await self.say(json.dumps(greeting).encode() + b"\n", json.dumps(request).encode() + b"\n")

    async def child(self, **fields: Any) -> Answer:
        return await self.ask(verb="submit", spec={"kind": "command", "argv": ["true"], **fields})


Test = Callable[[AdmittedRun], Coroutine[Any, Any, None]]


@pytest.fixture
def admitted(world: World, folder: Path) -> Callable[..., None]:
    """Runs a test against an agent socket."""

    def run(test: Test, **fields: Any) -> None:
        async def whole() -> None:
            made = await AdmittedRun(world, folder, **fields).open()
            try:
                await asyncio.wait_for(test(made), 60)
            finally:
                await made.socket.close()
            assert list((folder / "sockets").iterdir()) == []

        asyncio.run(whole())

    return run
