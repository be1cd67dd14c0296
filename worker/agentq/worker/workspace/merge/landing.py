"""Merges a run's work into the target in its turn of the merge queue. Its tasks:

1. Find work that is merged already: an earlier attempt may have been killed after the target moved.
2. Put the work onto the target's tip and, with a check, the work of runs waiting behind it on top.
3. Check the whole stack once. While it fails, drop half of the runs behind, until it passes or the run's own work is
   alone; dropped runs get turns of their own.
4. Move the target by compare-and-swap; start again if it has moved.
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
"""How often the target may move meanwhile before this fails instead of retrying."""


@dataclass(frozen=True, slots=True)
class MergePiece:
    """A run's work, in the form in which it is merged."""

    run: str
    commit: str
    base: str
    """The commit that it began from."""
    message: str | None = None
    """The commit message with its trailer; None if the commit has it."""
    squash: bool = False
    """Squash it to one commit first."""


@dataclass(frozen=True, slots=True)
class LandedWork:
    """Work that is merged."""

    commit: str
    """The run's own commit, which need not be the target's tip."""
    checkout_updated: bool = False


class AlreadyMerged(Exception):
    """The target has the same changes already, by another commit."""


class CheckRejected(Exception):
    """The check failed on the run's own work; the argument says how."""

    def __init__(self, why: str, output: str = "") -> None:
        super().__init__(why)
        self.output = output
        """The end of the check's output."""


CallBlocking = Callable[..., Awaitable[Any]]
"""Calls a blocking function in a thread."""
CheckCommit = Callable[[str], Awaitable[CheckRejected | None]]
"""Checks a commit; None if it passes."""
NoteMove = Callable[[str, str | None], Awaitable[None]]
"""Records, before the target moves, to which commit and from which."""


ListCompanions = Callable[[], Awaitable[Sequence[tuple[str, str]]]]
"""The runs waiting behind with the same check, in order, with their commits."""


async def _list_no_companions() -> Sequence[tuple[str, str]]:
    return ()


class WorkLanding:
    """Merges the work of one run."""

    def __init__(
        self,
        target: TargetBranch,
        rebase: CommitRebase,
        policy: MergePolicy,
        *,
        update_checkout: bool = False,
        note: Callable[[str], None] = lambda _: None,
        call_blocking: CallBlocking = asyncio.to_thread,
    ) -> None:
        self.target = target
        self._rebase = rebase
        self._policy = policy
        self._update_checkout = update_checkout
        self._note = note
        self._call_blocking = call_blocking
        self.target_commit: str | None = None
        """The target's commit when the work was last put onto it."""

    def check_movable(self, tip: TargetTip) -> None:
        """Refuse if the target cannot move as things are."""
        if tip.checkout is not None and not self._update_checkout:
            raise Refused(
                f"The branch {self.target.branch} is checked out in {tip.checkout}, which may not change; "
                "check out another branch there, or ask for update_checkout, and retry the run."
            )

    async def land(
        self,
        piece: MergePiece,
        record_move: NoteMove,
        check: CheckCommit | None = None,
        others: ListCompanions = _list_no_companions,
    ) -> LandedWork:
        """Merge; raises `MergeConflict`, `CheckRejected`, `Refused` or `AlreadyMerged` if it cannot."""
        passed: set[str] = set()
        for _ in range(LANDING_TRIES_MAX):
            tip = await self._call_blocking(self.target.tip)
            self.target_commit = tip.onto or piece.base
            found: LandedWork | None = await self._call_blocking(self._find_delivered, piece, tip)
            if found is not None:
                return found
            stack: list[tuple[str, str]] = await self._call_blocking(
                self._build_stack, piece, tip, await others() if check else ()
            )
            if stack[0][1] == tip.onto:
                raise AlreadyMerged
            if check is not None:
                stack = await self._check_stack(stack, check, passed)
            (_, own), (_, new) = stack[0], stack[-1]
            if len(stack) > 1 and not {run for run, _ in stack[1:]} <= {run for run, _ in await others()}:
                self._note(
                    "one of those that were checked together with it does not wait any more; trying again without"
                )
                continue
            await record_move(new, tip.commit)
            try:
                updated = await self._call_blocking(self._move, tip, new)
            except TargetMoved:
                self._note(f"{self.target.branch} was moved meanwhile; trying again on its new tip")
                continue
            return LandedWork(own, updated)
        raise Refused(
            f"{self.target.branch} was moved by others {LANDING_TRIES_MAX} times while this was to be merged; retry "
            f"the run."
        )

    def _find_delivered(self, piece: MergePiece, tip: TargetTip) -> LandedWork | None:
        """The merged commit, if the work is merged already; finishes an interrupted update of a checkout."""
        finished = False
        if tip.checkout is not None and self._update_checkout:
            finished = CheckoutUpdate(self.target.git, tip.checkout).finish()
        found = None if tip.commit is None else self.target.delivered(piece.run, piece.base, tip.commit)
        if found is None:
            self.check_movable(tip)
            return None
        self.target.catch_up(tip)
        return LandedWork(found, finished)

    def _build_stack(
        self, piece: MergePiece, tip: TargetTip, others: Sequence[tuple[str, str]]
    ) -> list[tuple[str, str]]:
        """The work, and the work of others that applies on top of it, each on the one before."""
        onto, work, *rest = read_commits(
            self.target.git, tip.onto or piece.base, piece.commit, *(each for _, each in others)
        )
        if piece.squash and (one := self._rebase.squashed(work, self._find_start(piece, tip))) != work.id:
            (work,) = read_commits(self.target.git, one)
        stack = [(piece.run, self._rebase.stacked(onto, work, self._policy, piece.message or work.message))]
        if not rest:
            return stack
        (onto,) = read_commits(self.target.git, stack[0][1])
        for (run, _), other in zip(others, rest, strict=True):
            fitted = self._pick_companion(run, onto, other)
            if fitted is not None:
                stack.append((run, fitted.id))
                onto = fitted
        return stack

    def _find_start(self, piece: MergePiece, tip: TargetTip) -> str:
        """The commit that the work starts from: later than its base if it has merged more of the target since."""
        if tip.onto in (None, piece.base):
            return piece.base
        git = self.target.git
        merge_base = git.answers("merge-base", piece.commit, tip.onto or "")
        if merge_base is None or merge_base == piece.base or not git.is_ancestor(piece.base, merge_base):
            return piece.base
        return merge_base

    def _pick_companion(self, run: str, onto: CommitRecord, other: CommitRecord) -> CommitRecord | None:
        if len(other.parents) != 1 or not other.carries(run):
            return None
        if self.target.delivered(run, other.parents[0], onto.id):
            return None
        try:
            made = self._rebase.picked(onto, other, other.message)
        except MergeConflict:
            return None
        return None if made == onto.id else read_commits(self.target.git, made)[0]

    async def _check_stack(
        self, stack: list[tuple[str, str]], check: CheckCommit, passed: set[str]
    ) -> list[tuple[str, str]]:
        """The largest part of the stack, from its bottom, that passes."""
        while True:
            if len(stack) > 1:
                self._note(f"checking it together with {len(stack) - 1} of those that wait behind it")
            _, whole = stack[-1]
            failed = None if whole in passed else await check(whole)
            if failed is None:
                passed.add(whole)
                return stack
            if len(stack) == 1:
                raise failed
            stack = stack[: len(stack) // 2]

    def _move(self, tip: TargetTip, new: str) -> bool:
        """Move the target; returns whether a checkout was updated."""
        if new == tip.commit:
            return False
        if tip.checkout is None:
            self.target.move(tip, new)
            return False
        if tip.local is None:
            raise Refused(f"The branch {self.target.branch} is checked out in {tip.checkout}, and has no commit yet.")
        CheckoutUpdate(self.target.git, tip.checkout, self._note).follow(
            tip.local, new, lambda: self.target.move(tip, new)
        )
        return True
