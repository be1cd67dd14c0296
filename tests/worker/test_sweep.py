"""What a worker left that was killed is ended by whoever sweeps on its host, and nothing else is."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest
from support.run_processes import DETACH, FOREVER, NAMESPACE, PATH, READY, WORKER, runs_of, worker
from support.run_processes import nobody_left as nobody_left
from support.run_processes import workers as workers

from agentq.worker.process import process_tree, procfs

pytestmark = pytest.mark.usefixtures("nobody_left")

DAEMON = DETACH + "ready()\n"
CHILD = "if not os.fork():\n  os.setsid()\n  ready()\n  " + FOREVER


def test_what_a_killed_worker_left_is_swept_by_another_process(workers: list[subprocess.Popen[bytes]]) -> None:
    plain = "ready()\n"
    dead = worker(workers, f"{NAMESPACE}dead", plain, DAEMON, CHILD)
    worker(workers, f"{NAMESPACE}live", plain, DAEMON)
    live = runs_of(f"{NAMESPACE}live")
    count = len(runs_of(f"{NAMESPACE}dead"))
    assert count == 4

    assert asyncio.run(process_tree.end_dead_trees(f"{NAMESPACE}dead")) == 0  # it still lives
    dead.kill()
    dead.wait()
    assert asyncio.run(process_tree.end_dead_trees(f"{NAMESPACE}dea")) == 0  # no part of a name
    assert asyncio.run(process_tree.end_dead_trees([f"{NAMESPACE}dead/run_0/2-a"])) == 0
    assert asyncio.run(process_tree.end_dead_trees([f"{NAMESPACE}dead/run_0/1-a"])) == 1
    assert asyncio.run(process_tree.end_dead_trees(f"{NAMESPACE}live")) == 0
    swept = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import asyncio\nfrom agentq.worker.process.process_tree import "
            f"end_dead_trees\nprint(asyncio.run(end_dead_trees('{NAMESPACE}dead')))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )

    assert int(swept.stdout) == count - 1
    assert runs_of(f"{NAMESPACE}dead") == set()
    assert runs_of(f"{NAMESPACE}live") == live
    assert len(live) == 2


def test_a_sweeper_that_carries_the_mark_of_a_dead_run_spares_itself(workers: list[subprocess.Popen[bytes]]) -> None:
    dead = worker(workers, f"{NAMESPACE}dead", "ready()\n")
    (left,) = runs_of(f"{NAMESPACE}dead")
    marks = procfs.read_environment(left, process_tree.COOKIE_VARIABLE, process_tree.STARTER_VARIABLE)
    dead.kill()
    dead.wait()
    text = (
        f"import asyncio\nfrom agentq.worker.process.process_tree import "
        f"end_dead_trees\nprint(asyncio.run(end_dead_trees('{NAMESPACE}dead')))"
    )
    swept = subprocess.run(
        ["sh", "-c", '"$0" "$@"; echo over', sys.executable, "-c", text], env={**PATH, **marks}, capture_output=True
    )

    assert swept.stdout == b"1\nover\n"
    assert runs_of(f"{NAMESPACE}dead") == set()


@pytest.mark.needs("root")
def test_a_container_whose_processes_are_seen_from_here_is_not_swept(workers: list[subprocess.Popen[bytes]]) -> None:
    """Inside, the worker has a number that nobody has here: it would seem to be dead."""
    inside = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", WORKER, f"{NAMESPACE}box"]
    argv = [*inside, READY + "ready()\n" + FOREVER]
    workers.append(subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True))
    assert workers[-1].stdout is not None
    assert workers[-1].stdout.readline() == b"ready\n"
    (boxed,) = runs_of(f"{NAMESPACE}box")

    assert asyncio.run(process_tree.end_dead_trees(f"{NAMESPACE}box")) == 0
    assert runs_of(f"{NAMESPACE}box") == {boxed}


def test_a_keeper_whose_number_is_anothers_by_now_is_gone(workers: list[subprocess.Popen[bytes]]) -> None:
    """The number of the dead worker is taken by a process of this test, which began later."""
    dead = worker(workers, f"{NAMESPACE}dead", "ready()\n")
    (left,) = runs_of(f"{NAMESPACE}dead")
    dead.kill()
    dead.wait()
    keeper = procfs.read_environment(left, process_tree.STARTER_VARIABLE)[process_tree.STARTER_VARIABLE]
    pid, _, began = keeper.partition("-")
    successor = procfs.ProcessStat(int(pid), 1, 1, 1, int(began) + 5, True)

    assert procfs.read_stat(successor.pid) is None
    assert process_tree.get_process_name(os.getpid()) != keeper
    assert asyncio.run(process_tree.end_dead_trees(f"{NAMESPACE}dead")) == 1
