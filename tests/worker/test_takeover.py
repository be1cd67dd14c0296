"""A worker takes over from one that was killed on the same host at once, and from no other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support.crew import Crew
from support.servers import Server, until

from agentq.coordinator.model.lifecycle import State
from agentq.worker.cleanup.takeover import (
    DEAD_REASON,
    PROCESS_FIELD,
    describe_process,
    find_dead_workers,
    is_process_dead,
)

AGES_MS = 3_600_000
"""A lease that ends after any test."""


@pytest.fixture
def crew(valkey: Server, folder: Path) -> Iterator[Crew]:
    crew = Crew(valkey, folder, namespace=folder.name, lease_ms=AGES_MS)
    yield crew
    crew.close()
    crew.check()


@pytest.mark.full("takes 1 s")
def test_p3_the_runs_of_a_killed_worker_go_on_when_the_next_one_starts_on_its_host(crew: Crew, folder: Path) -> None:
    """Its lease lasts, and no reaper looks; what ran is ended before it runs again."""
    gate = folder / "gate"
    dead = crew.worker()
    run = crew.submit(f"while ! [ -e {gate} ]; do sleep 0.05; done")
    until(lambda: crew.effects("begin")[run] == 1, "the run to begin")
    (left,) = crew.processes()
    dead.kill()
    dead.wait()

    successor = crew.begin()
    until(lambda: crew.name_of(successor), "the next worker to register", 60)

    until(lambda: crew.effects("begin")[run] == 2, "the run to begin again")
    assert left not in crew.processes()
    gate.touch()
    crew.wait([run])
    lost, _ = crew.records.get(run).attempts
    assert lost.outcome is not None
    assert lost.outcome.error == DEAD_REASON


@pytest.mark.full("takes 1 s")
def test_p3_a_worker_that_lives_is_left_alone_by_another_on_its_host(crew: Crew, folder: Path) -> None:
    gate = folder / "gate"
    crew.worker()
    run = crew.submit(f"while ! [ -e {gate} ]; do sleep 0.05; done")
    until(lambda: crew.effects("begin")[run] == 1, "the run to begin")

    crew.worker()

    assert crew.state(run) == State.RUNNING
    gate.touch()
    crew.wait([run])
    assert crew.effects("begin")[run] == 1


@pytest.mark.needs("root")
@pytest.mark.parametrize("mounted", [[], ["--mount-proc"]], ids=["with our /proc", "with its own /proc"])
def test_p3_a_worker_in_a_container_that_shares_our_name_is_left_alone(crew: Crew, mounted: list[str]) -> None:
    """Its number is that of another process here, or of none."""
    crew.within = ["unshare", "--pid", "--fork", "--kill-child", *mounted]
    crew.worker()

    assert find_dead_workers(crew.records) == []


@cache
def ended() -> str:
    """The mark of a process that has ended."""
    text = "from agentq.worker.cleanup.takeover import describe_process\nprint(*describe_process().values())"
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout.strip()


def test_a_process_that_has_ended_is_known_to_be_dead() -> None:
    assert is_process_dead(ended())


def test_a_process_whose_number_is_anothers_by_now_is_known_to_be_dead() -> None:
    host, _, name = describe_process()[PROCESS_FIELD].rpartition("/")
    began = name.partition("-")[2]

    assert not is_process_dead(f"{host}/{name}")
    assert is_process_dead(f"{host}/{os.getpid()}-{int(began) - 1}")


PARTS = {
    "another boot": 0,
    "another namespace of processes": 1,
    "another namespace of time": 2,
    "another user": -2,
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS.keys())
def test_of_a_process_elsewhere_nothing_is_believed(part: int) -> None:
    parts = ended().split("/")
    parts[part] = "1"

    assert not is_process_dead("/".join(parts))


@pytest.mark.parametrize("mark", ["", "4711", "4711-1", "/4711-1", "nonsense/4711-1"])
def test_of_a_worker_that_does_not_say_what_its_process_is_nothing_is_believed(mark: str) -> None:
    assert not is_process_dead(mark)
