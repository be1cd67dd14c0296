"""Attempts of agents that are stopped, or die, while they set out or when they are done already."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from support.agent_workers import Agents, word
from support.crew import Crew
from support.servers import Server, until
from support.world import World

from agentq.coordinator.model.retry_policy import RetryPolicy
from agentq.coordinator.model.spec import Outcome, parse_spec
from agentq.coordinator.runs.children import WorkerChildren
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.sessions.conversations import AgentConversations
from agentq.coordinator.sessions.verbs import Sessions
from agentq.worker.agents.accounts.availability import AgentAvailability
from agentq.worker.agents.agent_attempt import AgentAttempt
from agentq.worker.agents.agent_context import AgentContext
from agentq.worker.agents.profiles.installed import InstalledAgents
from agentq.worker.agents.profiles.registry import ProfileRegistry
from agentq.worker.attempt import AttemptContext
from agentq.worker.attempt_stop import AttemptStop
from agentq.worker.process.run_environment import RunEnvironment
from agentq.worker.reporting.log_upload import LogUpload
from agentq.worker.reporting.report_sender import AttemptReport
from agentq.worker.reporting.spill import SpillFile
from agentq.worker.run_api.agent_socket import AgentSocket
from agentq.worker.run_api.result_channel import ResultChannels
from agentq.worker.workspace.workspaces import WorkerWorkspaces

ONCE_MORE = RetryPolicy(failures=1, delay_ms=0)


@pytest.mark.full("takes 12 s")
def test_a_fork_that_died_before_it_said_a_word_is_still_a_fork(studio: Agents) -> None:
    studio.worker()
    studio.sessions.new("talk", "standin", cwd=str(studio.folder))
    source = studio.run("SAY one", session="talk")
    studio.sessions.new("other", "standin", cwd=str(studio.folder), fork="talk")

    turn = {"startup_timeout_ms": 10_000}
    forked = studio.run("AT 1 SILENT", "REPORT prompts", session="other", turn=turn, retry=ONCE_MORE)

    assert forked.state == "completed", forked.outcome
    assert forked.attempt == 2
    assert word(forked).session != word(source).session


@pytest.mark.full("takes 2 s")
def test_an_agent_that_is_done_and_stays_is_done_when_its_worker_leaves(studio: Agents) -> None:
    worker = studio.worker(drain_grace="0s")
    run = studio.submit("SAY all done", "LINGER", turn={"linger_timeout_ms": 600_000})
    until(lambda: any(doing.type == "result" for doing in studio.agent_events(run)), "its last word", 40)
    worker.send_signal(signal.SIGTERM)
    worker.wait(timeout=60)

    ended = studio.crew.records.get(run)

    assert ended.state == "completed", ended
    assert word(ended).verdict == "lingered"
    assert ended.outcome is not None
    assert ended.outcome.result == "all done"


@pytest.mark.full("takes 4 s")
def test_an_agent_that_sleeps_already_sleeps_on_when_its_worker_leaves(studio: Agents) -> None:
    worker = studio.worker(drain_grace="0s")
    run = studio.submit("STUBBORN", "WAKE 10m look again", "SAY later", stop_grace_ms=3_000)
    until(lambda: any(doing.type == "result" for doing in studio.agent_events(run)), "its last word", 40)
    worker.send_signal(signal.SIGTERM)
    worker.wait(timeout=60)

    assert studio.crew.records.get(run).state == "waiting"


class Halting(AgentConversations):
    """Something happens to the attempt while it asks for the transcript."""

    def __init__(self, world: World, happens: Callable[[], None]) -> None:
        super().__init__(world.store)
        self._happens = happens

    def carried(self, claim: Claim) -> bytes | None:
        self._happens()
        return super().carried(claim)


@pytest.mark.parametrize("why", [AttemptStop.RELEASED, AttemptStop.CANCELLED, AttemptStop.FENCED])
def test_an_attempt_that_is_stopped_while_it_sets_out_leaves_the_conversation_as_it_was(
    world: World, folder: Path, why: AttemptStop
) -> None:
    sessions, said = Sessions(world.store), list[AttemptReport]()
    sessions.new("talk", "standin", cwd=str(folder))
    first = world.submit(kind="agent", agent="standin", prompt="one", argv=(), session="talk")
    worker = world.worker("w1", labels={"agent.standin": "ready"})
    (claim,) = worker.claim(1)
    AgentConversations(world.store).bind(claim, "a-conversation", host="elsewhere", movable=True)
    AgentConversations(world.store).carry(claim, b"{}\n")
    world.queue.start([claim])
    world.queue.finish([(claim, Outcome())])
    world.submit(kind="agent", agent="standin", prompt=f"WRITE {folder}/began x", argv=(), session="talk")
    (claim,) = worker.claim(1)
    assert world.records.get(first).state == "completed"

    async def attempt() -> None:
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()

        def stop() -> None:
            going.stop(why)
            stopped.set()

        def happens() -> None:
            asyncio.run_coroutine_threadsafe(_called(stop), loop).result(10)

        profiles = ProfileRegistry.load()
        availability = AgentAvailability(world.limits, profiles, InstalledAgents.detect(profiles), lambda: None)
        surroundings = AttemptContext(
            environment=RunEnvironment("n", "w1"),
            cgroups=None,
            log_folder=folder / "logs",
            channels=ResultChannels(folder / "channels"),
            send_report=said.append,
            log_upload=LogUpload(world.queue, SpillFile(folder / "spill"), lambda: 0, lambda _: None),
            agent_socket=AgentSocket(WorkerChildren(world.queue), folder / "sockets"),
            queue=world.queue,
            workspaces=WorkerWorkspaces(folder / "home", "w1"),
            profiles=lambda: profiles,
        )
        agents = AgentContext(profiles, Halting(world, happens), availability, world.queue)
        going = AgentAttempt(claim, parse_spec(claim.spec, claim.lane), surroundings, agents)
        await asyncio.wait_for(going.run(), 30)
        await surroundings.agent_socket.close()
        surroundings.channels.close()

    asyncio.run(attempt())

    assert sessions.get("talk").agent_session == "a-conversation"
    assert [report.verb for report in said] == {
        AttemptStop.RELEASED: ["start", "release"],
        AttemptStop.CANCELLED: ["start", "fail"],
        AttemptStop.FENCED: ["start"],
    }[why]
    assert list((folder / "channels").iterdir()) == []


async def _called(act: Callable[[], None]) -> None:
    act()


@pytest.mark.full("takes 2 s")
def test_what_an_agent_spent_is_counted_where_a_full_server_takes_no_words(
    make_crew: Callable[..., Crew], durable: Server, folder: Path
) -> None:
    studio = Agents(make_crew, durable, folder)
    studio.worker()
    go = folder / "go"
    run = studio.submit(f"RUN until test -e {go}; do sleep 0.1; done", "COST 0.10", "REPORT prompts")
    until(lambda: any(doing.type == "tool" for doing in studio.agent_events(run)), "its tool", 40)
    command = studio.crew.queue.store.connection.command
    command("CONFIG", "SET", "maxmemory", "1")
    try:
        go.touch()
        ended = studio.done(run)
    finally:
        command("CONFIG", "SET", "maxmemory", "0")

    assert ended.state == "completed", ended.outcome
    assert ended.spending is not None
    assert ended.spending.cost_usd == 0.1
