"""Puts a run's work onto another commit, without a checkout where git can do that, and never with an editor or a
prompt.

`squash` makes one commit, `rebase` reapplies its commits one by one, `merge` makes a merge commit. Authors and their
dates are kept. The result carries the run's trailer, by which it is found again. Only objects are written: the caller
moves branches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from agentq.worker.workspace.git.git_command import Git, GitFailed

TRAILER = "Agentq-Run"
MERGE_TREE_VERSION = (2, 38)
"""The first git that merges without a checkout."""
CONFLICT_FILES_MAX = 1_000
"""How many conflicting files are named."""

MergePolicy = Literal["squash", "rebase", "merge"]


class MergeConflict(Exception):
    """The work conflicts with the commit; the argument names the files."""

    def __init__(self, files: tuple[str, ...]) -> None:
        named = [file if file.isprintable() else repr(file) for file in files[:10]]
        super().__init__(f"conflict in {', '.join(named)}{f' and {len(files) - 10} more' if files[10:] else ''}")
        self.files = files


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """One commit."""

    id: str
    tree: str
    parents: tuple[str, ...]
    author: tuple[str, str, str]
    """Name, address and date."""
    message: str

    def carries(self, run: str) -> bool:
        """Whether it is the work of a run, by its trailer."""
        return format_trailer(run) in self.message.splitlines()


def format_trailer(run: str) -> str:
    """The line that marks a commit as the work of a run."""
    return f"{TRAILER}: {run}"


def read_commits(git: Git, *names: str) -> list[CommitRecord]:
    """Read commits, with one git process."""
    form = "%H%x00%T%x00%P%x00%an%x00%ae%x00%ad%x00%B%x00"
    output = git(
        "show", "-s", "--no-show-signature", "--date=raw", f"--format=tformat:{form}", "--end-of-options", *names
    )
    fields = output.split("\0")
    return [_parse_commit(fields[at : at + 7]) for at in range(0, len(fields) - 1, 7)]


def _parse_commit(fields: list[str]) -> CommitRecord:
    id_, tree, parents, name, address, date, message = fields
    return CommitRecord(
        id_.strip(), tree, tuple(parents.split()), (name, address, f"@{date}"), message.strip("\n") + "\n"
    )


class TreeMerger(Protocol):
    """Merges three commits into a tree."""

    def merged(self, base: str | None, ours: str, theirs: str) -> str:
        """The merged tree; raises `MergeConflict`. Without a base, uses the merge base."""


class MergeTreeMerger:
    """Uses `git merge-tree`, which only writes objects."""

    def __init__(self, git: Git) -> None:
        self._git = git

    def merged(self, base: str | None, ours: str, theirs: str) -> str:
        if base is not None:
            # Named bases came later than the rest. A commit that parts from theirs at the base stands for ours.
            ours = self._git(
                "commit-tree", f"{ours}^{{tree}}", "-p", base, input="the other side\n", identity=AGENTQ_IDENTITY
            ).strip()
        output = self._git(
            "merge-tree",
            "--write-tree",
            "--allow-unrelated-histories",
            "-z",
            "--name-only",
            "--no-messages",
            ours,
            theirs,
            ok_codes=(1,),
        )
        tree, *files = output.split("\0")
        named = tuple(dict.fromkeys(file for file in files if file))
        if named:
            raise MergeConflict(named[:CONFLICT_FILES_MAX])
        return tree.strip()


class WorktreeMerger:
    """Uses the worktree for merges, for an older git."""

    def __init__(self, git: Git) -> None:
        self._git = git
        """Git in that worktree."""

    def merged(self, base: str | None, ours: str, theirs: str) -> str:
        git = self._git
        git("checkout", "-q", "-f", "--detach", ours)
        try:
            if base is None:
                git("merge", "-q", "--no-commit", "--no-ff", "--no-edit", theirs)
            else:
                git("cherry-pick", "--no-commit", theirs)
            return git("write-tree").strip()
        except GitFailed:
            files = tuple(file for file in git("diff", "--name-only", "--diff-filter=U", "-z").split("\0") if file)
            if not files:
                raise
            raise MergeConflict(files[:CONFLICT_FILES_MAX]) from None
        finally:
            git("reset", "-q", "--hard", ours)


AGENTQ_IDENTITY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "agentq"), ("EMAIL", "agentq@localhost"), ("DATE", "@0 +0000"))
}


def choose_merger(git: Git, worktree: Callable[[], Git]) -> TreeMerger:
    """The better merger that this git supports."""
    return MergeTreeMerger(git) if git.version() >= MERGE_TREE_VERSION else WorktreeMerger(worktree())


class CommitRebase:
    """Puts work onto commits of one repository."""

    def __init__(self, git: Git, merger: TreeMerger, *, sign: bool = False) -> None:
        self._git = git
        self._merger = merger
        self._sign = ("-S",) if sign else ()

    def made(self, tree: str, parents: tuple[str, ...], like: CommitRecord, message: str) -> str:
        """A new commit with the author of another."""
        name, address, date = like.author
        author = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": address, "GIT_AUTHOR_DATE": date}
        over = [word for parent in parents for word in ("-p", parent)]
        return self._git("commit-tree", *self._sign, *over, tree, input=message, identity=author).strip()

    def squashed(self, tip: CommitRecord, base: str) -> str:
        """All changes since the base, as one commit on it."""
        return tip.id if tip.parents == (base,) else self.made(tip.tree, (base,), tip, tip.message)

    def stacked(self, onto: CommitRecord, work: CommitRecord, policy: MergePolicy, message: str) -> str:
        """The commit with the work on top of another; that one itself if it has all of the work."""
        if policy == "merge":
            return self._merge(onto, work, message)
        if policy == "rebase":
            return self._rebase(onto, work, message)
        return self.picked(onto, work, message)

    def picked(self, onto: CommitRecord, work: CommitRecord, message: str) -> str:
        """The changes of one commit, applied to another."""
        if work.parents == (onto.id,) and work.message == message:
            return work.id
        (parent,) = work.parents
        tree = work.tree if parent == onto.id else self._merger.merged(parent, onto.id, work.id)
        return onto.id if tree == onto.tree else self.made(tree, (onto.id,), work, message)

    def _merge(self, onto: CommitRecord, work: CommitRecord, message: str) -> str:
        tree = self._merger.merged(None, onto.id, work.id)
        return onto.id if tree == onto.tree else self.made(tree, (onto.id, work.id), work, message)

    def _rebase(self, onto: CommitRecord, work: CommitRecord, message: str) -> str:
        """Each of its commits; the last carries the trailer."""
        listed = self._git("rev-list", "--reverse", "--topo-order", work.id, f"^{onto.id}").split()
        chain = read_commits(self._git, *listed) if listed else []
        for each in chain:
            last = each.id == work.id
            if len(each.parents) > 1:
                raise MergeConflict(())
            onto = self._read(self.picked(onto, each, message if last else each.message))
        return onto.id

    def _read(self, commit: str) -> CommitRecord:
        (told,) = read_commits(self._git, commit)
        return told
