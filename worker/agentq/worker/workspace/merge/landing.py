"""A turn in the merge line: a run's work goes onto the target, is checked there, and the target moves. Its tasks:

1. Look whether the work is there already: whoever was here before may have been killed after the target moved.
2. Put it onto the target's tip, and where a check is long and others wait behind, theirs on top of it.
3. Have the whole checked once. Where that fails, half of those behind are left out, again and again, until it succeeds
   or the run's own work is alone; who was left out has a turn of its own.
4. Move the target from where it was seen; begin anew if somebody was faster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentq.coordinator.errors import Refused
from agentq.worker.workspace.merge.checkout_update import CheckoutUpdate
from agentq.worker.workspace.merge.rebase import CommitRebase, CommitRecord, MergeConflict, MergePolicy, read_commits
from agentq.worker.workspace.merge.target_branch import TargetBranch, TargetMoved, TargetTip

LANDING_TRIES_MAX = 20
"""How often somebody else may be faster, before that is told instead of tried again."""


@dataclass(frozen=True, slots=True)
class MergePiece:
    """A run's work, as it is to go into the target."""

    run: str
    commit: str
    base: str
    """What it was begun from."""
    message: str | None = None
    """With its trailer; None if that of the commit has it."""
    squash: bool = False
    """Make one commit of it first."""


@dataclass(frozen=True, slots=True)
class LandedWork:
    """The work is in."""

    commit: str
    """Its own, which need not be the target's tip."""
    checkout_updated: bool = False


class AlreadyMerged(Exception):
    """The target has the same changes already, by a commit of somebody else."""


class CheckRejected(Exception):
    """The check failed on the run's own work; the argument says how."""

    def __init__(self, why: str, told: str = "") -> None:
        super().__init__(why)
        self.told = told
        """The end of what the check said."""


CallBlocking = Callable[..., Awaitable[Any]]
"""Has something done that blocks."""
CheckCommit = Callable[[str], Awaitable[CheckRejected | None]]
"""Check a commit; None if all is well."""
NoteMove = Callable[[str, str | None], Awaitable[None]]
"""Note, before the target moves, to which commit and from which."""


ListCompanions = Callable[[], Awaitable[Sequence[tuple[str, str]]]]
"""Who waits behind with the same check, in order, and with which commit."""


async def _list_no_companions() -> Sequence[tuple[str, str]]:
    return ()


class WorkLanding:
    """Of one run."""

    def __init__(
        self,
        target: TargetBranch,
        stacking: CommitRebase,
        policy: MergePolicy,
        *,
        update_checkout: bool = False,
        say: Callable[[str], None] = lambda _: None,
        calling: CallBlocking = asyncio.to_thread,
    ) -> None:
        self.target = target
        self._stacking = stacking
        self._policy = policy
        self._update_checkout = update_checkout
        self._say = say
        self._calling = calling
        self.seen: str | None = None
        """Where the target was when the work was last put onto it."""

    def refuse(self, tip: TargetTip) -> None:
        """Say so where the target cannot move as things are."""
        if tip.checkout is not None and not self._update_checkout:
            raise Refused(
                f"The branch {self.target.branch} is checked out in {tip.checkout}, which nobody has said may change; "
                "check out another branch there, or ask for update_checkout, and retry the run."
            )

    async def land(
        self,
        piece: MergePiece,
        note: NoteMove,
        check: CheckCommit | None = None,
        others: ListCompanions = _list_no_companions,
    ) -> LandedWork:
        """Raises `Conflict`, `Rejected`, `Refused` or `AlreadyMerged` where it does not get in."""
        passed: set[str] = set()
        for _ in range(LANDING_TRIES_MAX):
            tip = await self._calling(self.target.tip)
            self.seen = tip.onto or piece.base
            found: LandedWork | None = await self._calling(self._found, piece, tip)
            if found is not None:
                return found
            stack: list[tuple[str, str]] = await self._calling(
                self._stacked, piece, tip, await others() if check else ()
            )
            if stack[0][1] == tip.onto:
                raise AlreadyMerged
            if check is not None:
                stack = await self._checked(stack, check, passed)
            (_, own), (_, new) = stack[0], stack[-1]
            if len(stack) > 1 and not {run for run, _ in stack[1:]} <= {run for run, _ in await others()}:
                self._say(
                    "one of those that were checked together with it does not wait any more; trying again without"
                )
                continue
            await note(new, tip.commit)
            try:
                updated = await self._calling(self._move, tip, new)
            except TargetMoved:
                self._say(f"{self.target.branch} was moved by somebody else meanwhile; trying again on its new tip")
                continue
            return LandedWork(own, updated)
        raise Refused(
            f"{self.target.branch} was moved by others {LANDING_TRIES_MAX} times while this was to be merged; retry "
            f"the run."
        )

    def _found(self, piece: MergePiece, tip: TargetTip) -> LandedWork | None:
        """Where the work is already, if it is; what was interrupted after it had got there is finished."""
        finished = False
        if tip.checkout is not None and self._update_checkout:
            finished = CheckoutUpdate(self.target.git, tip.checkout).finish()
        found = None if tip.commit is None else self.target.delivered(piece.run, piece.base, tip.commit)
        if found is None:
            self.refuse(tip)
            return None
        self.target.catch_up(tip)
        return LandedWork(found, finished)

    def _stacked(self, piece: MergePiece, tip: TargetTip, others: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """The work, and what of the others' fits on top of it, each on the one before."""
        onto, work, *rest = read_commits(
            self.target.git, tip.onto or piece.base, piece.commit, *(each for _, each in others)
        )
        if piece.squash and (one := self._stacking.squashed(work, self._begun(piece, tip))) != work.id:
            (work,) = read_commits(self.target.git, one)
        stack = [(piece.run, self._stacking.stacked(onto, work, self._policy, piece.message or work.message))]
        if not rest:
            return stack
        (onto,) = read_commits(self.target.git, stack[0][1])
        for (run, _), other in zip(others, rest, strict=True):
            fitted = self._fitted(run, onto, other)
            if fitted is not None:
                stack.append((run, fitted.id))
                onto = fitted
        return stack

    def _begun(self, piece: MergePiece, tip: TargetTip) -> str:
        """What the work goes on from: later than its base, where it has brought in more of the target meanwhile."""
        if tip.onto in (None, piece.base):
            return piece.base
        git = self.target.git
        parted = git.answers("merge-base", piece.commit, tip.onto or "")
        if parted is None or parted == piece.base or not git.is_ancestor(piece.base, parted):
            return piece.base
        return parted

    def _fitted(self, run: str, onto: CommitRecord, other: CommitRecord) -> CommitRecord | None:
        if len(other.parents) != 1 or not other.carries(run):
            return None
        if self.target.delivered(run, other.parents[0], onto.id):
            return None
        try:
            made = self._stacking.picked(onto, other, other.message)
        except MergeConflict:
            return None
        return None if made == onto.id else read_commits(self.target.git, made)[0]

    async def _checked(
        self, stack: list[tuple[str, str]], check: CheckCommit, passed: set[str]
    ) -> list[tuple[str, str]]:
        """As much of the stack, from its bottom, as passes."""
        while True:
            if len(stack) > 1:
                self._say(f"checking it together with {len(stack) - 1} of those that wait behind it")
            _, whole = stack[-1]
            failed = None if whole in passed else await check(whole)
            if failed is None:
                passed.add(whole)
                return stack
            if len(stack) == 1:
                raise failed
            stack = stack[: len(stack) // 2]

    def _move(self, tip: TargetTip, new: str) -> bool:
        """Whether a checkout went with it."""
        if new == tip.commit:
            return False
        if tip.checkout is None:
            self.target.move(tip, new)
            return False
        if tip.here is None:
            raise Refused(f"The branch {self.target.branch} is checked out in {tip.checkout}, and has no commit yet.")
        CheckoutUpdate(self.target.git, tip.checkout, self._say).follow(
            tip.here, new, lambda: self.target.move(tip, new)
        )
        return True
