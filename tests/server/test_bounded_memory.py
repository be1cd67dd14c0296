"""The memory that requests take: bodies under way, and responses with whole runs."""

from __future__ import annotations

import asyncio

import pytest
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send
from support.world import World

from agentq.coordinator.config.server_settings import ServerSettings
from agentq.coordinator.public_json.runs import run_entry_json
from agentq.dialects.agent_orchestrator import run_translation
from agentq.server.http.middleware import SMALL_BODY_BYTES, RequestMiddleware

LARGE = SMALL_BODY_BYTES + 1
HEADERS = [(b"host", b"localhost"), (b"transfer-encoding", b"chunked")]


async def _read(scope: Scope, receive: Receive, _: Send) -> None:
    """An app that reads a body, and answers when the scope lets it."""
    while (await receive()).get("more_body"):
        pass
    scope["read"].set()
    await scope["answer"].wait()


class _Request:
    """A request with a body of this size, which arrives at once."""

    def __init__(self, envelope: RequestMiddleware, number: int) -> None:
        self.read, self.answer = asyncio.Event(), asyncio.Event()
        scope: Scope = {"type": "http", "method": "POST", "path": "/runs", "headers": HEADERS}
        scope.update(state={}, read=self.read, answer=self.answer)

        async def receive() -> Message:
            return {"type": "http.request", "body": b"x" * number, "more_body": False}

        async def send(_: Message) -> None:
            return None

        self.task = asyncio.create_task(envelope(scope, receive, send))

    async def is_refused(self) -> bool:
        with pytest.raises(HTTPException) as refused:
            await self.task
        return refused.value.status_code == 503


def test_large_bodies_have_a_bound_together_and_small_ones_have_room_in_any_case() -> None:
    async def act() -> None:
        settings = ServerSettings(body_bytes=LARGE, bodies_bytes=2 * LARGE)
        envelope = RequestMiddleware(_read, settings=settings, observe=lambda *_: None)
        first, second = _Request(envelope, LARGE), _Request(envelope, LARGE)
        await asyncio.gather(first.read.wait(), second.read.wait())

        assert await _Request(envelope, LARGE).is_refused()
        small = _Request(envelope, SMALL_BODY_BYTES)
        await small.read.wait()
        first.answer.set()
        await first.task
        third = _Request(envelope, LARGE)
        await third.read.wait()

        for each in (second, third, small):
            each.answer.set()
            await each.task

    asyncio.run(asyncio.wait_for(act(), 60))


def test_a_list_of_whole_runs_ends_where_its_bytes_do_and_goes_on_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_translation, "RESPONSE_BYTES", 3000)
    for _ in range(5):
        world.submit(stdin="x" * 1000)
    page = world.records.page()
    runs = [each.id for each in page.runs]
    shown = [run_entry_json(each) for each in page.runs]

    found, last = run_translation.translate_runs(world.records, shown, "pending")

    assert [each["run_id"] for each in found] == runs[:3]
    assert last == runs[2]
    rest = [run_entry_json(each) for each in world.records.page(cursor=last).runs]
    assert [each["run_id"] for each in run_translation.translate_runs(world.records, rest, "pending")[0]] == runs[3:]
