"""Commits what a run left, whatever state its git is in.

1. Uncommitted changes are committed, with the configured identity and the run's trailers; without ignored files, local
   files that agentq put there, and repositories made within.
2. The work is what is checked out, wherever HEAD is; other commits on the run's branch are preserved. Work that does
   not descend from the base is merged onto it, from their merge base, as one commit.
3. A merge without conflicts is concluded; a rebase or bisect is undone, its state preserved. An unresolved conflict is
   not delivered.
4. The last commit carries the trailers, even if the run made it. A run without changes in sum has no commits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from agentq.worker.workspace.git.file_changes import CONFLICT_MARK, FileChanges, list_marked, unhide_changes
from agentq.worker.workspace.git.git_command import GitCancelled, GitFailed
from agentq.worker.workspace.git.git_files import read_text, remove_path
from agentq.worker.workspace.git.preserved_refs import add_all_files, commit_snapshot, preserve_commits
from agentq.worker.workspace.git.repository import is_commit_hash
from agentq.worker.workspace.git.submodules import preserve_submodules
from agentq.worker.workspace.merge.rebase import MergeConflict, choose_merger
from agentq.worker.workspace.worktree.worktree import OPERATION_FILES, Worktree, drop_locks

FILE_BYTES_MAX = 100 << 20
"""A larger file is hardly intended, and hardly any server accepts it."""
TITLE_CHARACTERS = 72
BODY_CHARACTERS = 4_000
NAMED_FILES_MAX = 5
_CONFIGURED_IDENTITY: Mapping[str, str] = MappingProxyType({})
"""No variables: git uses the configured identity."""
_TRAILER_PARAGRAPH = re.compile(r"(\A|\n\n)([A-Za-z0-9-]+: [^\n]*\n?)+\Z")


class Undeliverable(Exception):
    """The work cannot be delivered as it is; the argument says why and what to do. It is preserved."""

    def __init__(self, sentence: str, *, conflicts: tuple[str, ...] = ()) -> None:
        super().__init__(sentence)
        self.conflicts = conflicts
        """The files with unresolved conflicts, if that is the reason."""


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """The message of a commit."""

    title: str
    body: str = ""
    trailers: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        parts = [_get_first_line(self.title), _cut_body(self.body.strip()), "\n".join(self.lines)]
        return "\n\n".join(part for part in parts if part) + "\n"

    @property
    def lines(self) -> list[str]:
        return [f"{key}: {value}" for key, value in self.trailers]

    def add_to(self, text: str) -> str:
        """Another message with our trailers at its end."""
        lines = [line for line in self.lines if line not in text.splitlines()]
        if not lines:
            return text
        text = text.rstrip("\n")
        return f"{text}{chr(10) if _TRAILER_PARAGRAPH.search(text) else chr(10) * 2}{chr(10).join(lines)}\n"


@dataclass(frozen=True, slots=True)
class CommittedWork:
    """The work as commits."""

    base: str
    commit: str
    """The last commit; the base itself if nothing was changed."""
    files: int = 0
    insertions: int = 0
    deletions: int = 0
    notes: tuple[str, ...] = field(default=())
    """Sentences for the log."""

    @property
    def is_empty(self) -> bool:
        return self.commit == self.base


def build_message(run: str, title: str, task: str | None = None, body: str = "") -> CommitMessage:
    """The commit message of a run."""
    trailers = [("Agentq-Run", run), *([("Agentq-Task", task)] if task else [])]
    return CommitMessage(title, body, tuple(trailers))


def commit_work(worktree: Worktree, message: CommitMessage) -> CommittedWork:
    """Commit what is left, and move the run's branch to the work; raises `Undeliverable`."""
    return _WorkCommitter(worktree, message).commit()


class _WorkCommitter:
    def __init__(self, worktree: Worktree, message: CommitMessage) -> None:
        self.worktree = worktree
        self.git = worktree.git
        self.run = worktree.record.run
        self.message = message
        self.notes: list[str] = []
        self._made: set[str] = set()
        """Commits made here."""
        self._lines: dict[str, list[tuple[int, int]]] = {}
        """Inserted and deleted lines since the base, where already known."""
        self._branch_at: str | None = None
        self._held: tuple[str, ...] = ()
        """Repositories made within that exist nowhere else."""

    def commit(self) -> CommittedWork:
        if not self.worktree.is_ours():
            raise GitCancelled(f"{self.worktree.path} is not this attempt's any more.")
        if not self.worktree.path.is_dir():
            raise Undeliverable(
                f"it deleted its worktree, {self.worktree.path}, and with it what it had not committed; what it had "
                f"committed is on the branch {self.worktree.branch}"
            )
        drop_locks(self.worktree)
        self._refuse_conflicts()
        self._undo_half_done()
        head = self._head()
        tip = self._with_others(self._commit_uncommitted(head), head)
        tip = self._rebased_on_base(tip, head)
        changes = self._changes(tip) if tip != self.worktree.base else []
        if not changes:
            return self._build_empty(tip)
        tip = self._with_trailers(tip)
        self._move_to(tip)
        came, went = (sum(each[at] for each in changes) for at in (0, 1))
        return CommittedWork(self.worktree.base, tip, len(changes), came, went, notes=tuple(self.notes))

    # ---- what git was in the middle of

    def _refuse_conflicts(self) -> None:
        """Refuse unresolved conflicts; unhide changes that the index hides."""
        marks = list_marked(self.git)
        files = tuple(path for path, mark in marks.items() if mark == CONFLICT_MARK)
        if files:
            self._preserve_now()
            raise Undeliverable(f"conflicts are not resolved in {_name_files(files)}", conflicts=files)
        unhide_changes(self.git, marks)

    def _undo_half_done(self) -> None:
        """Undo an unfinished rebase or bisect: the work is where it began."""
        folder = self.worktree.record.git_dir
        for name in ("rebase-merge", "rebase-apply"):
            if (folder / name).is_dir():
                self._undo(folder / name / "orig-head", "a rebase")
        if (folder / "BISECT_START").is_file():
            self._undo(folder / "BISECT_START", "a bisect")

    def _undo(self, where: Path, what: str) -> None:
        self._preserve_now()
        began = read_text(where).strip()
        names = (f"refs/heads/{began}", *filter(is_commit_hash, [began])) if began else ()
        commits = map(self._commit_at, names)
        self._forget_half_done()
        if commit := next(filter(None, commits), None):
            self.git("checkout", "-q", "-f", "--detach", commit, wait_for_locks=True)
            self.git(
                "clean", "-q", "-ffd", *(word for path in self.worktree.record.placed_files for word in ("-e", path))
            )
        self.notes.append(f"{what} was left half done and is undone; what it had come to is kept in its shelter")

    def _forget_half_done(self) -> None:
        for name in OPERATION_FILES:
            remove_path(self.worktree.record.git_dir / name)

    # ---- where the work is

    def _head(self) -> str:
        """The checked out commit; also finds the run's branch."""
        branch = f"refs/heads/{self.worktree.branch}" if self.worktree.branch else "HEAD"
        both = self.git.answers("rev-parse", "HEAD^{commit}", f"{branch}^{{commit}}")
        if both is not None:
            head, self._branch_at = both.split()
            return head
        self._branch_at = self._commit_at(branch)
        head = self._commit_at("HEAD") or ""
        if not head:
            self.notes.append("what was checked out has no commit; its files are taken as a change of the base")
        return head or self.worktree.base

    def _commit_at(self, name: str) -> str | None:
        return self.git.answers("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")

    def _with_others(self, tip: str, head: str) -> str:
        """Include commits on the run's branch that HEAD lacks: if nothing else was done, they are the work."""
        other = self._branch_at
        if not other or other in (tip, head) or self.git.is_ancestor(other, tip):
            return tip
        if tip == head and self.git.is_ancestor(tip, other):
            self.git("checkout", "-q", "-f", "--detach", other, wait_for_locks=True)
            return other
        preserve_commits(self.git, self.run, other)
        left = f"what was on {self.worktree.branch} and is not checked out any more"
        self.notes.append(f"{left} is no part of the work, and sheltered")
        return tip

    def _preserve_now(self) -> None:
        """Preserve everything as it is."""
        head = self._commit_at("HEAD")
        now = commit_snapshot(self.git, self.run, without=self.worktree.record.placed_files)
        preserve_commits(self.git, self.run, *(each for each in (head, now) if each))

    # ---- the commits

    def _commit_uncommitted(self, head: str) -> str:
        """The tip, with uncommitted changes as one more commit."""
        nested = add_all_files(self.git, without=self.worktree.record.placed_files)
        staged = self._staged(head)
        known = self._submodules()
        nested += [each.path for each in staged.entries if each.is_new_repository and each.path not in known]
        unwanted = [*nested, *self.worktree.record.placed_files]
        if unwanted:
            self._unstage(unwanted)
            staged = self._staged(head)
        self._refuse_large(staged)
        self._note_repositories(nested)
        parents = [head, *self._merged()]
        if len(parents) == 1 and not staged.entries:
            return head
        made = self._commit(self.git("write-tree", wait_for_locks=True).strip(), parents)
        if parents == [self.worktree.base] and not self.git.safe_config.trust:
            self._lines[made] = staged.lines
        return made

    def _staged(self, head: str) -> FileChanges:
        words = ("diff-index", "--cached", "--raw", "--numstat", "-z", "--no-renames", "--no-ext-diff", "--no-textconv")
        return FileChanges.read(self.git(*words, head))

    def _unstage(self, paths: list[str]) -> None:
        listed = "\0".join(f":(top,literal){path}" for path in paths)
        words = ("--cached", "--ignore-unmatch", "--pathspec-from-file=-", "--pathspec-file-nul")
        self.git("rm", "-r", "-q", "-f", *words, input=listed, wait_for_locks=True)

    def _note_repositories(self, nested: list[str]) -> None:
        """Nested repositories are not part of the work, and new submodule commits are in no other repository yet."""
        held = preserve_submodules(self.git, self.worktree.repository.modules, self.run)
        if nested:
            self.notes.append(f"a repository within is no part of the work: {_name_files(nested)}")
        if held:
            self.notes.append(f"what was done in a submodule is only in the worktree: {_name_files(held)}")
        self._held = (*nested, *held)

    def _submodules(self) -> set[str]:
        if not (self.worktree.path / ".gitmodules").is_file():
            return set()
        listed = self.git("config", "-z", "--file", ".gitmodules", "--get-regexp", r"\.path$", ok_codes=(1,))
        return {entry.partition("\n")[2] for entry in listed.split("\0")}

    def _refuse_large(self, staged: FileChanges) -> None:
        paths = [each.path for each in staged.entries if each.has_content]
        large = [path for path in paths if _measure_file(self.worktree.path / path) > FILE_BYTES_MAX]
        if large:
            self._preserve_now()
            raise Undeliverable(
                f"{_name_files(large)} has more than {FILE_BYTES_MAX >> 20} MiB; have the repository ignore it, or "
                f"use LFS"
            )

    def _merged(self) -> list[str]:
        """The commits that an unfinished merge brings in."""
        return [*filter(is_commit_hash, read_text(self.worktree.record.git_dir / "MERGE_HEAD").split())]

    def _commit(self, tree: str, parents: list[str]) -> str:
        made = self._commit_with_hooks() if self.git.safe_config.trust else self._commit_of(tree, parents)
        self._made.add(made)
        return made

    def _commit_of(
        self, tree: str, parents: list[str], text: str = "", author: Mapping[str, str] = _CONFIGURED_IDENTITY
    ) -> str:
        over = [word for parent in parents for word in ("-p", parent)]
        sign = ("-S",) if self.git.safe_config.sign else ()
        return self.git("commit-tree", *sign, *over, tree, input=text or self.message.text, identity=author).strip()

    def _commit_with_hooks(self) -> str:
        """Commit as a person would: the repository's hooks may change or refuse it."""
        try:
            self.git("commit", "-q", "--cleanup=verbatim", "-F", "-", input=self.message.text)
        except GitFailed as failed:
            self._preserve_now()
            raise Undeliverable(
                f"the commit is refused, maybe by a hook: {failed.stderr.strip() or failed}"
            ) from failed
        return self.git("rev-parse", "HEAD").strip()

    def _rebased_on_base(self, tip: str, head: str) -> str:
        """The work as a commit on the base. It began at the merge base, as after `git checkout -b fix main`: commits
        that the base has since then are not in its files, and stay.
        """
        base = self.worktree.base
        if base in (tip, head) or self.git.is_ancestor(base, tip):
            return tip
        preserve_commits(self.git, self.run, tip)
        if self.git.answers("merge-base", base, tip) is None or self._is_amended_base(tip):
            self.notes.append("the work does not go on from its base; it is taken as one commit on that")
            made = self._commit_of(f"{tip}^{{tree}}", [base])
        else:
            made = self._commit_of(self._merged_with_base(tip), [base])
            self.git("checkout", "-q", "-f", "--detach", made, wait_for_locks=True)
            self.notes.append("the work went on from an older commit than its base; it is put onto the base")
        self._made.add(made)
        return made

    def _merged_with_base(self, tip: str) -> str:
        """The tree with the changes of both since their merge base."""
        try:
            return choose_merger(self.git, lambda: self.git).merged(None, self.worktree.base, tip)
        except MergeConflict as conflict:
            self.git("checkout", "-q", "-f", "--detach", tip, wait_for_locks=True)
            raise Undeliverable(
                f"its work went on from an older commit than its base, and does not fit onto that: {conflict}",
                conflicts=conflict.files,
            ) from conflict

    def _is_amended_base(self, tip: str) -> bool:
        """Whether `git commit --amend` replaced the base: then what is missing of it was removed on purpose."""
        before, anew = "", {self.worktree.base}
        for line in reversed((self.git.answers("log", "-g", "--format=%H %gs", "HEAD") or "").splitlines()):
            commit, _, subject = line.partition(" ")
            if before in anew and subject.startswith("commit (amend)"):
                anew.add(commit)
            before = commit
        return any(self.git.is_ancestor(commit, tip) for commit in anew - {self.worktree.base})

    def _with_trailers(self, tip: str) -> str:
        if tip in self._made:
            return tip
        output = self.git(
            "show", "-s", "--no-show-signature", "--date=raw", "--format=%an%x00%ae%x00%ad%x00%P%x00%B", tip
        )
        name, address, date, parents, text = output.split("\0")
        whole = self.message.add_to(text)
        if whole == text:
            return tip
        author = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": address, "GIT_AUTHOR_DATE": f"@{date}"}
        return self._commit_of(f"{tip}^{{tree}}", parents.split(), whole, author)

    def _move_to(self, tip: str) -> None:
        """Move the branch to the tip, and HEAD to the branch; the files are those of the tip already."""
        self._forget_half_done()
        self.worktree.update_record(settled=tip, nested_repositories=self._held)
        branch = self.worktree.branch
        if branch is None:
            self.git("update-ref", "--no-deref", "-m", "agentq: committed", "HEAD", tip, wait_for_locks=True)
            return
        if self._branch_at != tip:
            self.git("update-ref", "-m", "agentq: committed", f"refs/heads/{branch}", tip, wait_for_locks=True)
        if read_text(self.worktree.record.git_dir / "HEAD") != f"ref: refs/heads/{branch}\n":
            self.git("symbolic-ref", "-m", "agentq: committed", "HEAD", f"refs/heads/{branch}", wait_for_locks=True)

    def _build_empty(self, tip: str) -> CommittedWork:
        """Work without changes in sum; its commits are preserved."""
        base = self.worktree.base
        if tip != base:
            preserve_commits(self.git, self.run, tip)
        self._move_to(base)
        return CommittedWork(base, base, notes=tuple(self.notes))

    def _changes(self, tip: str) -> list[tuple[int, int]]:
        """Inserted and deleted lines, by file."""
        if tip in self._lines:
            return self._lines[tip]
        words = ("diff-tree", "-r", "-z", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv")
        return FileChanges.read(self.git(*words, self.worktree.base, tip)).lines


def _measure_file(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _name_files(paths: list[str] | tuple[str, ...]) -> str:
    more = f" and {len(paths) - NAMED_FILES_MAX} more" if paths[NAMED_FILES_MAX:] else ""
    return ", ".join(repr(path) if not path.isprintable() else path for path in paths[:NAMED_FILES_MAX]) + more


def _cut_body(body: str) -> str:
    return body if len(body) <= BODY_CHARACTERS else f"{body[: BODY_CHARACTERS - 1].rstrip()}…"


def _get_first_line(text: str) -> str:
    """The first line of a text, for the title."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "Work of a run")
    return line if len(line) <= TITLE_CHARACTERS else f"{line[: TITLE_CHARACTERS - 1].rstrip()}…"
