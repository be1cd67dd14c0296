"""Plans: how they come into the world whole, and what becomes of them when their tasks end."""

from __future__ import annotations

import pytest
from support.plan_stage import DIAMOND, WORK, PlanStage, task
from support.world import World

from agentq.coordinator.bounds import DEPENDENTS_PER_CALL, KEEP_MS, KEEP_MS_MIN
from agentq.coordinator.errors import Duplicate, Invalid, NotFound, Refused, TryLater, WrongState
from agentq.coordinator.model.ids import make_task_run_id
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.plans.verbs import ADDED_TASK_INDEX, Plans, TaskSubmission, make_plan_id


def test_tasks_run_in_the_order_of_their_needs_and_the_plan_ends_with_the_last(world: World) -> None:
    studio = PlanStage(world)
    assert (studio.state, studio.claim()) == ("running", ["a"])
    studio.finish("a")
    assert studio.claim() == ["b", "c"]
    studio.finish("b")
    assert (studio.claim(), studio.states()["d"]) == (["c"], "blocked")
    studio.finish("c", "d")

    plan = studio.plans.get(studio.plan)

    assert (plan.state, plan.counts, plan.ended_at_ms) == ("completed", {State.COMPLETED: 4}, world.now_ms)
    (event,) = studio.words()
    assert (event.plan, event.run, event.state, event.detail) == (studio.plan, "", State.COMPLETED, "completed=4")


def test_tasks_are_listed_in_their_order_page_by_page_and_by_state(world: World) -> None:
    studio = PlanStage(world, [task(f"t{number:03}") for number in reversed(range(25))])
    studio.finish("t024")

    first, cursor = studio.plans.tasks(studio.plan, limit=10)
    rest = [record.id for record in studio.plans.all_tasks(studio.plan)][10:]
    second, _ = studio.plans.tasks(studio.plan, limit=100, cursor=cursor)

    assert [record.id for record in first] == [f"t{number:03}" for number in range(24, 14, -1)]
    assert [record.id for record in second] == rest
    assert [record.id for record in studio.plans.all_tasks(studio.plan, State.COMPLETED)] == ["t024"]
    assert studio.plans.counts(studio.plan) == {State.COMPLETED: 1, State.CLAIMED: 24}


def test_a_plan_that_is_sent_again_is_the_same_plan(world: World) -> None:
    studio = PlanStage(world)
    studio.finish("a")

    with world.unchanged():
        assert studio.plans.create("shop", DIAMOND, plan=studio.plan, source="the source") == studio.plan
    with world.unchanged(), pytest.raises(Duplicate, match="exists already, and is running"):
        studio.plans.create("shop", DIAMOND, plan=studio.plan, source="another source")


def test_the_run_of_a_task_cannot_be_told_from_what_is_known_of_its_plan(world: World) -> None:
    """Else another could be there first with its id. A plan of an earlier version, without a secret, goes on."""
    plans, plan = Plans(world.queue), make_plan_id("shop")
    plans.create("shop", [task("a")], plan=plan)
    partition, made_at_ms = plans.partition(plan), plans.get(plan).created_at_ms
    foretold = [
        make_task_run_id(partition, made_at_ms, at, plan, name)
        for at, name in ((0, "a"), (ADDED_TASK_INDEX, "b"), (ADDED_TASK_INDEX, "c"))
    ]

    known = plans.runs(plan, ["a"]) | plans.add(plan, [task("b")])

    assert plans.add(plan, [task("b")])["b"] == known["b"]
    assert not {*foretold} & {*known.values()}
    world.store.connection.command("HDEL", world.store.key(partition, "plan", plan), "secret")
    assert plans.add(plan, [task("c")])["c"] == foretold[2]


def test_a_plan_whose_submit_was_cut_is_open_and_the_same_words_complete_it(world: World) -> None:
    plans, plan = Plans(world.queue), make_plan_id("shop")
    cut = Cut(world, at=2)
    with pytest.raises(KeyboardInterrupt):
        cut.create(plan, [task(f"t{number}") for number in range(500)])
    found = plans.get(plan)
    assert (found.state, found.expected, 0 < found.tasks < 500) == ("open", 500, True)

    assert plans.create("shop", [task(f"t{number}") for number in range(500)], plan=plan) == plan

    found = plans.get(plan)
    assert (found.state, found.tasks) == ("running", 500)


class Cut:
    """Plans of a client that dies after so many calls of `submit`."""

    def __init__(self, world: World, at: int) -> None:
        self.plans = Plans(world.queue)
        self.at = at

    def create(self, plan: str, tasks: list[TaskSubmission]) -> None:
        whole = self.plans.queue.submit_many

        def cut(*args: object, **kwargs: object) -> object:
            for number, receipt in enumerate(whole(*args, **kwargs)):  # type: ignore[arg-type]
                if number >= 100 * self.at:
                    raise KeyboardInterrupt
                yield receipt

        self.plans.queue.submit_many = cut  # type: ignore[method-assign, assignment]
        try:
            self.plans.create("shop", tasks, plan=plan)
        finally:
            del self.plans.queue.submit_many


def test_an_open_plan_does_not_end_and_does_once_it_is_sealed(world: World) -> None:
    plans, plan = Plans(world.queue), make_plan_id("shop")
    world.store.call("plan/create", plans.partition(plan), plan, "shop", "skip", 1, "", "", "")
    made = plans.get(plan).created_at_ms
    world.pass_ms(KEEP_MS - 1)
    world.tick()

    assert (plans.get(plan).state, plans.get(plan).created_at_ms) == ("open", made)
    world.pass_ms(1)
    world.tick()
    with pytest.raises(NotFound):
        plans.get(plan)


# ---- failures


def test_what_depends_on_a_failed_task_is_skipped_and_the_rest_goes_on(world: World) -> None:
    studio = PlanStage(world, [*DIAMOND, task("other")])
    studio.finish("a")
    studio.fail("b")
    assert studio.state == "running"
    studio.finish("c", "other")

    assert studio.states() == {"a": "completed", "b": "failed", "c": "completed", "d": "skipped", "other": "completed"}
    assert (studio.state, studio.words()[0].detail) == ("failed", "completed=3 failed=1 skipped=1")


def test_with_run_what_depends_on_a_failed_task_runs_all_the_same(world: World) -> None:
    studio = PlanStage(world, on_failed="run")
    studio.fail("a")
    studio.finish("b", "c", "d")

    assert (studio.state, studio.states()["d"]) == ("failed", "completed")


def test_with_fail_plan_the_first_failure_stops_the_rest(world: World) -> None:
    """What runs is told to stop, all else is cancelled, also what depends on the failed one."""
    studio = PlanStage(world, [*DIAMOND, task("other"), task("later", "other")], on_failed="fail-plan")
    assert studio.claim() == ["a", "other"]
    studio.fail("a")
    assert studio.state == "stopping"
    assert studio.states()["other"] == "claimed"
    assert [order.run for order in studio.lease.heartbeat(list(studio.claims.values())).orders if order.order == "stop"]
    studio.confirm()

    assert (studio.state, studio.states()["later"]) == ("failed", "cancelled")
    assert world.get(studio.runs()["later"]).outcome.error == "its task a failed"  # type: ignore[union-attr]
    assert len(studio.words()) == 1


def test_a_stopped_plan_takes_no_task_and_none_of_it_is_claimed(world: World) -> None:
    """However many it has: what was not yet told is dropped by whoever would claim it."""
    many = [task(f"t{number}") for number in range(3 * DEPENDENTS_PER_CALL)]
    studio = PlanStage(world, many, on_failed="fail-plan")
    (claim,) = studio.lease.claim(1)
    world.queue.fail(claim, Outcome(class_=OutcomeClass.REJECTED))
    assert studio.plans.counts(studio.plan)[State.PENDING] == 2 * DEPENDENTS_PER_CALL - 1

    assert studio.lease.claim(10) == []
    with pytest.raises(WrongState, match="was stopped and takes no more tasks"):
        studio.plans.add(studio.plan, [task("late")])
    world.tick()

    assert studio.plans.get(studio.plan).counts == {State.FAILED: 1, State.CANCELLED: 3 * DEPENDENTS_PER_CALL - 1}
    assert (studio.state, len(studio.words())) == ("failed", 1)


def test_a_plan_that_is_stopped_while_others_are_told_is_stopped_by_the_next_round(world: World) -> None:
    """Whatever else that round does: a task that it makes pending is cancelled as well."""
    fussy = WORK.model_copy(update={"on_failed": "fail"})
    later = WORK.model_copy(update={"delay_ms": 1_000})
    studio = PlanStage(
        world, [task("x"), task("y", "x", spec=fussy), task("z", spec=later)], on_failed="fail-plan"
    )  # fmt: skip
    world.queue.cancel(studio.runs()["x"])
    assert (studio.state, studio.states()["y"], studio.states()["z"]) == ("stopping", "failed", "scheduled")
    world.pass_ms(1_000)
    world.tick()

    assert (studio.state, studio.states()["z"]) == ("failed", "cancelled")


def test_a_cancelled_plan_ends_when_its_workers_have_confirmed(world: World) -> None:
    studio = PlanStage(world, [*DIAMOND, *(task(f"t{number}", "a") for number in range(300))])
    studio.claim()

    plan = studio.plans.cancel(studio.plan, "it was a mistake")

    assert (plan.state, plan.stopped_why) == ("stopping", "its plan was cancelled: it was a mistake")
    assert plan.counts == {State.CLAIMED: 1, State.CANCELLED: 303}
    with world.unchanged():
        studio.plans.cancel(studio.plan)
    with pytest.raises(TryLater, match="is being stopped"):
        studio.plans.retry(studio.plan)
    studio.confirm()
    assert studio.state == "cancelled"
    with world.unchanged():
        studio.plans.cancel(studio.plan)


def test_a_plan_that_is_cancelled_before_all_of_it_is_there_ends_without_the_rest(world: World) -> None:
    """And is open again when it is retried, to be completed."""
    plans, plan = Plans(world.queue), make_plan_id("shop")
    tasks = [task(f"t{number}") for number in range(500)]
    with pytest.raises(KeyboardInterrupt):
        Cut(world, at=1).create(plan, tasks)
    assert plans.cancel(plan).ended == "cancelled"
    with pytest.raises(WrongState, match="was stopped and takes no more tasks"):
        plans.create("shop", tasks, plan=plan)

    assert plans.retry(plan, "all").state == "open"
    plans.create("shop", tasks, plan=plan)
    assert (plans.get(plan).state, plans.counts(plan)) == ("running", {State.PENDING: 500})


def test_a_plan_that_has_ended_by_itself_cannot_be_cancelled(world: World) -> None:
    studio = PlanStage(world, [task("a")])
    studio.finish("a")

    with world.unchanged(), pytest.raises(WrongState, match="is completed"):
        studio.plans.cancel(studio.plan)


# ---- the end of all


def test_tasks_are_kept_while_their_plan_goes_on_and_then_go_with_it(world: World) -> None:
    studio = PlanStage(world)
    studio.finish("a")
    world.pass_ms(KEEP_MS)
    world.tick()
    assert studio.states()["a"] == "completed"
    studio.lease.heartbeat()
    studio.finish("b", "c", "d")
    with pytest.raises(TryLater):
        studio.plans.forget(studio.plan)
    world.pass_ms(KEEP_MS)
    world.tick()

    with pytest.raises(NotFound):
        studio.plans.get(studio.plan)
    assert studio.plans.ls() == ([], None)


def test_an_ended_plan_is_forgotten_on_request_and_no_other(world: World) -> None:
    studio = PlanStage(world)
    with world.unchanged(), pytest.raises(WrongState, match="is running; only one that has ended"):
        studio.plans.forget(studio.plan)
    with world.unchanged():
        (refused,) = world.queue.forget([(studio.runs()["a"], State.PENDING)])
        assert isinstance(refused, Refused)
    studio.plans.cancel(studio.plan)
    world.pass_ms(KEEP_MS_MIN)

    studio.plans.forget(studio.plan)

    assert studio.plans.ls() == ([], None)


def test_plans_are_listed_newest_first_page_by_page(world: World) -> None:
    plans = Plans(world.queue)
    made = []
    for number in range(12):
        made.append(plans.create(f"p{number}", [task("a")]))
        world.pass_ms(number % 2)
    expected = [plan.id for plan in sorted(map(plans.get, made), key=lambda plan: (plan.created_at_ms, plan.id))][::-1]
    pages, cursor = [], None
    while True:
        page, cursor = plans.ls(limit=5, cursor=cursor)
        pages += [plan.id for plan in page]
        if cursor is None:
            break

    assert pages == expected


@pytest.mark.parametrize(
    ("tasks", "sentence"),
    [
        ([], "A plan has at least one task."),
        ([task("a"), task("a")], "Two tasks have the id a."),
        ([task("a", "b")], "The task a needs b, which there is no task of."),
        ([task("b"), TaskSubmission("a", WORK, (), ("c",))],
            "The task a takes something from c, which there is no task of."),
        ([task("a", "c"), task("b", "a"), task("c", "b")], "Tasks need each other in a circle: a -> c -> b -> a."),
        ([task("a b")], "'a b' is not the name of a task: use up to 128 letters, digits and _ . @ + -, beginning with "
         "a letter or digit."),
    ],
)  # fmt: skip
def test_a_plan_that_makes_no_sense_is_refused_and_changes_nothing(
    world: World, tasks: list[TaskSubmission], sentence: str
) -> None:
    with world.unchanged(), pytest.raises(Invalid) as refused:
        Plans(world.queue).create("shop", tasks)

    assert str(refused.value) == sentence


def test_a_run_cannot_be_a_task_of_a_plan_that_does_not_exist(world: World) -> None:
    world.submit()
    with world.unchanged(), pytest.raises(NotFound, match="a task of the plan nowhere, which does not exist"):
        world.submit(plan="nowhere", task="a")


def test_a_plan_whose_run_was_deleted_by_hand_ends_all_the_same(world: World) -> None:
    studio = PlanStage(world)
    studio.finish("a", "b", "c")
    partition = studio.plans.partition(studio.plan)
    world.store.connection.command("DEL", world.store.key(partition, "run", studio.runs()["d"]))
    world.tidy()

    assert studio.state == "completed"
