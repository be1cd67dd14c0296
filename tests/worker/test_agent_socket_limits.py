"""Limits of the agent socket: clients that are silent, slow, wrong or too many block no other."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.agent_socket import AdmittedRun
from support.agent_socket import admitted as admitted
from support.world import World

from agentq.worker.run_api import agent_socket


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ([b"hello\n"], "The first line is"),
        ([b"\xff\x00\n"], "The first line is"),
        ([b"[]\n"], "The first line is"),
        ([b""], "took longer than"),
        ([b'{"run": "'], "took longer than"),
        ([b"x" * 5_000], "longer than 1024 bytes"),
    ],
)
def test_whoever_does_not_say_who_it_is_is_not_heard(
    admitted: Callable[..., None], lines: list[bytes], error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if error == "took longer than":
        monkeypatch.setattr(agent_socket, "GREETING_S", 0.2)

    async def test(admitted: AdmittedRun) -> None:
        assert error in (await admitted.say(*lines))["error"]

    admitted(test)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (b"{}\n", "verb"),
        (b"hello\n", "not understood"),
        (b'{"verb": "drain"}\n', "drain"),
        (b'{"verb": "show", "run": "nobody"}\n', "not understood"),
        (b'{"verb": "show", "run": "{run}", "more": 1}\n', "more"),
        (b'{"verb": "submit", "spec": {"kind": "command"}}\n', "argv"),
        (b'{"verb": "submit", "spec": {"kind": "command", "argv": ["a"], "colour": "red"}}\n', "colour"),
        (b'{"verb": "progress", "progress": {"far": 1}}\n', "Progress is"),
        (b'{"verb": "wait", "run": "{run}", "timeout_ms": 1}\n', "has not ended in time"),
        (b'{"verb": "', "took longer than"),
    ],
)
def test_a_request_that_is_not_understood_is_told_why(
    admitted: Callable[..., None], request_: bytes, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if error == "took longer than":
        monkeypatch.setattr(agent_socket, "REQUEST_S", 0.5)

    async def test(admitted: AdmittedRun) -> None:
        greeting = {"run": admitted.run, "token": admitted.entry["AGENTQ_TOKEN"]}
        line = request_.replace(b"{run}", admitted.run.encode())
        assert error in (await admitted.say(json.dumps(greeting).encode() + b"\n" + line))["error"]

    admitted(test)


def test_an_oversize_request_is_refused_before_it_is_read_to_its_end(admitted: Callable[..., None]) -> None:
    async def test(admitted: AdmittedRun) -> None:
        greeting = json.dumps({"run": admitted.run, "token": admitted.entry["AGENTQ_TOKEN"]}).encode() + b"\n"
        reader, writer = await asyncio.open_unix_connection(admitted.entry["AGENTQ_AGENT_SOCKET"])
        writer.write(greeting)
        sent = 0
        try:
            while sent < 3 * agent_socket.REQUEST_BYTES:
                writer.write(b"x" * (1 << 20))
                await writer.drain()
                sent += 1 << 20
        except OSError:
            assert sent < 2 * agent_socket.REQUEST_BYTES
        else:
            assert b"at the most here" in await reader.readline()
        writer.close()
        assert (await admitted.child())["ok"]

    admitted(test)


def test_a_thousand_that_say_nothing_keep_nobody_out_for_long(
    admitted: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of the first ones is over when all have connected, and not before."""
    greeting = asyncio.Event()

    async def in_time(reader: asyncio.StreamReader, most: int, within_s: float, begun: bytes = b"") -> Any:
        if within_s == agent_socket.GREETING_S:
            await greeting.wait()
            within_s = 0
        return await line(reader, most, within_s, begun)

    line = agent_socket._read_line

    async def test(admitted: AdmittedRun) -> None:
        path = admitted.entry["AGENTQ_AGENT_SOCKET"]
        pairs = []
        monkeypatch.setattr(agent_socket, "_read_line", in_time)
        for _ in range(1000):
            try:
                pairs.append(await asyncio.open_unix_connection(path))
            except BlockingIOError:  # the backlog of the socket is full
                await asyncio.sleep(0)
        assert len(pairs) > 500
        while admitted.socket._unauthenticated < agent_socket.UNAUTHENTICATED_MAX:
            await asyncio.sleep(0)
        greeting.set()
        answers = [json.loads(await reader.readline()) for reader, _ in pairs]
        monkeypatch.setattr(agent_socket, "_read_line", line)
        assert {answer["code"] for answer in answers} == {75}
        assert any("have not authenticated" in answer["error"] for answer in answers)
        assert any("took longer than" in answer["error"] for answer in answers)
        for _, writer in pairs:
            writer.close()
        assert (await admitted.child())["ok"]

    admitted(test)


def test_one_run_does_not_keep_the_others_out(admitted: Callable[..., None]) -> None:
    async def test(admitted: AdmittedRun) -> None:
        waiting = [
            asyncio.ensure_future(admitted.ask(verb="wait", run=admitted.run))
            for _ in range(agent_socket.RUN_REQUESTS_MAX)
        ]
        guest = admitted.socket._attempts[admitted.run]
        while len(guest.requests) < agent_socket.RUN_REQUESTS_MAX:
            await asyncio.sleep(0.001)
        assert (await admitted.child())["code"] == 75
        other = admitted.world.submit()
        (claim,) = admitted.worker.claim(1)
        entry = await admitted.socket.admit(claim, admitted.world.records.get(other).spec, print)
        assert (await admitted.ask(as_=other, token=entry["AGENTQ_TOKEN"], verb="show", run=other))["ok"]
        for task in waiting:
            task.cancel()
        while guest.requests:
            await asyncio.sleep(0.001)  # who goes away does not wait
        assert (await admitted.child())["ok"]

    admitted(test)


def test_nobody_else_can_enter_and_what_killed_workers_left_is_swept(
    admitted: Callable[..., None], folder: Path
) -> None:
    (folder / "sockets").mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(folder / "sockets" / "left"))

    async def test(admitted: AdmittedRun) -> None:
        path = Path(admitted.entry["AGENTQ_AGENT_SOCKET"])
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert os.listdir(path.parent) == [path.name]

    admitted(test)


def test_a_folder_with_a_long_name_is_no_hindrance(world: World, folder: Path) -> None:
    async def test() -> None:
        admitted = AdmittedRun(world, folder / ("x" * 100))
        await admitted.open()
        assert (await admitted.child())["ok"]
        path = Path(admitted.entry["AGENTQ_AGENT_SOCKET"])
        await admitted.socket.close()
        assert not path.parent.exists()

    (folder / ("x" * 100)).mkdir()
    asyncio.run(test())
