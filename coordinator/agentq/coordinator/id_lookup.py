"""What a person types for a run or a plan, looked up: the beginning or the end of an id, PLAN/TASK, a plan's name.

Ids sort by time, so those of one day begin alike, and it is the end that tells them apart. No index is in the order of
the ends: they are looked for among the newest runs, a bounded number of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Protocol

from agentq.coordinator.bounds import LIST_PER_CALL
from agentq.coordinator.errors import Invalid, NotFound
from agentq.coordinator.model.ids import RUN_ID_LENGTH, is_run_id
from agentq.coordinator.model.lifecycle import LIVE_STATES, State
from agentq.coordinator.plans.queries import PlanQueries, PlanRecord
from agentq.coordinator.runs.queries import RunFilter, RunQueries

CANDIDATES_SHOWN = 10
"""Runs or plans that are named where several are meant."""
NEWEST_RUNS_READ = 10
"""Runs that are read to find the newest; those before it may just have been forgotten."""
RUNS_SEARCHED = 50_000
"""The newest runs, among which one is looked for by the end of its id."""
PLANS_SEARCHED = 10_000
TASKS_SEARCHED = 1000
"""Tasks among which one is looked for that was perhaps meant."""

_ID_PART = re.compile(r"[0-9a-z]+")


class PlanFinder(Protocol):
    """What plans are looked up in: Redis itself, or a coordinator over HTTP."""

    def get(self, plan: str) -> PlanRecord: ...

    def ls(self, *, limit: int = 100, cursor: str | None = None) -> tuple[list[PlanRecord], str | None]: ...


class IdLookup:
    """Looks up what was typed; `queues`, if there are any, are the only ones whose runs are looked at."""

    def __init__(self, records: RunQueries, queues: tuple[str, ...] = ()) -> None:
        self._records = records
        self._plans = PlanQueries(records.store)
        self._queues = queues

    def run(self, text: str) -> str:
        """The id of the run that `text` is, begins or ends, with or without `run_`, or names as PLAN/TASK."""
        if "/" in text:
            plan, _, task = text.partition("/")
            return self._task(self.plan(plan), task)
        typed = text.strip().lower()
        part = typed.removeprefix("run_")
        if is_run_id(f"run_{part}"):
            return f"run_{part}"
        found = self._matching(part, begins=typed != part) if _ID_PART.fullmatch(part) else []
        if not found:
            raise NotFound(f"There is no run {text[:80]!r}; `agentq ls` shows those that there are.")
        if len(found) > 1:
            more = " and more" if len(found) > CANDIDATES_SHOWN else ""
            names = ", ".join(found[:CANDIDATES_SHOWN])
            raise Invalid(f"{text[:80]!r} begins or ends the ids of several runs: {names}{more}; write more of it.")
        return found[0]

    def newest(self, *, live: bool = False) -> str:
        """The newest run, or the newest that has not ended."""
        which = RunFilter(states=tuple(LIVE_STATES) if live else tuple(State), queues=self._queues)
        page = self._records.page(which, limit=NEWEST_RUNS_READ)
        while not page.runs and page.cursor is not None:
            page = self._records.page(which, limit=NEWEST_RUNS_READ, cursor=page.cursor)
        if page.runs:
            return page.runs[0].id
        raise NotFound("There is no run that has not ended." if live else "There are no runs yet.")

    def plan(self, text: str) -> PlanRecord:
        return find_plan(self._plans, text)

    def _task(self, plan: PlanRecord, task: str) -> str:
        if found := self._plans.runs(plan.id, [task]):
            return found[task]
        known = [each.id for each in self._plans.tasks(plan.id, limit=TASKS_SEARCHED)[0]]
        hint = _suggest_id(task, known) or f"`agentq plan show {plan.id}` shows those that there are."
        raise NotFound(f"There is no task {task[:80]!r} in the plan {plan.id}; {hint}")

    def _matching(self, part: str, *, begins: bool) -> list[str]:
        """The runs whose id begins with a part, or ends with it unless it is said to be the beginning."""
        if len(part) > RUN_ID_LENGTH:
            return []
        # No id has a brace, and every digit sorts before one.
        every = RunFilter(queues=self._queues)
        runs = self._records.below(every, f"run_{part}{{", since=f"run_{part}", limit=CANDIDATES_SHOWN + 1).runs
        found = {run.id for run in runs}
        below, seen = "", 0
        while not begins and seen < RUNS_SEARCHED and len(found) <= CANDIDATES_SHOWN:
            page = self._records.below(every, below, ending=part, limit=LIST_PER_CALL)
            found |= {run.id for run in page.runs}
            if page.cursor is None:
                break
            below, seen = page.cursor, seen + LIST_PER_CALL
        return sorted(found, reverse=True)


def find_plan(plans: PlanFinder, text: str) -> PlanRecord:
    """The plan of that id, or the newest of that name, rather one that goes on; or the only one that begins so."""
    try:
        return plans.get(text)
    except (NotFound, Invalid):
        pass
    found: list[PlanRecord] = []
    names: dict[str, None] = {}
    cursor: str | None = None
    seen = 0
    while seen < PLANS_SEARCHED:
        page, cursor = plans.ls(limit=LIST_PER_CALL, cursor=cursor)
        found += [plan for plan in page if text and plan.id.startswith(text)]
        seen += len(page)
        names |= dict.fromkeys(name for plan in page for name in (plan.name, plan.id))
        if cursor is None:
            break
    if not found:
        hint = _suggest_id(text, names) or "`agentq plan ls` shows those that there are."
        raise NotFound(f"There is no plan {text[:80]!r}; {hint}")
    named = [plan for plan in found if plan.name == text]
    live = [plan for plan in named or found if plan.ended is None]
    if named or len(found) == 1 or len(live) == 1:
        return (live or named or found)[0]
    several = ", ".join(plan.id for plan in found[:CANDIDATES_SHOWN])
    raise Invalid(f"Several plans have an id that begins so: {several}; write more of it.")


def matches_id(run: str, text: str) -> bool:
    """Whether `text` is, begins or ends the id of a run; with `run_` before it, it is or begins it."""
    typed = text.strip().lower()
    part, id_ = typed.removeprefix("run_"), run.removeprefix("run_")
    return bool(part) and (id_.startswith(part) or (typed == part and id_.endswith(part)))


def _suggest_id(text: str, known: Iterable[str]) -> str:
    return next((f"did you mean {close}?" for close in get_close_matches(text, list(known), n=1)), "")
