"""What the simulator has found, told as stories. The seeds are those of the day; the stories stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from simulation.tapped import tightened
from support.world import World

from agentq.coordinator.errors import Draining
from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.storage.keys import CONSUMER_GROUP
from agentq.coordinator.storage.scripts import ScriptSet


def read_one(world: World, worker: str) -> list[tuple[str, str]]:
    """What a blocking read delivers to a worker, as (lane, entry)."""
    lane = world.store.key(0, "lane", "default:5:")
    reply = world.store.connection.command(
        "XREADGROUP", "GROUP", CONSUMER_GROUP, worker, "COUNT", 1, "STREAMS", lane, ">"
    )
    return [("default:5:", entry) for _, entries in reply for entry, _ in entries]


def test_an_adopt_that_is_sent_again_while_draining_leaves_the_run_where_it_is(world: World) -> None:
    """Seed 313: the answer to an adopt was lost, and the same entries, sent again by a worker that drained meanwhile,
    were given back, though their run was in its hands: it had no entry any more."""
    run = world.submit()
    lease = world.worker("w1")
    entries = read_one(world, "w1")
    (claim,) = lease.adopt(0, entries)

    lease.drain()
    with pytest.raises(Draining):
        lease.adopt(0, entries)

    world.check()
    assert world.queue.finish([(claim, Outcome())]) == [None]
    assert world.state(run) == "completed"


def test_a_run_that_was_forgotten_and_submitted_again_does_not_hear_from_its_former_parents(world: World) -> None:
    """Seed 100412: a parent of its first life still had it among its dependents, and skipped it in its second."""
    former, failing, parent = world.submit(), world.submit(), world.submit()
    child = world.submit(after=[former, failing], keep_ms=60_000)
    world.queue.cancel(failing)
    world.pass_ms(60_000)
    world.tick()
    again = RunSpec.checked(kind="command", argv=["true"], after=[parent])
    world.queue.submit(again, run_id=child)

    world.queue.cancel(former)

    assert world.state(child) == "blocked"


def test_a_round_of_the_promoter_knows_when_those_are_due_whom_it_has_told_last(
    make_world: Callable[..., World],
) -> None:
    """Seed 1337: it asked when the next timer rings, and only then told a run that its parent had ended."""
    world = make_world(scripts=ScriptSet(tightened))
    parent = world.held()
    world.submit(after=[parent.id], delay_ms=60_000)
    world.submit(after=[parent.id], delay_ms=1_000)
    _finish(world, parent)

    assert world.promoter.run_once(0).next_ms == 1_000


def _finish(world: World, claim: Claim) -> None:
    assert world.queue.finish([(claim, Outcome())]) == [None]
