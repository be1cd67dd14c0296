"""One socket to a server that is silent: how long it is waited for, and what that is called."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from support.threaded_port import Doorway

from agentq.coordinator import errors
from agentq.coordinator.storage.connection import Connection
from agentq.coordinator.storage.socket_link import SocketLink, open_link, send_commands

TIMEOUT_MS = 100
MUCH = "x" * (16 << 20)
"""More than a socket keeps for who does not read."""


@pytest.fixture(params=["tcp", "unix"])
def link(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SocketLink]:
    """To a server that takes connections, and neither reads nor answers."""
    path = str(tmp_path / "s")
    family, address = (socket.AF_INET, ("127.0.0.1", 0)) if request.param == "tcp" else (socket.AF_UNIX, path)
    with socket.socket(family) as listener:
        listener.bind(address)
        listener.listen()
        place = listener.getsockname() if request.param == "tcp" else (path, 0)
        link = open_link(place, {}, tls=False, client_name="", timeout_ms=TIMEOUT_MS)
        yield link
        link.disconnect()


def test_a_reply_that_does_not_come_in_time_is_late_and_the_link_not_broken(link: SocketLink) -> None:
    send_commands(link, ("PING",))
    began = time.monotonic()
    with pytest.raises(redis.TimeoutError):
        link.read_response()

    assert time.monotonic() - began >= TIMEOUT_MS / 1000 * 0.9


def test_so_is_what_nobody_reads(link: SocketLink) -> None:
    with pytest.raises(redis.TimeoutError):
        send_commands(link, ("SET", "key", MUCH))


def test_one_reply_may_be_given_another_time(link: SocketLink) -> None:
    send_commands(link, ("PING",))
    link.allow(2 * TIMEOUT_MS / 1000)
    began = time.monotonic()
    with pytest.raises(redis.TimeoutError):
        link.read_response()

    assert time.monotonic() - began >= 2 * TIMEOUT_MS / 1000 * 0.9


class Deaf(Doorway):
    """Takes connections, and either says nothing or what no TLS is."""

    def __init__(self, says: bytes) -> None:
        self.connections = 0
        self._says = says
        super().__init__("rediss")

    def _serve(self, client: socket.socket) -> None:
        self.connections += 1
        with client, contextlib.suppress(OSError):
            client.sendall(self._says)
            while client.recv(65536):
                pass


@pytest.mark.parametrize("says", [b"", b"-ERR unknown command\r\n"], ids=["nothing", "what is no TLS"])
def test_an_address_with_tls_where_there_is_none_is_asked_once_and_told(says: bytes) -> None:
    with Deaf(says) as deaf, contextlib.closing(Connection(deaf.url, timeout_ms=300)) as connection:
        with pytest.raises(errors.Unreachable, match="is TLS on there"):
            connection.command("PING")

        assert deaf.connections == 1
