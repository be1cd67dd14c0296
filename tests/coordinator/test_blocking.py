"""What a blocking read promises: it may last, it may be ended, and it never loses an entry in silence."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL, SIGSTOP
from typing import Any

import pytest
from support.lossy_proxy import Proxy
from support.requirements import FLAVOURS, binary
from support.servers import Server, until

from agentq.coordinator import errors
from agentq.coordinator.storage.connection import Connection, NoGroup


@pytest.fixture(params=FLAVOURS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="aq"))
    server = Server(binary(request.param), folder).start()
    yield server
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture
def connection(server: Server) -> Iterator[Connection]:
    connection = Connection(server.url)
    connection.command("XGROUP", "CREATE", "lane", "workers", 0, "MKSTREAM")
    yield connection
    connection.close()


def read(connection: Connection, block_ms: int) -> Any:
    words = ("XREADGROUP", "GROUP", "workers", "w1", "COUNT", 1, "BLOCK", block_ms, "STREAMS", "lane", ">")
    return connection.block(*words, timeout_ms=block_ms)


@contextmanager
def blocked(connection: Connection, observer: Connection) -> Iterator[Future[Any]]:
    """A read in another thread, which the server has put to wait."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(read, connection, 30_000)
        until(lambda: "blocked_clients:1" in observer.command("INFO", "clients"), "the thread to block")
        yield future


def test_a_block_may_last_longer_than_any_other_command(server: Server, connection: Connection) -> None:
    hasty = Connection(server.url, timeout_ms=1000)
    begin = time.monotonic()

    assert read(hasty, 1100) is None
    assert time.monotonic() - begin >= 1.1
    assert connection.command("PING") == "PONG"


def test_other_commands_go_on_while_one_thread_blocks(connection: Connection) -> None:
    with blocked(connection, connection) as future:
        entry = connection.command("XADD", "lane", "*", "id", 1)

        assert future.result(10) == [["lane", [[entry, ["id", "1"]]]]]


def test_a_block_is_ended_from_another_thread_and_nothing_is_lost(connection: Connection) -> None:
    for _ in range(3):
        with blocked(connection, connection) as future:
            connection.unblock()
            assert future.result(10) is None
    entry = connection.command("XADD", "lane", "*", "id", 1)

    assert read(connection, 30_000) == [["lane", [[entry, ["id", "1"]]]]]
    # The link was not cut for it: there are still the one that blocks and the one that commands.
    assert len(connection.command("CLIENT", "LIST").splitlines()) == 2


def test_a_block_is_ended_by_a_word_that_came_just_before_it(connection: Connection) -> None:
    connection.unblock()
    connection.unblock()
    entry = connection.command("XADD", "lane", "*", "id", 1)

    assert read(connection, 30_000) is None
    assert read(connection, 30_000) == [["lane", [[entry, ["id", "1"]]]]]


def test_a_thousand_words_and_entries_at_once_lose_no_entry(connection: Connection) -> None:
    def disturb() -> None:
        for number in range(1000):
            connection.command("XADD", "lane", "*", "id", number)
            connection.unblock()

    found: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        disturbance = pool.submit(disturb)
        while len(found) < 1000:
            for _, entries in read(connection, 1000) or []:
                found += [fields[1] for _, fields in entries]
        disturbance.result()

    assert found == [str(number) for number in range(1000)]


def test_a_block_on_a_frozen_server_can_be_ended(server: Server, connection: Connection) -> None:
    with blocked(connection, connection) as future:
        server.signal(SIGSTOP)
        connection.unblock()

        with pytest.raises(errors.Unreachable, match="the block was ended by cutting the connection"):
            future.result(10)


def test_a_block_can_be_ended_by_a_user_who_may_not_tell_the_server_so(server: Server, connection: Connection) -> None:
    connection.command("ACL", "SETUSER", "worker", "on", ">p", "~*", "+@all", "-client|unblock")
    worker = Connection(server.url.replace("unix://", "unix://worker:p@"))
    with blocked(worker, connection) as future:
        worker.unblock()

        with pytest.raises(errors.Unreachable, match="the block was ended by cutting the connection"):
            future.result(10)


def test_closing_ends_a_block(server: Server, connection: Connection) -> None:
    with blocked(connection, Connection(server.url)) as future:
        connection.close()

        assert future.result(10) is None


def test_a_block_whose_server_dies_is_unreachable_at_once(server: Server, connection: Connection) -> None:
    with blocked(connection, connection) as future:
        server.signal(SIGKILL)

        with pytest.raises(errors.Unreachable):
            future.result(10)


def test_a_block_whose_server_becomes_a_replica_is_unreachable_at_once(connection: Connection) -> None:
    with blocked(connection, connection) as future:
        connection.command("REPLICAOF", "127.0.0.1", 1)

        with pytest.raises(errors.Unreachable):
            future.result(10)


def test_a_blocking_read_is_never_sent_twice(server: Server, connection: Connection) -> None:
    entries = [connection.command("XADD", "lane", "*", "id", number) for number in range(2)]
    with Proxy(server, b"XREADGROUP") as proxy, pytest.raises(errors.Unreachable):
        read(Connection(proxy.url), 1000)

    # The entry whose delivery was lost is in the pending list, and the next one has not gone the same way.
    until(lambda: connection.command("XPENDING", "lane", "workers")[0], "the server to read what was sent")
    stranded = connection.command("XPENDING", "lane", "workers", "-", "+", 10)
    assert [entry for entry, *_ in stranded] == entries[:1]
    assert read(connection, 1) == [["lane", [[entries[1], ["id", "1"]]]]]


def test_a_missing_group_has_an_error_of_its_own(connection: Connection) -> None:
    connection.command("XGROUP", "DESTROY", "lane", "workers")
    with pytest.raises(NoGroup):
        read(connection, 30_000)
    connection.command("XGROUP", "CREATE", "lane", "workers", 0)

    assert read(connection, 1) is None


def test_a_group_that_is_destroyed_ends_the_block_by_that_error(connection: Connection) -> None:
    with blocked(connection, connection) as future:
        connection.command("DEL", "lane")

        with pytest.raises(NoGroup):
            future.result(10)


def test_only_one_thread_may_block_on_a_connection(connection: Connection) -> None:
    with blocked(connection, connection) as future:
        with pytest.raises(errors.AgentqError, match="Another thread"):
            read(connection, 1)
        connection.unblock()

        assert future.result(10) is None
