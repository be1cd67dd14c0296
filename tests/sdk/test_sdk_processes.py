"""A client at the top of a module: used by threads, and by the children of a fork, as under Django."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sdk import works
from sdk.conftest import executing

from agentq.sdk import Client

APPLICATION = """
from agentq.sdk import connect, default_client, set_default_client, task

set_default_client(connect({url!r}, namespace={namespace!r}))

@task
def double(number: int) -> int:
    return 2 * number

def view(number):
    return double.submit(number).id
"""

SERVER = """
import os, sys, warnings, application
import threading
assert threading.active_count() == 1, "nothing is connected by an import"
before = application.view(0)
application.double.submit(1).cancel()
children = []
for number in (1, 2, 3):
    pid = os.fork()
    if pid == 0:
        ids = [None] * 4
        def serve(place): ids[place] = application.view(number)
        threads = [threading.Thread(target=serve, args=(place,)) for place in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        os.write(1, " ".join([*ids, ""]).encode())
        os._exit(0)
    children.append(pid)
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
print(before, application.view(4), flush=True)
"""


def test_views_submit_through_a_client_at_the_top_of_a_module(client: Client, valkey_url: str, tmp_path: Path) -> None:
    namespace = client.queue.store.keyspace.namespace
    (tmp_path / "application.py").write_text(APPLICATION.format(url=valkey_url, namespace=namespace))

    done = subprocess.run([sys.executable, "-c", SERVER], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    ids = done.stdout.split()
    assert len(set(ids)) == 14
    assert all(client.run(run_id).state() == "pending" for run_id in ids)


def test_threads_share_a_client_and_wait_side_by_side(client: Client) -> None:
    results: dict[int, int] = {}

    def serve(number: int) -> None:
        results[number] = works.double.submit(number).result(timeout=30)

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(30)]
    with executing(client):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert results == {number: 2 * number for number in range(30)}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.usefixtures("client")
def test_a_child_of_a_fork_waits_for_itself() -> None:
    """Also where the parent waited before, in threads that the child does not have."""
    run = works.double.submit(1)
    run.cancel()
    held = works.double.submit(2)
    with pytest.raises(TimeoutError):
        held.wait(0.05)

    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(30)
            other = works.double.submit(3)
            threading.Timer(0.1, other.cancel).start()
            os._exit(0 if other.wait(20) == "cancelled" else 1)
        finally:
            os._exit(2)

    assert os.waitpid(pid, 0)[1] == 0
    held.cancel()
    assert held.wait(20) == "cancelled"
