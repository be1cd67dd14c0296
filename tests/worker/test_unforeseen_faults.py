"""A fault that nothing in a worker expects ends the worker: it is never left alive without doing anything."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.crew import Crew
from support.servers import Server, until

FAULTY = """
import os, sys
from {module} import {owner}
from agentq.cli.main import main

real = {owner}.{method}

def faulty(*args, **kwargs):
    if os.path.exists({gate!r}):
        raise TypeError("a fault of the test")
    return real(*args, **kwargs)

{owner}.{method} = faulty
sys.exit(main(sys.argv[4:]))
"""


def faulty_worker(crew: Crew, gate: Path, place: str) -> None:
    """The program of the next worker: from when the gate is there, this method fails."""
    module, owner, method = place.rsplit(".", 2)
    code = FAULTY.format(module=f"agentq.coordinator.{module}", owner=owner, method=method, gate=str(gate))
    crew.within = [sys.executable, "-c", code]


def poke(crew: Crew, worker: subprocess.Popen[bytes]) -> str:
    """Put what is no order into a worker's inbox, so that it looks and claims; the inbox's key."""
    inbox = crew.queue.store.key(0, "worker_inbox", crew.name_of(worker))
    crew.queue.store.connection.command("XADD", inbox, "*", "foo", "bar")
    return inbox


@pytest.mark.full("takes 1 s")
@pytest.mark.parametrize(
    "place",
    [
        "workers.lease.WorkerLease.heartbeat",
        "workers.lease.WorkerLease.claim",
        "runs.verbs.RunVerbs.log",
        "runs.verbs.RunVerbs.start",
    ],
)
def test_a_worker_in_which_a_thread_fails_hands_back_and_ends_with_an_exit_code(
    valkey: Server, make_crew: Callable[..., Crew], folder: Path, place: str
) -> None:
    crew, gate = make_crew(valkey, namespace=folder.name), folder / "gate"
    faulty_worker(crew, gate, place)
    worker = crew.worker(slots=3)
    held = crew.submit(f"until [ -e {gate} ]; do sleep 0.02; done; echo gone on; sleep 300", stop_grace_ms=0)
    until(lambda: crew.effects("begin")[held] == 1, "the run to begin")

    gate.touch()
    crew.submit("sleep 300", stop_grace_ms=0)
    poke(crew, worker)

    assert worker.wait(timeout=30) == 1
    assert crew.state(held) == "pending"
    assert crew.records.workers() == []
    assert crew.processes() == []


def test_an_entry_of_the_inbox_that_is_no_order_is_passed_over(
    valkey: Server, make_crew: Callable[..., Crew], folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    crew = make_crew(valkey, namespace=folder.name)
    worker = crew.worker()

    inbox = poke(crew, worker)
    until(lambda: not crew.queue.store.connection.command("XLEN", inbox), "the entry to be acknowledged")

    run = crew.submit("true")
    crew.wait([run])
    assert (crew.state(run), worker.poll()) == ("completed", None)
    assert "ignoring unknown order" in capfd.readouterr().err
