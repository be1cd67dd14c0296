"""What the connection promises, against real servers that are killed, frozen, flushed and cut off."""

from __future__ import annotations

import hashlib
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP
from typing import Any

import fakeredis
import pytest
from servers import Server, free_port, until, valkey_binary

from agentq.coordinator import errors
from agentq.coordinator.connection import Call, Connection, NoGroup, Source


def source(name: str, text: str) -> Source:
    return Source(name, text, hashlib.sha1(text.encode()).hexdigest())


# Counts an operation once, however often it is sent; says whether this was the first time.
COUNT = source("count", "local new = redis.call('SADD', KEYS[1], ARGV[1]) return {new, redis.call('SCARD', KEYS[1])}")
ECHO = source("echo", "return ARGV[1]")
FAIL = source("fail", "return redis.error_reply('ERR ' .. ARGV[1])")
WRITE = source("write", "return redis.call('SET', KEYS[1], ARGV[1])")
WORK = source(
    "work", "local t = redis.call('TIME') repeat local n = redis.call('TIME') until n[1] - t[1] > 1 return 'done'"
)

XREADGROUP = ("XREADGROUP", "GROUP", "workers", "w1", "COUNT", 1, "BLOCK")


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="aq"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    server = Server(valkey_binary(), folder, "--appendonly", "yes").start()
    yield server
    server.stop()


@pytest.fixture
def connection(server: Server) -> Iterator[Connection]:
    connection = Connection(server.url, attempts=12)
    yield connection
    connection.close()


class Proxy:
    """Stands between client and server, and loses the reply to the next request that contains `word`."""

    def __init__(self, server: Server, word: bytes) -> None:
        self.word = word
        self.lost = 0
        self.connections = 0
        self.server = server
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as upstream:
            upstream.connect(str(self.server.socket))
            back = threading.Thread(target=self._pump, args=(upstream, client), daemon=True)
            back.start()
            while request := client.recv(65536):
                upstream.sendall(request)
                if self.word in request and not self.lost:
                    self.lost += 1
                    # Cutting the way back first, then waiting for the reply: it was applied, and nobody hears of it.
                    client.shutdown(socket.SHUT_WR)
                    break
            back.join(timeout=1)

    def _pump(self, upstream: socket.socket, client: socket.socket) -> None:
        try:
            while reply := upstream.recv(65536):
                client.sendall(reply)
        except OSError:
            pass

    def close(self) -> None:
        self.listener.close()


@pytest.fixture
def proxies() -> Iterator[list[Proxy]]:
    proxies: list[Proxy] = []
    yield proxies
    for proxy in proxies:
        proxy.close()


def blocked(connection: Connection) -> bool:
    return " flags=b " in str(connection.command("CLIENT", "LIST"))


def group(connection: Connection) -> None:
    connection.command("XGROUP", "CREATE", "lane", "workers", 0, "MKSTREAM")


# Replies


def test_replies_keep_the_shape_that_the_server_gave_them(connection: Connection) -> None:
    group(connection)
    connection.command("HSET", "run", "state", "pending", "attempt", 1)
    entry = connection.command("XADD", "lane", "*", "id", "ü1")

    read = connection.block(*XREADGROUP, 10, "STREAMS", "lane", ">", timeout_ms=10)

    assert read == [["lane", [[entry, ["id", "ü1"]]]]]
    assert connection.command("HGETALL", "run") == ["state", "pending", "attempt", "1"]
    assert connection.command("GET", "nothing") is None
    assert connection.command("PING") == "PONG"
    assert connection.command("EXISTS", "run") == 1


def test_what_somebody_else_wrote_can_be_read_even_if_it_is_not_text(connection: Connection) -> None:
    connection.command("SET", "foreign", b"\xff\x00ok")

    assert connection.command("GET", "foreign") == "\\xff\x00ok"


def test_a_fake_server_can_stand_in_for_a_real_one() -> None:
    connection = Connection("redis://fake", client=fakeredis.FakeRedis())
    group(connection)

    assert connection.script(WRITE, "k", ["v"]) == "OK"
    assert list(connection.scripts([(ECHO, "k", ["1"]), (ECHO, "k", ["2"])])) == ["1", "2"]
    assert connection.command("GET", "k") == "v"
    assert connection.block(*XREADGROUP, 1, "STREAMS", "lane", ">", timeout_ms=1) is None


# Faults


def test_a_client_goes_on_by_itself_when_the_server_is_killed_and_started_again(
    server: Server, connection: Connection
) -> None:
    def kill_and_start() -> None:
        server.signal(SIGKILL)
        server.start()

    nemesis = threading.Thread(target=kill_and_start)
    replies = []
    for number in range(400):
        if number == 100:
            nemesis.start()
        replies.append(connection.script(COUNT, "effects", [number]))
    nemesis.join()

    assert len(replies) == 400
    # Each acknowledged effect is there, and there once: the count grew by one from call to call.
    assert [count for _, count in replies] == list(range(1, 401))


def test_calls_under_way_are_made_again_when_the_server_is_killed(server: Server, connection: Connection) -> None:
    def calls() -> Iterator[Call]:
        for number in range(300):
            if number == 100:
                server.signal(SIGKILL)
                server.start()
            yield COUNT, "effects", [number]

    replies = list(connection.scripts(calls(), window=4))

    assert [count for _, count in replies] == list(range(1, 301))


def test_a_script_whose_reply_was_lost_runs_again_and_the_caller_sees_one_reply(
    server: Server, connection: Connection, proxies: list[Proxy]
) -> None:
    connection.script(COUNT, "effects", ["before"])
    proxies.append(Proxy(server, b"EVALSHA"))
    through = Connection(proxies[0].url)

    assert through.script(COUNT, "effects", ["once"]) == [0, 2]
    assert proxies[0].lost == 1
    assert connection.command("SCARD", "effects") == 2


def test_replies_lost_in_the_middle_of_many_scripts_come_in_order_all_the_same(
    server: Server, connection: Connection, proxies: list[Proxy]
) -> None:
    connection.script(COUNT, "effects", ["before"])
    proxies.append(Proxy(server, b"operation-50"))
    through = Connection(proxies[0].url)
    calls: list[Call] = [(COUNT, "effects", [f"operation-{number}"]) for number in range(100)]

    replies = list(through.scripts(calls, window=3))

    assert proxies[0].lost == 1
    assert [count for _, count in replies][:50] == list(range(2, 52))
    assert len(replies) == 100
    assert connection.command("SCARD", "effects") == 101


def test_a_server_that_is_not_there_is_unreachable_after_so_many_tries(folder: Path) -> None:
    connection = Connection(f"redis://user:s3cret@127.0.0.1:{free_port()}/0", attempts=2)

    with pytest.raises(errors.Unreachable, match=r"redis://127\.0\.0\.1:\d+ cannot be reached .*; check") as caught:
        connection.command("PING")
    assert "s3cret" not in str(caught.value)
    assert "user" not in str(caught.value)


def test_every_try_is_ours_and_there_are_no_hidden_ones(server: Server, proxies: list[Proxy]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        connection = Connection(f"redis://127.0.0.1:{listener.getsockname()[1]}", attempts=3, timeout_ms=50)
        with ThreadPoolExecutor(1) as pool:
            failed = pool.submit(connection.command, "PING")
            accepted = 0
            while not failed.done() or accepted < 3:
                listener.accept()[0].close()
                accepted += 1
            with pytest.raises(TimeoutError):
                listener.accept()

    assert accepted == 3
    assert isinstance(failed.exception(), errors.Unreachable)


def test_a_server_that_has_frozen_is_unreachable_when_the_time_is_over(server: Server) -> None:
    connection = Connection(server.url, attempts=2, timeout_ms=100)
    connection.command("PING")
    server.signal(SIGSTOP)

    with pytest.raises(errors.Unreachable):
        connection.command("PING")
    server.signal(SIGCONT)
    until(lambda: connection.command("PING"), "the server to thaw")


def test_a_link_that_was_closed_while_idle_costs_no_try(server: Server, connection: Connection) -> None:
    once = Connection(server.url, attempts=1)
    once.command("PING")
    connection.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    assert once.command("PING") == "PONG"


def test_what_is_no_redis_is_called_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        connection = Connection(f"redis://127.0.0.1:{listener.getsockname()[1]}")
        failed = pool.submit(connection.command, "PING")
        with listener.accept()[0] as client:
            client.recv(1000)
            client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            with pytest.raises(errors.Unreachable, match="not a Redis or Valkey server"):
                failed.result()


def test_many_threads_each_get_their_own_replies(connection: Connection) -> None:
    def ask(number: int) -> bool:
        return all(connection.script(ECHO, "k", [f"{number}-{n}"]) == f"{number}-{n}" for n in range(200))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))


# Refusals


def test_a_script_that_the_server_has_forgotten_is_sent_along(connection: Connection) -> None:
    assert connection.script(ECHO, "k", ["1"]) == "1"
    connection.command("SCRIPT", "FLUSH")

    assert connection.script(ECHO, "k", ["2"]) == "2"


def test_scripts_may_be_flushed_while_many_of_them_are_under_way(connection: Connection) -> None:
    def calls() -> Iterator[Call]:
        for number in range(100):
            if number % 10 == 5:
                connection.command("SCRIPT", "FLUSH")
            yield COUNT, "effects", [number]

    assert [count for _, count in connection.scripts(calls())] == list(range(1, 101))


def test_a_refused_script_is_raised_in_its_turn_and_the_connection_stays_usable(connection: Connection) -> None:
    calls: list[Call] = [(ECHO, "k", ["1"]), (ECHO, "k", ["2"]), (FAIL, "k", ["no"]), (ECHO, "k", ["4"])]
    replies = connection.scripts(calls, window=4)

    assert [next(replies), next(replies)] == ["1", "2"]
    with pytest.raises(errors.AgentqError, match="answered: ERR no"):
        next(replies)
    assert [connection.script(ECHO, "k", [str(n)]) for n in range(20)] == [str(n) for n in range(20)]


def test_many_scripts_may_be_abandoned_halfway(connection: Connection) -> None:
    replies = connection.scripts([(ECHO, "k", [n]) for n in range(100)], window=8)
    assert next(replies) == "0"
    assert next(replies) == "1"
    del replies

    assert [connection.script(ECHO, "k", [f"x{n}"]) for n in range(20)] == [f"x{n}" for n in range(20)]


def test_the_next_call_is_made_before_the_reply_to_the_last_is_read(connection: Connection) -> None:
    made = []

    def calls() -> Iterator[Call]:
        for number in range(4):
            made.append(number)
            yield ECHO, "k", [number]

    replies = connection.scripts(calls(), window=2)

    assert next(replies) == "0"
    assert made == [0, 1]
    assert list(replies) == ["1", "2", "3"]


@pytest.mark.parametrize("user", ["", "default:wrong@", "nobody:wrong@"])
def test_a_wrong_password_is_not_allowed_and_not_tried_again(server: Server, connection: Connection, user: str) -> None:
    connection.command("CONFIG", "SET", "requirepass", "right")
    url = server.url.replace("unix://", f"unix://{user}")

    with pytest.raises(errors.NotAllowed, match=r"does not accept the user and password") as caught:
        Connection(url, attempts=1000).command("GET", "k")
    assert "wrong" not in str(caught.value).replace("WRONG", "")
    assert Connection(server.url.replace("unix://", "unix://:right@")).command("PING") == "PONG"
    connection.command("CONFIG", "SET", "requirepass", "")


def test_what_the_user_may_not_do_is_not_allowed(server: Server, connection: Connection) -> None:
    connection.command("ACL", "SETUSER", "reader", "on", ">p", "~*", "+get", "+evalsha", "+eval", "+client")
    reader = Connection(server.url.replace("unix://", "unix://reader:p@"))

    with pytest.raises(errors.NotAllowed, match="to this user"):
        reader.command("SET", "k", 1)
    with pytest.raises(errors.NotAllowed, match="to this user"):
        reader.script(WRITE, "k", ["v"])
    assert reader.command("GET", "k") is None


def test_a_full_server_says_try_later(connection: Connection) -> None:
    connection.command("CONFIG", "SET", "maxmemory", 1)

    with pytest.raises(errors.TryLater, match="memory limit"):
        connection.script(WRITE, "k", ["v"])
    assert connection.command("GET", "k") is None


def test_a_busy_server_is_waited_for(server: Server, connection: Connection) -> None:
    connection.command("CONFIG", "SET", "busy-reply-threshold", 10)
    hasty = Connection(server.url, attempts=1)
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(connection.script, WORK, "k", [])

        with pytest.raises(errors.TryLater, match="busy with a long script"):
            until(lambda: hasty.command("GET", "k"), "the server to be busy")
        assert Connection(server.url, attempts=20).command("GET", "k") is None
        assert working.result() == "done"


def test_a_server_that_has_become_a_replica_is_asked_again_and_then_says_so(
    server: Server, connection: Connection
) -> None:
    connection.command("REPLICAOF", "127.0.0.1", 1)
    with pytest.raises(errors.TryLater, match="is a replica and takes no writes"):
        Connection(server.url, attempts=2).script(WRITE, "k", ["v"])

    promotion = threading.Timer(0.1, connection.command, ("REPLICAOF", "NO", "ONE"))
    promotion.start()

    assert Connection(server.url, attempts=20).script(WRITE, "k", ["v"]) == "OK"
    promotion.join()


def test_a_server_with_too_many_clients_says_try_later(server: Server, connection: Connection) -> None:
    connection.command("CONFIG", "SET", "maxclients", 1)

    with pytest.raises(errors.TryLater, match="as many clients"):
        Connection(server.url, attempts=1).command("PING")


# Blocking


def test_a_block_may_last_longer_than_any_other_command(server: Server) -> None:
    connection = Connection(server.url, timeout_ms=400)
    group(connection)
    begin = time.monotonic()

    assert connection.block(*XREADGROUP, 800, "STREAMS", "lane", ">", timeout_ms=800) is None
    assert time.monotonic() - begin >= 0.8


def test_other_commands_go_on_while_one_thread_blocks(connection: Connection) -> None:
    group(connection)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(connection.block, *XREADGROUP, 20000, "STREAMS", "lane", ">", timeout_ms=20000)
        until(lambda: blocked(connection), "the thread to block")
        assert connection.script(ECHO, "k", ["1"]) == "1"
        entry = connection.command("XADD", "lane", "*", "id", 1)

        assert read.result(10) == [["lane", [[entry, ["id", "1"]]]]]


def test_a_block_is_ended_from_another_thread_and_nothing_is_lost(connection: Connection) -> None:
    group(connection)
    block: Any = (*XREADGROUP, 20000, "STREAMS", "lane", ">")
    with ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            read = pool.submit(connection.block, *block, timeout_ms=20000)
            until(lambda: blocked(connection), "the thread to block")
            connection.unblock()
            assert read.result(10) is None
    entry = connection.command("XADD", "lane", "*", "id", 1)

    assert connection.block(*block, timeout_ms=20000) == [["lane", [[entry, ["id", "1"]]]]]
    # The link was not cut for it: the one that blocks, and the one that commands.
    assert len(str(connection.command("CLIENT", "LIST")).splitlines()) == 2


def test_a_block_is_ended_by_a_word_that_came_just_before_it(connection: Connection) -> None:
    group(connection)
    connection.unblock()

    assert connection.block(*XREADGROUP, 20000, "STREAMS", "lane", ">", timeout_ms=20000) is None
    assert connection.block(*XREADGROUP, 1, "STREAMS", "lane", ">", timeout_ms=1) is None


def test_a_block_on_a_frozen_server_can_be_ended(server: Server, connection: Connection) -> None:
    group(connection)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(connection.block, *XREADGROUP, 20000, "STREAMS", "lane", ">", timeout_ms=20000)
        until(lambda: blocked(connection), "the thread to block")
        server.signal(SIGSTOP)
        connection.unblock()

        with pytest.raises(errors.Unreachable):
            read.result(10)


def test_a_block_can_be_ended_by_a_user_who_may_not_tell_the_server_so(server: Server, connection: Connection) -> None:
    connection.command("ACL", "SETUSER", "worker", "on", ">p", "~*", "+@all", "-client|unblock")
    worker = Connection(server.url.replace("unix://", "unix://worker:p@"))
    group(connection)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(worker.block, *XREADGROUP, 20000, "STREAMS", "lane", ">", timeout_ms=20000)
        until(lambda: blocked(connection), "the thread to block")
        worker.unblock()

        with pytest.raises(errors.Unreachable, match="ended by cutting"):
            read.result(10)


def test_closing_ends_a_block(connection: Connection) -> None:
    group(connection)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(connection.block, *XREADGROUP, 20000, "STREAMS", "lane", ">", timeout_ms=20000)
        until(lambda: blocked(connection), "the thread to block")
        connection.close()

        assert read.result(10) is None


def test_a_block_whose_server_dies_is_unreachable_at_once(server: Server, connection: Connection) -> None:
    group(connection)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(connection.block, *XREADGROUP, 20000, "STREAMS", "lane", ">", timeout_ms=20000)
        until(lambda: blocked(connection), "the thread to block")
        server.signal(SIGKILL)

        with pytest.raises(errors.Unreachable):
            read.result(10)


def test_a_blocking_read_is_never_sent_twice(server: Server, connection: Connection, proxies: list[Proxy]) -> None:
    group(connection)
    entries = [connection.command("XADD", "lane", "*", "id", number) for number in range(2)]
    proxies.append(Proxy(server, b"XREADGROUP"))
    through = Connection(proxies[0].url)

    with pytest.raises(errors.Unreachable):
        through.block(*XREADGROUP, 1000, "STREAMS", "lane", ">", timeout_ms=1000)

    # The entry whose delivery was lost is in the pending list, and the next one has not gone the same way.
    stranded = through.command("XPENDING", "lane", "workers", "-", "+", 10)
    assert [entry for entry, *_ in stranded] == entries[:1]
    assert through.block(*XREADGROUP, 1, "STREAMS", "lane", ">", timeout_ms=1)[0][1][0][0] == entries[1]


def test_a_missing_group_has_an_error_of_its_own(connection: Connection) -> None:
    with pytest.raises(NoGroup):
        connection.block(*XREADGROUP, 1000, "STREAMS", "lane", ">", timeout_ms=1000)
    group(connection)

    assert connection.block(*XREADGROUP, 1, "STREAMS", "lane", ">", timeout_ms=1) is None


def test_only_one_thread_may_block_on_a_connection(connection: Connection) -> None:
    group(connection)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(connection.block, *XREADGROUP, 20000, "STREAMS", "lane", ">", timeout_ms=20000)
        until(lambda: blocked(connection), "the thread to block")
        with pytest.raises(errors.AgentqError, match="Another thread"):
            connection.block(*XREADGROUP, 1, "STREAMS", "lane", ">", timeout_ms=1)
        connection.unblock()

        assert read.result(10) is None


# Processes, names and files


def test_a_forked_child_uses_sockets_of_its_own(server: Server) -> None:
    program = f"""
        import os
        from agentq.coordinator.connection import Connection
        connection = Connection({server.url!r})
        read = lambda: connection.block("XREAD", "BLOCK", 1, "STREAMS", "s", "$", timeout_ms=1)
        names = lambda: {{line.split()[0] for line in connection.command("CLIENT", "LIST").splitlines()}}
        read()
        before = names()
        child = os.fork()
        if child == 0:
            connection.unblock()
            assert read() is None and read() is None
            connection.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert read() is None
        assert names() == before, (before, names())
        print("the parent still has its own", len(before))
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=30)

    assert run.stdout == "the parent still has its own 2\n", run.stderr


def test_the_server_sees_the_name_of_the_client(server: Server) -> None:
    connection = Connection(server.url, client_name="agentq-worker")

    assert " name=agentq-worker " in connection.command("CLIENT", "LIST")


def test_a_script_can_wait_for_the_append_only_file(connection: Connection) -> None:
    reply, synced = connection.script_then(COUNT, "effects", ["once"], "WAITAOF", 1, 0, 3000)

    assert reply == [1, 1]
    assert synced == [1, 0]
