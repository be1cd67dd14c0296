"""A worker's connection to a coordinator, or to any other server at its address."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus

import pytest
from support.network_line import Line as BlackHole
from support.servers import until
from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError, Invalid, NotAllowed, Unreachable
from agentq.coordinator.workers.lease import WorkerIdentity
from agentq.remote_worker import websocket_client as lines
from agentq.remote_worker.messages import (
    MESSAGE_BYTES,
    AnswerMessage,
    InitMessage,
    ScriptCallMessage,
    WelcomeMessage,
    parse_worker_message,
)
from agentq.remote_worker.remote_store import RemoteLease, RemoteStore
from agentq.remote_worker.websocket_client import CoordinatorAddress, CoordinatorConnection

INIT = InitMessage(version="0", worker="w1", purpose="work")
TIMES = {"heartbeat_ms": 5000, "lease_ms": 30000, "reap_grace_ms": 2500, "forget_ms": 15000, "tick_ms": 5000}


def welcome(**times: int) -> str:
    said = {"version": "0", "namespace": "default", "partitions": 1, **TIMES, **times}
    return WelcomeMessage.model_validate(said).to_wire()


@contextmanager
def answering(
    talk: Callable[[ServerConnection], None], before: Callable[[Request], Response | None] = lambda _: None
) -> Iterator[str]:
    """Somebody at an address; the address."""
    with serve(talk, "127.0.0.1", 0, process_request=lambda _, request: before(request)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}/worker"
        server.shutdown()
        thread.join()


@pytest.mark.full("takes 2 s")
@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, NotAllowed), (403, NotAllowed), (404, Invalid), (302, Invalid), (429, Unreachable), (503, Unreachable)],
)
def test_what_is_no_coordinator_is_told_from_one_that_is_away(status: int, kind: type[AgentqError]) -> None:
    shown: list[str] = []

    def refuse(request: Request) -> Response:
        shown.append(request.headers["authorization"])
        headers = Headers({"location": "http://127.0.0.1:9/elsewhere", "content-length": "0"})
        return Response(status, HTTPStatus(status).phrase, headers, b"")

    with answering(lambda _: None, refuse) as url:
        line = CoordinatorConnection(CoordinatorAddress(url, "a-token"), INIT, lambda _: None)
        with pytest.raises(kind) as refused:
            line.open(20)
        line.close()

    assert type(refused.value) is kind
    assert set(shown) == {"Bearer a-token"}
    assert "a-token" not in str(refused.value)


@pytest.mark.full("takes 3 s")
def test_a_coordinator_that_welcomes_and_hangs_up_is_not_stormed() -> None:
    """Only a connection that lasted makes the next wait short."""
    begun: list[int] = []

    def talk(socket: ServerConnection) -> None:
        begun.append(monotonic_ms())
        socket.recv()
        socket.send(welcome())
        socket.close(1011)

    with answering(talk) as url:
        line = CoordinatorConnection(CoordinatorAddress(url), INIT, lambda _: None)
        line.open(20)
        until(lambda: monotonic_ms() - begun[0] > 2_500, "time to pass")
        line.close()

    assert 2 <= len(begun) <= 25, "with the waits that a first failure has, it would be hundreds"


def test_a_question_whose_connection_breaks_is_told_so_at_once_and_the_next_one_is_answered() -> None:
    lives: list[int] = []

    def talk(socket: ServerConnection) -> None:
        lives.append(1)
        socket.recv()
        socket.send(welcome())
        asked = parse_worker_message(socket.recv())
        assert isinstance(asked, ScriptCallMessage)
        if len(lives) > 1:
            socket.send(AnswerMessage(id=asked.id, reply=asked.script).to_wire())
            socket.recv()

    with answering(talk) as url:
        line = CoordinatorConnection(CoordinatorAddress(url), INIT, lambda _: None)
        line.open(20)
        asked = ScriptCallMessage(id=1, script="lanes", partition=0, words=[]).to_wire()
        with pytest.raises(Unreachable):
            line.ask(1, asked, 20)
        until(lambda: len(lives) > 1, "the next connection")
        reply = line.ask(2, asked.replace('"id":1', '"id":2'), 20)
        with pytest.raises(Invalid, match="more than"):
            line.ask(3, "x" * (MESSAGE_BYTES + 1), 20)
        line.close()

    assert reply == "lanes"


@pytest.mark.full("takes 1 s")
def test_a_network_that_swallows_everything_is_found_out_by_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing closes the connection and no lease ends: with shorter times here, within nine seconds otherwise."""
    assert lines.PING_INTERVAL_S + lines.PONG_TIMEOUT_S <= 9
    monkeypatch.setattr(lines, "PING_INTERVAL_S", 0.1)
    monkeypatch.setattr(lines, "PONG_TIMEOUT_S", 0.2)

    def talk(socket: ServerConnection) -> None:
        socket.recv()
        socket.send(welcome())
        list(socket)

    with answering(talk) as url, BlackHole(int(url.rpartition(":")[2].partition("/")[0])) as hole:
        heartbeat = INIT.model_copy(update={"purpose": "heartbeat"})
        line = CoordinatorConnection(
            CoordinatorAddress(f"{hole.url.replace('http', 'ws')}/worker"), heartbeat, lambda _: None
        )
        line.open(20)
        asked = line.begin(1, ScriptCallMessage(id=1, script="lanes", partition=0, words=[]).to_wire())
        hole.cut()
        with pytest.raises(Unreachable):
            asked.result(60)
        hole.mend()
        line.close()


def test_other_times_of_a_coordinator_are_taken_over_by_the_lease() -> None:
    """It is restarted with others; a worker that went by the old ones could trust its lease for too long."""
    restarts = threading.Event()

    def talk(socket: ServerConnection) -> None:
        before = not restarts.is_set()
        socket.recv()
        socket.send(welcome(lease_ms=30_000 if before else 20_000, heartbeat_ms=4_000))
        if before:
            restarts.wait(20)
        else:
            list(socket)

    with answering(talk) as url:
        store = RemoteStore(CoordinatorAddress(url), "w1")
        settings = store.open()
        lease = RemoteLease(store, WorkerIdentity(id="w1", queues=("default",)), settings)
        restarts.set()
        until(lambda: lease.settings.lease_ms == 20_000, "the lease to be shorter")
        store.close()

    assert settings.lease_ms == 30_000
    assert lines.RECONNECT_DELAY_MS_MAX < 20_000, "it comes back within any lease that is not very short"
