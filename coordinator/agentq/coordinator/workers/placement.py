"""Finds the workers that can take a run, and explains what is missing if there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from agentq.coordinator.model.agent_options import AGENT_BLOCKED, AGENT_LABEL, AGENT_READY, ANY_AGENT_LABEL
from agentq.coordinator.model.demands import format_demands, meets_demands, suggest_worker, unmet_demands
from agentq.coordinator.model.spec import parse_lane
from agentq.coordinator.runs.queries import WorkerRecord
from agentq.coordinator.workers.identity import WorkerIdentity, select_served_lanes

EXECUTOR_TYPE_LABEL = "executor_type"
"""The label that runs submitted in the runner protocol demand, and no others."""


class PlacementProblem(NamedTuple):
    """Why no worker may take a run, and what to do."""

    demands: dict[str, str]
    because: str
    remedy: str
    shut_agent: str | None = None
    """The agent whose accounts are all shut, as its workers last saw."""


def can_take(worker: WorkerRecord, lane: str) -> bool:
    """Whether a registered worker serves a lane, as it would judge itself."""
    described = worker.identity
    identity = WorkerIdentity.model_construct(
        id=worker.id,
        queues=described.queues,
        labels=described.labels,
        only_matching=described.only_matching,
        only_agents=described.only_agents,
    )
    return bool(select_served_lanes(identity, [lane]))


def find_placement_problem(
    workers: Iterable[WorkerRecord], queue: str, demands: Mapping[str, str], lane: str
) -> PlacementProblem | None:
    """What keeps every registered worker from taking a run; None if one may. A lane may demand more than the spec."""
    demands = {**demands, **parse_lane(lane)["demands"]}
    serving = [worker for worker in workers if queue in worker.identity.queues]
    if any(can_take(worker, lane) for worker in serving):
        return None
    if not serving:
        return PlacementProblem(
            dict(demands), f"No worker is registered for its queue, {queue}.", suggest_worker(queue, demands)
        )
    labels = [worker.identity.labels for worker in serving]
    agents = [name for name, value in demands.items() if name.startswith(AGENT_LABEL) and value == AGENT_READY]
    named = EXECUTOR_TYPE_LABEL in demands
    lacking = next(filter(None, (_find_agent_problem(labels, queue, name, named=named) for name in agents)), None)
    if lacking is not None:
        return lacking
    missing = unmet_demands(labels, demands)
    if missing:
        problem = (
            f"It demands {', '.join(format_demands(missing))}, and no worker registered for its queue, "
            f"{queue}, offers that."
        )
        return PlacementProblem(missing, problem, suggest_worker(queue, missing))
    if any(meets_demands(of, demands) for of in labels):
        problem = f"Every worker of its queue, {queue}, that meets its demands takes only runs that ask for its labels."
        return PlacementProblem(
            dict(demands), problem, f"Start one without --only-matching: `agentq worker --queue {queue}`."
        )
    every = ", ".join(format_demands(demands))
    problem = f"Some worker of its queue, {queue}, meets each of its demands ({every}), but none meets them all."
    return PlacementProblem(dict(demands), problem, suggest_worker(queue, demands))


def _find_agent_problem(
    labels: Iterable[Mapping[str, str]], queue: str, name: str, *, named: bool
) -> PlacementProblem | None:
    """No worker has an agent, or all accounts of it are at their limits; None if one is open.

    `named`: the name came in the runner protocol, where it may be that of a blueprint.
    """
    agent = name.removeprefix(AGENT_LABEL)
    offered = {of.get(name, of.get(ANY_AGENT_LABEL)) for of in labels if name in of or ANY_AGENT_LABEL in of}
    if not offered:
        remedy = f"Install {agent} on the machine of one of them; `agentq agents check` shows there what is missing."
        if named:
            remedy = (
                f"If {agent} is a blueprint, store it (`POST /agents`) and submit the run again: workers execute it "
                "with their default agent. If it is a program, start a worker or a runner that has it."
            )
        return PlacementProblem(
            {name: AGENT_READY}, f"No worker registered for its queue, {queue}, has the agent {agent}.", remedy
        )
    if offered != {AGENT_BLOCKED}:
        return None
    problem = f"Every worker of its queue, {queue}, that has the agent {agent} has all its accounts there shut."
    return PlacementProblem({name: AGENT_READY}, problem, "The run continues when the first of them opens.", agent)
