"""A run's control group, where this machine lets the tests have one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import alive
from support.run_processes import COOKIE, DETACH, NAMESPACE, PATH, python, ready, run, shell, shut, start
from support.run_processes import nobody_left as nobody_left

from agentq.coordinator.model.spec import ResourceLimits
from agentq.coordinator.storage.embedded import EmbeddedServer
from agentq.worker.process import process_tree
from agentq.worker.process.cgroups import Cgroups, RunCgroup
from agentq.worker.process.run_process import ProcessExit, SpawnFailed

pytestmark = pytest.mark.usefixtures("nobody_left")

FOUND = Cgroups.detect()


def leaves() -> list[Path]:
    assert FOUND is not None
    return [leaf.folder for cookie, _, leaf in FOUND.remaining() if cookie.startswith(f"{NAMESPACE}/")]


@pytest.mark.needs("cgroups")
def test_a_run_has_a_group_while_it_lasts() -> None:
    async def test() -> int:
        process = await shell("sleep 1000 & echo ready; exec sleep 1000", cgroups=FOUND)
        await ready(process)
        (folder,) = leaves()
        assert process.pid in RunCgroup(folder).processes()
        assert len(RunCgroup(folder).processes()) == 2
        return await shut(process)

    assert run(test()) == 0
    assert leaves() == []


@pytest.mark.needs("cgroups")
def test_the_group_is_deleted_with_what_the_run_made_in_it() -> None:
    async def test() -> int:
        process = await shell("echo ready; exec sleep 1000", cgroups=FOUND)
        await ready(process)
        (folder,) = leaves()
        (folder / "a" / "b").mkdir(parents=True)
        (folder / "a" / "b" / "cgroup.procs").write_text(str(process.pid))
        assert RunCgroup(folder).processes() == [process.pid]
        return await shut(process)

    assert run(test()) == 0
    assert leaves() == []


@pytest.mark.needs("cgroups")
def test_a_run_that_cannot_start_leaves_no_group() -> None:
    async def test() -> None:
        with pytest.raises(SpawnFailed):
            await start("no-such-program", cgroups=FOUND)

    run(test())

    assert leaves() == []


@pytest.mark.needs("cgroups")
def test_what_hides_from_everything_else_is_in_the_group() -> None:
    """No mark, a session of its own, an orphan, and another run that could be blamed for it."""

    async def test() -> list[int]:
        elder = await shell("exec sleep 1000", cookie=f"{NAMESPACE}/run_2/1-b")
        text = "import os, time\nwhile b'agentq.' not in open('/proc/self/cgroup', 'rb').read(): pass\n" + DETACH
        process = await python(
            text + "os.execve('/bin/sh', ['sh', '-c', 'echo ready; exec sleep 1000'], {})", cgroups=FOUND
        )
        await ready(process)
        return [await shut(process), await shut(elder)]

    assert run(test()) == [1, 0]


@pytest.mark.needs("cgroups")
def test_a_fork_bomb_in_a_group_is_ended_at_one_blow() -> None:
    text = """
import os, time
tokens, more = os.pipe()
os.write(more, b'x' * 150 + b'r' + b'x' * 150)
if not os.fork():
    while token := os.read(tokens, 1):
        if token == b'r': os.write(1, b'ready\\n')
        if not os.fork(): os.setsid()
time.sleep(1000)
"""

    async def test() -> int:
        process = await python(text, cgroups=FOUND)
        await ready(process)
        return await shut(process)

    assert run(test()) > 0
    assert leaves() == []


@pytest.mark.needs("cgroups")
def test_the_embedded_server_leaves_the_group_before_it_ends(folder: Path) -> None:
    text = f"import sys; sys.path = {sys.path!r}\nfrom pathlib import Path\n"
    text += (
        f"from agentq.coordinator.storage.embedded import EmbeddedServer\nEmbeddedServer(Path({str(folder)!r})).start()"
    )

    async def test() -> int:
        process = await python(text, cgroups=FOUND)
        assert (await process.wait()).code == 0
        return await shut(process)

    server = EmbeddedServer(folder)
    try:
        assert run(test()) == 0
        assert server.find() is not None
        assert leaves() == []
    finally:
        assert server.stop()


@pytest.mark.needs("cgroups")
def test_the_group_that_a_killed_worker_left_is_emptied_and_deleted() -> None:
    """Also of a process that carries no mark."""
    assert FOUND is not None
    keeper = subprocess.Popen(["true"])
    keeper.wait()
    leaf = FOUND.leaf(COOKIE, f"{keeper.pid}-1", None)
    live = FOUND.leaf(f"{NAMESPACE}/run_2/1-b", process_tree.get_process_name(os.getpid()), None)
    assert leaf is not None
    assert live is not None
    left, other = (subprocess.Popen(["sleep", "1000"], env=PATH, start_new_session=True) for _ in range(2))
    assert leaf.add(left.pid)
    assert live.add(other.pid)
    try:
        assert asyncio.run(process_tree.end_dead_trees(NAMESPACE, cgroups=FOUND)) == 1
        assert (alive(left.pid), alive(other.pid)) == (False, True)
        assert leaves() == [live.folder]
    finally:
        for process in (left, other):
            process.kill()
            process.wait()
        assert live.remove()


@pytest.mark.needs("memory cgroups")
def test_a_run_that_uses_more_than_its_memory_is_ended_and_said_to_have() -> None:
    async def test() -> ProcessExit:
        text = "import time\nopen('/dev/shm/x', 'w')\nx = [b'x' * (1 << 20) for _ in range(300)]"
        process = await python(text, cgroups=FOUND, caps=ResourceLimits(memory_bytes=100 << 20))
        ended = await process.wait()
        await shut(process)
        return ended

    ended = run(test())

    assert (ended.signal, ended.oom) == (9, True)
    assert 90 << 20 <= ended.peak_memory_bytes <= 101 << 20


def test_what_the_kernel_says_about_memory_is_read(tmp_path: Path) -> None:
    leaf = RunCgroup(tmp_path)
    assert (leaf.out_of_memory(), leaf.peak_bytes(), leaf.processes(), leaf.kill(), leaf.add(1)) == (
        False,
        0,
        [],
        False,
        False,
    )

    (tmp_path / "memory.events").write_text("low 0\nhigh 3\nmax 5\noom 0\noom_kill 0\noom_group_kill 0\n")
    assert not leaf.out_of_memory()

    (tmp_path / "memory.events").write_text("low 0\nhigh 3\nmax 5\noom 1\noom_kill 12\noom_group_kill 1\n")
    (tmp_path / "memory.peak").write_text("104857600\n")
    assert (leaf.out_of_memory(), leaf.peak_bytes()) == (True, 100 << 20)


def test_without_a_place_for_groups_a_run_is_started_and_ended_all_the_same(tmp_path: Path) -> None:
    async def test() -> int:
        nowhere = Cgroups(tmp_path / "nowhere", memory=False)
        process = await shell("setsid sh -c 'echo ready; exec sleep 1000' & exec sleep 1000", cgroups=nowhere)
        await ready(process)
        return await shut(process)

    assert run(test()) == 1
