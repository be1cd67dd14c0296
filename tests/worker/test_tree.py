"""No process survives its run, wherever it has gone; and no other process is touched."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import alive
from support.run_processes import (
    COOKIE,
    DETACH,
    FOREVER,
    NAMESPACE,
    PATH,
    READY,
    WORKER,
    marked,
    python,
    ready,
    run,
    runs_of,
    shell,
    shut,
    start,
    when,
)
from support.run_processes import nobody_left as nobody_left
from support.servers import until

from agentq.coordinator.storage.embedded import EmbeddedServer
from agentq.worker.process import pidfd, process_tree, procfs
from agentq.worker.process.run_process import RunProcess
from agentq.worker.process.subreaper import NO_ORPHANS, reap_orphans
from agentq.worker.process.termination import send_signal, wait_until_gone

pytestmark = pytest.mark.usefixtures("nobody_left")

LEAVERS = {
    "a daemon": DETACH + "ready()\n",
    "one whose parent goes on": "if not os.fork():\n  os.setsid()\n  ready()\n  " + FOREVER,
    "one that ignores every signal": "if not os.fork():\n  os.setsid()\n"
    "  for number in {*signal.valid_signals()} - {9, 19, 32, 33}: signal.signal(number, signal.SIG_IGN)\n  ready()\n  "
    + FOREVER,
    "one that closes all it has": DETACH + "ready()\nfor n in range(3): os.close(n)\n",
    "one that hides its memory": DETACH + "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\nready()\n",
    "a daemon with another environment": DETACH
    + "os.execve('/bin/sh', ['sh', '-c', 'echo ready; exec sleep 1000'], {})\n",
    "a child of one with another environment": DETACH
    + "os.execve('/bin/sh', ['sh', '-c', '(echo ready; exec sleep 1000) & exec sleep 1000'], {})\n",
    "one whose first thread has ended": "if not os.fork():\n  os.setsid()\n  import _thread, threading\n"
    "  _thread.start_new_thread(lambda: (ready(), time.sleep(1000)), ())\n"
    "  import ctypes; ctypes.CDLL(None).pthread_exit(None)\n" + FOREVER,
    "a stopped one": "if not os.fork():\n  os.setsid()\n  ready()\n  os.kill(os.getpid(), signal.SIGSTOP)\n" + FOREVER,
}


@pytest.mark.parametrize("how", LEAVERS.values(), ids=LEAVERS.keys())
def test_what_leaves_the_group_is_ended_and_counted(how: str) -> None:
    async def test() -> int:
        process = await python(READY + how + FOREVER)
        await ready(process)
        return await shut(process)

    assert run(test()) == (2 if "& exec" in how else 1)


def test_what_stays_in_the_group_is_ended_and_not_counted() -> None:
    async def test() -> int:
        process = await shell("(sleep 1000 & sleep 1000 &) ; sleep 1000 & echo ready")
        await ready(process)
        await process.wait()
        return await shut(process)

    assert run(test()) == 0


def test_a_run_that_leaves_nothing_is_found_clean_without_a_look_at_all_processes() -> None:
    async def test() -> int:
        process = await start("true")
        await process.wait()
        reap_orphans()  # what the kernel can tell is found out once, where there is something to find
        procfs.PROC_FOLDER, folder = "/nowhere/but/children", procfs.PROC_FOLDER
        try:
            assert reap_orphans() == NO_ORPHANS
        finally:
            procfs.PROC_FOLDER = folder
        return await shut(process)

    assert run(test()) == 0


def test_a_run_ends_alone_with_others_beside_it() -> None:
    """Same worker, same session rules, other cookies: orphans, daemons and first processes of theirs go on."""

    async def test() -> list[int]:
        texts = [
            READY + DETACH + "ready()\n" + FOREVER,
            READY + "if not os.fork(): time.sleep(1000)\nready()\n" + FOREVER,
        ]
        others = [await python(text, cookie=f"{NAMESPACE}/run_2/{n}-b") for n, text in enumerate(texts)]
        for other in others:
            await ready(other)
        before = {one.pid for one in procfs.list_own_processes() if marked(one.pid)}
        process = await python(READY + DETACH + "ready()\n" + FOREVER)
        await ready(process)
        ended = [await shut(process)]
        assert {one.pid for one in procfs.list_own_processes() if marked(one.pid)} == before
        return [*ended, *[await shut(other) for other in others]]

    assert run(test()) == [1, 1, 0]


def test_an_orphan_without_a_mark_ends_with_the_last_run_that_can_have_left_it() -> None:
    async def test() -> list[int]:
        text = READY + LEAVERS["a daemon with another environment"]
        elder = await shell("exec sleep 1000", cookie=f"{NAMESPACE}/run_2/1-b")
        process = await python(text)
        await ready(process)
        younger = await shell("exec sleep 1000", cookie=f"{NAMESPACE}/run_3/1-b")
        return [await shut(process), await shut(elder), await shut(younger)]

    first, second, third = run(test())

    assert (first, second + third) == (0, 1)


def test_a_helper_of_the_worker_itself_is_left_alone() -> None:
    helper = subprocess.Popen(["sleep", "1000"])
    daemon = subprocess.Popen(
        ["sh", "-c", "setsid sh -c 'echo ready; exec sleep 1000' &"],
        env={**PATH, process_tree.WORKER_VARIABLE: "this one"},
        stdout=subprocess.PIPE,
    )
    assert daemon.stdout is not None
    daemon.stdout.readline()
    daemon.wait()

    async def test() -> list[int]:
        process = await python(READY + DETACH + "ready()\n" + FOREVER)
        await ready(process)
        ended = await shut(process)
        seen = reap_orphans()
        assert seen is not None
        return [ended, *seen.left]

    ended, *left = run(test())
    assert (ended, helper.poll()) == (1, None)
    (other,) = left
    assert alive(other)

    os.kill(other, signal.SIGKILL)
    until(lambda: reap_orphans() == NO_ORPHANS, "the daemon to be reaped")
    daemon.stdout.close()
    helper.kill()
    assert helper.wait() == -signal.SIGKILL


def test_no_status_that_asyncio_waits_for_is_taken() -> None:
    async def one(number: int) -> int:
        process = await asyncio.create_subprocess_exec("sh", "-c", f"exit {number}")
        return await process.wait()

    async def leaver() -> int:
        process = await shell("setsid sh -c 'echo ready' & exit 0")
        await process.wait()
        return await shut(process)

    async def test() -> list[int]:
        codes, _ = await asyncio.gather(
            asyncio.gather(*map(one, range(60))), asyncio.gather(*(leaver() for _ in range(60)))
        )
        return list(codes)

    assert run(test()) == list(range(60))


def test_orphans_that_end_by_themselves_leave_no_zombies() -> None:
    async def test() -> None:
        process = await shell("setsid sh -c 'exit 3' & setsid true & exit 0")
        await process.wait()
        await shut(process)
        await when(lambda: reap_orphans() == NO_ORPHANS, "the orphans to be reaped")

    run(test())

    assert procfs.list_child_pids(os.getpid()) == []


def test_the_dead_do_not_pile_up_while_a_run_goes_on() -> None:
    async def test() -> int:
        process = await shell("for n in $(seq 300); do (true &); done; echo ready; exec sleep 1000")
        await ready(process)
        await when(lambda: procfs.list_child_pids(os.getpid()) == [process.pid], "the orphans to be reaped")
        return await shut(process)

    assert run(test()) == 0


def test_the_embedded_server_that_a_run_was_the_first_to_need_lives_on(folder: Path) -> None:
    server = EmbeddedServer(folder)
    text = f"import sys; sys.path = {sys.path!r}\nfrom pathlib import Path\n"
    text += (
        f"from agentq.coordinator.storage.embedded import EmbeddedServer\nEmbeddedServer(Path({str(folder)!r})).start()"
    )

    async def test() -> int:
        process = await python(text)
        assert (await process.wait()).code == 0
        return await shut(process)

    try:
        assert run(test()) == 0
        assert server.find() is not None
    finally:
        assert server.stop()
    until(lambda: reap_orphans() == NO_ORPHANS, "the server to be reaped")


BOMBS = {
    # Doubles until there are 300, each in a session of its own; at half of that the test begins to end it.
    "many": """
tokens, more = os.pipe()
os.write(more, b'x' * 150 + b'r' + b'x' * 150)
if not os.fork():
    while token := os.read(tokens, 1):
        if token == b'r': ready()
        if not os.fork(): os.setsid()
""",
    # Never the same for longer than it takes to start the next one.
    "fleeing": """
if not os.fork():
    os.setsid()
    for n in range(20_000):
        if n == 50: ready()
        if os.fork(): os._exit(0)
""",
    "fleeing, with a new session each time": """
if not os.fork():
    for n in range(20_000):
        os.setsid()
        if n == 50: ready()
        if os.fork(): os._exit(0)
""",
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_a_fork_bomb_is_ended(bomb: str) -> None:
    async def test() -> int:
        process = await python(READY + bomb + FOREVER)
        await ready(process)
        return await shut(process)

    assert run(test()) >= 1
    until(lambda: reap_orphans() == NO_ORPHANS, "the orphans to be reaped")


@pytest.mark.needs("root")
def test_a_process_of_another_user_is_not_touched() -> None:
    async def test() -> tuple[int, bool]:
        program = "exec setpriv --reuid=65534 --clear-groups sh -c 'echo ready; exec sleep 1000'"
        process = await shell(f'setsid sh -c "{program}" & exec sleep 1000')
        await ready(process)
        ended = await process.end(0)
        seen = reap_orphans()
        assert seen is not None
        (other,) = seen.left
        spared = alive(other)
        os.kill(other, signal.SIGKILL)
        await when(lambda: reap_orphans() == NO_ORPHANS, "it to be reaped")
        os.close(process.stdout)
        os.close(process.stderr)
        return ended, spared

    assert run(test()) == (0, True)


def test_a_run_with_a_worker_in_it_takes_that_workers_runs_along() -> None:
    """They carry marks of their own, and their keeper went with the run: nobody else would end them."""

    async def test() -> int:
        argv = [sys.executable, "-c", WORKER, f"{NAMESPACE}inner", READY + DETACH + "ready()\n" + FOREVER]
        process = await start(*argv)
        await ready(process)
        assert len(runs_of(f"{NAMESPACE}inner")) == 1
        return await shut(process)

    assert run(test()) == 0
    assert runs_of(f"{NAMESPACE}inner") == set()


def test_a_signal_never_reaches_a_later_process_of_the_same_number() -> None:
    other = subprocess.Popen(["sleep", "1000"])
    now = procfs.read_stat(other.pid)
    assert now is not None
    earlier = procfs.ProcessStat(now.pid, now.parent, now.group, now.session, now.began - 1, True)

    assert not send_signal(earlier, signal.SIGKILL)
    assert asyncio.run(wait_until_gone([earlier], 10_000))
    assert not asyncio.run(wait_until_gone([now], 1))
    assert other.poll() is None

    end = pidfd.open_pidfd(other.pid)
    assert send_signal(now, signal.SIGKILL)
    assert other.wait() == -signal.SIGKILL
    assert not send_signal(now, signal.SIGKILL)
    with pytest.raises(ProcessLookupError):
        pidfd.send_signal(end, signal.SIGKILL)
    os.close(end)


def test_a_process_that_is_gone_is_read_as_nothing() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()

    assert procfs.read_stat(gone.pid) is None
    assert procfs.list_child_pids(gone.pid) == []
    assert procfs.read_environment(gone.pid, process_tree.COOKIE_VARIABLE) == {}
    assert procfs.read_command_line(gone.pid) == [b""]
    assert procfs.list_ancestors(gone.pid) == []
    assert not procfs.is_own_user(gone.pid)
    assert not procfs.is_same_namespace(gone.pid)


def test_a_hundred_runs_with_daemons_end_at_the_same_time() -> None:
    async def one(number: int) -> int:
        process: RunProcess = await shell(
            "setsid sh -c 'echo ready; exec sleep 1000' & exec sleep 1000", cookie=f"{NAMESPACE}/run_{number}/1-a"
        )
        await ready(process)
        return await shut(process)

    async def test() -> list[int]:
        return await asyncio.gather(*map(one, range(100)))

    assert run(test()) == [1] * 100


def test_nothing_unrelated_is_touched_by_any_of_this() -> None:
    near = subprocess.Popen(["sleep", "1000"], start_new_session=False)
    marked_otherwise = subprocess.Popen(["sleep", "1000"], env={**PATH, process_tree.COOKIE_VARIABLE: f"{COOKIE}0"})
    try:

        async def test() -> tuple[int, int]:
            process = await shell("setsid sh -c 'echo ready; exec sleep 1000' & exec sleep 1000")
            await ready(process)
            return await shut(process), await process_tree.end_dead_trees(NAMESPACE)

        assert asyncio.run(test()) == (1, 0)
        assert (near.poll(), marked_otherwise.poll()) == (None, None)
    finally:
        for other in (near, marked_otherwise):
            other.kill()
            other.wait()
