"""Conversations with agents from Python."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sdk.test_sdk_agents import claimed

from agentq.coordinator.errors import NotFound, WrongState
from agentq.coordinator.model.agent_options import AgentBudgets, AgentTurnOptions
from agentq.coordinator.model.spec import Outcome
from agentq.sdk import Client, Invalid


def test_a_session_begins_once_and_is_found_again_by_its_name(client: Client) -> None:
    begun = client.session("chat", agent="claude", cwd="/srv", model="opus", max_cost=5, max_turns=9)
    again = client.session("chat", agent="claude", model="sonnet")

    assert begun == again == client.session("chat")
    record = client.session("chat").record()
    assert (record.agent, record.cwd, record.model) == ("claude", "/srv", "opus")
    assert record.budgets == AgentBudgets(cost_usd=5.0, turns=9)


def test_one_without_a_name_gets_one(client: Client) -> None:
    assert client.session(None, agent="claude").name.startswith("claude-")


def test_what_is_sent_is_a_turn_that_waits_for_the_one_before(client: Client) -> None:
    session = client.session("chat", agent="claude")

    first = session.send("one", max_tokens=1000, permissions="read")
    second = client.session("chat").send("two")

    assert session.turns() == [first, second]
    assert (first.state(), second.state()) == ("pending", "blocked")
    spec = first.record().spec
    assert (spec.agent, spec.prompt, spec.session) == ("claude", "one", "chat")
    assert spec.turn == AgentTurnOptions(permissions="read", budgets=AgentBudgets(tokens=1000))
    client.queue.finish([(claimed(client), Outcome(result="yes"))])
    assert first.result(timeout=20) == "yes"
    assert second.state() == "pending"


def test_a_fork_goes_on_from_there_by_itself(client: Client) -> None:
    session = client.session("chat", agent="claude", model="opus")

    forked = [session.fork("second"), client.session("third", fork="chat"), session.fork()]

    assert [each.record().forked_from for each in forked] == ["chat"] * 3
    assert forked[1].record().model == "opus"
    assert forked[0].send("x").record().spec.session == "second"


def test_a_closed_session_takes_nothing_more(client: Client) -> None:
    session = client.session("chat", agent="claude")
    turn = session.send("one")

    session.close(cancel=True)

    assert turn.state() == "cancelled"
    with pytest.raises(WrongState, match="closed"):
        session.send("two")


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"modell": "opus"}, Invalid, "There is no option 'modell'"),
        ({"model": "opus"}, Invalid, "needs an agent"),
        ({"agent": "codex"}, Invalid, "The session chat is one of claude, not of codex"),
        ({"agent": "a b"}, Invalid, "'a b' is not the name of"),
        ({"agent": "claude", "max_cost": -1}, Invalid, "The option 'max_cost'"),
        ({"fork": "chta"}, NotFound, "Did you mean chat"),
    ],
)
def test_what_cannot_be_a_session_is_refused(
    client: Client, options: dict[str, Any], error: type[Exception], why: str
) -> None:
    client.session("chat", agent="claude")

    with pytest.raises(error, match=why):
        client.session("chat", **options)


def test_nobody_talks_in_a_session_that_is_not_there(client: Client) -> None:
    client.session("chat", agent="claude")

    for act in (lambda: client.session("chta").send("x"), client.session("chta").turns, client.session("chta").close):
        with pytest.raises(NotFound, match="Did you mean chat"):
            act()


def test_in_an_event_loop_it_is_the_same(client: Client) -> None:
    async def talk() -> list[Any]:
        session = await client.aio.session("chat", agent="claude", max_turns=3)
        turn = await session.send("one")
        forked = await session.fork("second")
        told = [await session.turns() == [turn], (await forked.record()).forked_from, session == forked]
        await session.close(cancel=True)
        return [*told, await turn.state(), (await session.record()).state]

    assert asyncio.run(talk()) == [True, "chat", False, "cancelled", "closed"]
