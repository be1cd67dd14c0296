"""Why a run of an agent waits, in words: a turn before it, nobody with its agent, a host that is gone, a limit."""

from __future__ import annotations

from coordinator.test_explanation import why
from coordinator.test_sessions import AN_AGENT, claim, lease, turn
from support.world import World

from agentq.coordinator.model.agent_options import account_limit_key
from agentq.coordinator.model.durations import format_iso
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import AgentOutcome, Outcome, RetryPolicy
from agentq.coordinator.sessions.conversations import AgentConversations
from agentq.coordinator.sessions.verbs import Sessions


def test_a_turn_waits_for_the_first_of_its_line(world: World) -> None:
    Sessions(world.store).new("chat", "claude")
    first, second, third = turn(world), turn(world), turn(world)
    world.queue.start([claim(lease(world))])

    waits = f"It waits for an earlier turn of its session chat: {first}, which is running on w1."
    assert why(world, second) == [waits, f"`agentq why {first}` explains that run."]
    assert why(world, third)[:2] == [waits, "2 turns of that session are before it."]


def test_a_turn_that_waits_for_a_run_too_says_both(world: World) -> None:
    Sessions(world.store).new("chat", "claude")
    first, parent = turn(world), world.submit()
    run = turn(world, after=[parent])

    sentences = why(world, run)
    assert sentences[0] == f"It waits for {parent} (pending) to end."
    assert f"It waits for an earlier turn of its session chat: {first}, which is pending." in sentences


def test_nobody_has_the_agent(world: World) -> None:
    world.worker("w1", labels={"agent.codex": "ready"})
    run = world.submit(**AN_AGENT)

    assert why(world, run)[:2] == [
        "No worker registered for its queue, default, has the agent claude.",
        "Install claude on the machine of one of them; `agentq agents check` shows there what is missing.",
    ]


def test_nobody_is_there_at_all_and_no_label_is_suggested_that_nobody_can_give(world: World) -> None:
    run = world.submit(**AN_AGENT)

    remedy = "Start one with `agentq worker --queue default` where claude can be run, as `agentq agents check` shows."
    assert why(world, run)[1] == remedy


def test_all_accounts_of_the_agent_are_at_their_limits(world: World) -> None:
    world.worker("w1", labels={"agent.claude": "shut"})
    until_ms = world.now_ms + 3_600_000
    world.limits.shut(account_limit_key("claude", "work"), until_ms, "the weekly limit")
    world.limits.shut(account_limit_key("codex", "work"), until_ms, "another agent")
    run = world.submit(**AN_AGENT)

    assert why(world, run)[:4] == [
        "Every worker of its queue, default, that has the agent claude has all its accounts there shut.",
        f"The account work is shut until {format_iso(until_ms)}, for 1 h, because: the weekly limit.",
        "`agentq limit open account:claude:work` opens it at once.",
        "The run continues when the first of them opens.",
    ]


def test_accounts_that_were_just_opened_are_not_called_shut(world: World) -> None:
    world.worker("w1", labels={"agent.claude": "shut"})
    run = world.submit(**AN_AGENT)

    assert why(world, run)[0] == "An account of claude was opened; its workers check every few seconds."


def test_the_host_is_gone_that_has_the_conversation(world: World) -> None:
    Sessions(world.store).new("chat", "claude")
    run, alone = turn(world, retry=RetryPolicy(failures=1)), world.submit(**AN_AGENT, retry=RetryPolicy(failures=1))
    here = lease(world, host="alpha")
    lease(world, "w2", host="beta")
    for held in here.claim(2):
        AgentConversations(world.store).bind(held, "uuid", host="alpha", movable=False)
        world.queue.fail(held, Outcome(class_=OutcomeClass.EXIT), delay_ms=0)
    here.deregister()
    world.tick()

    gone = "Its conversation exists only on the host alpha, and no live worker is there."
    begin = "Start a worker there; or create another session with `agentq session new`."
    again = f"Start a worker there; or cancel the run and begin a new conversation with `agentq retry {alone}`."
    assert why(world, run)[:2] == [gone, begin]
    assert why(world, alone)[:2] == [gone, again]


def test_a_run_that_was_put_off_names_the_account_that_met_its_limit(world: World) -> None:
    run = world.submit(**AN_AGENT)
    held = claim(lease(world))
    word = AgentOutcome(verdict="limited", account="work")
    until_ms = world.now_ms + 7_200_000
    world.queue.defer(held, until_ms, Outcome(class_=OutcomeClass.LIMIT, agent=word))

    assert why(world, run)[0] == (
        f"It is due at {format_iso(until_ms)}, in 2 h, after attempt 1, which met the limit of the account work on w1."
    )


def test_a_run_whose_service_was_away_does_not_say_that_it_met_a_limit(world: World) -> None:
    run = world.submit(**AN_AGENT)
    held = claim(lease(world))
    word = AgentOutcome(verdict="throttled", account="work")
    error = '"verdict":"limited" 500 Internal Server Error'
    world.queue.defer(held, None, Outcome(class_=OutcomeClass.LIMIT, error=error, agent=word), delay_ms=60_000)

    assert world.get(run).reason == "service refuses"
    assert why(world, run)[0].endswith(f"after attempt 1, which was refused by the agent's service on w1 ({error}).")
