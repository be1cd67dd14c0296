"""What cannot work is refused in one sentence, and left as it is."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from support.embedded_servers import script, store
from support.servers import valkey_binary

from agentq.coordinator import errors
from agentq.coordinator.storage.embedded import EmbeddedServer


def test_a_program_that_dies_at_once_is_reported_with_its_last_words(base: Path, server: EmbeddedServer) -> None:
    def says(program: str) -> str:
        with pytest.raises(errors.Unreachable) as caught:
            EmbeddedServer(server.folder, binary=program).start()
        assert len(str(caught.value).splitlines()) == 1
        return str(caught.value)

    dying = script(base, "echo hm; echo no room; exit 1")
    assert says(dying).endswith(f"did not start: no room; fix that and try again, its log is {server.log}.")
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
    with pytest.raises(errors.Unreachable, match="Not a directory; fix that, or set AGENTQ_HOME"):
        EmbeddedServer(base / "file" / "server").start()
    with pytest.raises(errors.Unreachable, match="File exists"):
        EmbeddedServer(base / "file").start()
    (base / "open").mkdir()
    (base / "open").chmod(0o755)  # whatever the umask is
    (base / "open" / "work").touch()
    with pytest.raises(errors.Invalid, match="chmod 700"):
        EmbeddedServer(base / "open").start()
    assert (base / "open").stat().st_mode & 0o777 == 0o755


@pytest.mark.needs("root")
def test_other_users_folders_are_refused(base: Path) -> None:
    base.chmod(0o755)
    (base / "foreign").mkdir(mode=0o700)
    os.chown(base / "foreign", 65534, 65534)
    with pytest.raises(errors.NotAllowed, match="belongs to another user"):
        EmbeddedServer(base / "foreign").start()
    os.seteuid(65534)
    try:
        with pytest.raises(errors.NotAllowed, match="Permission denied"):
            EmbeddedServer(base / "server").start()
    finally:
        os.seteuid(0)


@pytest.mark.needs("root")
def test_a_full_disk_is_named(base: Path) -> None:
    disk = base / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32k,mode=700", "none", str(disk)]
    subprocess.run(mount, check=True)
    try:
        with suppress(OSError), open(disk / "file", "wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        with pytest.raises(errors.Unreachable, match=r"disk is full|No space left"):
            EmbeddedServer(disk).start()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
