"""Reasons for waiting of runs of agents: an earlier turn, a conversation on another host, an account limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agentq.coordinator.model.agent_options import AGENT_LABEL, AGENT_READY, account_limit_key
from agentq.coordinator.model.demands import HOST_LABEL
from agentq.coordinator.model.durations import format_duration, format_iso
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.lifecycle import HELD_STATES
from agentq.coordinator.queues.limits import LimitRecord, Limits
from agentq.coordinator.runs.queries import RunQueries, WorkerRecord
from agentq.coordinator.runs.run_record import AttemptRecord, RunRecord


def explain_session_turns(records: RunQueries, run: RunRecord) -> Iterator[str]:
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
    where = f"{found.state} on {found.worker}" if found.state in HELD_STATES else found.state.value
    yield f"It waits for the turn {first} of its session, {session}, which is {where}."
    if place > 1:
        yield f"In the line of that session, {place} runs are before it."
    yield f"`agentq why {first}` tells more."


def explain_stranded_conversation(run: RunRecord, workers: Iterable[WorkerRecord], now_ms: int) -> Iterator[str]:
    """That the host is gone which has the conversation, where that cannot travel."""
    host = run.spec.demands.get(HOST_LABEL)
    if not run.is_host_pinned or host is None:
        return
    there = [worker for worker in workers if worker.identity.labels.get(HOST_LABEL) == host]
    if any(worker.lease_until_ms > now_ms for worker in there):
        return
    yield f"Its conversation is on the host {host}, which no live worker is on, and cannot travel."
    if run.spec.session is None:
        yield f"Start a worker there; or cancel it, and `agentq retry {run.id}` begins a new conversation."
    else:
        yield "Start a worker there; or begin another session with `agentq session new`."


def explain_blocked_accounts(
    limits: Limits, run: RunRecord, workers: Iterable[WorkerRecord], now_ms: int
) -> Iterator[str]:
    """Which accounts of its agent are at their limits, if no worker has another."""
    label = f"{AGENT_LABEL}{run.spec.agent}"
    if run.spec.agent is None or any(worker.identity.labels.get(label) == AGENT_READY for worker in workers):
        return
    for limit in list_blocked_accounts(limits, run.spec.agent, now_ms):
        until_ms, why = limit.shut_until_ms or 0, f", because: {limit.shut_why}" if limit.shut_why else ""
        account = limit.key.removeprefix(account_limit_key(run.spec.agent, ""))
        yield (
            f"The account {account} is shut until {format_iso(until_ms)}, for "
            f"{format_duration(until_ms - now_ms)}{why}."
        )
        yield f"`agentq limit open {limit.key}` opens it at once."


def list_blocked_accounts(limits: Limits, agent: str, now_ms: int) -> list[LimitRecord]:
    """The gates of an agent's accounts that are shut now."""
    prefix = account_limit_key(agent, "")
    return [limit for limit in limits.all() if limit.key.startswith(prefix) and (limit.shut_until_ms or 0) > now_ms]


def describe_limit(attempt: AttemptRecord) -> str:
    """Which limit an attempt met that was put off, or that its agent's service was away."""
    agent = attempt.outcome.agent if attempt.outcome is not None else None
    if agent is not None and agent.verdict == "throttled":
        return "was refused by the agent's service"
    return f"met the limit of the account {agent.account}" if agent is not None and agent.account else "met a limit"
