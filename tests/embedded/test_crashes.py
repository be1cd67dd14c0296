"""Starters and servers that are killed, freeze or hang: nothing is lost, and nothing blocks the next start."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
import redis
from support.embedded_servers import end, heard, script, serving, starting, store
from support.processes import alive
from support.servers import until, valkey_binary

from agentq.coordinator import errors
from agentq.coordinator.storage.embedded import EmbeddedServer


def test_many_starters_at_once_start_exactly_one_server(server: EmbeddedServer) -> None:
    server.folder.mkdir(mode=0o700)
    with open(server.folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with starting(server, count=8) as starters:
            fcntl.flock(lock, fcntl.LOCK_UN)
            assert {heard(starter) for starter in starters} == {f"unix://{server.folder}/socket"}

    assert serving(server)
    assert server.log.read_text().count("Ready to accept") == 1


def test_a_starter_killed_with_the_lock_in_hand_blocks_nobody(server: EmbeddedServer) -> None:
    server.folder.mkdir(mode=0o700)
    code = "import fcntl, sys; lock = open(sys.argv[1], 'w'); fcntl.flock(lock, 2); print(flush=True); sys.stdin.read()"
    with Popen([sys.executable, "-c", code, str(server.folder / "lock")], stdin=PIPE, stdout=PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline()
        with pytest.raises(errors.Unreachable, match="agentq down"):
            server.start(patience_ms=50)
        with pytest.raises(errors.Unreachable):
            server.stop(patience_ms=50)
        holder.kill()
    assert server.start()


def test_a_starter_killed_before_the_server_listens_leads_to_no_second_server(base: Path) -> None:
    """The moment at which nothing but the lock tells that a server is coming."""
    os.mkfifo(base / "gate")
    program = script(base, f'touch {base}/reached; read go < {base}/gate; exec {valkey_binary()} "$@"')
    server = EmbeddedServer(base / "server", binary=program)
    with starting(server) as (starter,):
        until((base / "reached").exists, "the program to begin")
        starter.kill()
        starter.wait()
        with starting(server, count=3) as others:
            with pytest.raises(errors.Unreachable):
                server.start(patience_ms=50)
            (base / "gate").write_text("go\n")
            assert {heard(other) for other in others} == {f"unix://{server.folder}/socket"}

    assert serving(server)
    assert server.log.read_text().count("Ready to accept") == 1


@pytest.mark.full("takes 1 s")
def test_starters_killed_at_any_moment_leave_one_server_or_none(server: EmbeddedServer) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    dice = random.Random(seed)
    for number in range(12):
        with starting(server, count=2) as (victim, other):
            for _ in range(dice.randrange(20_000)):  # looks of a few microseconds: a start takes 40 ms
                server.log.exists()
            victim.kill()
            assert store(heard(other)).rpush("list", number) == number + 1
            end(serving(server)) if number % 2 else server.stop()


def test_everything_written_is_there_after_a_stop_and_after_a_crash(either: EmbeddedServer) -> None:
    for number in range(4):
        client = store(either.start())
        assert client.lrange("list", 0, -1) == [f"{n}" for n in range(number)]
        client.rpush("list", number)
        end(serving(either)) if number % 2 else either.stop()
        assert (either.find(), either.pid(), either.stop()) == (None, None, False)


def test_a_server_killed_in_a_rewrite_starts_again_once_the_child_that_rewrites_is_gone(server: EmbeddedServer) -> None:
    client = store(server.start())
    client.config_set("rdb-key-save-delay", 20_000)
    client.mset({f"key{n}": "x" for n in range(1000)})
    pid = serving(server)
    client.bgrewriteaof()
    children = Path(f"/proc/{pid}/task/{pid}/children")
    until(children.read_text, "the rewrite to begin")
    child = int(children.read_text())
    os.kill(child, signal.SIGSTOP)  # it ends by itself once it cannot tell its server how far it is
    end(pid)
    assert alive(child)
    with pytest.raises(errors.Unreachable):
        server.start(patience_ms=50)
    os.kill(child, signal.SIGCONT)
    assert store(server.start()).dbsize() == 1000
    assert not alive(child)


def test_a_stale_pid_file_never_leads_to_a_stranger(server: EmbeddedServer) -> None:
    server.start()
    end(serving(server))
    with Popen(["tail", "-f", server.log], stdout=PIPE) as stranger:
        try:
            (server.folder / "pid").write_text(f"{stranger.pid}\n")
            assert (server.pid(), server.stop()) == (None, False)
            server.start()
            (server.folder / "pid").write_text(f"{stranger.pid}\n")
            (server.folder / "socket").unlink()
            with pytest.raises(errors.Unreachable, match="cannot be seen from here"):
                server.stop(patience_ms=50)
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_server_whose_socket_was_deleted_can_still_be_stopped(server: EmbeddedServer) -> None:
    server.start()
    pid = serving(server)
    (server.folder / "socket").unlink()

    assert (server.find(), server.pid()) == (None, pid)
    with pytest.raises(errors.Unreachable, match=f"process {pid}"):
        server.start(patience_ms=50)
    assert server.stop()
    assert server.start()


@pytest.mark.full("takes 4 s")
def test_a_frozen_server_is_reported_and_stop_kills_it(server: EmbeddedServer) -> None:
    store(server.start()).set("key", "value")
    pid = serving(server)
    os.kill(pid, signal.SIGSTOP)

    assert (server.find(), server.pid()) == (None, pid)
    with pytest.raises(errors.Unreachable, match=f"process {pid}"):
        server.start(patience_ms=50)
    assert server.stop(patience_ms=50)
    assert not alive(pid)
    assert store(server.start()).get("key") == "value"


def test_a_script_that_hangs_does_not_keep_the_server_from_stopping(server: EmbeddedServer) -> None:
    client = store(server.start())
    client.config_set("lua-time-limit", 1)
    client.set("key", "value")
    code = f"import redis; redis.from_url({server.start()!r}).eval('while 1 do end', 0)"
    with Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL):
        until(lambda: busy(client), "the script to hang")
        assert server.stop()
    assert store(server.start()).get("key") == "value"


def busy(client: redis.Redis) -> bool:
    try:
        client.get("key")
    except redis.ResponseError as error:
        return "BUSY" in str(error)
    return False


@pytest.mark.full("takes 4 s")
def test_loading_counts_as_waiting_and_can_be_stopped(base: Path, server: EmbeddedServer) -> None:
    store(server.start()).eval("for n = 1, 4096 do redis.call('set', 'key' .. n, 'x') end", 0)
    server.stop()
    slow = EmbeddedServer(server.folder, binary=script(base, f'exec {valkey_binary()} "$@" --key-load-delay 500'))

    with starting(slow):
        until(lambda: slow.pid() is not None, "the server to listen")
        assert slow.find() is None
        assert slow.stop()
    assert store(slow.start(patience_ms=1_500)).dbsize() == 4096
