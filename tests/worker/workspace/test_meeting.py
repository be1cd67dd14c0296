"""Several machines, of which each has a copy of its own: they meet at the remote."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.repositories import Depot
from support.worktree_runs import Yard, work


@pytest.fixture
def remote(depot: Depot, tmp_path: Path) -> Depot:
    """A bare one, with what the depot has."""
    bare = Depot(tmp_path / "remote.git", bare=True)
    depot.git("push", "-q", str(bare.path), "main")
    return bare


def host(lone: Yard, name: str, **options: object) -> subprocess.Popen[bytes]:
    """A worker with a home of its own, which therefore has a copy of its own."""
    who = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": f"{name}@example.org"}
    who |= {"GIT_COMMITTER_NAME": name, "GIT_COMMITTER_EMAIL": f"{name}@example.org"}
    return lone.worker({"AGENTQ_HOME": str(lone.crew.folder / name), **who}, **options)


@pytest.mark.full("takes 3 s")
def test_machines_that_share_nothing_but_the_remote_merge_each_run_once(lone: Yard, remote: Depot) -> None:
    host(lone, "one", slots=2)
    host(lone, "two", slots=2)
    url = f"file://{remote.path}"
    first = [lone.submit(f"echo {each} > f{each}.txt", repository=url, target="main") for each in range(6)]
    last = lone.submit("cat f?.txt | tr -d '\\n' > all.txt", repository=url, target="main", after=first)

    runs = lone.done(*first, last)

    assert [run.state for run in runs] == ["completed"] * 7, [run.outcome for run in runs]
    assert sorted(remote.log("main", "%(trailers:key=Agentq-Run,valueonly,separator=)")[:-1]) == sorted([*first, last])
    assert remote.read("main", "all.txt") == "012345"
    assert work(runs[-1]).pushed
    assert (lone.home / "repositories").exists() is False
    assert len(list(lone.crew.folder.glob("*/repositories/*/agentq-copy"))) == 2


@pytest.mark.full("takes 3 s")
def test_what_one_machine_committed_another_brings_in_without_doing_it_again(lone: Yard, remote: Depot) -> None:
    gate, url = lone.crew.folder / "gate", f"file://{remote.path}"
    first = host(lone, "one", drain_grace="100ms")
    check = ["sh", "-c", f"echo checks >> {lone.told}; while [ ! -e {gate} ]; do sleep 0.02; done"]
    run = lone.submit(f"echo did >> {lone.told}; echo x > x.txt", repository=url, target="main", check=check)
    lone.hears("checks")

    first.terminate()
    assert first.wait(30) == 0
    gate.touch()
    host(lone, "two")
    (ended,) = lone.done(run)

    assert ended.state == "completed", ended.outcome
    assert lone.told.read_text().split() == ["did", "checks", "checks"]
    assert remote.read("main", "x.txt") == "x"


@pytest.mark.full("takes 2 s")
def test_a_local_target_is_pushed_where_the_run_asks_for_it_and_follows_what_others_pushed(
    lone: Yard, depot: Depot, remote: Depot
) -> None:
    depot.git("remote", "add", "origin", str(remote.path))
    depot.git("branch", "work")
    depot.git("push", "-q", "origin", "work")
    theirs = depot.commit_on("main", "another machine's", other__txt="o\n")
    depot.git("push", "-q", "origin", f"{theirs}:work")
    lone.worker()

    run = lone.run("echo x > x.txt", name="ours", push=True)

    assert run.state == "completed", run.outcome
    assert work(run).pushed
    assert remote.log("work") == depot.log("work") == ["ours", "another machine's", "begin"]


@pytest.mark.parametrize("key", ["remote.origin.url", "remote.origin.pushurl", "url.insteadOf"])
def test_a_run_that_changes_where_the_remote_is_pushes_nothing_there(
    lone: Yard, depot: Depot, remote: Depot, tmp_path: Path, key: str
) -> None:
    depot.git("clone", "-q", "--bare", ".", str(tmp_path / "elsewhere.git"))
    depot.git("remote", "add", "origin", str(remote.path))
    lone.worker()
    elsewhere = "url.{}.insteadOf {}".format(tmp_path / "elsewhere.git", remote.path)
    changed = f"{key} {tmp_path}/elsewhere.git" if key.startswith("remote") else elsewhere

    run = lone.run(f"git config {changed}; echo x > x.txt", push=True)

    assert (run.state, run.outcome and run.outcome.class_) == ("failed", "rejected")
    assert run.outcome is not None
    assert f"was at {remote.path} before the run began" in (run.outcome.error or "")
    for bare in (remote.path, tmp_path / "elsewhere.git"):
        assert not depot.git("--git-dir", str(bare), "branch", "--list", "work")


def test_a_remote_that_refuses_the_push_is_told_and_the_work_is_kept(lone: Yard, depot: Depot, remote: Depot) -> None:
    remote.git("config", "receive.hideRefs", "refs/heads/work")
    depot.git("remote", "add", "origin", str(remote.path))
    lone.worker()

    run = lone.run("echo x > x.txt", push=True)

    assert (run.state, run.outcome and run.outcome.class_) == ("failed", "rejected")
    assert run.outcome is not None
    assert "origin did not take the push to work" in (run.outcome.error or "")
    assert depot.read(f"agentq/{run.id}", "x.txt") == "x"
    assert not depot.git("branch", "--list", "work"), "and nobody here has what the remote has not"
