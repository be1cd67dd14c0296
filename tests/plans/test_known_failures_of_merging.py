"""Ways in which others lose work between the end of an agent and the target. Each is tried here; the numbers are those
of a list of twenty. What concerns plans and their commands is in `test_known_failures.py`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree

import pytest
from support.crew import Crew
from support.repositories import ALONE, Depot
from support.servers import Server, until
from support.worktree_runs import Yard, begin, work

from agentq.coordinator.model.agent_options import AgentTurnOptions
from agentq.coordinator.model.retry_policy import RetryPolicy
from agentq.coordinator.runs.run_record import RunRecord

NEVER = RetryPolicy(failures=0, crashes=0)
NewYard = Callable[[str], Yard]


@pytest.fixture(scope="module")
def crew(valkey: Server) -> Iterator[Crew]:
    """One worker for all of these; each test has a repository of its own."""
    folder = Path(tempfile.mkdtemp(prefix="aq"))
    crew = Crew(valkey, folder, namespace=folder.name)
    begin(crew, {"GIT_EDITOR": "false", "EDITOR": "false"}, slots=2)
    yield crew
    crew.close()
    crew.check()
    rmtree(folder, ignore_errors=True)


@pytest.fixture
def new_yard(crew: Crew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NewYard:
    """A repository whose branch is called so, and is checked out."""
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)

    def made(branch: str) -> Yard:
        depot = Depot(tmp_path / "depot", branch)
        depot.commit("begin", a__txt="one\n", b__txt="b\n")
        return Yard(crew, depot)

    return made


@pytest.fixture
def yard(new_yard: NewYard) -> Yard:
    return new_yard("main")


def moved(yard: Yard, **files: str) -> str:
    """A command by which somebody else moves the target meanwhile."""
    theirs = yard.depot.commit_on("main", "theirs", **files)
    return f"git -C {yard.depot.path} update-ref refs/heads/work {theirs}"


def ending(run: RunRecord) -> tuple[str, str]:
    """State and class."""
    assert run.outcome is not None
    return run.state.value, run.outcome.class_.value


def test_01_a_conflict_is_no_success_and_its_work_is_kept(yard: Yard) -> None:
    run = yard.run(f"echo mine > a.txt; {moved(yard, a__txt='theirs')}", on_conflict="fail")

    assert ending(run) == ("failed", "conflict")
    assert (work(run).merged, work(run).commit) == (False, yard.depot.head(f"agentq/{run.id}"))
    assert yard.depot.read(f"agentq/{run.id}", "a.txt") == "mine"
    assert yard.depot.log("work") == ["theirs", "begin"]


def test_02_a_conflict_does_not_poison_the_merges_after_it(yard: Yard) -> None:
    first = yard.run(f"echo mine > a.txt; {moved(yard, a__txt='theirs')}", on_conflict="fail")
    second = yard.run("echo c > c.txt")

    assert (first.state, second.state) == ("failed", "completed")
    assert yard.depot.git("ls-files", "-u") == ""
    assert yard.delivered() == [second.id]


def test_03_the_check_comes_before_the_target_moves_and_is_never_left_out(yard: Yard) -> None:
    """Also where the work is in the target's own history already, and so differs from it in nothing."""
    checked = ["sh", "-c", f"echo checked >> {yard.told}; test ! -e bad.txt"]

    bad = yard.run("echo x > bad.txt", check=checked, on_check="fail")
    good = yard.run("echo x > good.txt", check=checked)

    assert (ending(bad), ending(good)) == (("failed", "check"), ("completed", "ok"))
    assert yard.told.read_text().split() == ["checked"] * 2
    assert yard.depot.git("ls-tree", "--name-only", "work").split() == ["a.txt", "b.txt", "good.txt"]


@pytest.mark.full("takes 2 s")
def test_05_a_check_or_a_setup_that_hangs_has_an_end(yard: Yard) -> None:
    hangs = ["sh", "-c", "sleep 1000 & wait"]
    check = yard.submit("echo x > x.txt", check=hangs, check_timeout_ms=300, on_check="fail", retry=NEVER)
    setup = yard.submit("echo x > x.txt", setup=hangs, setup_timeout_ms=300, retry=NEVER)

    checked, set_up = yard.done(check, setup)

    assert (ending(checked), ending(set_up)) == (("failed", "check"), ("failed", "spawn"))
    assert checked.outcome is not None
    assert "took longer than 300 ms" in (checked.outcome.error or "")


def test_08_a_cancelled_run_is_not_overwritten_by_its_completion(yard: Yard) -> None:
    check = ["sh", "-c", f"echo checks >> {yard.told}; trap '' TERM; sleep 1000"]
    run = yard.submit("echo x > x.txt", check=check, keep="never")
    yard.hears("checks")

    yard.crew.queue.cancel(run)
    (ended,) = yard.done(run)

    assert ended.state == "cancelled"
    assert not yard.depot.git("branch", "--list", "work")
    until(lambda: not list(yard.home.glob(f"worktrees/*/{run}")), "its worktree to go")
    until(lambda: yard.depot.git("branch", "--list", f"agentq/{run}"), "its branch to be there")
    assert yard.depot.read(f"agentq/{run}", "x.txt") == "x", "its work is kept all the same"


def test_13_the_base_is_what_was_said_whatever_is_checked_out_and_whatever_it_is_called(new_yard: NewYard) -> None:
    yard = new_yard("master")
    yard.depot.git("checkout", "-q", "-b", "something-else")
    yard.depot.commit("not to be in it", d__txt="d\n")

    run = yard.run("echo x > x.txt", base="master")

    assert run.state == "completed", run.outcome
    assert yard.depot.log("work")[1:] == ["begin"]
    assert yard.depot.status() == ""
    assert yard.depot.git("branch", "--show-current") == "something-else"


def test_14_another_attempt_begins_with_a_clean_tree(yard: Yard) -> None:
    once = RetryPolicy(failures=1, delay_ms=0)

    run = yard.run(
        "ls >&2; test $AGENTQ_ATTEMPT = 2 || { touch litter.txt; echo x > a.txt; exit 1; }; echo y > y.txt", retry=once
    )

    assert run.state == "completed", run.outcome
    assert yard.depot.git("ls-tree", "--name-only", "work").split() == ["a.txt", "b.txt", "y.txt"]
    assert yard.depot.read("work", "a.txt") == "one"


def test_15_what_the_agent_has_committed_itself_counts(yard: Yard) -> None:
    who = "git config user.name Me; git config user.email me@example.org"
    run = yard.run(f"{who}; echo 1 > f1; git add -A; git commit -qm one; echo 2 > f2; git add -A; git commit -qm two")

    assert run.state == "completed", run.outcome
    assert len(yard.depot.log("work")) == 2, "one commit for the run"
    assert yard.delivered() == [run.id]
    assert yard.depot.git("ls-tree", "--name-only", "work").split() == ["a.txt", "b.txt", "f1", "f2"]


def test_16_a_worktree_that_another_run_had_before_has_nothing_of_it(yard: Yard) -> None:
    first = yard.run("echo 1 > .gitignore; echo x > 1; echo c > c.txt")
    second = yard.run("ls -A >&2; echo 2 > d.txt; git status --porcelain >&2")

    assert (first.state, second.state) == ("completed", "completed")
    assert work(second).files == 1
    assert "\n1\n" not in yard.log(second.id)


# ---- what users of others complain about


def test_a_branch_that_is_checked_out_elsewhere_is_told_by_name_and_before_any_work(yard: Yard, tmp_path: Path) -> None:
    yard.depot.git("worktree", "add", "-q", "-b", "work", str(tmp_path / "elsewhere"))

    run = yard.run(f"echo did >> {yard.told}; echo x > x.txt", retry=NEVER)

    assert ending(run) == ("failed", "rejected")
    assert run.outcome is not None
    assert f"checked out in {tmp_path / 'elsewhere'}" in (run.outcome.error or "")
    assert yard.told.read_text() == ""


def test_exit_code_0_with_nothing_changed_is_no_success_where_changes_are_expected(yard: Yard) -> None:
    (run,) = yard.done(yard.submit_agent("SAY All done!", turn=AgentTurnOptions(expects="changes"), retry=NEVER))

    assert ending(run) == ("failed", "no_output")


def test_a_squashed_branch_goes_once_it_is_merged(yard: Yard) -> None:
    """`is it merged` cannot be asked of the history of a squash; here it is known."""
    run = yard.run(f"echo mine > m.txt; {moved(yard, t__txt='theirs')}")

    assert run.state == "completed", run.outcome
    assert yard.depot.log("work")[1:] == ["theirs", "begin"]
    until(lambda: yard.depot.git("for-each-ref", "refs/heads/agentq", "refs/agentq") == "", "its branch to go")


HOOKS = (
    *("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "pre-merge-commit", "post-merge", "pre-push"),
    *("post-checkout", "reference-transaction", "post-index-change", "post-rewrite", "pre-rebase"),
)


def test_nothing_of_the_repository_runs_that_is_not_trusted(yard: Yard) -> None:
    depot = yard.depot
    theirs = depot.commit_on("main", "theirs", t__txt="theirs\n", __gitattributes="* filter=evil merge=evil\n")
    depot.commit("ours", o__txt="ours\n")
    depot.git("update-ref", "refs/heads/work", theirs)
    for hook in (depot.path / ".git" / "hooks" / name for name in HOOKS):
        hook.write_text(f"#!/bin/sh\necho {hook.name} >> {yard.told}; exit 1\n")
        hook.chmod(0o755)
    for key in ("core.fsmonitor", "filter.evil.smudge", "filter.evil.clean", "merge.evil.driver", "diff.external"):
        depot.git("config", key, f"echo {key} >> {yard.told}; false")

    run = yard.run("echo mine > m.txt; echo more >> a.txt", check=["test", "-e", "m.txt"])

    assert run.state == "completed", run.outcome
    assert yard.told.read_text() == ""
    assert depot.git("ls-tree", "--name-only", "work").split()[-3:] == ["b.txt", "m.txt", "t.txt"], (
        "what it did, and no more"
    )
