"""A worktree: the folder that a run works in, on a branch of its own, made from a commit.

To make one is dear, most of all the files: so those that are done with are kept idle, and the next run has one of them
brought to its commit and cleaned, which costs what has to change. What git cannot do twice at a time in a repository is
done alone; the files are written at the same time as those of others. What fails is rolled back.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from agentq.coordinator.clock import wall_ms
from agentq.worker import tree
from agentq.worker.workspace.git import Git, GitFailed
from agentq.worker.workspace.note import SUFFIX, Note
from agentq.worker.workspace.repository import Repository, hidden
from agentq.worker.workspace.sheltering import repositories_within, sheltered, snapshot
from agentq.worker.workspace.submodules import furnish_submodules

BRANCHES = "agentq/"
UNDER_WAY = (
    *("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "MERGE_MSG", "MERGE_MODE", "SQUASH_MSG", "AUTO_MERGE"),
    *("BISECT_LOG", "BISECT_START", "BISECT_NAMES", "BISECT_TERMS", "BISECT_EXPECTED_REV", "ORIG_HEAD"),
    *("rebase-merge", "rebase-apply", "sequencer"),
)
"""What git keeps of something half done."""


@dataclass(frozen=True, slots=True)
class Worktree:
    """One that a run has."""

    repository: Repository
    note: Note

    @property
    def path(self) -> Path:
        return self.note.path

    @property
    def base(self) -> str:
        return self.note.base

    @property
    def branch(self) -> str | None:
        return self.note.branch

    @property
    def git(self) -> Git:
        """Git in it, which is told where it is, whatever the files in it say."""
        return self.repository.git.within(self.path, self.note.git_dir)

    def noted(self, **changes: object) -> Worktree:
        """The same, with its note changed."""
        return replace(self, note=self.note.with_(**changes))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a worktree is to be."""

    name: str
    """Of its folder: the run's id, mostly."""
    commit: str
    branch: str | None
    """Made new at the commit; without one, nothing is checked out but the commit."""
    asked: str = ""
    """The repository, as it was asked for."""
    worker: str = ""
    sparse: Sequence[str] = ()


def branch_of(run: str) -> str:
    return f"{BRANCHES}{run}"


def folder_of(home: Path, repository: Repository) -> Path:
    """Where the worktrees of a repository are."""
    return home / "worktrees" / repository.digest


def made(repository: Repository, home: Path, wanted: Wanted) -> Worktree:
    """A worktree as it is wanted: one that was idle, or a new one. What stood there before is sheltered first."""
    folder = folder_of(home, repository)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / wanted.name
    earlier = found(repository, path)
    if earlier is not None and (held := shelter(earlier)):
        raise GitFailed(f"{path} holds a repository that is nowhere else, {held[0]}; move it away, and retry the run.")
    if wanted.branch is not None and (tip := repository.commit(f"refs/heads/{wanted.branch}")):
        sheltered(repository.git, wanted.name, tip, target=wanted.commit)
    if earlier is not None and is_reusable(earlier, wanted):
        return _brought(earlier, wanted)
    if earlier is not None:
        remove(earlier)
    elif os.path.lexists(path):
        _set_aside(path)
    if not wanted.sparse and (idle := _taken(repository, folder, path)) is not None:
        try:
            return _brought(idle, wanted)
        except GitFailed:
            remove(idle)  # whatever has happened to it while nobody looked; a new one it is
    return _added(repository, path, wanted)


def found(repository: Repository, path: Path) -> Worktree | None:
    """One that was made before, if it is still there; also where its note is lost, but git knows it."""
    note = Note.read(path.with_name(path.name + SUFFIX)) or _known_to_git(repository, path)
    if note is None or note.common != repository.common or not path.is_dir() or not _is_its_own(note):
        return None
    return Worktree(repository, note)


def _known_to_git(repository: Repository, path: Path) -> Note | None:
    for file in (repository.common / "worktrees").glob("*/gitdir"):
        with suppress(OSError):
            if file.read_text().strip() == str(path / ".git"):
                here = repository.git.within(path, file.parent)
                base = here.answers("rev-parse", "--verify", "--quiet", "HEAD^{commit}") or ""
                run, branch = path.name, branch_of(path.name)
                return Note(path=path, common=repository.common, git_dir=file.parent, repository="", run=run,
                            branch=branch, base=base)  # fmt: skip
    return None


def _set_aside(path: Path) -> None:
    """What nobody knows is not ours to delete."""
    aside = next(
        name for number in range(10_000) if not (name := path.with_name(f"{path.name}.left-{number}")).exists()
    )
    path.rename(aside)


def again(repository: Repository, home: Path, run: str, worker: str = "") -> Worktree | None:
    """The worktree that an earlier attempt of the run left on this host, as it was left."""
    earlier = found(repository, folder_of(home, repository) / run)
    if earlier is None:
        return None
    _point_back(earlier)
    return earlier.noted(state="open", keeper=tree.keeper(os.getpid()), worker=worker, ended_at_ms=None, why="")


def _is_its_own(note: Note) -> bool:
    """Whether git knows it as what the note says."""
    within = note.git_dir.parent == note.common / "worktrees"
    with suppress(OSError):
        return within and (note.git_dir / "gitdir").read_text().strip() == str(note.path / ".git")
    return False


def _point_back(worktree: Worktree) -> None:
    """Whatever was done to the file by which git finds its way from there."""
    file = worktree.path / ".git"
    text = f"gitdir: {worktree.note.git_dir}\n"
    with suppress(OSError):
        status = file.lstat()
        if stat.S_ISREG(status.st_mode) and file.read_text() == text:
            return
        if stat.S_ISDIR(status.st_mode):
            return  # somebody made a repository of it
        file.unlink()
    file.write_text(text)


# ---- one that was used before


def is_reusable(worktree: Worktree, wanted: Wanted) -> bool:
    """Whether what it holds can be told apart from what it is to hold."""
    if wanted.sparse or (worktree.path / ".git").is_dir() or (worktree.note.git_dir / "modules").exists():
        return False
    return not (worktree.note.git_dir / "config.worktree").exists()


def _taken(repository: Repository, folder: Path, path: Path) -> Worktree | None:
    """An idle one, which is now there."""
    if not any(folder.glob(f"idle-*{SUFFIX}")):
        return None
    with repository.locked() as git:
        for file in sorted(folder.glob(f"idle-*{SUFFIX}")):
            note = Note.read(file)
            if note is None or note.state != "idle" or not note.path.is_dir() or not _is_its_own(note):
                continue
            return _moved(Worktree(replace(repository, git=git), note), path, state="open", keeper=_keeper())
    return None


def _moved(worktree: Worktree, path: Path, **changes: object) -> Worktree:
    """Elsewhere, with all that is known of it. To be called alone.

    Git finds it by its `gitdir`, which goes first: a name of a folder that is not there yet is mended by the next who
    looks, and until then protects what is there from nobody but `git worktree prune`.
    """
    old = worktree.note.file
    (worktree.note.git_dir / "gitdir").write_text(f"{path / '.git'}\n")
    worktree.path.rename(path)
    moved = worktree.noted(path=path, **changes)
    old.unlink(missing_ok=True)
    return moved


def _brought(worktree: Worktree, wanted: Wanted) -> Worktree:
    """To its commit and branch, without anything else in it."""
    git = worktree.git
    drop_locks(worktree)
    for name in UNDER_WAY:
        left = worktree.note.git_dir / name
        shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
    _point_back(worktree)
    where = ("--no-track", "-B", wanted.branch) if wanted.branch else ("--detach",)
    git("checkout", "-q", "-f", *where, wanted.commit, patient=True)
    git("clean", "-q", "-ffdx")
    return worktree.noted(**_about(wanted), set_up="", furnished=(), holds=(), ended_at_ms=None, why="")


def drop_locks(worktree: Worktree) -> None:
    """What a git that was killed has left. Nobody works in it, or its processes would have been ended before."""
    for name in ("index.lock", "HEAD.lock"):
        (worktree.note.git_dir / name).unlink(missing_ok=True)


# ---- a new one


def _added(repository: Repository, path: Path, wanted: Wanted) -> Worktree:
    _clear(path)
    where = ("-B", wanted.branch) if wanted.branch else ("--detach",)
    with repository.locked() as git:
        had = wanted.branch is not None and repository.commit(f"refs/heads/{wanted.branch}") is not None
        try:
            git("worktree", "add", "-q", "--no-checkout", "--no-track", *where, str(path), wanted.commit, patient=True)
            git_dir = Path((path / ".git").read_text().removeprefix("gitdir: ").strip())
            note = Note(path=path, common=repository.common, git_dir=git_dir, repository=hidden(wanted.asked))
            worktree = Worktree(repository, note).noted(**_about(wanted))
        except BaseException:
            _roll_back(repository, git, path, None if had else wanted.branch)
            raise
    try:
        if wanted.sparse:
            with repository.locked() as git:  # it writes the repository's configuration
                inside = git.within(path, git_dir)
                inside("sparse-checkout", "set", "--stdin", input="".join(f"{each}\n" for each in wanted.sparse))
        worktree.git("reset", "-q", "--hard", patient=True)
        furnish_submodules(worktree.git, None if repository.is_copy else repository.common / "modules")
    except BaseException:
        remove(worktree, branch=not had)
        raise
    return worktree


def _about(wanted: Wanted) -> dict[str, object]:
    return {
        "run": wanted.name,
        "branch": wanted.branch,
        "base": wanted.commit,
        "repository": hidden(wanted.asked),
        "worker": wanted.worker,
        "keeper": _keeper(),
        "state": "open",
        "made_at_ms": wall_ms(),
    }


def _keeper() -> str:
    return tree.keeper(os.getpid())


def _roll_back(repository: Repository, git: Git, path: Path, branch: str | None) -> None:
    git = replace(git, leash=type(git.leash)())  # it is to be done also when nobody wants the rest
    with suppress(GitFailed):
        git("worktree", "remove", "-f", "-f", str(path))
    _clear(path)
    with suppress(GitFailed):
        git("worktree", "prune")
        if branch is not None and repository.commit(f"refs/heads/{branch}"):
            git("update-ref", "-d", f"refs/heads/{branch}", patient=True)


def _clear(path: Path) -> None:
    """A folder that is no worktree of ours, left of one that was half made or half removed."""
    path.with_name(path.name + SUFFIX).unlink(missing_ok=True)
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        _delete(path)


def _delete(path: Path) -> None:
    """Also what was made unwritable in it."""

    def mend(function: object, name: str, _: object) -> None:
        folder = Path(name).parent
        folder.chmod(0o700)
        if function is os.unlink:
            os.unlink(name)
        elif Path(name).is_dir() and not Path(name).is_symlink():
            Path(name).chmod(0o700)
            shutil.rmtree(name)

    shutil.rmtree(path, onerror=mend)


# ---- done with


def shelter(worktree: Worktree, target: str | None = None) -> list[str]:
    """See that nothing is lost with it; what it holds that cannot be sheltered, of which it may not be removed."""
    if not worktree.note.run:
        return []  # an idle one
    git = worktree.git
    drop_locks(worktree)
    tips = list(_tips(worktree))
    if (made := snapshot(git, worktree.note.run, without=worktree.note.furnished)) is not None:
        tips.append(made)
    sheltered(git, worktree.note.run, *tips, target=target)
    return [*repositories_within(git), *([".git"] if (worktree.path / ".git").is_dir() else [])]


def _tips(worktree: Worktree) -> Iterator[str]:
    """The commits that it stands for."""
    names = ["HEAD"]
    if worktree.branch:
        names.append(f"refs/heads/{worktree.branch}")
    for name in names:
        if commit := worktree.git.answers("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"):
            yield commit
    for name in ("rebase-merge/orig-head", "rebase-apply/orig-head", "MERGE_HEAD", "CHERRY_PICK_HEAD"):
        file = worktree.note.git_dir / name
        if file.is_file():
            yield from file.read_text().split()


def set_idle(worktree: Worktree) -> None:
    """Done with, and all that it held is merged or sheltered: another run may have it. Its branch goes."""
    folder = worktree.path.parent
    worktree.git("update-ref", "--no-deref", "HEAD", worktree.git("rev-parse", "HEAD").strip(), patient=True)
    with worktree.repository.locked() as git:
        if worktree.branch:
            git("update-ref", "-d", f"refs/heads/{worktree.branch}", patient=True)
        name = next(name for number in range(10_000) if not (folder / (name := f"idle-{number}")).exists())
        gone = {"run": "", "branch": None, "base": "", "ended_at_ms": wall_ms(), "furnished": (), "set_up": ""}
        _moved(Worktree(replace(worktree.repository, git=git), worktree.note), folder / name, state="idle", **gone)


def remove(worktree: Worktree, *, branch: bool = True) -> None:
    """Take it away, with its branch; what it held is merged or sheltered by now."""
    with worktree.repository.locked() as git:
        _roll_back(worktree.repository, git, worktree.path, worktree.branch if branch else None)
        if worktree.note.git_dir.exists() and worktree.note.git_dir.parent == worktree.note.common / "worktrees":
            shutil.rmtree(worktree.note.git_dir, ignore_errors=True)
