"""The target branch. Moves it by compare-and-swap only, because a person or another machine may move it too.

A branch of the local repository moves by `git update-ref REF NEW OLD`; one of a remote, where several machines meet, by
`git push --force-with-lease=REF:OLD`. With a remote, its branch moves first and the local one follows, so no local
state is ahead of it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agentq.coordinator.errors import Refused
from agentq.coordinator.security.git_directory import find_real_checkout
from agentq.worker.workspace.git.git_command import Git, GitFailed
from agentq.worker.workspace.merge.rebase import format_trailer

FETCHED_REFS = "refs/agentq/fetched/"
"""Where fetched branches of the remote are stored, apart from the user's configuration."""
NULL_COMMIT = "0" * 40


class TargetMoved(Exception):
    """The branch has moved meanwhile."""


@dataclass(frozen=True, slots=True)
class TargetTip:
    """The commits of a branch: local, at the remote, and in a checkout."""

    local: str | None = None
    remote: str | None = None
    checkout: Path | None = None

    commit: str | None = None
    """The newest of both."""
    onto: str | None = None
    """The commit to put work onto: `commit`, or the base of the plan where that contains `commit`."""


@dataclass(frozen=True, slots=True)
class TargetBranch:
    """The branch that work is merged into; with a remote, the remote's."""

    git: Git
    branch: str
    remote: str | None = None
    local: bool = True
    """Whether the local repository gets a branch of that name too."""
    base: str | None = None
    """The commit that a plan began from: a branch behind it is moved forward with the first work."""

    address: str | None = None
    """The remote's address before the run began."""

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.branch}"

    def tip(self) -> TargetTip:
        """Its commits now."""
        here, checkout = self._local_tip() if self.local else (None, None)
        there = self._remote_tip() if self.remote else None
        commit = self._newest(here, there)
        behind = commit and self.base and commit != self.base and self.git.is_ancestor(commit, self.base)
        return TargetTip(here, there, checkout, commit, self.base if behind else commit)

    def _local_tip(self) -> tuple[str | None, Path | None]:
        output = self.git("for-each-ref", "--format=%(refname)%00%(objectname)%00%(worktreepath)", self.ref)
        for line in output.splitlines():
            name, commit, checkout = line.split("\0")
            if name == self.ref:
                # A bare repository stands on a branch, too, and has no files that could be behind it.
                place = find_real_checkout(Path(checkout)) if checkout else None
                return commit, place if place is not None and (place / ".git").exists() else None
        return None, self._unborn()

    def _unborn(self) -> Path | None:
        """The checkout that waits for the first commit of the branch."""
        for block in self.git("worktree", "list", "--porcelain").split("\n\n"):
            lines = block.splitlines()
            if f"branch {self.ref}" in lines:
                return find_real_checkout(Path(lines[0].removeprefix("worktree ")))
        return None

    def _remote_tip(self) -> str | None:
        assert self.remote is not None
        into = f"{FETCHED_REFS}{self.branch}"
        try:
            self.git(
                "fetch", "-q", "--no-tags", "--no-write-fetch-head", self.remote, f"+{self.ref}:{into}", remote=True
            )
        except GitFailed as failed:
            if "find remote ref" in failed.stderr:
                return None
            raise
        return self.git("rev-parse", "--verify", into).strip()

    def _newest(self, here: str | None, there: str | None) -> str | None:
        """One of the two may be behind; if they have diverged, a person has to decide."""
        if here is None or there is None or here == there:
            return here or there
        if self.git.is_ancestor(here, there):
            return there
        if self.git.is_ancestor(there, here):
            return here
        raise Refused(
            f"The branch {self.branch} here and that at {self.remote} have parted; bring them together, then retry."
        )

    def delivered(self, run: str, base: str, tip: str) -> str | None:
        """The commit with a run's work, if it is merged already."""
        if tip == base:
            return None
        line = format_trailer(run).replace(".", r"\.")
        output = self.git("log", "-1", "--format=%H", "--basic-regexp", f"--grep=^{line}$", f"{base}..{tip}")
        return output.strip() or None

    def move(self, tip: TargetTip, new: str) -> None:
        """Move it from the tip to a new commit; raises `TargetMoved` if it is elsewhere by now."""
        if self.remote is not None:
            self._push(tip.remote, new)
        if self.local:
            self._update(tip.local, new)

    def catch_up(self, tip: TargetTip) -> None:
        """Move the local branch to the remote's, unless it is checked out."""
        if self.local and self.remote is not None and tip.commit not in (None, tip.local) and tip.checkout is None:
            assert tip.commit is not None
            with suppress(TargetMoved):
                self._update(tip.local, tip.commit)

    def _update(self, old: str | None, new: str) -> None:
        words = ("update-ref", "-m", "agentq: merged", self.ref, new, old or NULL_COMMIT)
        for patient in (False, True):
            try:
                self.git(*words, wait_for_locks=patient)
            except GitFailed:
                if self._local_tip()[0] != old:
                    raise TargetMoved from None
                if patient:
                    raise
                # It has not moved: another process holds its lock, or was killed holding it.
            else:
                return

    def _push(self, old: str | None, new: str) -> None:
        assert self.remote is not None
        lease = f"--force-with-lease={self.ref}:{old or ''}"
        try:
            self.git.push(self.remote, f"{new}:{self.ref}", lease, expected=self.address)
        except GitFailed as failed:
            if self._remote_tip() != old:
                raise TargetMoved from None
            raise Refused(f"{self.remote} did not take the push to {self.branch}: {failed}") from failed
