"""Finding and ending every process that belongs to a run, wherever it has gone.

What belongs to a run, among the processes of our own user:

1. what carries the run's cookie, `AGENTQ_RUN=<namespace>/<run>/<fence>`, in the environment it was started with;
2. of what carries no cookie: what is in the run's control group or in the session of its first process, what is a child
   of something that belongs, and an orphan that only this run can have left.

What carries another cookie is never touched, nor is the embedded server, which a run may have been the first to start.

While the worker lives, all of that is below it; see `adoption`. Only what a service started at the wish of a run, like
a job of `at`, is not, and is looked for among all processes. When the worker dies, the cookies stay; `sweep` finds
them from any other process of the user.
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
from agentq.worker import proc
from agentq.worker.adoption import NOBODY, orphans, roots
from agentq.worker.adoption import become_subreaper as become_subreaper
from agentq.worker.cgroups import Cgroups as Cgroups
from agentq.worker.cgroups import Leaf
from agentq.worker.ending import Unkillable, end_all
from agentq.worker.proc import Stat

COOKIE = "AGENTQ_RUN"
KEEPER = "AGENTQ_KEEPER"
"""The process that started the run: its pid, and when it began."""
WORKER = "AGENTQ_WORKER"
"""In an environment without a cookie: a helper of the worker itself."""

BRIEF_MS = 1_000
"""A run of less than this is not worth a look at all processes of the machine, which takes a millisecond or more."""
REMEMBERED = 10_000

T = TypeVar("T")
Wanted = Callable[[str, str], bool]
"""Says of a cookie and a keeper whether their processes are to be ended."""
Marks = tuple[str, str]
"""Cookie and keeper of a process; empty if it has none that we can read."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a run's processes are recognised by."""

    cookie: str
    root: Stat
    began_ms: int
    leaf: Leaf | None = None


@cache
def keeper(pid: int) -> str:
    """A process, which should be this one, as the environment of its runs names it."""
    own = proc.stat(pid)
    return own.name if own else f"{pid}-unknown"


async def end(run: Run) -> int:
    """SIGKILL everything that is left of a run whose first process has ended; how many had left its group.

    Many runs that end at the same time are looked for at the same time, because each look is at the orphans of all.
    """
    brief = monotonic_ms() < run.began_ms + BRIEF_MS
    if brief and orphans() == NOBODY and (run.leaf is None or run.leaf.remove()):
        return 0
    undertaker = _undertakers.setdefault(asyncio.get_running_loop(), Undertaker())
    return await undertaker.bury(run)


Ended = int | Unkillable
"""How many processes had left the group of a run that is over, or why it is not over."""


@dataclass(eq=False, slots=True)
class Burial:
    """A run that is to be ended."""

    run: Run
    ended: Ended | None = None


class Undertaker:
    """Looks for all runs that are to be ended, and for one lot of them at a time."""

    def __init__(self) -> None:
        self._waiting: list[Burial] = []
        self._lock = asyncio.Lock()

    async def bury(self, run: Run) -> int:
        """End what is left of it, unless that has been done with another."""
        burial = Burial(run)
        self._waiting.append(burial)
        try:
            async with self._lock:
                if burial.ended is None:
                    lot = [each for each in self._waiting if each.ended is None]
                    ended = await _end_together({each.run for each in lot})
                    for each in lot:
                        each.ended = ended[each.run]
        finally:
            self._waiting.remove(burial)
        assert burial.ended is not None
        if isinstance(burial.ended, Unkillable):
            raise burial.ended
        return burial.ended


_undertakers: WeakKeyDictionary[asyncio.AbstractEventLoop, Undertaker] = WeakKeyDictionary()


async def _end_together(runs: Collection[Run]) -> dict[Run, Ended]:
    """How many had left the group of each, or why it is not over."""
    of: dict[str, Run] = {}

    def find(*, everywhere: bool = False) -> Iterator[Stat]:
        for one, run in members(runs, everywhere=everywhere):
            of[one.name] = run
            yield one

    leaves = [run.leaf for run in runs if run.leaf is not None]
    ended: dict[Run, Ended] = dict.fromkeys(runs, 0)
    found: list[Stat] = []
    try:
        found += await end_all(find, lambda: _strike(leaves))
        if found or any(monotonic_ms() >= run.began_ms + BRIEF_MS for run in runs):
            found += await end_all(lambda: find(everywhere=True), lambda: _strike(leaves))
        await _end_left_by({*(run.root.name for run in runs), *(one.name for one in found)})
    except Unkillable as error:
        ended.update((run, error) for _, run in members(runs))
    orphans()
    for leaf in leaves:
        _release_spared(leaf)
        leaf.remove()
    for one in {one.name: one for one in found if one.group != of[one.name].root.pid}.values():
        count = ended[of[one.name]]
        if isinstance(count, int):
            ended[of[one.name]] = count + 1
    return ended


def _strike(leaves: Iterable[Leaf]) -> None:
    for leaf in leaves:
        _release_spared(leaf)
        leaf.kill()


def _release_spared(leaf: Leaf) -> None:
    for pid in leaf.processes():
        if _spared(pid):
            leaf.release(pid)


def members(runs: Collection[Run], *, everywhere: bool = False) -> Iterator[tuple[Stat, Run]]:
    """The live processes that belong to runs, and to which; looked for below us, or among all of the user.

    What carries a cookie is told at once, because it may be about to fork.
    """
    by_cookie = {run.cookie: run for run in runs}
    nearby = become_subreaper() and not everywhere
    inside = {pid: run for run in runs if run.leaf is not None for pid in run.leaf.processes()}
    belong: dict[int, Run] = {}
    bare: list[Stat] = []
    for one in chain(_below_us(runs) if nearby else proc.everything(), filter(None, map(proc.stat, inside))):
        if not one.alive or one.pid == os.getpid() or not proc.is_ours(one.pid):
            continue
        cookie, _ = _marks(one)
        if run := by_cookie.get(cookie):
            belong[one.pid] = run
            yield one, run
        elif not cookie:
            bare.append(one)
            if run := inside.get(one.pid) or (_left_behind(one, runs) if nearby else None):
                belong[one.pid] = run
    belong = _with_children(belong, bare)
    for one in bare:
        if one.pid in belong and not _spared(one.pid):
            yield one, belong[one.pid]


def _below_us(runs: Collection[Run]) -> Iterator[Stat]:
    """Our descendants, but for those of other runs, as far as these are known."""
    cookies = {"", *(run.cookie for run in runs)}
    others = roots.keys() - {run.root.pid for run in runs}
    return proc.below(os.getpid(), others, lambda one: _recall(one)[0] not in cookies)


_known: dict[int, tuple[int, Marks]] = {}
"""When a process began, and its marks. It keeps them whatever it becomes by `exec`."""


def _recall(one: Stat) -> Marks:
    began, marks = _known.get(one.pid, (0, ("", "")))
    return marks if began == one.began else ("", "")


def _marks(one: Stat) -> Marks:
    marks = _recall(one)
    if not marks[0] and (marks := _read(one.pid))[0]:
        if len(_known) >= REMEMBERED:
            _known.clear()
        _known[one.pid] = one.began, marks
    return marks


def _read(pid: int) -> Marks:
    found = proc.environment(pid, COOKIE, KEEPER)
    return found.get(COOKIE, ""), found.get(KEEPER, "")


def _left_behind(one: Stat, runs: Iterable[Run]) -> Run | None:
    """Of which of these runs one below us without a cookie is: by its session, or because no other live run has it.

    The session's number could be another's since the run's first process was reaped; but not below us, where no session
    begins that is not of a run.
    """
    for run in runs:
        if one.session == run.root.pid:
            return run
    if one.parent != os.getpid() or one.pid in roots or one.session == os.getsid(0):
        return None
    ending = {run.root.pid for run in runs}
    if any(began <= one.began for root, began in roots.items() if root not in ending):
        return None
    return None if WORKER in proc.environment(one.pid, WORKER) else next(iter(runs))


def _with_children(belong: dict[int, T], bare: Iterable[Stat]) -> dict[int, T]:
    """With those of `bare` whose parent belongs, and theirs."""
    below: dict[int, list[int]] = {}
    for one in bare:
        below.setdefault(one.parent, []).append(one.pid)
    todo = list(belong)
    while todo:
        parent = todo.pop()
        new = [pid for pid in below.get(parent, ()) if pid not in belong]
        belong.update((pid, belong[parent]) for pid in new)
        todo += new
    return belong


def _spared(pid: int) -> bool:
    """Whether it is an embedded server, which outlives the run that was the first to need one."""
    words = proc.words(pid)
    with suppress(ValueError):
        folder = words[words.index(b"--dir") + 1]
        return words[words.index(b"--pidfile") + 1] == folder + b"/pid" and not _read(pid)[0]
    return False


async def sweep(which: str | Collection[str], *, cgroups: Cgroups | None = None) -> int:
    """End what dead workers left here: of runs in a namespace, or with one of these cookies. How many there were.

    A run whose worker lives is left to it. So are processes that live in a container of their own: whether their
    worker is dead cannot be told by its number from here.
    """

    def wanted(cookie: str, keeper: str) -> bool:
        named = f"{cookie}/".startswith(f"{which.rstrip('/')}/") if isinstance(which, str) else cookie in which
        return named and is_gone(keeper)

    leaves = [leaf for cookie, keeper, leaf in (cgroups.left() if cgroups else ()) if wanted(cookie, keeper)]
    found = await end_all(lambda: _left(wanted, leaves))
    for leaf in leaves:
        leaf.remove()
    await _end_left_by({one.name for one in found})
    return len(found)


def is_gone(keeper: str) -> bool:
    """Whether the process that an environment names has ended; its number may be another's by now."""
    pid, _, began = keeper.partition("-")
    if not pid.isdigit() or not began.isdigit():
        return False
    now = proc.stat(int(pid))
    return now is None or not now.alive or now.began != int(began)


async def _end_left_by(keepers: Collection[str]) -> None:
    """End the runs of workers that were ended with the run that they were in, and so on."""
    while keepers:
        found = await end_all(partial(_left, partial(_kept_by, keepers), nearby=become_subreaper()))
        keepers = {one.name for one in found}


def _kept_by(keepers: Collection[str], _cookie: str, keeper: str) -> bool:
    return keeper in keepers


def _left(wanted: Wanted, leaves: Iterable[Leaf] = (), *, nearby: bool = False) -> Iterator[Stat]:
    """Those whose cookie and keeper are wanted, with what carries none but is below them or in one of the groups."""
    own = {0, *proc.above(os.getpid())}
    inside = {pid for leaf in leaves for pid in leaf.processes()}
    belong: dict[int, None] = {}
    bare: list[Stat] = []
    for one in proc.below(os.getpid(), roots) if nearby else proc.everything():
        if not one.alive or one.pid in own or not proc.is_ours(one.pid):
            continue
        cookie, keeper = _marks(one) if nearby else _read(one.pid)
        if not cookie:
            bare.append(one)
        if (wanted(cookie, keeper) if cookie else one.pid in inside) and proc.is_near(one.pid):
            belong[one.pid] = None
            if cookie:
                yield one
    belong = _with_children(belong, bare)
    yield from (one for one in bare if one.pid in belong and not _spared(one.pid))
