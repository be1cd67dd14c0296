"""The rule for children, as the model sees it: in which fields a child goes beyond what its parent has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any

from agentq.coordinator.model.agent_options import AGENT_LABEL, AgentTurnOptions
from agentq.coordinator.model.spec import RunSpec

PERMISSIONS = ("read", "edit", "full")
OF_OTHERS = ("dedupe_key", "plan", "task", "session")
"""What concerns runs of others; a child has none of it."""


def fields_beyond(own: RunSpec, child: RunSpec, is_kin: Callable[[str], bool]) -> list[str]:
    """The fields in which a child has more than its parent; `is_kin` tells the other children of that."""
    found = [name for name, goes_beyond in RULES.items() if goes_beyond(own, child)]
    given = {*own.inputs.values(), *own.after}
    if any(other not in given and not is_kin(other) for other in references(child)):
        found.append("references")
    return found


def references(spec: RunSpec) -> list[str]:
    """All runs that a spec names, but its parent."""
    return [*spec.inputs.values(), *spec.after, *_results_in([*spec.args, spec.kwargs])]


def permitted(spec: RunSpec) -> set[str]:
    """Which children a run may have, each agent by its name."""
    usual = ("agent",) if spec.kind == "agent" else ()
    words = usual if spec.may_submit is None else spec.may_submit
    return {f"agent:{spec.agent}" if word == "agent" else word for word in words}


def turn_of(spec: RunSpec) -> AgentTurnOptions:
    return spec.turn or AgentTurnOptions()


def demands_of(spec: RunSpec) -> dict[str, str]:
    return {name: value for name, value in spec.demands.items() if not name.startswith(AGENT_LABEL)}


def _results_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and "$run" in value:
        yield str(value["$run"])
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _results_in(each)


def _is_confined(own: RunSpec) -> bool:
    """An agent that may not do everything; whatever else runs could do all of it by itself."""
    return own.kind == "agent" and turn_of(own).permissions != "full"


def _kind(own: RunSpec, child: RunSpec) -> bool:
    what = f"agent:{child.agent}" if child.kind == "agent" else child.kind
    return what not in permitted(own)


def _may_submit(own: RunSpec, child: RunSpec) -> bool:
    return child.may_submit is not None and not permitted(child) <= permitted(own)


def _limits(own: RunSpec, child: RunSpec) -> bool:
    return any(units > own.limits.get(key, 0) for key, units in child.limits.items())


def _cwd(own: RunSpec, child: RunSpec) -> bool:
    if child.workspace is not None:
        return own.cwd is not None and not _is_within(child.cwd, own.cwd)
    if not _is_confined(own):
        return False
    # The simulated workers note no worktree that a child could work in.
    return own.workspace is not None or (
        child.cwd is not None if own.cwd is None else not _is_within(child.cwd, own.cwd)
    )


def _is_within(folder: str | None, outer: str) -> bool:
    return folder is not None and ".." not in folder.split("/") and PurePosixPath(folder).is_relative_to(outer)


def _environment(own: RunSpec, child: RunSpec) -> bool:
    return _is_confined(own) and not child.env.items() <= own.env.items()


def _permissions(own: RunSpec, child: RunSpec) -> bool:
    most = turn_of(own).permissions if own.kind == "agent" else "full"
    return PERMISSIONS.index(turn_of(child).permissions) > PERMISSIONS.index(most)


def _budgets(own: RunSpec, child: RunSpec) -> bool:
    mine, asked = turn_of(own).budgets, turn_of(child).budgets
    bounds = mine.model_dump(exclude_none=True) if mine else {}
    wanted = asked.model_dump(exclude_none=True) if asked else {}
    return any(name not in wanted or wanted[name] > most for name, most in bounds.items())


def _caps(own: RunSpec, child: RunSpec) -> bool:
    bounds = own.caps.model_dump(exclude_none=True) if own.caps else {}
    wanted = child.caps.model_dump(exclude_none=True) if child.caps else {}
    return any(name not in wanted or _is_looser(name, wanted[name], most) for name, most in bounds.items())


def _is_looser(name: str, wanted: int, most: int) -> bool:
    return wanted != most if name == "umask" else wanted < most if name == "nice" else wanted > most


def _is_longer(name: str) -> Callable[[RunSpec, RunSpec], bool]:
    def goes_beyond(own: RunSpec, child: RunSpec) -> bool:
        most, asked = getattr(own, name), getattr(child, name)
        return most is not None and (asked is None or asked > most)

    return goes_beyond


def _of_agents(judge: Callable[[RunSpec, RunSpec], bool]) -> Callable[[RunSpec, RunSpec], bool]:
    return lambda own, child: child.kind == "agent" and judge(own, child)


RULES: dict[str, Callable[[RunSpec, RunSpec], bool]] = {
    "kind": _kind,
    "may_submit": _may_submit,
    "others": lambda _, child: any(getattr(child, name) is not None for name in OF_OTHERS),
    "queue": lambda own, child: child.queue != own.queue,
    "priority": lambda own, child: child.priority > own.priority,
    "fair_key": lambda own, child: child.fair_key != own.fair_key,
    "demands": lambda own, child: not demands_of(own).items() <= demands_of(child).items(),
    "limits": _limits,
    "workspace": lambda own, child: child.workspace is not None and child.workspace != own.workspace,
    "cwd": _cwd,
    "env": _environment,
    "permissions": _of_agents(_permissions),
    "trust": _of_agents(lambda own, child: turn_of(child).trust == "repo" and turn_of(own).trust != "repo"),
    "account": _of_agents(lambda own, child: turn_of(child).account != turn_of(own).account),
    "budgets": _of_agents(_budgets),
    "caps": _caps,
    **{name: _is_longer(name) for name in ("timeout_ms", "silence_timeout_ms", "stop_grace_ms", "keep_ms")},
}
