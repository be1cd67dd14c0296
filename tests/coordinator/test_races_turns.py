"""Two turns of a session never run at once, whatever happens to one of them while another runs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest
from coordinator.test_sessions import claim, lease, turn
from support.servers import Server
from support.world import World

from agentq.coordinator.bounds import KEEP_MS
from agentq.coordinator.errors import Fenced
from agentq.coordinator.model.lifecycle import HELD_STATES, TERMINAL_STATES, OutcomeClass
from agentq.coordinator.model.spec import Outcome, RetryPolicy
from agentq.coordinator.sessions.verbs import Sessions
from agentq.coordinator.storage.connection import Connection

EXIT = Outcome(class_=OutcomeClass.EXIT)


@pytest.fixture(autouse=True)
def _chat(world: World) -> None:
    Sessions(world.store).new("chat", "claude")


def line(world: World) -> list[str]:
    return Sessions(world.store).line("chat")


def test_a_turn_that_is_requeued_while_another_runs_stands_at_the_end(world: World) -> None:
    old = turn(world)
    world.queue.cancel(old)
    running, waiting = turn(world), turn(world)
    held = claim(lease(world))

    assert world.queue.requeue(old) == "blocked"

    assert line(world) == [running, waiting, old]
    assert world.get(old).reason == "turn"
    world.queue.finish([(held, Outcome())])
    assert world.states([waiting, old]) == ["pending", "blocked"]
    world.queue.cancel(waiting)
    assert world.state(old) == "pending"
    assert world.event_names(old) == ["submitted", "cancelled", "requeued", "unblocked"]


def test_a_turn_that_backs_off_keeps_its_place(world: World) -> None:
    first, second = turn(world, retry=RetryPolicy(failures=1)), turn(world)
    worker = lease(world)
    world.queue.fail(claim(worker), EXIT, delay_ms=6_000)

    assert worker.claim(10) == []
    assert world.states([first, second]) == ["scheduled", "blocked"]
    world.pass_ms(6_000)
    world.tick()
    assert claim(worker).id == first


def test_a_turn_that_sleeps_keeps_its_place(world: World) -> None:
    first, second = turn(world), turn(world)
    worker = lease(world)
    world.queue.park(claim(worker), "asleep")

    assert worker.claim(10) == []
    world.queue.wake(first)
    assert claim(worker).id == first
    assert world.state(second) == "blocked"


def test_a_turn_that_is_put_off_by_a_limit_keeps_its_place(world: World) -> None:
    first, second = turn(world), turn(world)
    worker = lease(world)
    world.queue.defer(claim(worker), world.now_ms + 1000, Outcome(class_=OutcomeClass.LIMIT), gate="account:claude:a")

    assert worker.claim(10) == []
    assert world.states([first, second]) == ["scheduled", "blocked"]


def test_a_turn_whose_worker_is_lost_is_next_again(world: World) -> None:
    first, second = turn(world), turn(world)
    held = claim(lease(world))
    world.queue.start([held])
    assert world.watch_ms(world.lost_after_ms()) == ["w1"]

    again = claim(lease(world, "w2"))

    assert again.id == first
    assert isinstance(world.queue.finish([(held, Outcome())])[0], Fenced)
    assert world.state(second) == "blocked"


def test_a_turn_that_is_to_stop_keeps_the_next_one_waiting_until_it_has(world: World) -> None:
    first, second = turn(world), turn(world)
    held = claim(lease(world))
    world.queue.cancel(first)
    assert world.state(second) == "blocked"

    world.queue.fail(held, Outcome(class_=OutcomeClass.CANCELLED))

    assert world.state(second) == "pending"


def test_the_one_in_the_middle_is_cancelled_and_nobody_overtakes(world: World) -> None:
    ids = [turn(world) for _ in range(3)]
    worker = lease(world)
    held = claim(worker)

    world.queue.cancel(ids[1])

    assert line(world) == [ids[0], ids[2]]
    assert worker.claim(10) == []
    world.queue.finish([(held, Outcome())])
    assert claim(worker).id == ids[2]


def test_a_turn_that_ended_long_ago_and_was_forgotten_is_in_nobodys_way(world: World) -> None:
    first = turn(world)
    world.queue.cancel(first)
    world.pass_ms(KEEP_MS)
    world.tick()

    assert world.state(turn(world)) == "pending"
    assert len(Sessions(world.store).turns("chat").runs) == 1


def test_a_turn_in_place_of_another_stands_at_the_end(world: World) -> None:
    replaced = turn(world, dedupe_key="k", if_live="replace")
    waiting = turn(world)

    run = turn(world, dedupe_key="k", if_live="replace", prompt="another")

    assert world.states([replaced, waiting, run]) == ["cancelled", "pending", "blocked"]


def test_a_turn_that_a_limit_does_not_let_in_keeps_its_place_until_it_is_cancelled(world: World) -> None:
    world.limits.set("repo", most=0)
    blocked = turn(world, limits={"repo": 1})
    assert (world.state(blocked), world.get(blocked).reason) == ("blocked", "limit repo")
    waiting = turn(world)
    assert world.get(waiting).reason == "turn"

    world.queue.cancel(blocked)

    assert world.state(waiting) == "pending"


def test_a_line_that_was_deleted_by_hand_is_stood_in_again_in_the_same_order(world: World) -> None:
    ids = [turn(world) for _ in range(3)]
    worker = lease(world)
    held = claim(worker)
    world.store.connection.command("DEL", world.store.key(0, "session_turns", "chat"))

    assert world.tidy() == 3

    assert line(world) == ids
    assert world.states(ids) == ["claimed", "blocked", "blocked"]
    world.queue.finish([(held, Outcome())])
    assert claim(worker).id == ids[1]


def test_a_first_turn_that_was_deleted_by_hand_holds_nobody_up(world: World) -> None:
    ids = [turn(world) for _ in range(2)]
    world.store.connection.command("DEL", world.store.key(0, "run", ids[0]))

    assert world.tidy() > 0

    assert world.state(ids[1]) == "pending"


def test_of_turns_that_many_submit_retry_and_finish_at_once_one_is_held_at_a_time(valkey: Server) -> None:
    world = World(Connection(valkey.url), real_time=True)
    Sessions(world.store).new("chat", "claude")

    submitted: list[str] = []

    def work(name: str) -> None:
        worker = lease(world, name)
        for number in range(20):
            submitted.append(turn(world, retry=RetryPolicy(failures=5)))
            for held in worker.claim(5):
                if number % 3 == 0:
                    world.queue.fail(held, EXIT, delay_ms=0)
                    world.tick()
                else:
                    world.queue.finish([(held, Outcome())])

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, f"w{number}") for number in range(4)]:
            done.result()
    last, deadline = lease(world, "last"), monotonic() + 30
    while any(world.state(run) not in TERMINAL_STATES for run in submitted):
        assert monotonic() < deadline, world.states(submitted)
        world.tick()
        world.queue.finish([(held, Outcome()) for held in last.claim(5)])

    holder, claims = None, 0
    for event in world.events():
        if event.event == "claimed":
            assert holder is None, f"{event.run} was claimed while {holder} was held"
            holder, claims = event.run, claims + 1
        elif event.run == holder and event.state not in HELD_STATES:
            holder = None
    assert claims >= len(submitted)
    world.check()
