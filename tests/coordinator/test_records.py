"""Reading runs and workers: nothing is changed by it, and everybody reads the same."""

from __future__ import annotations

import pytest
from support.servers import Server
from support.world import START_MS, World

from agentq.coordinator.errors import Damaged, Invalid, NotFound
from agentq.coordinator.model.ids import new_run_id, partition_of
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.runs.queries import RunFilter
from agentq.coordinator.storage.connection import Connection

SPEC = RunSpec(kind="command", argv=["true"])


def ids(world: World, **which: object) -> list[str]:
    return [run.id for run in world.records.all(RunFilter(**which))]  # type: ignore[arg-type]


@pytest.mark.promise("P7")
def test_reading_changes_nothing(world: World) -> None:
    """P7: whatever is read, and however often."""
    parent, claim = world.submit(plan="p", session="s"), world.held("w1", started=True)
    child = world.submit(after=[parent])
    world.pass_ms(100 * 86_400_000)

    with world.unchanged():
        for run in (parent, child, claim.id):
            world.get(run)
        world.records.needs(child)
        world.records.page()
        list(world.records.all(RunFilter(plan="p")))
        world.records.count()
        world.records.workers()
        world.events()
        with pytest.raises(NotFound):
            world.get(new_run_id())


def test_a_run_is_told_with_all_that_is_known_of_it(world: World) -> None:
    claim = world.held("w1", name="tests", demands={})
    world.pass_ms(1000)
    world.queue.start([claim])
    world.queue.report(claim, 1, {"step": 1})
    world.pass_ms(2000)

    running = world.get(claim.id)
    world.queue.finish([(claim, Outcome(exit_code=0))])
    ended = world.get(claim.id)

    assert (running.state, running.attempt, running.worker, running.fence) == ("running", 1, "w1", claim.fence)
    assert (running.submitted_at_ms, running.claimed_at_ms) == (START_MS, START_MS)
    assert (running.started_at_ms, running.finished_at_ms) == (START_MS + 1000, None)
    assert (running.progress, running.outcome) == ({"step": 1}, None)
    assert (ended.state, ended.finished_at_ms, ended.worker) == ("completed", START_MS + 3000, "w1")
    assert ended.outcome == Outcome(exit_code=0)
    assert ended.spec.name == "tests"


def test_a_run_that_is_not_there_is_not_found_by_its_id(world: World) -> None:
    run = new_run_id()
    with pytest.raises(NotFound, match=f"There is no run {run}; it may have been deleted after its retention."):
        world.get(run)


def test_a_run_is_forgotten_with_all_that_pointed_to_it(world: World) -> None:
    claim = world.held("w1", plan="p", session="s", keep_ms=60_000)
    world.queue.finish([(claim, Outcome())])
    world.pass_ms(59_999)
    world.tick()
    assert ids(world, plan="p") == ids(world, session="s") == [claim.id]

    world.pass_ms(1)
    world.tick()

    assert ids(world) == ids(world, plan="p") == ids(world, session="s") == []
    assert world.records.count() == {}
    with pytest.raises(NotFound):
        world.queue.requeue(claim.id)


def test_a_blocked_run_tells_what_it_waits_for(world: World) -> None:
    parents = [world.submit() for _ in range(3)]
    child = world.submit(after=parents)
    world.queue.finish([(claim, Outcome()) for claim in world.worker("w1").claim(1)])

    assert (world.get(child).state, world.get(child).reason) == (State.BLOCKED, "dependency")
    assert world.records.needs(child) == sorted(parents[1:])
    assert len(world.records.needs(child, 1)) == 1


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_a_page_of_no_or_too_many_runs_is_refused(world: World, limit: int) -> None:
    with pytest.raises(Invalid, match=f"1 to 1000 runs, not {limit}"):
        world.records.page(limit=limit)


def test_a_page_that_is_exactly_full_leads_to_an_empty_one_or_none(world: World) -> None:
    runs = sorted((world.submit() for _ in range(6)), reverse=True)

    first = world.records.page(limit=3)
    second = world.records.page(limit=3, cursor=first.cursor)
    rest = world.records.page(limit=3, cursor=second.cursor).runs if second.cursor else []

    assert [run.id for run in first.runs + second.runs] == runs
    assert rest == []


def test_a_list_by_plan_or_session_is_filtered_by_queue_and_state(world: World) -> None:
    mine = [world.submit(plan="p", queue=queue) for queue in ("a", "b", "a")]
    world.submit(plan="other", queue="a")
    world.queue.cancel(mine[0])

    assert ids(world, plan="p") == sorted(mine, reverse=True)
    assert ids(world, plan="p", queue="a") == sorted((mine[0], mine[2]), reverse=True)
    assert ids(world, plan="p", queue="a", states=(State.PENDING,)) == [mine[2]]
    assert ids(world, session="p") == []


def test_a_list_past_thousands_of_others_still_finds_its_few(world: World) -> None:
    """A page may come back short or empty with a cursor; `all` goes on."""
    few = [world.submit(plan="p") for _ in range(3)]
    sum(1 for _ in world.queue.submit_many([RunSpec(kind="command", argv=["true"], plan="p", queue="q")] * 2500))

    assert ids(world, plan="p", queue="default") == sorted(few, reverse=True)


def test_a_list_tells_of_each_run_what_a_row_needs(world: World) -> None:
    claim = world.held("w1", priority=7)
    waiting = world.submit(demands={"gpu": "h100"}, delay_ms=5)

    rows = {run.id: run for run in world.records.page().runs}

    assert (rows[claim.id].state, rows[claim.id].priority, rows[claim.id].worker) == ("claimed", 7, "w1")
    assert (rows[waiting].reason, rows[waiting].demands, rows[waiting].attempt) == ("delay", {"gpu": "h100"}, 0)


def test_runs_are_counted_by_queue_and_state(world: World) -> None:
    world.held("w1")
    for fields in ({}, {"queue": "other"}, {"queue": "other"}, {"delay_ms": 5}):
        world.submit(**fields)

    assert world.records.count() == {
        "default": {State.CLAIMED: 1, State.PENDING: 1, State.SCHEDULED: 1},
        "other": {State.PENDING: 2},
    }
    assert world.records.count([State.SCHEDULED]) == {"default": {State.SCHEDULED: 1}}


def test_a_worker_is_told_with_its_lease_and_what_it_holds(world: World) -> None:
    lease = world.worker("w1", "a", "b", labels={"gpu": "h100"}, slots=4, about={"host": "h", "pid": 7})
    run = world.submit(queue="b")
    lease.claim(1)

    (record,) = world.records.workers()

    assert (record.id, record.state, record.runs, record.partition) == ("w1", "ready", [run], 0)
    assert record.lease_until_ms == START_MS + world.settings.lease_ms
    assert (record.seen_at_ms, record.missing_at_ms) == (START_MS, None)
    described = record.model_dump()["identity"]
    assert (described["queues"], described["labels"], described["slots"]) == (("a", "b"), {"gpu": "h100"}, 4)


def test_a_worker_in_doubt_is_shown_so_until_it_is_back_or_lost(world: World) -> None:
    lease = world.worker("w1")
    world.reap()
    world.pass_ms(world.settings.lease_ms)
    world.reap()
    (doubtful,) = world.records.workers()
    assert doubtful.missing_at_ms == world.now_ms

    lease.heartbeat()
    (back,) = world.records.workers()
    assert back.missing_at_ms is None

    lease.drain()
    assert world.records.workers()[0].state == "draining"
    assert world.watch_ms(world.lost_after_ms()) == ["w1"]
    assert world.records.workers() == []


def test_an_operator_s_requeue_shows_the_history_and_a_fresh_start(world: World) -> None:
    claim = world.held("w1", started=True)
    world.queue.fail(claim, Outcome(class_=OutcomeClass.EXIT, exit_code=1))

    world.queue.requeue(claim.id)

    run = world.get(claim.id)
    assert (run.state, run.outcome, run.failures, run.finished_at_ms, run.worker) == ("pending", None, 0, None, "")
    assert [(each.attempt, each.verb, each.outcome and each.outcome.exit_code) for each in run.attempts] == [
        (1, "requeue", 1)
    ]


def test_a_list_of_all_queues_costs_no_more_when_there_are_more_of_them(durable: Server) -> None:
    """Neither does it grow with the queues that have no run any more."""
    world = World(Connection(durable.url))

    def lookups() -> int:
        world.store.connection.command("CONFIG", "RESETSTAT")
        world.records.page(limit=10)
        told = str(world.store.connection.command("INFO", "commandstats"))
        return int(told.partition("cmdstat_zrange:calls=")[2].split(",")[0])

    world.submit(queue="first")
    few = lookups()
    for number in range(30):
        world.submit(queue=f"q{number}")

    assert lookups() == few == len(State)


def test_a_damaged_run_is_one_entry_of_a_list_and_says_so(world: World) -> None:
    whole, damaged, laneless = (world.submit(queue="q") for _ in range(3))
    fields = {damaged: ("attempt", "many", "submitted_at_ms", "soon"), laneless: ("lane", "")}
    for run, words in fields.items():
        before = world.store.connection.command("HGETALL", world.store.key(0, "run", run))
        world.store.connection.command("HSET", world.store.key(0, "run", run), *words)
        assert {each.id: each.reason for each in world.records.all()}[run] == "its record is damaged"
        with pytest.raises(Damaged, match=f"The record of the run {run} is damaged"):
            world.get(run)
        world.store.connection.command("HSET", world.store.key(0, "run", run), *before)
    assert set(ids(world)) == {whole, damaged, laneless}


def test_a_damaged_limit_is_one_entry_of_a_list_and_says_so(world: World) -> None:
    for key in ("a", "b"):
        world.limits.set(key, most=1)
    world.store.connection.command("HSET", world.store.key(0, "limit", "a"), "max", "many")

    assert [(each.key, each.max, "damaged" in each.shut_why) for each in world.limits.all()] == [
        ("a", None, True), ("b", 1, False)
    ]  # fmt: skip
    world.limits.remove("a")


@pytest.mark.parametrize(
    ("field", "text"),
    [("spec", "-1"), ("spec", "null"), ("spec", "1e999"), ("spec", "[]"), ("outcome", "-1"), ("outcome", "{")],
)
def test_a_field_of_another_kind_of_json_is_told_as_damage(world: World, field: str, text: str) -> None:
    run = world.submit()
    key, command = world.store.key(partition_of(run), "run", run), world.store.connection.command
    command("HSET", key, field, text)

    with pytest.raises(Damaged, match=f"The record of the run {run} is damaged"):
        world.records.get(run)
    with pytest.raises(Damaged):
        world.records.given(run, [run])
    command("HDEL", key, "outcome")
