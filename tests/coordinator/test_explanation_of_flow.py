"""Why a run is held up by a limit, a gate, a rate, a pause or the turns of others, in words."""

from __future__ import annotations

import pytest
from support.world import World

from agentq.coordinator.explain.run import RunExplanation
from agentq.coordinator.model.durations import format_iso
from agentq.coordinator.queues.limits import LimitRate


def why(world: World, run: str) -> list[str]:
    """The sentences; explaining changes nothing."""
    with world.unchanged():
        _, sentences = RunExplanation(world.store, world.settings).of(run)
    return sentences


def test_a_limit_is_taken_and_who_has_it_and_who_is_before_it(world: World) -> None:
    world.limits.set("repo:acme", most=2)
    holders = [world.submit(limits={"repo:acme": 1}) for _ in range(2)]
    world.worker("w1").claim(2)
    world.pass_ms(1)
    first, second = (world.submit(limits={"repo:acme": 1}) for _ in range(2))

    said = f"The limit repo:acme is full: 2 of 2 are held, by {', '.join(sorted(holders))}."
    assert why(world, first) == [said, "It is the next in line."]
    assert why(world, second) == [said, "1 run is before it in line."]


def test_a_gate_is_shut(world: World) -> None:
    world.limits.shut("account:a", world.now_ms + 3_600_000, "usage limit")
    run = world.submit(limits={"account:a": 1})

    until = format_iso(world.now_ms + 3_600_000)
    assert why(world, run)[0] == f"The limit account:a is shut until {until}, for 1 h, because: usage limit."


def test_a_rate_is_used_up(world: World) -> None:
    world.limits.set("tokens", rate=LimitRate(units=100, per_ms=60_000, burst=100))
    world.submit(limits={"tokens": 80})
    world.worker("w1").claim(1)
    run = world.submit(limits={"tokens": 50})

    assert why(world, run)[0] == (
        f"The limit tokens allows 100 in 1 m, and this run needs 50; the next run is admitted at "
        f"{format_iso(world.now_ms + 18_000)}."
    )


@pytest.mark.parametrize(("name", "said"), [("default", "Its queue, default, is"), ("*", "Every queue is")])
def test_a_queue_is_paused(world: World, name: str, said: str) -> None:
    run = world.submit()
    world.queues.pause(name, "the disk is full")
    world.pass_ms(5_000)

    since = format_iso(world.now_ms - 5_000)
    assert why(world, run)[:2] == [
        f"{said} paused since {since}, 5 s ago, because: the disk is full.",
        f"`agentq queue resume {'--all' if name == '*' else name}` resumes it.",
    ]


def test_others_take_their_turns(world: World) -> None:
    for _ in range(5):
        world.submit(fair_key="a")
    last = [world.submit(fair_key="a") for _ in range(2)][-1]

    assert "Fair keys take turns in its queue; 5 runs are before it." in why(world, last)
