"""Those who knock at a door: whatever they say, or do not say, they are told so in time, and keep nobody out."""

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
from support.agent_socket import Lodge
from support.agent_socket import lodge as lodge
from support.world import World

from agentq.worker.run_api import agent_socket as doors


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
    lodge: Callable[..., None], lines: list[bytes], error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if error == "took longer than":
        monkeypatch.setattr(doors, "GREETING_S", 0.2)

    async def test(lodge: Lodge) -> None:
        assert error in (await lodge.say(*lines))["error"]

    lodge(test)


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
    lodge: Callable[..., None], request_: bytes, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if error == "took longer than":
        monkeypatch.setattr(doors, "REQUEST_S", 0.5)

    async def test(lodge: Lodge) -> None:
        greeting = {"run": lodge.run, "token": lodge.entry["AGENTQ_TOKEN"]}
        line = request_.replace(b"{run}", lodge.run.encode())
        assert error in (await lodge.say(json.dumps(greeting).encode() + b"\n" + line))["error"]

    lodge(test)


def test_an_oversize_request_is_refused_before_it_is_read_to_its_end(lodge: Callable[..., None]) -> None:
    async def test(lodge: Lodge) -> None:
        greeting = json.dumps({"run": lodge.run, "token": lodge.entry["AGENTQ_TOKEN"]}).encode() + b"\n"
        reader, writer = await asyncio.open_unix_connection(lodge.entry["AGENTQ_DOOR"])
        writer.write(greeting)
        sent = 0
        try:
            while sent < 3 * doors.REQUEST_BYTES:
                writer.write(b"x" * (1 << 20))
                await writer.drain()
                sent += 1 << 20
        except OSError:
            assert sent < 2 * doors.REQUEST_BYTES
        else:
            assert b"at the most here" in await reader.readline()
        writer.close()
        assert (await lodge.child())["ok"]

    lodge(test)


def test_a_thousand_that_say_nothing_keep_nobody_out_for_long(
    lodge: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of the first ones is over when all have knocked, and not before."""
    greeting = asyncio.Event()

    async def in_time(reader: asyncio.StreamReader, most: int, within_s: float, begun: bytes = b"") -> Any:
        if within_s == doors.GREETING_S:
            await greeting.wait()
            within_s = 0
        return await line(reader, most, within_s, begun)

    line = doors._read_line

    async def test(lodge: Lodge) -> None:
        path = lodge.entry["AGENTQ_DOOR"]
        pairs = []
        monkeypatch.setattr(doors, "_read_line", in_time)
        for _ in range(1000):
            try:
                pairs.append(await asyncio.open_unix_connection(path))
            except BlockingIOError:  # the queue before the door is full
                await asyncio.sleep(0)
        assert len(pairs) > 500
        while lodge.door._unauthenticated < doors.UNAUTHENTICATED_MAX:
            await asyncio.sleep(0)
        greeting.set()
        answers = [json.loads(await reader.readline()) for reader, _ in pairs]
        monkeypatch.setattr(doors, "_read_line", line)
        assert {answer["code"] for answer in answers} == {75}
        assert any("have not authenticated" in answer["error"] for answer in answers)
        assert any("took longer than" in answer["error"] for answer in answers)
        for _, writer in pairs:
            writer.close()
        assert (await lodge.child())["ok"]

    lodge(test)


def test_one_run_does_not_keep_the_others_out(lodge: Callable[..., None]) -> None:
    async def test(lodge: Lodge) -> None:
        waiting = [asyncio.ensure_future(lodge.ask(verb="wait", run=lodge.run)) for _ in range(doors.RUN_REQUESTS_MAX)]
        guest = lodge.door._attempts[lodge.run]
        while len(guest.requests) < doors.RUN_REQUESTS_MAX:
            await asyncio.sleep(0.001)
        assert (await lodge.child())["code"] == 75
        other = lodge.world.submit()
        (claim,) = lodge.worker.claim(1)
        entry = await lodge.door.admit(claim, lodge.world.records.get(other).spec, print)
        assert (await lodge.ask(as_=other, token=entry["AGENTQ_TOKEN"], verb="show", run=other))["ok"]
        for task in waiting:
            task.cancel()
        while guest.requests:
            await asyncio.sleep(0.001)  # who goes away does not wait
        assert (await lodge.child())["ok"]

    lodge(test)


def test_nobody_else_can_enter_and_what_killed_workers_left_is_swept(lodge: Callable[..., None], folder: Path) -> None:
    (folder / "doors").mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(folder / "doors" / "left"))

    async def test(lodge: Lodge) -> None:
        path = Path(lodge.entry["AGENTQ_DOOR"])
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert os.listdir(path.parent) == [path.name]

    lodge(test)


def test_a_folder_with_a_long_name_is_no_hindrance(world: World, folder: Path) -> None:
    async def test() -> None:
        lodge = Lodge(world, folder / ("x" * 100))
        await lodge.open()
        assert (await lodge.child())["ok"]
        path = Path(lodge.entry["AGENTQ_DOOR"])
        await lodge.door.close()
        assert not path.parent.exists()

    (folder / ("x" * 100)).mkdir()
    asyncio.run(test())
