"""What the connection promises, against real servers that are killed, frozen, flushed and cut off."""

# Over 400 lines: what one connection does in every state of its server.

from __future__ import annotations

import contextlib
import hashlib
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP

import fakeredis
import pytest
from support.concurrency import outcome_of
from support.lossy_proxy import Proxy
from support.requirements import FLAVOURS, binary
from support.servers import Server, free_port, until

from agentq.coordinator import errors
from agentq.coordinator.storage.connection import Connection, ScriptCall, ScriptSource


def source(name: str, text: str) -> ScriptSource:
    return ScriptSource(name, text, hashlib.sha1(text.encode()).hexdigest())


# Counts an operation once, however often it is sent; says whether this was the first time.
COUNT = source("count", "local new = redis.call('SADD', KEYS[1], ARGV[1]) return {new, redis.call('SCARD', KEYS[1])}")
ECHO = source("echo", "return ARGV[1]")
FAIL = source("fail", "return redis.error_reply('ERR ' .. ARGV[1])")
WRITE = source("write", "return redis.call('SET', KEYS[1], ARGV[1])")
WORK = source(
    "work",
    """-- until so many commands were refused because of it
    local busy, times = 'errorstat_BUSY:count=(%d+)', tonumber(ARGV[1])
    repeat for _ = 1, 100000 do end until tonumber(redis.call('INFO', 'errorstats'):match(busy) or 0) >= times
    return 'done'
    """,
)

XREADGROUP = ("XREADGROUP", "GROUP", "workers", "w1", "COUNT", 1, "BLOCK")


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="aq"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(params=FLAVOURS)
def server(request: pytest.FixtureRequest, folder: Path) -> Iterator[Server]:
    # With `everysec`, an acknowledged write may still be in memory when the process is killed.
    server = Server(binary(request.param), folder, "--appendonly", "yes", "--appendfsync", "always").start()
    yield server
    server.stop()


@pytest.fixture
def connection(server: Server) -> Iterator[Connection]:
    connection = Connection(server.url, attempts=12)
    yield connection
    connection.close()


def group(connection: Connection) -> None:
    connection.command("XGROUP", "CREATE", "lane", "workers", 0, "MKSTREAM")


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


def test_a_client_goes_on_by_itself_when_the_server_is_killed_and_started_again(
    server: Server, connection: Connection
) -> None:
    def kill_and_start() -> None:
        server.signal(SIGKILL)
        server.start()

    replies = [connection.script(COUNT, "effects", [number]) for number in range(100)]
    nemesis = threading.Thread(target=kill_and_start)
    nemesis.start()
    while nemesis.is_alive() or len(replies) < 400:
        replies.append(connection.script(COUNT, "effects", [len(replies)]))

    # Each acknowledged effect is there, and there once: the count grew by one from call to call.
    assert [count for _, count in replies] == list(range(1, len(replies) + 1))


def test_calls_under_way_are_made_again_when_the_server_is_killed(server: Server, connection: Connection) -> None:
    def calls() -> Iterator[ScriptCall]:
        for number in range(300):
            if number == 100:
                server.signal(SIGKILL)
                server.start()
            yield COUNT, "effects", [number]

    replies = list(connection.scripts(calls(), window=4))

    counts = [count for _, count in replies]
    assert counts == sorted(counts)
    assert len(counts) == connection.command("SCARD", "effects") == 300


def test_a_script_whose_reply_was_lost_runs_again_and_the_caller_sees_one_reply(
    server: Server, connection: Connection
) -> None:
    connection.script(COUNT, "effects", ["before"])
    with Proxy(server, b"EVALSHA") as proxy:
        assert Connection(proxy.url).script(COUNT, "effects", ["once"]) == [0, 2]
        assert proxy.lost == 1
    assert connection.command("SCARD", "effects") == 2


def test_replies_lost_in_the_middle_of_many_scripts_come_in_order_all_the_same(
    server: Server, connection: Connection
) -> None:
    connection.script(COUNT, "effects", ["before"])
    calls: list[ScriptCall] = [(COUNT, "effects", [f"operation-{number}"]) for number in range(100)]
    with Proxy(server, b"operation-50") as proxy:
        replies = list(Connection(proxy.url).scripts(calls, window=3))
        assert proxy.lost == 1

    counts = [count for _, count in replies]
    assert counts == sorted(counts)
    assert len(counts) == 100
    assert connection.command("SCARD", "effects") == 101


def test_a_server_that_is_not_there_is_unreachable_after_so_many_tries() -> None:
    connection = Connection(f"redis://user:s3cret@127.0.0.1:{free_port()}/0", attempts=2)

    with pytest.raises(errors.Unreachable, match=r"redis://127\.0\.0\.1:\d+/0 cannot be reached .*; check") as caught:
        connection.command("PING")
    assert "s3cret" not in str(caught.value)
    assert "user" not in str(caught.value)


def test_every_try_is_ours_and_there_are_no_hidden_ones() -> None:
    accepted = 0
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        listener.settimeout(0.05)
        connection = Connection(f"redis://127.0.0.1:{listener.getsockname()[1]}", attempts=3)
        failed = pool.submit(connection.command, "PING")
        while not failed.done():
            with contextlib.suppress(TimeoutError):
                listener.accept()[0].close()
                accepted += 1

    assert accepted == 3
    assert isinstance(failed.exception(), errors.Unreachable)


def test_a_server_that_has_frozen_is_unreachable_when_the_time_is_over(server: Server) -> None:
    connection = Connection(server.url, attempts=2, timeout_ms=100)
    ping = outcome_of(lambda: connection.command("PING"))
    until(lambda: ping() == "PONG", "an answer in so short a time")
    server.signal(SIGSTOP)

    with pytest.raises(errors.Unreachable):
        connection.command("PING")
    server.signal(SIGCONT)
    until(lambda: ping() == "PONG", "the server to thaw")


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


def test_a_script_that_the_server_has_forgotten_is_sent_along(connection: Connection) -> None:
    assert connection.script(ECHO, "k", ["1"]) == "1"
    connection.command("SCRIPT", "FLUSH")

    assert connection.script(ECHO, "k", ["2"]) == "2"


def test_scripts_may_be_flushed_while_many_of_them_are_under_way(connection: Connection) -> None:
    def calls() -> Iterator[ScriptCall]:
        for number in range(100):
            if number % 10 == 5:
                connection.command("SCRIPT", "FLUSH")
            yield COUNT, "effects", [number]

    assert [count for _, count in connection.scripts(calls())] == list(range(1, 101))


def test_a_refused_script_is_raised_in_its_turn_and_the_connection_stays_usable(connection: Connection) -> None:
    calls: list[ScriptCall] = [(ECHO, "k", ["1"]), (ECHO, "k", ["2"]), (FAIL, "k", ["no"]), (ECHO, "k", ["4"])]
    replies = connection.scripts(calls, window=4)

    assert [next(replies), next(replies)] == ["1", "2"]
    with pytest.raises(errors.AgentqError, match="answered: no"):
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

    def calls() -> Iterator[ScriptCall]:
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


def test_a_server_without_the_replicas_that_it_demands_says_try_later(server: Server, connection: Connection) -> None:
    connection.command("CONFIG", "SET", "min-replicas-to-write", 1)

    with pytest.raises(errors.TryLater, match="fewer replicas"):
        Connection(server.url, attempts=2).script(WRITE, "k", ["v"])


def test_a_server_that_loads_its_data_is_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        connection = Connection(f"redis://127.0.0.1:{listener.getsockname()[1]}", attempts=2)
        reply = pool.submit(connection.command, "PING")
        for answer in (b"-LOADING Redis is loading the dataset in memory\r\n", b"+PONG\r\n"):
            with listener.accept()[0] as client:
                assert b"SETNAME" in client.recv(1000)
                client.sendall(b"+OK\r\n")
                assert b"PING" in client.recv(1000)
                client.sendall(answer)

        assert reply.result(10) == "PONG"


@pytest.mark.full("takes 2 s")
def test_a_busy_server_is_waited_for(server: Server, connection: Connection) -> None:
    connection.command("CONFIG", "SET", "busy-reply-threshold", 10)
    hasty = Connection(server.url, attempts=1)
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(connection.script, WORK, "k", [6])

        with pytest.raises(errors.TryLater, match="busy with a long script"):
            until(lambda: hasty.command("GET", "k"), "the server to be busy")
        assert Connection(server.url, attempts=20).command("GET", "k") is None
        assert working.result() == "done"


def test_a_server_that_has_become_a_replica_is_asked_again_and_then_says_so(
    server: Server, connection: Connection
) -> None:
    connection.command("REPLICAOF", "127.0.0.1", 1)
    hasty = Connection(server.url, attempts=1)
    name = hasty.command("CLIENT", "ID")
    with pytest.raises(errors.TryLater, match="is a replica and takes no writes"):
        hasty.script(WRITE, "k", ["v"])
    # What answers at the same address may be another server by now, so the link is a new one.
    assert hasty.command("CLIENT", "ID") != name

    promotion = threading.Timer(0.1, connection.command, ("REPLICAOF", "NO", "ONE"))
    promotion.start()

    assert Connection(server.url, attempts=20).script(WRITE, "k", ["v"]) == "OK"
    promotion.join()


def test_a_forked_child_uses_sockets_of_its_own(server: Server) -> None:
    program = f"""
        import os
        from agentq.coordinator.storage.connection import Connection
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


def test_a_script_can_wait_for_the_append_only_file_where_the_server_can(connection: Connection) -> None:
    words = ("WAITAOF", 1, 0, 3000)
    if connection.command("COMMAND", "INFO", "WAITAOF") == [None]:
        with pytest.raises(errors.AgentqError, match="unknown command"):
            connection.script_then(COUNT, "effects", ["once"], *words)
        return
    reply, synced = connection.script_then(COUNT, "effects", ["once"], *words)

    assert reply == [1, 1]
    assert synced == [1, 0]
