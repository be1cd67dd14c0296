"""Demands of a run on its worker: labels with one value, one of several, not one, or a minimum number.

    gpu=a100      the label gpu is a100               {"gpu": "a100"}
    zone=a|b      the label zone is a or b            {"zone": "a|b"}
    zone!=a|b     it is neither, or there is none     {"zone": "!=a|b"}
    version>=0.2  it begins with a number, by parts   {"version": ">=0.2"}
                  at least that large

A lane's name has a demand as `name=` and the text right of the colon above; no label can begin with `!=` or `>=`,
or have a `|` or `,` in it, so names stay readable. Workers judge for themselves; scripts only compare lanes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from agentq.coordinator.model.agent_options import AGENT_LABEL, ANY_AGENT_LABEL

HOST_LABEL, WORKER_LABEL, VERSION_LABEL = "host", "worker", "version"
BUILT_IN_LABELS = (HOST_LABEL, WORKER_LABEL, VERSION_LABEL)
"""Labels that every worker sets itself and that cannot be configured; so are the labels of its agents."""

PLAN_LABEL = "agentq.plan"
"""The label of workers that serve one plan only; with `only_matching`, they take no other runs."""

_VERSION_NUMBER = re.compile(r"\d+(?:\.\d+)*")


def is_built_in_label(name: str) -> bool:
    """Whether a worker sets a label itself, so that it cannot be configured."""
    return name in BUILT_IN_LABELS or name.startswith(AGENT_LABEL)


def meets_demands(labels: Mapping[str, str], demands: Mapping[str, str]) -> bool:
    """Whether a worker with these labels has all that is demanded."""
    return all(_meets_demand(_find_label(labels, name), demand) for name, demand in demands.items())


def _find_label(labels: Mapping[str, str], name: str) -> str | None:
    """The value that a worker offers for a name."""
    offered = labels.get(name)
    return labels.get(ANY_AGENT_LABEL) if offered is None and name.startswith(AGENT_LABEL) else offered


def _meets_demand(label: str | None, demand: str) -> bool:
    if demand.startswith(">="):
        return label is not None and _parse_version(label) >= _parse_version(demand[2:]) != ()
    if demand.startswith("!="):
        return label not in demand[2:].split("|")
    return label in demand.split("|")


def _parse_version(text: str) -> tuple[int, ...]:
    """The number that a text begins with, part by part: 0.10 is more than 0.9, and 1 is 1.0."""
    found = _VERSION_NUMBER.match(text)
    return tuple(map(int, re.sub(r"(\.0+)+$", "", found[0]).split("."))) if found else ()


def demands_any_label(labels: Mapping[str, str], demands: Mapping[str, str]) -> bool:
    """Whether a run asks for something that such a worker has; its version, which agent the run is for, and what the
    worker lacks do not count.
    """
    if PLAN_LABEL in labels:
        return demands.get(PLAN_LABEL) == labels[PLAN_LABEL]
    return any(
        name in labels and name != VERSION_LABEL and not name.startswith(AGENT_LABEL) and demand[:2] != "!="
        for name, demand in demands.items()
    )


def unmet_demands(workers: Iterable[Mapping[str, str]], demands: Mapping[str, str]) -> dict[str, str]:
    """The demands that no worker meets, given the labels of each."""
    offers = list(workers)
    return {
        name: each
        for name, each in demands.items()
        if not any(_meets_demand(_find_label(of, name), each) for of in offers)
    }


def format_demands(demands: Mapping[str, str]) -> list[str]:
    """Demands as they are written on a command line."""
    return [name + (each if each[:2] in ("!=", ">=") else f"={each}") for name, each in demands.items()]


def suggest_worker(queue: str, missing: Mapping[str, str]) -> str:
    """How to start a worker that meets the missing demands; or why no worker can."""
    if WORKER_LABEL in missing and missing[WORKER_LABEL][:2] != "!=":
        return (
            "That worker is gone or of other queues, and no other ever gets its id: cancel the run, or let it expire."
        )
    if PLAN_LABEL in missing:
        return f"No process carries out its plan at the moment; `agentq resume {missing[PLAN_LABEL]}` continues it."
    labels = "".join(
        f" --label {name}={each.removeprefix('>=').split('|')[0]}"
        for name, each in missing.items()
        if not is_built_in_label(name) and each[:2] != "!="
    )
    where = ""
    agents = [name.removeprefix(AGENT_LABEL) for name in missing if name.startswith(AGENT_LABEL)]
    if agents:
        where += f" where {' and '.join(agents)} can be run, as `agentq agents check` shows"
    if HOST_LABEL in missing:
        hosts = missing[HOST_LABEL].removeprefix("!=").replace("|", " or ")
        where += f" on {'another host than ' if missing[HOST_LABEL][:2] == '!=' else ''}{hosts}"
    if VERSION_LABEL in missing:
        at_least = missing[VERSION_LABEL][:2] == ">="
        where += f", of agentq {missing[VERSION_LABEL].removeprefix('>=')}{' or later' if at_least else ''}"
    return f"Start one with `agentq worker --queue {queue}{labels}`{where}."
