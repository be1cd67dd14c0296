"""What is special about a namespace of several partitions: nothing that a user would notice, and this."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from support.world import START_MS, World

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import Draining, Evicted, Incompatible, Invalid, NotFound
from agentq.coordinator.model.ids import id_created_ms, new_run_id, partition_of
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.runs.queries import RunFilter, RunQueries
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.coordinator.storage.connection import Connection
from agentq.coordinator.storage.keys import Keyspace, build_key
from agentq.coordinator.storage.store import SCHEMA_MARKER, SCHEMA_VERSION, NamespaceStore
from agentq.coordinator.workers.lease import WorkerIdentity, WorkerLease

MakeWorld = Callable[..., World]


def command(**fields: object) -> RunSpec:
    """A run that does nothing."""
    return RunSpec.checked(kind="command", argv=["true"], **fields)


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world(partitions=3)


def spread(world: World, runs: int = 60) -> list[str]:
    """Runs in all partitions, in a known order."""
    return [world.queue.submit(command(), run_id=new_run_id(number % 3)).id for number in range(runs)]


# Who lives where


@pytest.mark.parametrize("together", ["plan", "session", "dedupe_key"])
def test_what_belongs_together_lives_together(world: World, together: str) -> None:
    """And different plans, sessions and keys are spread."""
    homes = {
        name: {partition_of(world.submit(**{together: name, "if_live": "replace"})) for _ in range(5)}
        for name in (f"n{number}" for number in range(30))
    }

    assert all(len(partitions) == 1 for partitions in homes.values())
    assert set().union(*homes.values()) == {0, 1, 2}


def test_runs_that_belong_to_nothing_are_spread(world: World) -> None:
    counted = Counter(partition_of(world.submit()) for _ in range(300))

    assert min(counted[partition] for partition in range(3)) > 50


def test_a_run_lives_with_those_that_it_waits_for(world: World) -> None:
    for parent in spread(world, 12):
        child = world.submit(after=[parent])
        assert partition_of(child) == partition_of(parent)
        assert world.state(child) == "blocked"


def test_a_session_decides_before_a_plan_and_a_plan_before_a_key(world: World) -> None:
    session, plan = command(session="s"), command(plan="p")

    assert world.queue.home(command(session="s", plan="p", dedupe_key="k")) == world.queue.home(session)
    assert world.queue.home(command(plan="p", dedupe_key="k")) == world.queue.home(plan)
    assert world.queue.home(command()) is None


def test_a_task_lives_with_its_plan_and_so_must_its_session(world: World) -> None:
    task = command(plan="p", task="build")
    home = world.queue.home(task)
    sessions = {world.queue.home(command(session=f"s{number}")): f"s{number}" for number in range(30)}
    here = command(plan="p", task="build", session=sessions[home])
    there = command(plan="p", task="build", session=next(name for at, name in sessions.items() if at != home))

    assert world.queue.address(here, None)[1] == home
    with pytest.raises(Invalid, match=f"A task lives in the partition of its plan, {home}, and the session .* in"):
        world.queue.address(there, None)


def test_one_key_has_one_live_run_whoever_uses_it(world: World) -> None:
    first = world.submit(dedupe_key="nightly")
    assert [world.submit(dedupe_key="nightly") for _ in range(9)] == [first] * 9


def test_a_dependency_in_another_partition_is_refused_by_name(world: World) -> None:
    here, there, _ = spread(world, 3)

    with world.unchanged(), pytest.raises(Invalid, match=f"its own partition, 0, and {there} lives in another"):
        world.submit(after=[here, there])


@pytest.mark.parametrize("together", ["plan", "session", "dedupe_key"])
def test_an_id_in_another_partition_than_what_it_belongs_to_is_refused(world: World, together: str) -> None:
    """Or there could be two live runs with one key, and parts of a plan that never hear of each other."""
    spec = command(**{together: "x"})
    home = world.queue.home(spec)
    assert home is not None
    wrong = new_run_id((home + 1) % 3)

    with world.unchanged(), pytest.raises(Invalid, match=f"{wrong} would live in partition .* lives in {home}"):
        world.queue.submit(spec, run_id=wrong)

    assert world.queue.submit(spec, run_id=new_run_id(home)).created


def test_an_id_of_a_partition_that_there_is_not_is_refused(world: World) -> None:
    with world.unchanged(), pytest.raises(Invalid, match="has 3 partitions, none numbered 3"):
        world.queue.submit(command(), run_id=new_run_id(3))
    with pytest.raises(Invalid, match="none numbered 7"):
        world.get(new_run_id(7))


def test_the_receipts_of_many_runs_come_in_their_order(world: World) -> None:
    specs = [command(plan=f"p{number % 7}", name=str(number)) for number in range(2500)]

    receipts = list(world.queue.submit_many(specs))

    assert [world.get(receipt.id).spec.name for receipt in receipts[::50]] == [spec.name for spec in specs[::50]]
    assert all(receipt.created for receipt in receipts)


# Workers


def test_a_worker_claims_from_all_partitions_and_no_more_than_it_asks_for(world: World) -> None:
    runs, lease = spread(world), world.worker("w1")
    claims = []
    while taken := lease.claim(7):
        assert len(taken) <= 7
        claims += taken

    assert sorted(claim.id for claim in claims) == sorted(runs)
    assert world.queue.finish([(claim, Outcome()) for claim in claims]) == [None] * 60


def test_no_partition_starves_the_others(world: World) -> None:
    """Each claim begins with another one."""
    spread(world)
    lease = world.worker("w1")

    assert [partition_of(lease.claim(1)[0].id) for _ in range(6)] in ([1, 2, 0] * 2, [2, 0, 1] * 2, [0, 1, 2] * 2)


def test_a_worker_that_is_lost_in_one_partition_keeps_what_it_has_in_the_others(world: World) -> None:
    runs, lease = spread(world, 3), world.worker("w1")
    claims = {partition_of(claim.id): claim for claim in lease.claim(3)}
    lost = world.reaper.reap(1).lost
    while not lost:
        world.pass_ms(world.settings.tick_ms)
        lost = world.reaper.reap(1).lost

    with pytest.raises(Evicted):
        lease.heartbeat(list(claims.values()))

    assert sorted(lease.register()) == sorted((claims[place].id, claims[place].fence) for place in (0, 2))
    assert world.states(runs) == ["claimed", "pending", "claimed"]
    assert lease.heartbeat(list(claims.values())).fenced_claims == [claims[1]]
    assert [claim.id for claim in lease.claim(5)] == [runs[1]]


def test_what_one_partition_granted_is_not_lost_when_another_refuses(world: World) -> None:
    runs, lease = spread(world, 9), world.worker("w1")
    world.store.call("worker/drain", 1, "w1", "", "in one partition only", "drain")
    claims, refused = [], 0

    for _ in range(6):
        try:
            claims += lease.claim(5)
        except Draining:
            refused += 1

    assert refused
    assert sorted(claim.id for claim in claims) == sorted(run for run in runs if partition_of(run) != 1)
    assert sorted(world.records.workers()[0].runs + world.records.workers()[2].runs) == sorted(c.id for c in claims)


# Lists and numbers


@pytest.mark.parametrize("seed", range(5))
def test_pages_over_partitions_are_one_list_newest_first(world: World, seed: int) -> None:
    """Whatever the filter, the size of a page and the moments at which runs were made."""
    chance = random.Random(seed)
    made: list[tuple[str, State, str, str | None]] = []
    for _ in range(150):
        at_ms = START_MS + chance.randrange(40)
        queue, plan = chance.choice(["a", "b"]), chance.choice(["p", None])
        spec = command(queue=queue, plan=plan)
        home = world.queue.home(spec)
        run = new_run_id(chance.randrange(3) if home is None else home, at_ms)
        world.queue.submit(spec, run_id=run)
        state = world.queue.cancel(run) if chance.random() < 0.3 else State.PENDING
        made.append((run, state, queue, plan))

    for _ in range(20):
        since = START_MS + chance.randrange(-5, 45)
        which = RunFilter(
            states=chance.choice([(State.PENDING,), (State.CANCELLED, State.PENDING), tuple(State)]),
            queue=chance.choice([None, "a", "b", "none"]),
            plan=chance.choice([None, None, "p"]),
            since_ms=chance.choice([None, since]),
            until_ms=chance.choice([None, since + chance.randrange(20)]),
        )
        limit, cursor, found = chance.choice([1, 3, 7, 150]), None, list[str]()
        while True:
            page = world.records.page(which, limit=limit, cursor=cursor)
            assert len(page.runs) <= limit
            found += [run.id for run in page.runs]
            cursor = page.cursor
            if cursor is None:
                break

        wanted = [run for run, state, queue, plan in made if _wanted(which, id_created_ms(run), state, queue, plan)]
        assert found == sorted(wanted, reverse=True)


def _wanted(which: RunFilter, made_ms: int, state: State, queue: str, plan: str | None) -> bool:
    return (
        state in which.states
        and which.queue in (None, queue)
        and which.plan in (None, plan)
        and (which.since_ms is None or made_ms >= which.since_ms)
        and (which.until_ms is None or made_ms < which.until_ms)
    )


def test_a_list_has_each_run_once_though_others_come_in_meanwhile(world: World) -> None:
    before = spread(world, 90)
    seen: list[str] = []
    cursor = None
    while True:
        page = world.records.page(limit=10, cursor=cursor)
        seen += [run.id for run in page.runs]
        cursor = page.cursor
        if cursor is None:
            break
        spread(world, 3)

    assert seen == sorted(before, reverse=True)


def test_numbers_are_added_up_over_partitions(world: World) -> None:
    spread(world, 10)
    lease = world.worker("w1")
    world.queue.finish([(claim, Outcome()) for claim in lease.claim(4)])
    world.submit(queue="other", delay_ms=1000)

    assert world.records.count() == {
        "default": {State.PENDING: 6, State.COMPLETED: 4},
        "other": {State.SCHEDULED: 1},
    }
    assert world.records.count([State.COMPLETED]) == {"default": {State.COMPLETED: 4}}


def test_waiting_works_over_partitions(world: World) -> None:
    runs, lease = spread(world, 9), world.worker("w1")
    world.queue.finish([(claim, Outcome()) for claim in lease.claim(9)])

    assert [run.id for run in world.outcomes.wait_all(runs, timeout_ms=10_000)] == runs


# Checks on submit


def opened(connection: Connection, namespace: str, partitions: int = 1, *, bootstrap: bool = True) -> NamespaceStore:
    return NamespaceStore(connection, Keyspace(namespace, partitions), bootstrap=bootstrap)


def markers(connection: Connection, namespace: str) -> list[object]:
    root = Keyspace(namespace).root
    return [connection.command("GET", build_key(root, name)) for name in ("schema", "partitions")]


@pytest.mark.parametrize("bootstrap", [True, False])
def test_another_number_of_partitions_is_refused_with_what_to_set(world: World, *, bootstrap: bool) -> None:
    world.submit()
    namespace = world.store.keyspace.namespace

    for wrong in (1, 2, 4):
        store = opened(world.store.connection, namespace, wrong, bootstrap=bootstrap)
        with world.unchanged(), pytest.raises(Incompatible) as refused:
            RunVerbs(store).submit(command())
        assert str(refused.value) == (
            f"The namespace {namespace!r} has 3 partitions, not {wrong}; set AGENTQ_PARTITIONS=3."
        )


@pytest.mark.parametrize("bootstrap", [True, False])
def test_data_of_another_major_version_are_refused_and_left_alone(world: World, *, bootstrap: bool) -> None:
    world.submit()
    connection, namespace = world.store.connection, world.store.keyspace.namespace
    marker = build_key(world.store.keyspace.root, "schema")
    for major in (SCHEMA_VERSION[0] + 1, 0):
        connection.command("SET", marker, f"agentq {major}.7")
        store = opened(connection, namespace, 3, bootstrap=bootstrap)

        with world.unchanged(), pytest.raises(Incompatible, match=f"'agentq {major}.7', this program works with"):
            RunQueries(store).page()
        with world.unchanged(), pytest.raises(Incompatible):
            RunVerbs(store).submit(command())
    connection.command("SET", marker, SCHEMA_MARKER)


def test_data_of_a_newer_minor_version_are_worked_with(world: World) -> None:
    run = world.submit()
    connection, namespace = world.store.connection, world.store.keyspace.namespace
    connection.command("SET", build_key(world.store.keyspace.root, "schema"), f"agentq {SCHEMA_VERSION[0]}.99")

    assert RunQueries(opened(connection, namespace, 3)).get(run).state is State.PENDING
    assert markers(connection, namespace) == [f"agentq {SCHEMA_VERSION[0]}.99", "3"]


def test_a_reader_never_writes_the_marker(connection: Connection) -> None:
    """Looking at an empty namespace leaves it empty."""
    store = opened(connection, "only-read", bootstrap=False)
    records = RunQueries(store)

    assert records.page().runs == []
    assert records.count() == {}
    assert records.workers() == []
    with pytest.raises(NotFound):
        records.get(new_run_id())

    assert connection.command("KEYS", "agentq:{only-read*") == []


def test_a_reader_that_came_too_early_sees_what_comes_later(connection: Connection) -> None:
    """And is still refused if that is of another shape."""
    reader, second = (RunQueries(opened(connection, "late", bootstrap=False)) for _ in range(2))
    assert reader.page().runs == second.page().runs == []
    run = RunVerbs(opened(connection, "late")).submit(command()).id

    assert [each.id for each in reader.page().runs] == [run]
    connection.command("SET", build_key(Keyspace("late").root, "partitions"), 2)
    with pytest.raises(Incompatible):
        second.page()


def test_whoever_submits_writes_the_marker_once(connection: Connection) -> None:
    RunVerbs(opened(connection, "marked", 2)).submit(command())
    assert markers(connection, "marked") == [SCHEMA_MARKER, "2"]

    with pytest.raises(Incompatible):
        RunVerbs(opened(connection, "marked", 5)).submit(command())
    assert markers(connection, "marked") == [SCHEMA_MARKER, "2"]


@pytest.mark.parametrize("wrong", ["2.0", "agentq 2", "agentq 2.0.", "other 2.0", "agentq 2.x", "agentq 1.0", ""])
def test_a_marker_that_is_not_whole_is_refused(connection: Connection, wrong: str) -> None:
    connection.command("SET", build_key(Keyspace("unmarked").root, "schema"), wrong)
    for bootstrap in (True, False):
        with pytest.raises(Incompatible, match="this program works with"):
            RunVerbs(opened(connection, "unmarked", bootstrap=bootstrap)).requeue(new_run_id())


def test_a_damaged_number_of_partitions_is_refused_in_a_sentence(connection: Connection) -> None:
    RunVerbs(opened(connection, "damaged")).submit(command())
    connection.command("SET", build_key(Keyspace("damaged").root, "partitions"), "many")

    with pytest.raises(Incompatible, match=r"'many'.*how many partitions.*'damaged'"):
        RunQueries(opened(connection, "damaged", bootstrap=False)).page()


def test_a_worker_that_registers_again_writes_the_marker_again(connection: Connection) -> None:
    """After a loss of all data: the next program of another version must not take what is written now for its own."""
    store = opened(connection, "lost", 2)
    lease = WorkerLease(store, WorkerIdentity(id="w1", queues=("default",)), Settings(partitions=2))
    lease.register()
    connection.command("DEL", *connection.command("KEYS", "agentq:{lost*"))

    with pytest.raises(Evicted):
        lease.heartbeat()
    lease.register()

    assert markers(connection, "lost") == [SCHEMA_MARKER, "2"]
