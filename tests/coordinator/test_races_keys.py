"""Clients that want the same key at the same moment, while its run begins and ends."""

from __future__ import annotations

import pytest
from support.concurrency import ThreadBarrier
from support.world import World

from agentq.coordinator.model.lifecycle import HELD_STATES, LIVE_STATES
from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.runs.verbs import Claim

ROUNDS, CLIENTS = 40, 5


def spec(number: int, mode: str) -> RunSpec:
    later = {"delay_ms": 0} if mode == "debounce" else {}
    return RunSpec.checked(kind="command", argv=["echo", str(number)], dedupe_key="k", if_live=mode, **later)


@pytest.mark.parametrize("mode", ["follow", "debounce", "replace", "return"])
def test_whatever_meets_at_a_key_one_run_has_it_and_at_most_one_follows(world: World, mode: str) -> None:
    """Submits meet each other, the claim of the run and its end."""
    lease, made, held = world.worker("w1"), list[str](), list[Claim]()

    def work() -> None:
        for claim in held:
            world.queue.finish([(claim, Outcome())])
        held[:] = lease.claim(10)
        assert len(held) <= 1, "two runs with one key at once"

    with ThreadBarrier(CLIENTS + 1) as threads:
        for round_ in range(ROUNDS):
            first = round_ * CLIENTS
            receipts = threads.at_once(
                *(
                    lambda number=number: world.queue.submit(spec(number, mode)).id
                    for number in range(first, first + CLIENTS)
                ),
                work,
            )
            made += [str(receipt) for receipt in receipts[:-1]]
            live = [run for run in dict.fromkeys(made) if world.get(run).state in LIVE_STATES]
            assert 0 <= len(live) <= 2
            assert sum(world.get(run).state in HELD_STATES for run in live) <= 1
            world.check()

    while held or any(world.get(run).state in LIVE_STATES for run in dict.fromkeys(made)):
        work()
    ended = [world.state(run) for run in dict.fromkeys(made)]
    assert set(ended) <= {"completed", "cancelled"}
    assert ended.count("completed") >= 2
