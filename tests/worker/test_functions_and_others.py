"""Functions and other runs on the same slots: neither waits for ever behind the other."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.function_workers import Callers
from support.servers import until


@pytest.mark.full("takes 5 s")
@pytest.mark.parametrize(("slots", "seconds"), [(1, 0.002), (2, 0.002), (1, 0.1)])
def test_a_command_gets_its_turn_while_functions_hold_every_slot(callers: Callers, slots: int, seconds: float) -> None:
    spec = callers.spec("napped", seconds)
    calls = [each.id for each in callers.queue.submit_many(spec for _ in range(int(6 * slots / seconds)))]
    callers.worker(slots=slots)
    callers.wait(calls[: 2 * slots])

    callers.wait([callers.submit()])

    assert callers.state(calls[len(calls) * 2 // 3]) == "pending", "it began before most of what was there before it"


@pytest.mark.full("takes 13 s")
def test_functions_are_made_beside_a_long_command_while_a_slot_is_free(callers: Callers, folder: Path) -> None:
    callers.worker(slots=2)
    go = folder / "go"
    command = callers.submit(f"while [ ! -e {go} ]; do sleep 0.02; done")
    until(lambda: callers.state(command) == "running", "the command to begin")

    calls = [callers.call("noted") for _ in range(20)]
    callers.wait(calls)
    held = callers.state(command)
    go.touch()
    callers.wait([command])

    assert held == "running"
