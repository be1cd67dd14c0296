"""When an attempt in a worktree has started: with its first work, and not only with its process.

What is claimed and not started within START_MS is taken from its worker, so a long setup, check or resolver counts.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.servers import until
from support.worktree_runs import Yard

from agentq.coordinator.events.stream import PartitionEvents


@pytest.fixture
def gate(yard: Yard) -> Path:
    """Scripts wait until this file exists."""
    return yard.told.with_name(f"{yard.told.name}-gate")


def waits(yard: Yard, gate: Path, word: str) -> list[str]:
    """A command that says that it has come, and goes on when the gate is there."""
    return ["sh", "-c", f"echo {word} >> {yard.told}; until [ -e {gate} ]; do sleep 0.02; done"]


def test_a_run_is_running_while_its_worktree_is_set_up(yard: Yard, gate: Path) -> None:
    run = yard.submit("true", setup=waits(yard, gate, "setup"))
    yard.hears("setup")

    yard.reaches(run, "running")

    until(lambda: "sets up its worktree" in yard.why(run), "why to say what it does")
    gate.touch()
    yard.done(run)
    events = [event.event for event in PartitionEvents(yard.crew.queue.store, 0).replay() if event.run == run]
    assert events.count("started") == 1, events


@pytest.mark.full("takes 1 s")
def test_an_attempt_that_only_brings_in_the_work_of_an_earlier_one_is_running(lone: Yard) -> None:
    gate = lone.told.with_name("gate")
    first = lone.worker(drain_grace="0s")
    run = lone.submit(f"echo once >> {lone.told}; echo ok > ok.txt", check=waits(lone, gate, "checking"))
    lone.hears("checking")
    first.terminate()
    first.wait()
    lone.worker()

    until(lambda: lone.told.read_text().split().count("checking") == 2, "the second worker to check")

    lone.reaches(run, "running")
    gate.touch()
    (ended,) = lone.done(run)
    assert ended.state == "completed", ended.outcome
    assert lone.told.read_text().split().count("once") == 1
