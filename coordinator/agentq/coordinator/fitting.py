"""Whether there is a worker for a run at all: who may take it, and if nobody may, what is missing and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from agentq.coordinator.demands import meets, spelled, starting, unmet
from agentq.coordinator.records import WorkerRecord
from agentq.coordinator.run import lane_parts
from agentq.coordinator.serving import Identity, serves
from agentq.coordinator.turn import AGENT_LABEL, ANY_AGENT, READY, SHUT

EXECUTOR_TYPE = "executor_type"
"""The label that every run demands which was asked for in the runner protocol, and no other run."""


class Lack(NamedTuple):
    """Why nobody may take a run."""

    demands: dict[str, str]
    because: str
    remedy: str
    shut_agent: str | None = None
    """The agent whose accounts are all shut, as its workers last saw."""


def may_take(worker: WorkerRecord, lane: str) -> bool:
    """Whether a registered worker serves a lane, as it would judge itself."""
    described = worker.identity
    identity = Identity.model_construct(
        id=worker.id,
        queues=described.queues,
        labels=described.labels,
        only_matching=described.only_matching,
        only_agents=described.only_agents,
    )
    return bool(serves(identity, [lane]))


def lack_of(workers: Iterable[WorkerRecord], queue: str, demands: Mapping[str, str], lane: str) -> Lack | None:
    """What keeps every registered worker from taking a run; None if one may. A lane may demand more than was said."""
    demands = {**demands, **lane_parts(lane)["demands"]}
    everyone = [worker for worker in workers if queue in worker.identity.queues]
    if any(may_take(worker, lane) for worker in everyone):
        return None
    if not everyone:
        return Lack(dict(demands), f"No worker is registered for its queue, {queue}.", starting(queue, demands))
    labels = [worker.identity.labels for worker in everyone]
    agents = [name for name, value in demands.items() if name.startswith(AGENT_LABEL) and value == READY]
    named = EXECUTOR_TYPE in demands
    lacking = next(filter(None, (_lack_of_agent(labels, queue, name, named=named) for name in agents)), None)
    if lacking is not None:
        return lacking
    missing = unmet(labels, demands)
    if missing:
        said = (
            f"It demands {', '.join(spelled(missing))}, and no worker registered for its queue, {queue}, offers that."
        )
        return Lack(missing, said, starting(queue, missing))
    if any(meets(of, demands) for of in labels):
        said = f"Every worker of its queue, {queue}, that meets its demands takes only runs that ask for its labels."
        return Lack(dict(demands), said, f"Start one without --only-matching: `agentq worker --queue {queue}`.")
    every = ", ".join(spelled(demands))
    said = f"Some worker of its queue, {queue}, meets each of its demands ({every}), but none meets them all."
    return Lack(dict(demands), said, starting(queue, demands))


def _lack_of_agent(labels: Iterable[Mapping[str, str]], queue: str, name: str, *, named: bool) -> Lack | None:
    """That no worker has an agent, or none with an account that is not at its limit.

    `named`: the name came in the runner protocol, where it may be that of a blueprint.
    """
    agent = name.removeprefix(AGENT_LABEL)
    told = {of.get(name, of.get(ANY_AGENT)) for of in labels if name in of or ANY_AGENT in of}
    if not told:
        remedy = f"Install {agent} where one of them runs; `agentq agents check` tells there what is missing."
        if named:
            remedy = (
                f"If {agent} is a blueprint, store it (`POST /agents`) and submit the run again: workers execute it "
                "with their default agent. If it is a program, start a worker or a runner that has it."
            )
        return Lack({name: READY}, f"No worker registered for its queue, {queue}, has the agent {agent}.", remedy)
    if told != {SHUT}:
        return None
    said = f"Every worker of its queue, {queue}, that has the agent {agent} has all its accounts there shut."
    return Lack({name: READY}, said, "It goes on when the first of them opens.", agent)
