"""What keeps a run of an agent waiting that keeps no other: a turn before it, a conversation elsewhere, an account."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agentq.coordinator.demands import HOST
from agentq.coordinator.flow import Flow, Limit
from agentq.coordinator.identity import partition_of
from agentq.coordinator.life import Attempt, Run
from agentq.coordinator.lifecycle import HELD
from agentq.coordinator.moments import iso, spelled
from agentq.coordinator.records import Records, WorkerRecord
from agentq.coordinator.turn import AGENT_LABEL, READY, account_gate


def turns_before(records: Records, run: Run) -> Iterator[str]:
    """Which turn of its session a run waits for, and how many stand before it."""
    session = run.spec.session
    if run.spec.kind != "agent" or session is None:
        return
    line = records.store.key(partition_of(run.id), "session_turns", session)
    command = records.store.connection.command
    place = command("ZRANK", line, run.id)
    if not place:
        return
    first = str(command("ZRANGE", line, 0, 0)[0])
    found = records.get(first)
    where = f"{found.state} on {found.worker}" if found.state in HELD else found.state.value
    yield f"It waits for the turn {first} of its session, {session}, which is {where}."
    if place > 1:
        yield f"In the line of that session, {place} runs are before it."
    yield f"`agentq why {first}` tells more."


def stranded(run: Run, workers: Iterable[WorkerRecord], now_ms: int) -> Iterator[str]:
    """That the host is gone which has the conversation, where that cannot travel."""
    host = run.spec.demands.get(HOST)
    if not run.tied or host is None:
        return
    there = [worker for worker in workers if worker.identity.labels.get(HOST) == host]
    if any(worker.lease_until_ms > now_ms for worker in there):
        return
    yield f"Its conversation is on the host {host}, which no live worker is on, and cannot travel."
    if run.spec.session is None:
        yield f"Start a worker there; or cancel it, and `agentq retry {run.id}` begins a new conversation."
    else:
        yield "Start a worker there; or begin another session with `agentq session new`."


def shut_accounts(flow: Flow, run: Run, workers: Iterable[WorkerRecord], now_ms: int) -> Iterator[str]:
    """Which accounts of its agent are at their limits, if no worker has another."""
    label = f"{AGENT_LABEL}{run.spec.agent}"
    if run.spec.agent is None or any(worker.identity.labels.get(label) == READY for worker in workers):
        return
    for limit in shut_gates(flow, run.spec.agent, now_ms):
        until_ms, why = limit.shut_until_ms or 0, f", because: {limit.shut_why}" if limit.shut_why else ""
        account = limit.key.removeprefix(account_gate(run.spec.agent, ""))
        yield f"The account {account} is shut until {iso(until_ms)}, for {spelled(until_ms - now_ms)}{why}."
        yield f"`agentq limit open {limit.key}` opens it at once."


def shut_gates(flow: Flow, agent: str, now_ms: int) -> list[Limit]:
    """The gates of an agent's accounts that are shut now."""
    prefix = account_gate(agent, "")
    return [limit for limit in flow.limits() if limit.key.startswith(prefix) and (limit.shut_until_ms or 0) > now_ms]


def limit_met(attempt: Attempt) -> str:
    """Which limit an attempt met that was put off, or that its agent's service was away."""
    agent = attempt.outcome.agent if attempt.outcome is not None else None
    if agent is not None and agent.verdict == "throttled":
        return "was refused by the agent's service"
    return f"met the limit of the account {agent.account}" if agent is not None and agent.account else "met a limit"
