"""Sessions in lists, in partitions, and where one goes on from another."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from coordinator.test_sessions import claim, lease, turn
from support.world import World

from agentq.coordinator.errors import Invalid, NotFound
from agentq.coordinator.model.agent_options import AgentBudgets
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.sessions.conversations import AgentConversations
from agentq.coordinator.sessions.verbs import Sessions


@pytest.fixture
def sessions(world: World) -> Sessions:
    """Those of the world, with one that is called `chat`."""
    sessions = Sessions(world.store)
    sessions.new("chat", "claude")
    return sessions


# ---- listing


def test_sessions_are_listed_by_their_last_use_page_by_page(make_world: Callable[..., World]) -> None:
    world = make_world(partitions=3)
    sessions = Sessions(world.store)
    for number in range(9):
        world.pass_ms(number % 2)
        sessions.new(f"s{number}", "claude")
    world.pass_ms(5)
    turn(world, "s2")

    found, cursor = [], None
    while True:
        shelf = sessions.list(limit=2, cursor=cursor)
        assert len(shelf.sessions) <= 2
        found += [session.name for session in shelf.sessions]
        cursor = shelf.cursor
        if cursor is None:
            break

    assert found == ["s2", "s8", "s7", "s6", "s5", "s4", "s3", "s1", "s0"]
    assert [session.name for session in sessions.all()] == found


def test_a_session_lives_in_one_partition_with_its_turns(make_world: Callable[..., World]) -> None:
    world = make_world(partitions=3)
    sessions = Sessions(world.store)
    for name in ("a", "b", "c", "d"):
        sessions.new(name, "claude")
        ids = [turn(world, name) for _ in range(2)]
        assert {partition_of(run) for run in ids} == {sessions.partition(name)}
        assert world.states(ids) == ["pending", "blocked"]


# ---- going on from another


def test_a_fork_begins_from_where_its_source_is(world: World) -> None:
    sessions, talk = Sessions(world.store), AgentConversations(world.store)
    sessions.new("chat", "claude", cwd="/src", model="opus", budgets=AgentBudgets(turns=5))
    run, worker = turn(world), lease(world, host="alpha")
    held = claim(worker)
    talk.bind(held, "uuid-1", host="alpha", account="work", movable=True)
    talk.carry(held, b"what was said")
    world.queue.finish([(held, Outcome())])

    made = sessions.new("other", "claude", fork="chat", model="haiku")

    assert (made.forked_from, made.agent_session, made.cwd, made.model) == ("chat", "uuid-1", "/src", "haiku")
    assert (made.budgets, made.turns, made.last) == (None, 0, None)
    turn(world, "other")
    held = claim(worker)
    begins = talk.open(held)
    assert begins.fork
    assert (begins.agent_session, begins.account, talk.carried(held)) == ("uuid-1", "work", b"what was said")
    talk.bind(held, "uuid-2", host="alpha", movable=True)
    assert not talk.open(held).fork
    assert [sessions.get(name).agent_session for name in ("chat", "other")] == ["uuid-1", "uuid-2"]
    assert sessions.get("chat").last == run


def test_a_fork_of_a_session_that_has_not_begun_is_a_new_one(world: World, sessions: Sessions) -> None:
    sessions.new("other", "claude", fork="chat")
    turn(world, "other")

    assert not AgentConversations(world.store).open(claim(lease(world))).fork


def test_a_fork_of_no_session_or_of_another_agents_is_refused(world: World, sessions: Sessions) -> None:
    with world.unchanged():
        with pytest.raises(NotFound, match=r"There is no session chatt; .* Did you mean chat\?"):
            sessions.new("other", "claude", fork="chatt")
        with pytest.raises(Invalid, match="chat, which is one of claude"):
            sessions.new("other", "codex", fork="chat")


def test_a_fork_lives_where_its_source_does(make_world: Callable[..., World]) -> None:
    world = make_world(partitions=3)
    sessions = Sessions(world.store)
    sessions.new("chat", "claude")
    far = next(f"s{number}" for number in range(9) if sessions.partition(f"s{number}") != sessions.partition("chat"))

    with pytest.raises(Invalid, match=f"The session {far} would live in another partition than chat; call it {far}-"):
        sessions.new(far, "claude", fork="chat")
    made = sessions.new(None, "claude", fork="chat")
    assert sessions.partition(made.name) == sessions.partition("chat")
