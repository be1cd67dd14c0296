"""Finds and ends every process that belongs to a run, wherever it has gone.

These processes of the worker's user belong to a run:

1. those with the run's cookie, `AGENTQ_RUN=<namespace>/<run>/<fence>`, in the environment they were started with;
2. of those without a cookie: members of the run's cgroup or of the session of its first process, children of processes
   that belong, and orphans that only this run can have left.

Processes with another cookie are never touched, nor is the embedded server, which a run may have been the first to
start.

While the worker lives, all of these are below it; see `subreaper`. Only what a service started for a run, like a job of
`at`, is not, and is looked for among all processes. When the worker dies, the cookies stay; `end_dead_trees` finds them
from any other process of the user.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import TypeVar
from weakref import WeakKeyDictionary

from agentq.coordinator.clock import monotonic_ms
from agentq.worker.process import procfs
from agentq.worker.process.cgroups import Cgroups as Cgroups
from agentq.worker.process.cgroups import RunCgroup
from agentq.worker.process.procfs import ProcessStat
from agentq.worker.process.subreaper import NO_ORPHANS, reap_orphans, root_processes
from agentq.worker.process.subreaper import become_subreaper as become_subreaper
from agentq.worker.process.termination import Unkillable, kill_all

COOKIE_VARIABLE = "AGENTQ_RUN"
STARTER_VARIABLE = "AGENTQ_KEEPER"
"""The process that started the run: its pid and start time."""
WORKER_VARIABLE = "AGENTQ_WORKER"
"""In an environment without a cookie, it marks a helper of the worker itself."""

SHORT_RUN_MS = 1_000
"""A run shorter than this is not worth a scan of all processes of the machine, which takes a millisecond or more."""
MARKS_MAX = 10_000

T = TypeVar("T")
MatchProcess = Callable[[str, str], bool]
"""Decides by cookie and starter whether a process is to be ended."""
ProcessMarks = tuple[str, str]
"""Cookie and starter of a process; empty if it has none that can be read."""


@dataclass(frozen=True, slots=True)
class ProcessTree:
    """What identifies the processes of a run."""

    cookie: str
    root: ProcessStat
    began_ms: int
    leaf: RunCgroup | None = None


@cache
def get_process_name(pid: int) -> str:
    """The name of this process as its runs' environments have it."""
    own = procfs.read_stat(pid)
    return own.name if own else f"{pid}-unknown"


async def end_tree(run: ProcessTree) -> int:
    """SIGKILL everything left of a run whose first process has ended; returns how many had left its group.

    Runs that end at the same time share one scan, because each scan looks at the orphans of all.
    """
    is_short = monotonic_ms() < run.began_ms + SHORT_RUN_MS
    if is_short and reap_orphans() == NO_ORPHANS and (run.leaf is None or run.leaf.remove()):
        return 0
    killer = _tree_killers.setdefault(asyncio.get_running_loop(), TreeKiller())
    return await killer.kill(run)


TreeResult = int | Unkillable
"""How many processes had left the group of an ended run, or why it could not be ended."""


@dataclass(eq=False, slots=True)
class PendingKill:
    """A run to be ended."""

    tree: ProcessTree
    ended: TreeResult | None = None


class TreeKiller:
    """Ends runs in batches, one batch at a time."""

    def __init__(self) -> None:
        self._waiting: list[PendingKill] = []
        self._lock = asyncio.Lock()

    async def kill(self, run: ProcessTree) -> int:
        """End what is left of a run, unless another batch has done so."""
        pending = PendingKill(run)
        self._waiting.append(pending)
        try:
            async with self._lock:
                if pending.ended is None:
                    batch = [each for each in self._waiting if each.ended is None]
                    ended = await _end_trees({each.tree for each in batch})
                    for each in batch:
                        each.ended = ended[each.tree]
        finally:
            self._waiting.remove(pending)
        assert pending.ended is not None
        if isinstance(pending.ended, Unkillable):
            raise pending.ended
        return pending.ended


_tree_killers: WeakKeyDictionary[asyncio.AbstractEventLoop, TreeKiller] = WeakKeyDictionary()


async def _end_trees(runs: Collection[ProcessTree]) -> dict[ProcessTree, TreeResult]:
    """Returns how many had left the group of each, or why it could not be ended."""
    tree_of: dict[str, ProcessTree] = {}

    def find(*, everywhere: bool = False) -> Iterator[ProcessStat]:
        for one, run in find_members(runs, everywhere=everywhere):
            tree_of[one.name] = run
            yield one

    leaves = [run.leaf for run in runs if run.leaf is not None]
    ended: dict[ProcessTree, TreeResult] = dict.fromkeys(runs, 0)
    found: list[ProcessStat] = []
    try:
        found += await kill_all(find, lambda: _kill_cgroups(leaves))
        if found or any(monotonic_ms() >= run.began_ms + SHORT_RUN_MS for run in runs):
            found += await kill_all(lambda: find(everywhere=True), lambda: _kill_cgroups(leaves))
        await _end_trees_started_by({*(run.root.name for run in runs), *(one.name for one in found)})
    except Unkillable as error:
        ended.update((run, error) for _, run in find_members(runs))
    reap_orphans()
    for leaf in leaves:
        _release_embedded_servers(leaf)
        leaf.remove()
    for one in {one.name: one for one in found if one.group != tree_of[one.name].root.pid}.values():
        count = ended[tree_of[one.name]]
        if isinstance(count, int):
            ended[tree_of[one.name]] = count + 1
    return ended


def _kill_cgroups(leaves: Iterable[RunCgroup]) -> None:
    for leaf in leaves:
        _release_embedded_servers(leaf)
        leaf.kill()


def _release_embedded_servers(leaf: RunCgroup) -> None:
    for pid in leaf.processes():
        if _is_embedded_server(pid):
            leaf.release(pid)


def find_members(
    runs: Collection[ProcessTree], *, everywhere: bool = False
) -> Iterator[tuple[ProcessStat, ProcessTree]]:
    """The live processes that belong to these runs, with their run; among descendants, or all of the user.

    Processes with a cookie are yielded at once, because they may be about to fork.
    """
    by_cookie = {run.cookie: run for run in runs}
    nearby = become_subreaper() and not everywhere
    in_cgroup = {pid: run for run in runs if run.leaf is not None for pid in run.leaf.processes()}
    members: dict[int, ProcessTree] = {}
    unmarked: list[ProcessStat] = []
    for one in chain(
        _list_own_descendants(runs) if nearby else procfs.list_own_processes(),
        filter(None, map(procfs.read_stat, in_cgroup)),
    ):
        if not one.alive or one.pid == os.getpid() or not procfs.is_own_user(one.pid):
            continue
        cookie, _ = _find_marks(one)
        if run := by_cookie.get(cookie):
            members[one.pid] = run
            yield one, run
        elif not cookie:
            unmarked.append(one)
            if run := in_cgroup.get(one.pid) or (_match_orphan(one, runs) if nearby else None):
                members[one.pid] = run
    members = _add_children(members, unmarked)
    for one in unmarked:
        if one.pid in members and not _is_embedded_server(one.pid):
            yield one, members[one.pid]


def _list_own_descendants(runs: Collection[ProcessTree]) -> Iterator[ProcessStat]:
    """The worker's descendants, except for those known to be of other runs."""
    cookies = {"", *(run.cookie for run in runs)}
    others = root_processes.keys() - {run.root.pid for run in runs}
    return procfs.list_descendants(os.getpid(), others, lambda one: _get_cached_marks(one)[0] not in cookies)


_known_marks: dict[int, tuple[int, ProcessMarks]] = {}
"""Start time and marks by pid. A process keeps its marks through `exec`."""


def _get_cached_marks(one: ProcessStat) -> ProcessMarks:
    began, marks = _known_marks.get(one.pid, (0, ("", "")))
    return marks if began == one.began else ("", "")


def _find_marks(one: ProcessStat) -> ProcessMarks:
    marks = _get_cached_marks(one)
    if not marks[0] and (marks := _read_marks(one.pid))[0]:
        if len(_known_marks) >= MARKS_MAX:
            _known_marks.clear()
        _known_marks[one.pid] = one.began, marks
    return marks


def _read_marks(pid: int) -> ProcessMarks:
    found = procfs.read_environment(pid, COOKIE_VARIABLE, STARTER_VARIABLE)
    return found.get(COOKIE_VARIABLE, ""), found.get(STARTER_VARIABLE, "")


def _match_orphan(one: ProcessStat, runs: Iterable[ProcessTree]) -> ProcessTree | None:
    """The run that a descendant without a cookie belongs to: by its session, or because no other live run can have left
    it.

    The session's number could be another's since the run's first process was reaped; but not among descendants, where
    every session belongs to a run.
    """
    for run in runs:
        if one.session == run.root.pid:
            return run
    if one.parent != os.getpid() or one.pid in root_processes or one.session == os.getsid(0):
        return None
    ending = {run.root.pid for run in runs}
    if any(began <= one.began for root, began in root_processes.items() if root not in ending):
        return None
    return None if WORKER_VARIABLE in procfs.read_environment(one.pid, WORKER_VARIABLE) else next(iter(runs))


def _add_children(members: dict[int, T], unmarked: Iterable[ProcessStat]) -> dict[int, T]:
    """Adds those of `unmarked` whose parent is a member, recursively."""
    children_of: dict[int, list[int]] = {}
    for one in unmarked:
        children_of.setdefault(one.parent, []).append(one.pid)
    todo = list(members)
    while todo:
        parent = todo.pop()
        new = [pid for pid in children_of.get(parent, ()) if pid not in members]
        members.update((pid, members[parent]) for pid in new)
        todo += new
    return members


def _is_embedded_server(pid: int) -> bool:
    """Whether it is an embedded server, which outlives the run that was the first to need one."""
    words = procfs.read_command_line(pid)
    with suppress(ValueError):
        folder = words[words.index(b"--dir") + 1]
        return words[words.index(b"--pidfile") + 1] == folder + b"/pid" and not _read_marks(pid)[0]
    return False


async def end_dead_trees(runs: str | Collection[str], *, cgroups: Cgroups | None = None) -> int:
    """End what dead workers left here, of runs in a namespace or with these cookies; returns how many processes.

    A run whose worker lives is left to it. So are processes in a container of their own: their worker's number means
    nothing here.
    """

    def matches(cookie: str, starter: str) -> bool:
        named = f"{cookie}/".startswith(f"{runs.rstrip('/')}/") if isinstance(runs, str) else cookie in runs
        return named and is_process_gone(starter)

    leaves = [leaf for cookie, starter, leaf in (cgroups.remaining() if cgroups else ()) if matches(cookie, starter)]
    found = await kill_all(lambda: _find_remaining(matches, leaves))
    for leaf in leaves:
        leaf.remove()
    await _end_trees_started_by({one.name for one in found})
    return len(found)


def is_process_gone(name: str) -> bool:
    """Whether the process of that name has ended; its number may be reused by now."""
    pid, _, began = name.partition("-")
    if not pid.isdigit() or not began.isdigit():
        return False
    now = procfs.read_stat(int(pid))
    return now is None or not now.alive or now.began != int(began)


async def _end_trees_started_by(starters: Collection[str]) -> None:
    """End the runs of workers that ran inside ended runs, recursively."""
    while starters:
        found = await kill_all(partial(_find_remaining, partial(_is_started_by, starters), nearby=become_subreaper()))
        starters = {one.name for one in found}


def _is_started_by(starters: Collection[str], _cookie: str, starter: str) -> bool:
    return starter in starters


def _find_remaining(
    matches: MatchProcess, leaves: Iterable[RunCgroup] = (), *, nearby: bool = False
) -> Iterator[ProcessStat]:
    """Processes whose cookie and starter match, and unmarked ones below them or in one of the groups."""
    own = {0, *procfs.list_ancestors(os.getpid())}
    in_cgroup = {pid for leaf in leaves for pid in leaf.processes()}
    members: dict[int, None] = {}
    unmarked: list[ProcessStat] = []
    for one in procfs.list_descendants(os.getpid(), root_processes) if nearby else procfs.list_own_processes():
        if not one.alive or one.pid in own or not procfs.is_own_user(one.pid):
            continue
        cookie, starter = _find_marks(one) if nearby else _read_marks(one.pid)
        if not cookie:
            unmarked.append(one)
        if (matches(cookie, starter) if cookie else one.pid in in_cgroup) and procfs.is_same_namespace(one.pid):
            members[one.pid] = None
            if cookie:
                yield one
    members = _add_children(members, unmarked)
    yield from (one for one in unmarked if one.pid in members and not _is_embedded_server(one.pid))
