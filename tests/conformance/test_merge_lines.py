"""Merge lines: one at a time moves a branch, in order of coming; whoever leaves its worker leaves the line."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.world import World

from agentq.coordinator.errors import Fenced, Stopping, WrongState
from agentq.coordinator.model.ids import new_run_id
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.runs.merge_queue import MERGE_ORDER, MergeQueueEntry, merge_queue_id
from agentq.coordinator.runs.verbs import Claim

LINE = merge_queue_id("/srv/shop", "main")


class Crew:
    """Runs of one partition in the hands of two workers: the first of one, all others of the other."""

    def __init__(self, world: World, count: int) -> None:
        self.world = world
        self.queue = world.queue
        partition = world.store.keyspace.partitions - 1
        ids = [new_run_id(partition) for _ in range(count)]
        self.leases = [world.worker(name) for name in ("w1", "w2")]
        for run in ids:
            self.queue.submit(RunSpec(kind="command", argv=["make"]), run_id=run)
        claims = self.leases[0].claim(1) + self.leases[1].claim(count)
        self.claims = sorted(claims, key=lambda claim: ids.index(claim.id))
        self.queue.start(self.claims)

    def line_up(self) -> list[int]:
        """Everybody asks, in order; returns the places."""
        return [self.queue.line_up(claim, LINE, f"c{at}", f"r{at}").place for at, claim in enumerate(self.claims)]

    def told(self, worker: int = 1) -> list[str]:
        """Who was told that its turn has come, among the runs of a worker."""
        return [order.run for order in self.leases[worker].heartbeat(self.claims).orders if order.order == MERGE_ORDER]


def finish(crew: Crew, claim: Claim) -> None:
    assert crew.queue.finish([(claim, Outcome())]) == [None]


def lose(crew: Crew, claim: Claim) -> None:
    """Its worker dies, and the other one lives on."""
    for pause_ms in (0, 15_000, 15_000, crew.world.settings.reap_grace_ms):
        crew.world.pass_ms(pause_ms)
        crew.leases[1].heartbeat(crew.claims[1:])
        crew.world.reap()
    assert crew.world.state(claim.id) == "pending"


def expire(crew: Crew, claim: Claim) -> None:
    """A stop that nobody confirms."""
    crew.queue.cancel(claim.id, stop_ms=1_000)
    crew.world.pass_ms(1_000)
    crew.world.tick()
    assert crew.world.state(claim.id) == "cancelled"


LEAVES: dict[str, Callable[[Crew, Claim], object]] = {
    "finish": finish,
    "fail": lambda crew, claim: crew.queue.fail(claim, Outcome(class_=OutcomeClass.CONFLICT)),
    "defer": lambda crew, claim: crew.queue.defer(claim, None, Outcome(class_=OutcomeClass.LIMIT)),
    "release": lambda crew, claim: crew.queue.release(claim),
    "park": lambda crew, claim: crew.queue.park(claim),
    "lose": lose,
    "expire": expire,
    "deregister": lambda crew, _: crew.leases[0].deregister(),
    "step aside": lambda crew, claim: crew.queue.step_aside(claim, LINE),
}


@pytest.mark.parametrize("how", LEAVES)
def test_whoever_leaves_its_worker_leaves_the_line_and_the_next_is_told(how: str, world: World) -> None:
    crew = Crew(world, 3)
    assert crew.line_up() == [0, 1, 2]

    LEAVES[how](crew, crew.claims[0])

    assert crew.told() == [crew.claims[1].id]
    standing = crew.queue.line_up(crew.claims[1], LINE, "c1", "r1")
    assert (standing.yours, standing.holder) == (True, crew.claims[1].id)
    assert standing.others == (MergeQueueEntry(crew.claims[2].id, "c2", "r2"),)


def test_one_that_waits_leaves_the_line_and_nobody_is_told(world: World) -> None:
    crew = Crew(world, 3)
    crew.line_up()

    crew.queue.release(crew.claims[1])

    assert crew.told() == []
    assert crew.queue.line_up(crew.claims[2], LINE, "c2").place == 1


def test_asking_again_keeps_the_place_and_brings_the_newest_commit(world: World) -> None:
    crew = Crew(world, 3)
    crew.line_up()

    again = [crew.queue.line_up(claim, LINE, "new", "ref with/no meaning") for claim in reversed(crew.claims)]

    assert [standing.place for standing in again] == [2, 1, 0]
    assert [(other.commit, other.ref) for other in again[-1].others] == [("new", "ref with/no meaning")] * 2
    assert again[0].others == ()


def test_stepping_aside_twice_and_out_of_another_line_changes_nothing(world: World) -> None:
    crew = Crew(world, 2)
    crew.line_up()
    crew.queue.step_aside(crew.claims[0], LINE)

    with world.unchanged():
        crew.queue.step_aside(crew.claims[0], LINE)
        crew.queue.step_aside(crew.claims[1], merge_queue_id("/srv/shop", "other"))


def test_a_run_stands_in_one_line(world: World) -> None:
    crew = Crew(world, 2)
    crew.line_up()

    assert crew.queue.line_up(crew.claims[0], merge_queue_id("/srv/shop", "other"), "c0").yours

    assert crew.told() == [crew.claims[1].id]


def test_a_run_that_is_to_be_cancelled_gets_no_turn(world: World) -> None:
    crew = Crew(world, 2)
    crew.line_up()
    crew.queue.cancel(crew.claims[0].id)

    with pytest.raises(Stopping):
        crew.queue.line_up(crew.claims[0], LINE, "c0")

    assert crew.queue.line_up(crew.claims[1], LINE, "c1").yours


def test_only_the_attempt_that_holds_a_run_stands_in_its_name(world: World) -> None:
    crew = Crew(world, 1)
    (old,) = crew.claims
    crew.queue.release(old)
    for say in (lambda: crew.queue.line_up(old, LINE, "c0"), lambda: crew.queue.step_aside(old, LINE)):
        with world.unchanged(), pytest.raises(Fenced):
            say()
    (new,) = crew.leases[0].claim(1)
    finish(crew, new)

    with world.unchanged(), pytest.raises(WrongState):
        crew.queue.line_up(new, LINE, "c0")


def test_a_line_whose_first_was_deleted_by_hand_goes_on(world: World) -> None:
    crew = Crew(world, 2)
    crew.line_up()
    partition = world.store.keyspace.partitions - 1
    world.store.connection.command("DEL", world.store.key(partition, "run", crew.claims[0].id))

    assert crew.queue.line_up(crew.claims[1], LINE, "c1").yours
    for _ in range(2):
        crew.leases[0].heartbeat()
        world.pass_ms(world.settings.forget_ms)
    world.tidy()


def test_a_line_of_thousands_costs_what_a_line_of_one_costs(world: World) -> None:
    """The reply names so many, and no more; who leaves in the same call is not told of the others."""
    crew = Crew(world, 300)
    crew.line_up()

    first = crew.queue.line_up(crew.claims[0], LINE, "c0")
    crew.queue.finish([(claim, Outcome()) for claim in crew.claims[:200]])

    assert [other.run for other in first.others] == [claim.id for claim in crew.claims[1:65]]
    assert crew.told() == [crew.claims[200].id]
    assert world.state(crew.claims[0].id) == State.COMPLETED
