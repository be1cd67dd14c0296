"""A run gets a worktree of its own, of whichever repository, and nobody else's work is touched by that."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from support.repositories import Depot
from support.workspaces import Job, Workshop

from agentq.coordinator.errors import AgentqError, Invalid, NotFound
from agentq.worker.process import process_tree
from agentq.worker.workspace.git.git_command import GitCancellation, GitCancelled, GitFailed
from agentq.worker.workspace.git.repository import normalize_address
from agentq.worker.workspace.worktree.worktree_record import WorktreeRecord


def as_it_is(depot: Depot) -> Path:
    return depot.path


def subfolder(depot: Depot) -> Path:
    (depot.path / "deep" / "er").mkdir(parents=True)
    return depot.path / "deep" / "er"


def detached(depot: Depot) -> Path:
    depot.git("checkout", "-q", "--detach")
    return depot.path


def bare(depot: Depot) -> Path:
    depot.git("clone", "-q", "--bare", ".", "../bare.git")
    depot.git("config", "user.name", "Ada", cwd=depot.path.parent / "bare.git")
    depot.git("config", "user.email", "ada@example.org", cwd=depot.path.parent / "bare.git")
    return depot.path.parent / "bare.git"


def worktree_of_another(depot: Depot) -> Path:
    depot.git("worktree", "add", "-q", "-b", "mine", "../mine and yours")
    return depot.path.parent / "mine and yours"


@pytest.mark.parametrize("kind", [as_it_is, subfolder, detached, bare, worktree_of_another])
def test_a_run_works_on_a_branch_of_its_own_beside_the_users_checkout(
    depot: Depot, shop: Workshop, kind: Callable[[Depot], Path]
) -> None:
    job = shop.begin(kind(depot))
    (job.path / "a.txt").write_text("changed\n")
    work = job.commit(task="mend")

    assert depot.git("symbolic-ref", "HEAD", cwd=job.path) == "refs/heads/agentq/run_1"
    assert (depot.head("main"), depot.status()) == (work.base, "")
    assert (work.files, work.insertions, work.deletions) == (1, 1, 3)
    told = depot.git("log", "-1", "--format=%an|%s|%b", work.commit, cwd=job.path)
    assert told == "Ada|Do it|Agentq-Run: run_1\nAgentq-Task: mend\n"
    assert job.prepared.variables["AGENTQ_WORKTREE"] == str(job.path)


def test_a_branch_has_no_upstream_and_a_base_may_be_any_name_of_a_commit(depot: Depot, shop: Workshop) -> None:
    first = depot.head()
    depot.git("tag", "v1")
    depot.commit("more", c__txt="c\n")
    depot.git("config", "branch.autoSetupMerge", "always")
    bases = [shop.begin(depot.path, f"run_{n}", base=name) for n, name in enumerate(("v1", "main~1", first[:10]))]

    assert {job.prepared.worktree.base for job in bases} == {first}
    assert "branch.agentq" not in depot.git("config", "--list", "--local")


def test_the_next_run_has_the_worktree_of_one_before_it_and_nothing_that_was_in_it(
    depot: Depot, shop: Workshop
) -> None:
    depot.commit("ignore", __gitignore="*.log\n")
    first = shop.begin(depot.path)
    for name in ("x.log", "new\nfile", "b.txt"):
        (first.path / name).write_text("of the first\n")
    depot.git("add", "b.txt", cwd=first.path)
    (first.path / "locked").mkdir()
    inode = first.path.stat().st_ino

    assert first.close() == "idle"
    second = shop.begin(depot.path, "run_2")

    assert second.path.stat().st_ino == inode
    assert sorted(path.name for path in second.path.iterdir()) == [".git", ".gitignore", "a.txt", "b.txt"]
    assert depot.git("status", "--porcelain", "--branch", "--ignored", cwd=second.path) == "## agentq/run_2"
    assert depot.read("refs/agentq/run_1", "new\nfile") == "of the first"
    assert depot.git("for-each-ref", "--format=%(refname)", "refs/heads") == "refs/heads/agentq/run_2\nrefs/heads/main"


def test_another_attempt_begins_clean_or_in_the_same_tree_and_loses_nothing(depot: Depot, shop: Workshop) -> None:
    job = shop.begin(depot.path)
    (job.path / "a.txt").write_text("half done\n")
    (job.path / "new").write_text("new\n")

    same = shop.begin(depot.path, same=True, earlier=True)
    assert (same.path / "new").read_text() == "new\n"

    clean = shop.begin(depot.path, earlier=True)
    assert (clean.path, clean.prepared.worktree.git("status", "--porcelain")) == (job.path, "")
    assert depot.read("refs/agentq/run_1", "new") == "new"


def test_a_worktree_that_another_worker_still_has_is_put_aside_with_its_work(depot: Depot, shop: Workshop) -> None:
    """Its worker may be stopped for a while: it lives, and so may its processes."""
    job = shop.begin(depot.path)
    (job.path / "a.txt").write_text("of the superseded\n")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        superseded = Job(shop, "run_1", job.workspace, job.prepared)
        superseded.prepared = replace(
            job.prepared, worktree=job.prepared.worktree.update_record(holder=process_tree.get_process_name(other.pid))
        )
        again = shop.begin(depot.path, same=True, earlier=True)
        assert other.stdin is not None
        other.stdin.close()

    assert (again.path / "a.txt").read_text() == "one\ntwo\nthree\n"
    with pytest.raises(GitCancelled):
        superseded.commit()
    assert superseded.close() == "kept"
    assert again.prepared.worktree.is_ours()
    assert (again.path.with_name("run_1.0") / "a.txt").read_text() == "of the superseded\n"
    assert depot.read("refs/agentq/run_1", "a.txt") == "of the superseded"


def test_an_attempt_goes_on_with_what_is_kept_where_the_worktree_is_gone(depot: Depot, shop: Workshop) -> None:
    job = shop.begin(depot.path)
    base = job.prepared.worktree.base
    (job.path / "half").write_text("half\n")
    job.close(failed=None)
    depot.commit("newer", c__txt="c\n")

    prepared = shop.all.prepare(
        shop.git(job.workspace), "run_1", job.workspace, continues=True, has_earlier=True, base=base
    )

    assert (prepared.path / "half").read_text() == "half\n"
    assert prepared.worktree.base == base
    assert "goes on with what is kept" in prepared.notes[0]


def test_a_worktree_whose_note_is_lost_is_still_known_and_a_strange_folder_is_put_aside(
    depot: Depot, shop: Workshop
) -> None:
    job = shop.begin(depot.path)
    (job.path / "a.txt").write_text("work\n")
    job.prepared.worktree.record.file.write_text("")
    shop.begin(depot.path, earlier=True)
    assert depot.read("refs/agentq/run_1", "a.txt") == "work"

    strange = job.path.with_name("run_2")
    strange.mkdir()
    (strange / "precious").write_text("mine\n")
    shop.begin(depot.path, "run_2")
    assert (job.path.with_name("run_2.0") / "precious").read_text() == "mine\n"


def test_what_cannot_be_made_is_rolled_back(depot: Depot, shop: Workshop) -> None:
    """A file that is larger than the disk has room for: here, than files may be."""
    depot.commit("large", large="x" * (2 << 20))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(GitFailed):
            shop.begin(depot.path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert len(depot.git("worktree", "list").splitlines()) == 1
    assert depot.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert list(shop.home.glob("worktrees/*/*")) == []


@pytest.mark.full("takes 1 s")
def test_twenty_at_a_time_come_and_go_in_one_repository(depot: Depot, tmp_path: Path) -> None:
    """Two workers, and a person who does the same by hand."""
    shops = [Workshop(tmp_path / f"home{n}", f"w{n}") for n in range(2)]

    def by_hand(*words: str) -> None:
        """It may fail: git itself does not bear others at the same time."""
        subprocess.run(["git", "worktree", *words], cwd=depot.path, capture_output=True)

    def one(number: int) -> str:
        if number % 5 == 0:
            by_hand("add", "-q", "--detach", f"../person{number}")
            by_hand("remove", f"../person{number}")
        job = shops[number % 2].begin(depot.path, f"run_{number}")
        (job.path / f"file{number}").write_text("x")
        work = job.commit()
        job.close(clean_at=work.commit)
        return depot.git("show", "--format=", "--name-only", f"refs/agentq/run_{number}")

    with ThreadPoolExecutor(10) as threads:
        assert list(threads.map(one, range(20))) == [f"file{number}" for number in range(20)]
    assert depot.git("for-each-ref", "--format=%(refname)", "refs/heads") == "refs/heads/main"
    assert depot.git("fsck", "--no-progress", "--no-dangling") == ""


def nothing(depot: Depot) -> Path:
    return depot.path.parent / "nothing"


def no_repository(depot: Depot) -> Path:
    return depot.path.parent


def unborn(depot: Depot) -> Path:
    return Depot(depot.path.parent / "unborn").path


def nobody(depot: Depot) -> Path:
    depot.git("config", "--unset", "user.email")
    return depot.path


def dirty(depot: Depot) -> Path:
    depot.write(a__txt="not committed")
    return depot.path


@pytest.mark.parametrize(
    ("kind", "base", "error", "says"),
    [
        (nothing, "main", NotFound, "is not on this machine"),
        (no_repository, "main", Invalid, "is not in a git repository"),
        (unborn, "HEAD", Invalid, "has no commit yet"),
        (as_it_is, "no-such-branch", NotFound, "no-such-branch is no branch, tag or commit"),
        (nobody, "main", Invalid, "git config --global"),
        (dirty, "main", Invalid, "has changes that are not committed, in a.txt"),
    ],
)
def test_what_is_no_ground_to_begin_on_is_refused_in_a_sentence(
    depot: Depot, shop: Workshop, kind: Callable[[Depot], Path], base: str, error: type[AgentqError], says: str
) -> None:
    place = kind(depot)
    before = sorted(depot.path.rglob("*"))

    with pytest.raises(error, match=says):
        shop.begin(place, base=base, dirty="refuse")
    assert [path for path in sorted(depot.path.rglob("*")) if path.name != "agentq.lock"] == before


def test_a_copy_follows_its_address_and_unfinished_work_goes_by_it_to_another_host(
    depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Bea")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "bea@example.org")
    depot.git("config", "receive.denyCurrentBranch", "ignore")
    address = f"file://{depot.path}"
    here, there = Workshop(tmp_path / "here"), Workshop(tmp_path / "there")
    job = here.begin(address)
    (job.path / "half").write_text("half\n")
    here.all.hand_over(job.prepared)
    assert depot.read("refs/agentq/run_1", "half") == "half"

    newer = depot.commit("newer", c__txt="c\n")
    assert there.begin(address, "run_2").prepared.worktree.base == newer
    base = job.prepared.worktree.base
    prepared = there.all.prepare(
        there.git(job.workspace), "run_1", job.workspace, continues=True, has_earlier=True, base=base
    )
    assert (prepared.path / "half").read_text() == "half\n"
    assert prepared.worktree.base == base


@pytest.mark.parametrize(
    "address",
    ["git@example.org:team/app.git", "ssh://git@Example.org/team/app", "https://me:secret@example.org/team/app.git/"],
)
def test_all_ways_to_write_an_address_are_one_repository(address: str) -> None:
    assert normalize_address(address) == "example.org/team/app"


def test_a_stopped_attempt_waits_for_nothing(depot: Depot, shop: Workshop) -> None:
    job = shop.begin(depot.path)
    leash = GitCancellation()
    git = shop.git(job.workspace, leash)
    with job.prepared.worktree.repository.locked(), ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lambda: shop.all.prepare(git, "run_2", job.workspace))
        leash.cancel()
        with pytest.raises(GitCancelled):
            waiting.result(10)


def test_submodules_come_from_the_checkout_and_a_sparse_worktree_has_what_was_asked_for(
    depot: Depot, shop: Workshop, tmp_path: Path
) -> None:
    inner = Depot(tmp_path / "inner")
    inner.commit("inner", i__txt="inner\n")
    depot.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner.path), "lib/in ner")
    depot.commit("with", **{"x/x.txt": "x\n", "y/y.txt": "y\n"})
    inner.path.rename(tmp_path / "gone")

    job = shop.begin(depot.path)
    assert (job.path / "lib/in ner/i.txt").read_text() == "inner\n"
    assert job.commit().is_empty
    assert job.close() == "removed"

    sparse = shop.begin(depot.path, "run_2", sparse=("x",))
    assert not (sparse.path / "y").exists()
    (sparse.path / "x" / "x.txt").write_text("changed\n")
    work = sparse.commit()
    assert depot.git("diff", "--name-only", "main", work.commit) == "x/x.txt"
    assert depot.status() == ""


def test_a_note_tells_whose_a_worktree_is(depot: Depot, shop: Workshop) -> None:
    job = shop.begin(depot.path)
    note = WorktreeRecord.read(job.path.with_name("run_1.json"))

    assert note is not None
    assert (note.run, note.branch, note.base, note.is_held) == ("run_1", "agentq/run_1", depot.head(), True)
