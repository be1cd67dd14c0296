"""Sessions: how they begin, take turns, and end."""

from __future__ import annotations

import pytest
from pydantic_core import to_json
from support.repeating_connection import Repeating
from support.servers import Server
from support.world import World

from agentq.coordinator.bounds import KEEP_MS, SWEEP_PER_CALL
from agentq.coordinator.errors import Duplicate, Invalid, NotFound, TryLater, WrongState
from agentq.coordinator.model.agent_options import AgentBudgets
from agentq.coordinator.model.ids import new_run_id
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.schedules.verbs import OverlapPolicy, make_schedule_rule
from agentq.coordinator.sessions.conversations import AgentConversations
from agentq.coordinator.sessions.verbs import Sessions
from agentq.coordinator.workers.lease import WorkerLease

AGENT = {"agent.claude": "ready", "agent.codex": "ready"}
AN_AGENT = {"kind": "agent", "agent": "claude", "prompt": "go on", "argv": ()}


def turn(world: World, session: str | None = "chat", **fields: object) -> str:
    """Submit a turn of a session, by default the next of `chat`."""
    return world.submit(**(AN_AGENT | {"session": session} | fields))


def lease(world: World, name: str = "w1", **labels: str) -> WorkerLease:
    """A worker that has agents."""
    return world.worker(name, labels=AGENT | labels)


def claim(worker: WorkerLease) -> Claim:
    """The only run that there is for it."""
    (found,) = worker.claim(10)
    return found


@pytest.fixture
def sessions(world: World) -> Sessions:
    """Those of the world, with one that is called `chat`."""
    sessions = Sessions(world.store)
    sessions.new("chat", "claude")
    return sessions


# ---- beginning


def test_a_session_is_told_as_it_was_begun(world: World) -> None:
    sessions = Sessions(world.store)
    made = sessions.new("chat", "claude", cwd="/src", model="opus", budgets=AgentBudgets(cost_usd=1.5, turns=3))

    assert made == sessions.get("chat")
    assert (made.agent, made.state, made.cwd, made.model) == ("claude", "open", "/src", "opus")
    assert made.budgets == AgentBudgets(cost_usd=1.5, turns=3)
    assert (made.live, made.turns, made.spent.cost_usd, made.stays) == (None, 0, 0.0, False)
    assert made.created_at_ms == made.used_at_ms == world.now_ms


def test_a_session_that_is_begun_again_by_the_same_call_is_the_same_and_by_another_is_refused(world: World) -> None:
    sessions = Sessions(world.store)
    made = sessions.new("chat", "claude", operation="once")

    with world.unchanged():
        assert sessions.new("chat", "claude", operation="once") == made
        with pytest.raises(Duplicate, match="The session chat exists already, and is open"):
            sessions.new("chat", "claude")


def test_a_session_without_a_name_gets_one(world: World) -> None:
    names = {Sessions(world.store).new(None, "claude").name for _ in range(3)}

    assert len(names) == 3
    assert all(name.startswith("claude-") for name in names)


@pytest.mark.parametrize("name", ["", "a b", "x" * 129, "a:b", "-a"])
def test_a_name_that_no_key_can_have_is_refused(world: World, name: str) -> None:
    with world.unchanged(), pytest.raises(Invalid, match="is not the name of a session"):
        Sessions(world.store).new(name, "claude")


def test_a_full_server_begins_no_session(durable: Server) -> None:
    world = World(Repeating(durable.url))
    world.submit()
    world.store.connection.command("CONFIG", "SET", "maxmemory", "1")

    with pytest.raises(TryLater):
        Sessions(world.store).new("chat", "claude")


# ---- turns


def test_turns_go_one_after_the_other_in_the_order_of_their_submits(world: World, sessions: Sessions) -> None:
    ids = [turn(world) for _ in range(3)]
    worker = lease(world)
    assert world.states(ids) == ["pending", "blocked", "blocked"]
    assert world.get(ids[1]).reason == "turn"
    assert sessions.line("chat") == ids
    assert (sessions.get("chat").live, sessions.get("chat").turns, sessions.get("chat").last) == (ids[0], 3, ids[2])

    for run in ids:
        held = claim(worker)
        assert held.id == run
        world.queue.finish([(held, Outcome())])
    assert worker.claim(10) == []
    assert {each.id for each in sessions.turns("chat").runs} == set(ids)


@pytest.mark.parametrize("ending", [OutcomeClass.REJECTED, OutcomeClass.AUTH, OutcomeClass.BUDGET])
@pytest.mark.usefixtures("sessions")
def test_the_next_turn_goes_on_however_the_one_before_it_ends(world: World, ending: OutcomeClass) -> None:
    ids = [turn(world) for _ in range(2)]

    assert world.queue.fail(claim(lease(world)), Outcome(class_=ending)) == "failed"

    assert world.state(ids[1]) == "pending"


def test_an_agent_that_lingered_after_its_last_word_has_completed(world: World) -> None:
    run = turn(world, None)
    world.queue.finish([(claim(lease(world)), Outcome(class_=OutcomeClass.LINGER))])

    assert world.state(run) == "completed"


@pytest.mark.usefixtures("sessions")
def test_a_turn_that_is_due_later_or_waits_for_a_run_keeps_those_behind_it_in_line(world: World) -> None:
    other = world.submit(queue="other")
    ids = [turn(world, delay_ms=1000), turn(world, after=[other]), turn(world)]
    assert world.states(ids) == ["scheduled", "blocked", "blocked"]
    world.queue.cancel(ids[0])
    assert world.states(ids[1:]) == ["blocked", "blocked"]

    (held,) = world.worker("w2", "other").claim(1)
    world.queue.finish([(held, Outcome())])

    assert world.states(ids[1:]) == ["pending", "blocked"]


@pytest.mark.usefixtures("sessions")
def test_a_turn_whose_delay_has_not_passed_when_it_is_its_turn_waits_for_that(world: World) -> None:
    first, second = turn(world), turn(world, delay_ms=60_000)
    world.queue.cancel(first)

    assert (world.state(second), world.get(second).reason) == ("scheduled", "delay")


@pytest.mark.usefixtures("sessions")
def test_a_turn_that_is_not_the_first_when_its_dependencies_end_waits_for_its_turn(world: World) -> None:
    first, parent = turn(world), world.submit()
    run = turn(world, after=[parent])
    (held,) = world.worker("w2").claim(1)
    world.queue.finish([(held, Outcome())])
    assert (world.state(run), world.get(run).reason) == ("blocked", "turn")

    world.queue.cancel(first)

    assert world.state(run) == "pending"


def test_a_turn_that_expires_leaves_the_line(world: World, sessions: Sessions) -> None:
    ids = [turn(world), turn(world, expires_ms=1000), turn(world)]
    world.pass_ms(1000)
    world.tick()

    assert world.states(ids) == ["pending", "failed", "blocked"]
    assert sessions.line("chat") == [ids[0], ids[2]]


def test_runs_of_other_kinds_may_name_any_session_and_take_no_turns(world: World) -> None:
    ids = [world.submit(session="never-begun") for _ in range(2)]

    assert world.states(ids) == ["pending", "pending"]


def test_a_turn_of_a_session_that_is_not_there_is_refused_with_the_name_that_was_meant(
    world: World, sessions: Sessions
) -> None:
    world.submit()
    with world.unchanged():
        with pytest.raises(NotFound, match=r"the session chatt, which does not exist; .* Did you mean chat\?"):
            turn(world, "chatt")
        with pytest.raises(NotFound, match=r"There is no session chap; .* Did you mean chat\?"):
            sessions.get("chap")


@pytest.mark.usefixtures("sessions")
def test_a_turn_of_another_agent_is_refused(world: World) -> None:
    world.submit()
    with world.unchanged(), pytest.raises(Invalid, match="another agent than the session chat, which is one of claude"):
        turn(world, agent="codex")


def test_of_many_submits_only_those_to_unknown_sessions_are_refused(world: World, sessions: Sessions) -> None:
    specs = [RunSpec.checked(**AN_AGENT, session=name) for name in ("chat", "other", "chat")]

    receipts = list(world.queue.submit_many(specs))

    assert [receipt.created for receipt in receipts] == [True, False, True]
    assert isinstance(receipts[1].refused, NotFound)
    assert sessions.line("chat") == [receipts[0].id, receipts[2].id]


def test_a_schedule_of_turns_notes_that_their_session_is_not_there(world: World) -> None:
    spec = RunSpec.checked(**AN_AGENT, session="gone")
    world.schedules.add("hourly", make_schedule_rule(every_ms=3_600_000), spec, overlap=OverlapPolicy.ALLOW)
    world.pass_ms(3_600_000)

    assert world.fire() == {"skipped": 1}

    assert world.schedules.history("hourly")[0].why == "its session does not exist"
    with pytest.raises(NotFound):
        world.schedules.run("hourly")


@pytest.mark.usefixtures("sessions")
def test_no_turn_can_wait_for_one_that_stands_behind_it(world: World) -> None:
    """Also when the submit is in several calls, and names a turn that was submitted, or began again, in between."""
    parent = world.submit(queue="other")
    words = {"open": True, "after": [parent], "agent": "claude", "session": "chat"}
    old = turn(world)
    world.queue.cancel(old)
    made = submit_open(world, words)
    behind = turn(world)
    world.queue.requeue(old)

    for other in (behind, old):
        assert world.store.call("run/add_dependencies", 0, made, 1, 0, other) == f"cycle {other}"
    assert world.store.call("run/add_dependencies", 0, made, 1, 0) == "ok"


@pytest.mark.usefixtures("sessions")
@pytest.mark.parametrize("before", [0, 1], ids=["the first", "a later"])
def test_a_turn_that_began_again_waits_for_all_before_it_and_for_it_no_older_run_can(world: World, before: int) -> None:
    """Its session may be waiting for that run already: then all of them would wait for ever."""
    first = [turn(world) for _ in range(before)]
    old = turn(world)
    for run in (*first, old):
        world.queue.cancel(run)
    made = submit_open(world, {"open": True})
    turn(world, after=[made])
    world.queue.requeue(old)

    with world.unchanged():
        assert world.store.call("run/add_dependencies", 0, made, 1, 0, old) == f"cycle {old}"
    newer = submit_open(world, {"open": True})
    assert world.store.call("run/add_dependencies", 0, newer, 1, 0, old) == "ok"


def submit_open(world: World, words: dict[str, object]) -> str:
    """A submit of which the last call has not come."""
    run, spec = new_run_id(0), RunSpec.checked(**AN_AGENT, session="chat")
    assert world.store.call("run/submit", 0, run, spec.lane, spec.to_wire(), to_json(words)) == ["ok"]
    return run


# ---- ending


def test_a_closed_session_takes_no_turns_and_those_in_line_go_on(world: World, sessions: Sessions) -> None:
    ids, worker = [turn(world) for _ in range(2)], lease(world)
    held = claim(worker)

    closed = sessions.close("chat")

    assert (closed.state, closed.closed_at_ms) == ("closed", world.now_ms)
    with world.unchanged():
        assert sessions.close("chat") == closed
        with pytest.raises(WrongState, match="the session chat, which is closed"):
            turn(world)
    world.queue.finish([(held, Outcome())])
    world.queue.finish([(claim(worker), Outcome())])
    assert world.states(ids) == ["completed", "completed"]


def test_a_session_that_is_closed_at_once_cancels_its_line_and_stops_what_runs(
    world: World, sessions: Sessions
) -> None:
    worker = lease(world)
    ids = [turn(world) for _ in range(SWEEP_PER_CALL + 2)]
    held = claim(worker)

    sessions.close("chat", cancel=True)
    with world.unchanged():
        sessions.close("chat", cancel=True)

    assert [order.run for order in worker.heartbeat([held]).orders if order.order == "stop"] == [held.id]
    assert set(world.states(ids[1:])) == {"cancelled"}
    assert world.queue.fail(held, Outcome(class_=OutcomeClass.CANCELLED)) == "cancelled"
    assert sessions.line("chat") == []


def test_an_open_session_lives_on_and_a_closed_one_is_forgotten_after_a_week(world: World, sessions: Sessions) -> None:
    sessions.new("other", "claude")
    run = turn(world)
    sessions.close("chat")
    world.pass_ms(2 * KEEP_MS)
    world.tick()
    assert sessions.get("chat").turns == 1, "it has a turn"
    held = claim(lease(world))
    AgentConversations(world.store).bind(held, "uuid-1", host="alpha", movable=True)
    AgentConversations(world.store).carry(held, b"what was said")
    world.queue.finish([(held, Outcome())])

    world.pass_ms(KEEP_MS - 1)
    world.tick()
    assert sessions.get("chat").last == run
    world.pass_ms(1)
    world.tick()

    assert [session.name for session in sessions.all()] == ["other"]
    with pytest.raises(NotFound):
        sessions.close("chat")
    assert sessions.new("chat", "codex").agent_session is None


def test_a_turn_of_a_closed_session_does_not_begin_again(world: World, sessions: Sessions) -> None:
    run = turn(world)
    world.queue.cancel(run)
    sessions.close("chat")

    with world.unchanged(), pytest.raises(WrongState, match="which is closed"):
        world.queue.requeue(run)
