"""Agents from Python: what a run of one says, and what it did, as typed agent events."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from support.servers import until

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import NotAllowed
from agentq.coordinator.model.agent_options import AgentBudgets, AgentTurnOptions
from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.runs.logs import LogChunk
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.workers.lease import WorkerIdentity, WorkerLease
from agentq.sdk import Client, Invalid, Run
from agentq.sdk.agent_events import AnyAgentEvent, ResultEvent, TextEvent, ToolCallEvent, UnknownEvent

SAID: list[AnyAgentEvent] = [
    TextEvent(text="looking ✓"),
    ToolCallEvent(tool="Bash", about="make test"),
    ResultEvent(ok=True, text="done"),
]
TEXT = "".join(doing.model_dump_json() + "\n" for doing in SAID)


def claimed(client: Client) -> Claim:
    """The next run of the agent, begun by a worker that has it."""
    store = client.queue.store
    identity = WorkerIdentity(id="w1", queues=("default",), labels={"agent.claude": "ready"})
    lease = WorkerLease(store, identity, Settings())
    lease.register()
    (claim,) = lease.claim(1)
    client.queue.start([claim])
    return claim


def test_the_options_of_an_agent_become_its_turn(client: Client) -> None:
    run = client.submit_agent(
        "claude", "mend it", model="opus", permissions="full", trust="repo", account="work", max_cost=2,
        max_tokens=1000, max_turns=5, expects="changes", on_limit="fail", startup_timeout="10s", linger_timeout="5s",
        timeout="1h", silence_timeout="10m", cwd="/srv", env={"A": "b"}, queue="agents", retries=2, labels={"x": "y"},
    )  # fmt: skip

    spec = run.record().spec
    assert (spec.kind, spec.agent, spec.prompt) == ("agent", "claude", "mend it")
    assert spec.turn == AgentTurnOptions(
        model="opus", permissions="full", trust="repo", account="work", expects="changes", on_limit="fail",
        startup_timeout_ms=10_000, linger_timeout_ms=5_000,
        budgets=AgentBudgets(cost_usd=2.0, tokens=1000, turns=5),
    )  # fmt: skip
    assert (spec.timeout_ms, spec.silence_timeout_ms) == (3_600_000, 600_000)
    assert (spec.cwd, spec.env, spec.queue, spec.labels) == ("/srv", {"A": "b"}, "agents", {"x": "y"})


def test_a_durable_one_is_refused_where_the_server_promises_no_such_thing(client: Client) -> None:
    with pytest.raises(NotAllowed, match="durable=True"):
        client.submit_agent("claude", "mend it", durable=True)


def test_a_run_without_options_says_nothing_that_its_profile_may_say(client: Client) -> None:
    assert client.submit_agent("claude", "mend it").record().spec.turn is None


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"modell": "x"}, "There is no option 'modell'"),
        ({"permissions": "all"}, "The option 'permissions': "),
        ({"max_cost": 0}, "The option 'max_cost': "),
        ({"max_turns": 1.5}, "The option 'max_turns': "),
        ({"startup_timeout": "soon"}, "The option 'startup_timeout': 'soon' is not a duration"),
        ({"startup_timeout": "0s"}, "The option 'startup_timeout': "),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(client: Client, options: dict[str, Any], why: str) -> None:
    with pytest.raises(Invalid, match=why):
        client.submit_agent("claude", "mend it", **options)


@pytest.mark.parametrize("prompt", ["", " \n", "x" * (5 << 20)])
def test_no_prompt_and_too_much_of_one_are_refused(client: Client, prompt: str) -> None:
    with pytest.raises(Invalid, match="prompt"):
        client.submit_agent("claude", prompt)


def test_doings_are_typed_and_in_order(client: Client) -> None:
    run = client.submit_agent("claude", "mend it")
    claim = claimed(client)
    client.queue.log(
        claim, 1, [LogChunk("out", "raw\n"), LogChunk("event", TEXT[:30]), LogChunk("event", TEXT[30:] + "?\n")]
    )

    assert list(run.agent_events()) == [*SAID, UnknownEvent(raw="?")]


def test_doings_are_followed_until_the_run_has_ended(client: Client) -> None:
    run = client.submit_agent("claude", "mend it")
    heard: list[AnyAgentEvent] = []
    claim = claimed(client)

    def read() -> None:
        heard.extend(run.agent_events(follow=True))

    reader = threading.Thread(target=read)
    reader.start()
    client.queue.log(claim, 1, [LogChunk("event", TEXT)])
    client.queue.finish([(claim, Outcome(exit_code=0, result={"text": "done"}))])
    reader.join(timeout=20)

    assert heard == SAID
    assert run.result() == {"text": "done"}


def test_whoever_leaves_a_followed_agent_lets_go_of_its_connection(client: Client) -> None:
    run = client.submit_agent("claude", "mend it")
    client.queue.log(claimed(client), 1, [LogChunk("event", TEXT)])
    before = connections(client)

    stream = run.agent_events(follow=True)
    assert next(stream) == SAID[0]
    stream.close()

    until(lambda: connections(client) <= before, "the connection to be closed")


def connections(client: Client) -> int:
    return str(client.queue.store.connection.command("CLIENT", "LIST")).count("addr=")


def test_in_an_event_loop_it_is_the_same(client: Client) -> None:
    queue = client.queue

    async def talk() -> tuple[list[AnyAgentEvent], Any]:
        run = await client.aio.submit_agent("claude", "mend it")
        claim = await asyncio.to_thread(claimed, client)
        queue.log(claim, 1, [LogChunk("event", TEXT)])
        queue.finish([(claim, Outcome(exit_code=0, result="done"))])
        return [doing async for doing in run.agent_events(follow=True)], await run.result(timeout=20)

    assert asyncio.run(talk()) == (SAID, "done")


def test_the_result_of_a_command_is_what_it_wrote_as_its_result(client: Client) -> None:
    run: Run[Any] = client.run(client.queue.submit(RunSpec(kind="command", argv=("true",))).id)
    client.queue.finish([(claimed(client), Outcome(exit_code=0, result=[1]))])

    assert run.result(timeout=20) == [1]
