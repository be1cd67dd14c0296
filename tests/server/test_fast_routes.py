"""Requests that bypass FastAPI get the answers that FastAPI would give."""

from __future__ import annotations

import asyncio
import re
import socket

import pytest
from starlette.routing import Match
from support.http_servers import COMMAND, Serving
from support.servers import until

from agentq.server.app import list_routes
from agentq.server.http.fast_routes import FastRoute
from agentq.server.http.write_buffer import BUFFER_BYTES_MAX, BufferedTransport

QUICK = [route for route in list_routes() if isinstance(route, FastRoute) and route.is_plain]


def test_those_that_are_asked_most_are_among_them() -> None:
    paths = {route.path for route in QUICK}

    assert {"/runs", "/runner/runs", "/runner/runs/{run_id}/started", "/runner/runs/{run_id}/completed"} <= paths


@pytest.mark.parametrize("route", QUICK, ids=lambda route: route.name)
def test_no_route_would_have_come_before_it(route: FastRoute) -> None:
    path = re.sub(r"\{.*?\}", "run_1", route.path)
    for method in route.methods or ():
        scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}
        first = next(each for each in list_routes() if each.matches(scope)[0] is Match.FULL)
        assert first is route


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/runs", {**COMMAND, "kind": "nonsense"}),
        ("POST", "/runs", None),
        ("GET", "/runner/runs?runner_id=nobody", None),
        ("POST", "/runner/heartbeat", {}),
        ("POST", "/runner/runs/run_1/started", {"runner_id": "lnch_00000000"}),
        ("DELETE", "/runner/runs", None),
    ],
)
def test_a_refusal_has_the_same_words_either_way(serving: Serving, method: str, path: str, body: object) -> None:
    """Whatever a page asks goes the whole way."""
    with serving.client() as client:
        ways = [client.request(method, path, json=body, headers=way) for way in ({}, {"origin": serving.url})]

    told = [{**each.json(), "request_id": None} for each in ways]
    assert ways[0].status_code == ways[1].status_code >= 400
    assert told[0] == told[1]
    assert ways[0].headers.keys() == ways[1].headers.keys()


def test_a_long_answer_is_packed_here_too(serving: Serving) -> None:
    with serving.client() as client:
        many = client.post("/runs", json={"runs": [COMMAND] * 50})
        one = client.post("/runs", json=COMMAND)

    assert (many.headers.get("content-encoding"), one.headers.get("content-encoding")) == ("gzip", None)
    assert len(many.json()["runs"]) == 50


def test_an_answer_is_one_write_and_what_is_long_goes_out_at_once() -> None:
    async def test(near: socket.socket, far: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=near)
        writing = BufferedTransport(transport, loop)

        writing.write(b"head ")
        writing.write(b"body")
        with pytest.raises(BlockingIOError):
            far.recv(100)
        assert await loop.sock_recv(far, 100) == b"head body"

        writing.write(b"x" * BUFFER_BYTES_MAX)
        told = far.recv(BUFFER_BYTES_MAX)
        assert told, "nothing had to come in between"

        writing.write(b"last")
        writing.close()
        while piece := await loop.sock_recv(far, BUFFER_BYTES_MAX):
            told += piece
        assert told == b"x" * BUFFER_BYTES_MAX + b"last"

    near, far = socket.socketpair()
    far.setblocking(False)
    with near, far:
        asyncio.run(test(near, far))


@pytest.mark.full("takes 2 s")
@pytest.mark.parametrize(
    ("asked", "status"), [("GET /health", 200), ("GET /nothing", 404), ("GET /runner/runs", 422), ("POST /runs", 422)]
)
def test_who_says_no_more_is_answered_all_the_same(serving: Serving, asked: str, status: int) -> None:
    with socket.create_connection(("127.0.0.1", serving.port)) as client:
        client.sendall(f"{asked} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n[]".encode())
        client.shutdown(socket.SHUT_WR)
        told = client.makefile("rb").read()

    assert told.startswith(f"HTTP/1.1 {status} ".encode())


def test_an_upgrade_with_a_body_is_refused_at_once(serving: Serving) -> None:
    heads = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nContent-Length: 10"
    with socket.create_connection(("127.0.0.1", serving.port), timeout=10) as client:
        client.sendall(f"GET /worker HTTP/1.1\r\nHost: localhost\r\n{heads}\r\n\r\n".encode())

        assert client.recv(100).startswith(b"HTTP/1.1 400 ")


def test_a_client_that_leaves_is_noticed_though_nobody_wants_its_body(serving: Serving) -> None:
    run = serving.submit(queue="nobody-here")
    before = waiting(serving)
    with socket.create_connection(("127.0.0.1", serving.port)) as client:
        head = f"GET /runs/{run}?wait=60 HTTP/1.1\r\nHost: localhost\r\nContent-Length: {300 << 10}\r\n\r\n"
        client.sendall(head.encode() + b" " * (300 << 10))
        until(lambda: waiting(serving) > before, "it to wait")

    until(lambda: waiting(serving) <= before, "nobody to wait for it")


def waiting(serving: Serving) -> int:
    """How many requests wait."""
    with serving.client() as client:
        found = re.search(r"^agentq_waiters (\d+)", client.get("/metrics").text, re.MULTILINE)
    assert found is not None
    return int(found[1])
