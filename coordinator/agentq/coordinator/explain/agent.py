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
    """The earlier turn of its session that a run waits for, and the number of turns before it."""
    session = run.spec.session
    if run.spec.kind != "agent" or session is None:
        return
    turns_key = records.store.key(partition_of(run.id), "session_turns", session)
    command = records.store.connection.command
    place = command("ZRANK", turns_key, run.id)
    if not place:
        return
    first = str(command("ZRANGE", turns_key, 0, 0)[0])
    first_run = records.get(first)
    where = f"{first_run.state} on {first_run.worker}" if first_run.state in HELD_STATES else first_run.state.value
    yield f"It waits for an earlier turn of its session {session}: {first}, which is {where}."
    if place > 1:
        yield f"{place} turns of that session are before it."
    yield f"`agentq why {first}` explains that run."


def explain_stranded_conversation(run: RunRecord, workers: Iterable[WorkerRecord], now_ms: int) -> Iterator[str]:
    """No live worker is on the only host that has the conversation; empty if it can be continued elsewhere."""
    host = run.spec.demands.get(HOST_LABEL)
    if not run.is_host_pinned or host is None:
        return
    on_host = [worker for worker in workers if worker.identity.labels.get(HOST_LABEL) == host]
    if any(worker.lease_until_ms > now_ms for worker in on_host):
        return
    yield f"Its conversation exists only on the host {host}, and no live worker is there."
    if run.spec.session is None:
        yield f"Start a worker there; or cancel the run and begin a new conversation with `agentq retry {run.id}`."
    else:
        yield "Start a worker there; or create another session with `agentq session new`."


def explain_blocked_accounts(
    limits: Limits, run: RunRecord, workers: Iterable[WorkerRecord], now_ms: int
) -> Iterator[str]:
    """The accounts of its agent that are at their limits, if no worker has an open one."""
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
    """The limits of an agent's accounts that are shut now."""
    prefix = account_limit_key(agent, "")
    return [limit for limit in limits.all() if limit.key.startswith(prefix) and (limit.shut_until_ms or 0) > now_ms]


def describe_limit(attempt: AttemptRecord) -> str:
    """Why an attempt was deferred: the limit that it met, or its agent's service refused it."""
    agent = attempt.outcome.agent if attempt.outcome is not None else None
    if agent is not None and agent.verdict == "throttled":
        return "was refused by the agent's service"
    return f"met the limit of the account {agent.account}" if agent is not None and agent.account else "met a limit"
