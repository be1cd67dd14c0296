"""Plans whose words get lost on the way, or whose maker dies at any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any

import pytest
from support.plan_stage import PlanStage, task
from support.world import World

from agentq.coordinator.bounds import TASKS_PER_CALL
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.plans.verbs import Plans, make_plan_id
from agentq.coordinator.storage.connection import CommandArgument, Connection, ScriptCall, ScriptSource

LARGE = [task("first"), *(task(f"t{number}", "first") for number in range(TASKS_PER_CALL)), task("last", "t0", "t9")]


class Death(BaseException):
    """The process is gone."""


class Mortal(Connection):
    """Its process dies at one of the calls of scripts that change something: before the server has it, or after."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.calls = count()
        self.dies_at = -1
        self.after = False

    def script(self, source: ScriptSource, key: str, args: Sequence[CommandArgument]) -> Any:
        now = next(self.calls) == self.dies_at
        if now and not self.after:
            raise Death
        reply = super().script(source, key, args)
        if now:
            raise Death
        return reply

    def scripts(self, calls: Iterable[ScriptCall], **_: int) -> Iterator[Any]:
        return (self.script(*call) for call in calls)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_plan_whose_maker_dies_at_any_call_is_completed_by_the_same_words(
    after: bool, make_world: Callable[..., World]
) -> None:
    world = make_world(Mortal)
    connection = world.store.connection
    assert isinstance(connection, Mortal)
    plans = Plans(world.queue)
    plans.create("shop", LARGE)
    connection.calls = count()
    plans.create("shop", LARGE)
    calls = next(connection.calls)
    for place in range(calls):
        plan = make_plan_id("shop")
        connection.calls, connection.dies_at, connection.after = count(), place, after
        with pytest.raises(Death):
            plans.create("shop", LARGE, plan=plan, source="the source")
        connection.dies_at = -1

        assert plans.create("shop", LARGE, plan=plan, source="the source") == plan

        found = plans.get(plan)
        assert (found.state, found.counts) == ("running", {State.PENDING: 1, State.BLOCKED: len(LARGE) - 1})
        assert plans.source(plan) == "the source"


def life(studio: PlanStage) -> list[tuple[str, ...]]:
    """A plan that fails, is retried, stopped, retried and completed; what was told of it, by task."""
    studio.finish("a")
    studio.fail("b")
    studio.finish("c")
    studio.plans.retry(studio.plan)
    studio.plans.add(studio.plan, [task("e", "d")])
    studio.claim()
    studio.plans.cancel(studio.plan, "for a while")
    studio.confirm()
    studio.plans.retry(studio.plan, "all")
    studio.finish("b", "d", "e")
    names = {run: name for name, run in studio.runs().items()}
    return [(names.get(event.run, "plan"), event.event, str(event.state)) for event in studio.world.events()]


def test_a_plan_of_which_every_reply_was_lost_once_lives_the_same_life(world: World, repeating_world: World) -> None:
    first, second = life(PlanStage(world)), life(PlanStage(repeating_world))

    assert first == second
    assert [word for name, event, word in first if event == "plan_ended"] == ["failed", "cancelled", "completed"]
