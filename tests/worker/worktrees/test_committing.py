"""Whatever a run has done with git, its work becomes commits that can be delivered, and the rest is sheltered."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.repositories import Depot
from support.workspaces import Workshop

from agentq.worker.workspace.merge import work_commit
from agentq.worker.workspace.merge.work_commit import CommitMessage, Undeliverable

Left = Callable[[Depot, Path], None]


def write(path: Path, name: str = "new", text: str = "new\n") -> None:
    (path / name).parent.mkdir(parents=True, exist_ok=True)
    (path / name).write_text(text)


def left_alone(_: Depot, path: Path) -> None:
    write(path)


def staged(depot: Depot, path: Path) -> None:
    write(path)
    depot.git("add", "new", cwd=path)


def committed_by_itself(depot: Depot, path: Path) -> None:
    staged(depot, path)
    depot.git("commit", "-q", "-m", "mine", cwd=path)


def on_a_branch_of_its_own(depot: Depot, path: Path) -> None:
    depot.git("checkout", "-q", "-b", "feature", cwd=path)
    committed_by_itself(depot, path)


def without_a_branch(depot: Depot, path: Path) -> None:
    depot.git("checkout", "-q", "--detach", cwd=path)
    committed_by_itself(depot, path)


def left_behind(depot: Depot, path: Path) -> None:
    """Committed, and then looked at the base."""
    committed_by_itself(depot, path)
    depot.git("checkout", "-q", "--detach", "HEAD~1", cwd=path)


def from_before_the_base(depot: Depot, path: Path) -> None:
    depot.git("reset", "-q", "--soft", "HEAD~1", cwd=path)
    committed_by_itself(depot, path)


def amended_the_base(depot: Depot, path: Path) -> None:
    staged(depot, path)
    depot.git("commit", "-q", "--amend", "-m", "amended", cwd=path)


def on_an_orphan(depot: Depot, path: Path) -> None:
    depot.git("checkout", "-q", "--orphan", "fresh", cwd=path)
    staged(depot, path)


def in_a_merge(depot: Depot, path: Path) -> None:
    beside = depot.commit_on("main~1", "beside", new="new\n")
    depot.git("merge", "-q", "--no-commit", "--no-ff", beside, cwd=path)


def in_a_cherry_pick(depot: Depot, path: Path) -> None:
    beside = depot.commit_on("main", "beside", new="new\n")
    depot.git("cherry-pick", "--no-commit", beside, cwd=path)


def in_a_bisect(depot: Depot, path: Path) -> None:
    committed_by_itself(depot, path)
    depot.git("bisect", "start", "HEAD", "HEAD~2", cwd=path)


def in_a_rebase(depot: Depot, path: Path) -> None:
    committed_by_itself(depot, path)
    depot.git("-c", "sequence.editor=sed -i 1s/pick/edit/", "rebase", "-q", "-i", "HEAD~1", cwd=path)
    write(path, "in between")


def with_a_lock_of_a_killed_git(depot: Depot, path: Path) -> None:
    write(path)
    (depot.path / ".git/worktrees/run_1/index.lock").touch()


def without_its_git_file(_: Depot, path: Path) -> None:
    write(path)
    (path / ".git").unlink()


@pytest.mark.parametrize(
    "left",
    [
        *(left_alone, staged, committed_by_itself, on_a_branch_of_its_own, without_a_branch, left_behind),
        *(from_before_the_base, amended_the_base, on_an_orphan, in_a_merge, in_a_cherry_pick, in_a_bisect, in_a_rebase),
        *(with_a_lock_of_a_killed_git, without_its_git_file),
    ],
)
def test_the_work_is_delivered_however_it_was_left(depot: Depot, shop: Workshop, left: Left) -> None:
    base = depot.commit("base", c__txt="c\n")
    job = shop.begin(depot.path)
    left(depot, job.path)
    work = job.commit()

    assert depot.git("diff", "--name-only", base, work.commit) == "new"
    assert (work.files, work.insertions, work.deletions) == (1, 1, 0)
    assert depot.head("refs/heads/agentq/run_1") == work.commit
    assert depot.git("merge-base", base, work.commit) == base
    message = depot.git("log", "-1", "--format=%B", work.commit)
    assert message.rstrip().endswith("\n\nAgentq-Run: run_1")
    assert (depot.head("main"), depot.status()) == (base, "")
    assert job.commit().commit == work.commit, "what is committed stays so"


def from_an_older_commit(depot: Depot, path: Path) -> None:
    """As an agent does that was told to work on a branch of its own: the base has `c.txt`, and `main~1` has not."""
    depot.git("checkout", "-q", "-b", "fix", "main~1", cwd=path)
    committed_by_itself(depot, path)
    assert not (path / "c.txt").exists()


def hard_reset_to_an_older_commit(depot: Depot, path: Path) -> None:
    depot.git("reset", "-q", "--hard", "main~1", cwd=path)
    write(path)


@pytest.mark.parametrize("left", [from_an_older_commit, hard_reset_to_an_older_commit])
def test_work_that_goes_on_from_an_older_commit_takes_back_nothing_of_its_base(
    depot: Depot, shop: Workshop, left: Left
) -> None:
    base = depot.commit("base", c__txt="c\n", a__txt="one\ntwo\nthree\nfour\n")
    job = shop.begin(depot.path)
    left(depot, job.path)

    work = job.commit()

    assert depot.git("diff", "--name-only", base, work.commit) == "new"
    assert depot.git("log", "--format=%P", "-1", work.commit) == base
    assert (job.path / "c.txt").read_text() == "c\n", "the worktree is what was committed"
    assert depot.git("status", "--porcelain", cwd=job.path) == ""
    assert "went on from an older commit" in work.notes[-1]
    assert job.commit().commit == work.commit, "what is committed stays so"


def test_an_amended_base_is_what_the_run_made_of_it(depot: Depot, shop: Workshop) -> None:
    """Here a file that is not there any more was taken away by the run."""
    base = depot.commit("base", c__txt="c\n", d__txt="d\n")
    job = shop.begin(depot.path)
    depot.git("rm", "-q", "c.txt", cwd=job.path)
    write(job.path, "d.txt", "changed\n")
    depot.git("commit", "-q", "-a", "--amend", "-m", "amended", cwd=job.path)
    depot.git("commit", "-q", "--amend", "-m", "amended again", cwd=job.path)
    committed_by_itself(depot, job.path)

    work = job.commit()

    assert depot.git("diff", "--name-status", base, work.commit).split() == ["D", "c.txt", "M", "d.txt", "A", "new"]


def test_work_from_an_older_commit_that_conflicts_with_its_base_is_a_conflict(depot: Depot, shop: Workshop) -> None:
    depot.commit("base", a__txt="one\nchanged\nthree\n")
    job = shop.begin(depot.path)
    depot.git("checkout", "-q", "-b", "fix", "main~1", cwd=job.path)
    write(job.path, "a.txt", "one\nfixed\nthree\n")

    with pytest.raises(Undeliverable, match=r"conflict in a\.txt") as told:
        job.commit()

    assert told.value.conflicts == ("a.txt",)
    assert depot.read("refs/agentq/run_1", "a.txt") == "one\nfixed\nthree"


def test_what_was_half_done_is_undone_and_kept(depot: Depot, shop: Workshop) -> None:
    depot.commit("base", c__txt="c\n")
    job = shop.begin(depot.path)
    in_a_rebase(depot, job.path)
    work = job.commit()

    assert "a rebase was left half done" in work.notes[0]
    assert depot.read("refs/agentq/run_1", "in between") == "new"
    assert not (job.path / "in between").exists()


def test_a_conflict_that_nobody_has_resolved_is_not_delivered(depot: Depot, shop: Workshop) -> None:
    job = shop.begin(depot.path)
    beside = depot.commit_on("main", "beside", a__txt="theirs\n")
    write(job.path, "a.txt", "ours\n")
    job.commit()
    depot.git("-c", "merge.conflictStyle=merge", "update-ref", "refs/heads/other", beside)
    with pytest.raises(AssertionError):
        depot.git("merge", "-q", "other", cwd=job.path)

    with pytest.raises(Undeliverable, match=r"conflicts are not resolved in a\.txt") as told:
        job.commit()
    assert told.value.conflicts == ("a.txt",)
    assert "<<<<<<<" in depot.read("refs/agentq/run_1", "a.txt")
    write(job.path, "a.txt", "both\n")
    depot.git("add", "a.txt", cwd=job.path)
    merged = job.commit()
    assert len(depot.git("log", "-1", "--format=%P", merged.commit).split()) == 2


@pytest.mark.parametrize("how", ["nothing", "and back", "an empty commit", "only ignored"])
def test_a_run_that_changed_nothing_in_sum_has_no_commits(depot: Depot, shop: Workshop, how: str) -> None:
    base = depot.commit("ignore", __gitignore="*.log\n")
    job = shop.begin(depot.path)
    if how == "and back":
        committed_by_itself(depot, job.path)
        depot.git("revert", "--no-edit", "HEAD", cwd=job.path)
    if how == "an empty commit":
        depot.git("commit", "-q", "--allow-empty", "-m", "mine", cwd=job.path)
    if how == "only ignored":
        write(job.path, "x.log")
    work = job.commit()

    assert work.is_empty
    assert work.commit == base == depot.head("refs/heads/agentq/run_1")


def test_names_of_every_kind_and_a_change_of_case_are_kept(depot: Depot, shop: Workshop) -> None:
    job = shop.begin(depot.path)
    names = ["with space", "new\nline", "-dash", ":colon", "ünï", 'quo"te', "*star", "\udcff"]
    for name in names:
        write(job.path, name)
    (job.path / "a.txt").rename(job.path / "A.txt")
    work = job.commit()

    words = ["git", "ls-tree", "-z", "--name-only", work.commit]
    listed = subprocess.run(words, cwd=depot.path, capture_output=True, check=True).stdout.split(b"\0")
    assert {os.fsencode(name) for name in names} <= set(listed)
    assert b"A.txt" in listed
    assert b"a.txt" not in listed


def test_a_repository_within_is_no_part_of_the_work_and_keeps_its_worktree(depot: Depot, shop: Workshop) -> None:
    job = shop.begin(depot.path)
    inner = Depot(job.path / "vendor" / "inner")
    inner.commit("inner", i__txt="i\n")
    Depot(job.path / "empty")
    write(job.path)
    work = job.commit()

    assert depot.git("diff", "--name-only", "main", work.commit) == "new"
    assert any("vendor/inner" in note and "empty" in note for note in work.notes)
    assert job.close(clean_at=work.commit) == "kept"
    assert (inner.path / "i.txt").exists()
    assert not (shop.begin(depot.path, earlier=True).path / "vendor").exists()
    assert (job.path.with_name("run_1.0") / "vendor" / "inner" / "i.txt").exists()


def test_a_new_commit_of_a_submodule_is_part_of_the_work(depot: Depot, shop: Workshop, tmp_path: Path) -> None:
    inner = Depot(tmp_path / "inner")
    inner.commit("inner", i__txt="i\n")
    depot.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner.path), "lib")
    depot.commit("with")
    job = shop.begin(depot.path)
    write(job.path / "lib", "more")
    depot.git("add", "-A", cwd=job.path / "lib")
    depot.git("-c", "user.name=A", "-c", "user.email=a@b", "commit", "-q", "-m", "more", cwd=job.path / "lib")
    work = job.commit()

    assert depot.git("diff", "--name-only", "main", work.commit) == "lib"
    commit = depot.git("rev-parse", "HEAD", cwd=job.path / "lib")
    job.close(clean_at=work.commit)
    kept = depot.git("--git-dir=.git/modules/lib", "rev-parse", "refs/agentq/run_1")
    assert kept == commit


def test_files_that_were_put_there_are_no_part_of_it_even_if_the_run_commits_them(depot: Depot, shop: Workshop) -> None:
    depot.write(**{"__env": "SECRET=1\n", "modules/m.js": "m\n", "conf/own": "own\n"})
    job = shop.begin(depot.path, copy_files=(".env", "conf/own"), link_files=("modules",))
    assert (job.path / ".env").read_text() == "SECRET=1\n"
    assert (job.path / "modules" / "m.js").read_text() == "m\n"
    committed_by_itself(depot, job.path)
    depot.git("add", "-A", cwd=job.path)
    depot.git("commit", "-q", "-m", "all of it", cwd=job.path)

    assert depot.git("diff", "--name-only", "main", job.commit().commit) == "new"
    assert (job.path / ".env").exists()
    (job.path / "conf" / "own").unlink()
    (job.path / "conf").rmdir()
    (job.path / "conf").symlink_to("/etc")
    assert depot.git("diff", "--name-only", "main", job.commit().commit) == "conf\nnew"


def test_changes_that_the_index_hides_are_part_of_the_work_and_the_next_run_has_none_of_them(
    depot: Depot, shop: Workshop
) -> None:
    base = depot.commit("more", c__txt="c\n", d__txt="d\n")
    job = shop.begin(depot.path)
    for name, how in (("a.txt", "assume-unchanged"), ("b.txt", "skip-worktree"), ("c.txt", "skip-worktree")):
        depot.git("update-index", f"--{how}", name, cwd=job.path)
        write(job.path, name, "hidden\n")
    (job.path / "c.txt").unlink()
    work = job.commit()

    assert depot.git("diff", "--name-status", base, work.commit) == "M\ta.txt\nM\tb.txt\nD\tc.txt"
    depot.git("update-index", "--assume-unchanged", "d.txt", cwd=job.path)
    write(job.path, "d.txt", "hidden again\n")
    assert job.close() == "idle"
    assert depot.read("refs/agentq/run_1", "d.txt") == "hidden again"
    assert (shop.begin(depot.path, "run_2").path / "d.txt").read_text() == "d\n"


def test_a_file_that_is_too_large_is_told_and_kept(
    depot: Depot, shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_commit, "FILE_BYTES_MAX", 1 << 20)
    job = shop.begin(depot.path)
    write(job.path, "core", "x" * (1 << 20) + "x")

    with pytest.raises(Undeliverable, match="core has more than 1 MiB"):
        job.commit()
    assert depot.git("cat-file", "-s", "refs/agentq/run_1:core") == str((1 << 20) + 1)


def test_with_trust_the_hooks_of_the_repository_have_their_say(depot: Depot, shop: Workshop) -> None:
    hook = depot.path / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(
        "#!/bin/sh\ntest ! -e bad || { echo 'bad is bad' >&2; exit 1; }\necho from-hook > hooked; git add hooked\n"
    )
    hook.chmod(0o755)
    job = shop.begin(depot.path, trust="repo")
    write(job.path, "bad")
    with pytest.raises(Undeliverable, match="bad is bad"):
        job.commit()
    (job.path / "bad").unlink()
    write(job.path)

    assert depot.git("diff", "--name-only", "main", job.commit().commit) == "hooked\nnew"
    distrusted = shop.begin(depot.path, "run_2")
    write(distrusted.path, "bad")
    assert depot.git("diff", "--name-only", "main", distrusted.commit().commit) == "bad"


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("Title\n", "Title\n\nAgentq-Run: r\n"),
        ("Title\n\nBody: of two\nlines\n", "Title\n\nBody: of two\nlines\n\nAgentq-Run: r\n"),
        ("Title\n\nSigned-off-by: A\n", "Title\n\nSigned-off-by: A\nAgentq-Run: r\n"),
        ("Title\n\nAgentq-Run: r\n", "Title\n\nAgentq-Run: r\n"),
    ],
)
def test_trailers_stand_at_the_end_of_what_the_run_has_said(text: str, whole: str) -> None:
    assert CommitMessage("", trailers=(("Agentq-Run", "r"),)).add_to(text) == whole
