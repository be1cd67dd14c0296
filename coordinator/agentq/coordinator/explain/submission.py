"""What is strange about runs that are about to be submitted: limits that are not set, agents and demands that no
worker offers. They are taken all the same, and wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.explain.agent import list_blocked_accounts
from agentq.coordinator.model.agent_options import AGENT_LABEL
from agentq.coordinator.model.demands import format_demands
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.queues.limits import Limits, warn_unset_limits
from agentq.coordinator.runs.queries import RunQueries
from agentq.coordinator.storage.store import NamespaceStore
from agentq.coordinator.workers.placement import find_placement_problem

LANES_CHECKED = 20
"""Lanes whose demands are compared with what workers offer."""


class UnmetDemands(NamedTuple):
    """What no registered worker offers to the runs of a lane."""

    demands: list[str]
    because: str


class SubmissionCheck(NamedTuple):
    """What is strange about runs."""

    unset_limits: dict[str, str]
    """A sentence for each limit that they name and that is not set."""
    unoffered_agents: list[str]
    unmet: dict[str, UnmetDemands]
    """By lane."""
    unserved_queues: list[str]
    """Those of their queues that no worker is registered for."""


def select_checked(specs: Iterable[RunSpec]) -> list[RunSpec]:
    """Those of the runs that tell all there is to check: one of each queue, demanding lane, limit and agent."""
    chosen: dict[int, RunSpec] = {}
    lanes: set[str] = set()
    keys: set[str] = set()
    names: set[str | None] = {None}
    for spec in specs:
        is_new_lane = (bool(spec.demands) or spec.kind == "agent") and spec.lane not in lanes
        is_new_name = not names.issuperset((f"queue {spec.queue}", spec.agent))
        if is_new_name or not keys.issuperset(spec.limits) or (is_new_lane and len(lanes) < LANES_CHECKED):
            chosen[id(spec)] = spec
            keys |= spec.limits.keys()
            names |= {f"queue {spec.queue}", spec.agent}
            lanes |= {spec.lane} if is_new_lane else set()
    return list(chosen.values())


def check_submission(store: NamespaceStore, specs: Sequence[RunSpec]) -> SubmissionCheck:
    """Look at what the namespace has for these runs."""
    limits = Limits(store)
    keys = sorted({key for spec in specs for key in spec.limits})
    unset = warn_unset_limits(limits, keys) if keys else {}
    workers, unmet = RunQueries(store).workers(), {}
    demanding = {spec.lane: spec for spec in specs if spec.demands or spec.kind == "agent"}
    for lane, spec in list(demanding.items())[:LANES_CHECKED]:
        problem = find_placement_problem(workers, spec.queue, spec.demands, lane)
        if problem is not None and (
            not problem.shut_agent or list_blocked_accounts(limits, problem.shut_agent, wall_ms())
        ):
            unmet[lane] = UnmetDemands(format_demands(problem.demands), f"{problem.because} {problem.remedy}")
    offered = {label for worker in workers for label in worker.identity.labels}
    served = {queue for worker in workers for queue in worker.identity.queues}
    agents = {spec.agent for spec in specs if spec.agent is not None}
    unoffered = sorted(name for name in agents if f"{AGENT_LABEL}{name}" not in offered)
    return SubmissionCheck(unset, unoffered, unmet, sorted({spec.queue for spec in specs} - served))
