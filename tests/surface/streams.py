"""What the HTTP server sends while something is followed: server-sent events and messages, of a run that has ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from support.golden_files import outline
from support.http_servers import Serving
from surface.parts import titled
from surface.shapes import Shapes
from websockets.sync.client import connect

from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.runs.logs import LogChunk
from agentq.coordinator.workers.lease import WorkerIdentity, WorkerLease


def streams(serving: Serving) -> Iterator[str]:
    """Each of them to its end; of messages, those of that run."""
    run = ended_run(serving)
    shapes = Shapes({})
    paths = (f"/runs/{run}/events", f"/runs/{run}/logs?follow=true", f"/events?run={run}&after=0-0&follow=false")
    with serving.client() as client:
        for path in paths:
            answer = client.get(path)
            assert answer.status_code == 200, answer.text
            lines = [_shape(shapes, line) for line in answer.text.split("\n") if line]
            yield from titled(f"GET {shapes.named(path)}: {answer.headers['content-type']}", lines)
    yield from titled("/events/ws", outline([shapes.of(each) for each in messages(serving, run)]))


def ended_run(serving: Serving) -> str:
    """A run that wrote a line, and completed."""
    run = serving.submit()
    lease = WorkerLease(serving.store, WorkerIdentity(id="w1", queues=("default",)), serving.settings)
    lease.register()
    claims = lease.claim(1)
    assert serving.queue.start(claims) == [None]
    serving.queue.log(claims[0], 1, [LogChunk("out", "built\n"), LogChunk("err", "a warning\n")])
    assert serving.queue.finish([(claims[0], Outcome(exit_code=0))]) == [None]
    return run


def messages(serving: Serving, run: str) -> list[Any]:
    """What a WebSocket tells of the run: that it is ready, and each of its events."""
    with connect(f"ws{serving.url.removeprefix('http')}/events/ws?run={run}&after=0-0") as socket:
        told = [json.loads(socket.recv(timeout=30))]
        while told[-1]["event"] != "completed":
            told.append(json.loads(socket.recv(timeout=30)))
    return [each for each in told if each["event"] != "alive"]


def _shape(shapes: Shapes, line: str) -> str:
    name, _, value = line.partition(": ")
    if name != "data":
        return shapes.text(line)
    return f"data: {json.dumps(shapes.of(json.loads(value)), sort_keys=True)}"
