"""From the claim to the target: runs in worktrees, with real workers, a real server and real git."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from support.servers import until
from support.worktree_runs import Yard, work

from agentq.cli.main import main
from agentq.coordinator.model.retry_policy import RetryPolicy
from agentq.coordinator.runs.logs import Logs

NEVER = RetryPolicy(failures=0, crashes=0)


def test_a_run_s_work_is_one_commit_in_the_target_and_the_checkout_is_left_alone(yard: Yard) -> None:

    run = yard.run("echo new > c.txt; rm b.txt; pwd", name="Write c")

    assert run.state == "completed", run.outcome
    told = work(run)
    assert (told.merged, told.files, told.insertions, told.deletions) == (True, 2, 1, 1)
    assert told.commit == yard.depot.head("work")
    assert yard.commits() == ["Write c"]
    assert yard.delivered() == [run.id]
    assert yard.depot.git("ls-tree", "--name-only", "work").split() == ["a.txt", "c.txt"]
    assert (yard.depot.status(), yard.depot.git("branch", "--show-current")) == ("", "main")
    assert yard.lines() == []
    until(
        lambda: yard.depot.git("branch", "--list", "agentq/*") == "", "its branch to go, all of it being in the target"
    )


def test_many_at_once_are_all_merged_once_and_each_has_what_those_before_it_did(yard: Yard) -> None:
    first = [yard.submit(f"echo {number} > f{number}.txt", name=f"f{number}") for number in range(6)]
    last = yard.submit("cat f?.txt | tr -d '\\n' > all.txt", name="all", after=first)

    runs = yard.done(*first, last)

    assert [run.state for run in runs] == ["completed"] * 7, [run.outcome for run in runs]
    assert yard.commits()[0] == "all"
    assert sorted(yard.delivered()) == sorted(run.id for run in runs)
    assert yard.depot.read("work", "all.txt") == "012345"


def test_what_failed_does_not_get_in_and_can_be_looked_at(yard: Yard) -> None:

    run = yard.run("echo half > half.txt; exit 3", retry=NEVER)

    assert (run.state, run.outcome and run.outcome.exit_code) == ("failed", 3)
    assert not yard.depot.git("branch", "--list", "work")
    assert not yard.depot.git("for-each-ref", "refs/agentq")
    (kept,) = yard.home.glob(f"worktrees/*/{run.id}")
    assert (kept / "half.txt").read_text() == "half\n"


@pytest.mark.full("takes 2 s")
def test_an_agent_that_deletes_its_worktree_is_told_what_it_did(yard: Yard) -> None:
    for words in ('rm -rf "$PWD"', 'cd / && git -C "$OLDPWD" worktree remove -f -f "$OLDPWD"'):
        run = yard.run(f"echo kept > kept.txt; git add -A; git commit -qm kept; {words}", retry=NEVER)
        assert "it deleted its worktree" in str(run.outcome)
        assert yard.depot.read(f"agentq/{run.id}", "kept.txt") == "kept"


def test_of_two_runs_with_the_same_change_the_second_delivers_nothing(yard: Yard) -> None:
    both = f"echo x >> {yard.told}; while [ $(wc -l < {yard.told}) -lt 2 ]; do sleep 0.01; done; echo same > same.txt"

    runs = yard.done(yard.submit(both, name="one"), yard.submit(both, name="two"))

    assert [run.state for run in runs] == ["completed"] * 2, [run.outcome for run in runs]
    first, second = sorted(runs, key=lambda run: work(run).commit is None)
    assert (work(first).commit, work(first).merged) == (yard.depot.head("work"), True)
    assert (work(second).commit, work(second).merged, work(second).files) == (None, False, 0)
    assert "has the same change already" in yard.log(second.id)
    assert yard.delivered() == [first.id]
    assert yard.lines() == []


def test_a_run_that_changes_nothing_completes_and_adds_no_commit(yard: Yard) -> None:

    run = yard.run("true")

    assert run.state == "completed"
    assert (work(run).commit, work(run).merged, work(run).files) == (None, False, 0)
    assert not yard.depot.git("branch", "--list", "work")
    assert not yard.depot.git("for-each-ref", "refs/agentq")


def test_a_command_in_conflict_begins_anew_from_what_the_others_did(yard: Yard) -> None:
    """Both begin before either is merged: the second to come finds its file changed."""
    seen = yard.crew.folder / "seen"
    seen.mkdir()
    both = f"touch {seen}/$$; while [ $(ls {seen} | wc -l) -lt 2 ]; do sleep 0.02; done"
    runs = yard.done(*(yard.submit(f"{both}; echo {number} >> a.txt") for number in range(2)))

    assert [run.state for run in runs] == ["completed"] * 2, [run.outcome for run in runs]
    ended = sorted([each.outcome.class_.value for each in run.attempts if each.outcome] for run in runs)
    assert ended == [["conflict", "ok"], ["ok"]]
    assert sorted(yard.depot.read("work", "a.txt").split()) == ["0", "1", "one", "three", "two"]


def test_a_conflict_that_nobody_is_to_mend_ends_the_run_and_keeps_its_branch(yard: Yard) -> None:
    yard.depot.git("update-ref", "refs/heads/work", yard.depot.commit_on("main", "theirs", a__txt="theirs\n"))
    before = yard.depot.head("work")

    # Its base is not the target, so that it does not begin with what is there.
    yard.depot.commit("elsewhere", d__txt="d\n")
    run = yard.run("echo mine > a.txt", on_conflict="fail")

    assert run.state == "failed"
    assert run.outcome is not None
    assert run.outcome.class_ == "conflict"
    assert run.outcome.error == (
        f"its work does not fit into work: conflict in a.txt; its work is on the branch agentq/{run.id}"
    )
    assert yard.depot.head("work") == before
    assert yard.depot.read(f"agentq/{run.id}", "a.txt") == "mine"
    assert yard.lines() == []


def test_a_check_that_fails_keeps_the_target_as_it_was(yard: Yard) -> None:
    check = ["sh", "-c", "echo checking in $PWD; test ! -e bad.txt"]

    good = yard.run("echo ok > good.txt", check=check)
    bad = yard.run("echo no > bad.txt", check=check, on_check="fail", retry=NEVER)

    assert good.state == "completed", good.outcome
    assert (bad.state, bad.outcome and bad.outcome.class_) == ("failed", "check")
    assert bad.outcome is not None
    assert bad.outcome.error is not None
    assert bad.outcome.error == (
        f"the check exited with code 1 when its work was put onto work; its work is on the branch agentq/{bad.id}"
    )
    assert yard.delivered() == [good.id]
    assert "check: sh -c" in yard.log(bad.id)
    entries = Logs(yard.crew.queue.store).read(bad.id)
    assert {entry.stream for entry in entries if "checking in /" in entry.text} == {"err"}


def test_nothing_is_begun_for_a_target_that_cannot_move(yard: Yard) -> None:

    run = yard.run("echo begun >> /dev/stderr; echo x > x.txt", target="main", retry=NEVER)

    assert (run.state, run.outcome and run.outcome.class_) == ("failed", "rejected")
    assert run.outcome is not None
    assert run.outcome.error is not None
    assert f"The branch main is checked out in {yard.depot.path}" in run.outcome.error
    assert "begun" not in yard.log(run.id)


def test_a_checkout_follows_where_the_user_asked_for_that(yard: Yard) -> None:

    run = yard.run("echo x > x.txt", target="main", update_checkout=True)

    assert run.state == "completed", run.outcome
    assert work(run).checkout_updated
    assert (yard.depot.status(), (yard.depot.path / "x.txt").read_text()) == ("", "x\n")


def test_work_that_had_to_wait_for_a_person_is_merged_without_being_done_again(yard: Yard) -> None:
    run = yard.submit(
        f"echo x > x.txt; echo did >> {yard.told}; git -C {yard.depot.path} checkout -q work", base="main"
    )
    yard.depot.git("branch", "work")
    (failed,) = yard.done(run)
    assert (failed.state, failed.outcome and failed.outcome.class_) == ("failed", "rejected")

    yard.depot.git("checkout", "-q", "main")
    yard.crew.queue.requeue(run)
    (again,) = yard.done(run)

    assert again.state == "completed", again.outcome
    assert yard.told.read_text().split() == ["did"]
    assert yard.delivered() == [run]


def test_the_command_after_the_merge_knows_what_was_merged(yard: Yard) -> None:

    run = yard.run("echo x > x.txt", after_merge=["sh", "-c", f"echo $AGENTQ_COMMIT $AGENTQ_TARGET > {yard.told}"])

    assert yard.told.read_text().split() == [work(run).commit, "work"]


def test_what_a_run_gives_stands_in_the_arguments_of_the_next_and_no_shell_sees_it(yard: Yard) -> None:
    first = yard.submit('printf \'"a b; $(touch evil)"\' > "$AGENTQ_RESULT"; echo x > x.txt', name="First")
    words = [
        "{{ tasks.first.result }}",
        "-{{tasks.first.title}}-",
        "{{ tasks.first.commit }}",
        r"\{{ tasks.first.result }}",
    ]
    argv = ["sh", "-c", 'printf "%s\\n" "$@" > args.txt', "sh", *words]

    second = yard.submit("", argv=argv, after=[first], inputs={"first": first})
    runs = yard.done(first, second)

    assert [run.state for run in runs] == ["completed"] * 2, [run.outcome for run in runs]
    assert yard.depot.read("work", "args.txt").split("\n") == [
        "a b; $(touch evil)", "-First-", work(runs[0]).commit, "{{ tasks.first.result }}",
    ]  # fmt: skip


@pytest.mark.full("takes 2 s")
def test_a_worker_that_leaves_hands_back_what_waits_to_merge_and_the_next_does_not_do_it_again(lone: Yard) -> None:
    """The first in line is held up in its check; the second waits behind it, its process done."""
    gate = lone.crew.folder / "gate"
    check = ["sh", "-c", f"echo checks >> {lone.told}; while [ ! -e {gate} ]; do sleep 0.02; done"]
    first = lone.worker(slots=2, drain_grace="100ms")
    holder = lone.submit("echo 1 > one.txt", check=check)
    lone.hears("checks")
    waiter = lone.submit(f"echo did >> {lone.told}; echo 2 > two.txt")
    until(lambda: "before it" in json.dumps(lone.crew.records.get(waiter).progress), "it to wait in line")
    assert "is at it" in lone.why(waiter)

    first.terminate()
    assert first.wait(30) == 0
    gate.touch()
    lone.worker(slots=2)
    runs = lone.done(holder, waiter)

    assert [run.state for run in runs] == ["completed"] * 2, [run.outcome for run in runs]
    assert [run.failures + run.crashes for run in runs] == [0, 0]
    assert lone.told.read_text().split().count("did") == 1
    assert sorted(lone.delivered()) == sorted([holder, waiter])


def test_a_run_that_is_cancelled_in_its_check_is_not_merged(yard: Yard) -> None:
    run = yard.submit("echo 1 > one.txt", check=["sh", "-c", f"echo checks >> {yard.told}; sleep 1000"])
    yard.hears("checks")

    yard.crew.queue.cancel(run)
    (cancelled,) = yard.done(run)
    after = yard.run("echo 2 > two.txt")

    assert (cancelled.state, after.state) == ("cancelled", "completed")
    assert yard.delivered() == [after.id]


@pytest.mark.full("takes 2 s")
def test_those_who_wait_for_a_check_are_checked_together(yard: Yard) -> None:
    """Four runs, two checks: that of the first, and one for the three that have come meanwhile."""
    gate = yard.crew.folder / "gate"
    check = ["sh", "-c", f"echo checks >> {yard.told}; while [ ! -e {gate} ]; do sleep 0.02; done"]
    first = yard.submit("echo 0 > f0.txt", check=check)
    yard.hears("checks")
    others = [yard.submit(f"echo {each} > f{each}.txt", check=check) for each in (1, 2, 3)]
    until(lambda: all("before it" in json.dumps(yard.crew.records.get(run).progress) for run in others), "them to wait")

    gate.touch()
    runs = yard.done(first, *others)

    assert [run.state for run in runs] == ["completed"] * 4, [run.outcome for run in runs]
    assert yard.told.read_text().split() == ["checks"] * 2
    assert sorted(yard.delivered()) == sorted([first, *others])
    assert len({work(run).commit for run in runs}) == 4


def test_a_conflict_that_somebody_has_resolved_on_the_branch_is_merged_by_a_retry(yard: Yard, tmp_path: Path) -> None:
    depot = yard.depot
    theirs = depot.commit_on("main", "theirs", a__txt="theirs\n")
    move = f"git -C {depot.path} update-ref refs/heads/work {theirs}"
    run = yard.submit(f"echo did >> {yard.told}; echo mine > a.txt; {move}", on_conflict="fail", keep="never")
    (failed,) = yard.done(run)
    assert failed.outcome is not None
    assert failed.outcome.class_ == "conflict"
    until(lambda: not list(yard.home.glob(f"worktrees/*/{run}")), "its worktree to go")
    until(lambda: depot.git("branch", "--list", f"agentq/{run}"), "its branch to be there")
    depot.git("worktree", "add", "-q", str(tmp_path / "by-hand"), f"agentq/{run}")
    depot.git("merge", "-q", "-X", "ours", "--no-edit", "work", cwd=tmp_path / "by-hand")
    depot.git("worktree", "remove", str(tmp_path / "by-hand"))

    yard.crew.queue.requeue(run)
    (ended,) = yard.done(run)

    assert ended.state == "completed", ended.outcome
    assert yard.told.read_text().split() == ["did"]
    assert depot.read("work", "a.txt") == "mine"
    assert len(depot.log("work")) == 3
    assert yard.delivered() == [run]


def test_an_agent_that_has_brought_the_target_in_itself_conflicts_with_nothing(yard: Yard) -> None:
    theirs = yard.depot.commit_on("main", "theirs", a__txt="theirs\n")
    move = f"git -C {yard.depot.path} update-ref refs/heads/work {theirs}"
    who = "git config user.name Me; git config user.email me@example.org"

    run = yard.run(f"{move}; {who}; git merge -q work; echo mine > a.txt", on_conflict="fail")

    assert run.state == "completed", run.outcome
    assert yard.depot.read("work", "a.txt") == "mine"
    assert yard.depot.log("work")[1:] == ["theirs", "begin"]


def test_show_says_what_became_of_the_work(
    yard: Yard, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    merged = yard.run("echo x > x.txt")
    kept = yard.run("echo y > y.txt", target=None, merge="none")
    nothing = yard.run("true")

    for name, value in yard.crew.settings.to_environment().items():
        monkeypatch.setenv(name, value)
    said = [shown(run.id, capsys) for run in (merged, kept, nothing)]

    assert f"merged into work as {(work(merged).commit or '')[:12]}" in said[0]
    assert ": 1 file, +1 -0" in said[0]
    assert f"on the branch agentq/{kept.id}, at " in said[1]
    assert "nothing was changed" in said[2]
    until(lambda: not list(yard.home.glob(f"worktrees/*/{kept.id}")), "its worktree to go")
    until(lambda: yard.depot.git("branch", "--list", f"agentq/{kept.id}"), "its branch to be there")
    assert yard.depot.read(f"agentq/{kept.id}", "y.txt") == "y"


def shown(run: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What `agentq show` prints."""
    assert main(["show", run]) == 0
    return capsys.readouterr().out


def test_a_run_that_waits_goes_on_in_its_worktree_as_it_was(yard: Yard) -> None:
    wait = """printf '{"park": {"signal": ["go"]}}' > "$AGENTQ_RESULT\""""
    run = yard.submit(f"if [ -e half.txt ]; then echo whole > whole.txt; else echo half > half.txt; {wait}; fi")
    yard.reaches(run, "waiting")

    yard.crew.queue.signal(run, "go")
    (ended,) = yard.done(run)

    assert ended.state == "completed", ended.outcome
    assert yard.depot.git("ls-tree", "--name-only", "work").split() == ["a.txt", "b.txt", "half.txt", "whole.txt"]


@pytest.mark.full("takes 2 s")
def test_an_older_git_merges_in_a_worktree_of_the_merges_own(lone: Yard) -> None:
    """As it is with git 2.30, which has no merge without a checkout."""
    tools, real = lone.crew.folder / "tools", shutil.which("git")
    tools.mkdir()
    (tools / "git").write_text(
        '#!/bin/sh\ncase "$* " in *" merge-tree "*) exit 129;; "version ") echo git version 2.30.2; exit;; esac\n'
        f'exec {real} "$@"\n'
    )
    (tools / "git").chmod(0o755)
    lone.worker({"PATH": f"{tools}:{os.environ['PATH']}"})
    theirs = lone.depot.commit_on("main", "theirs", t__txt="theirs\n")
    move = f"git -C {lone.depot.path} update-ref refs/heads/work {theirs}"

    merged = lone.run(f"echo x > x.txt; {move}", name="ours")
    again = lone.depot.commit_on("work", "more of theirs", x__txt="theirs\n")
    move = f"git -C {lone.depot.path} update-ref refs/heads/work {again}"
    conflict = lone.run(f"echo more >> x.txt; {move}", on_conflict="fail")

    assert merged.state == "completed", merged.outcome
    assert lone.depot.log("work") == ["more of theirs", "ours", "theirs", "begin"]
    assert conflict.outcome is not None
    assert "conflict in x.txt" in (conflict.outcome.error or "")
    assert lone.depot.status() == ""


def test_a_bare_repository_odd_names_and_a_rename_of_case_alone(yard: Yard, tmp_path: Path) -> None:
    yard.depot.commit("more", **{"with space é.txt": "x\n"})
    yard.depot.git("clone", "-q", "--bare", str(yard.depot.path), str(tmp_path / "bare.git"))
    bare = str(tmp_path / "bare.git")
    for key, value in {"user.name": "Ada", "user.email": "ada@example.org"}.items():
        yard.depot.git("config", key, value, cwd=tmp_path / "bare.git")
    odd = "line\nbreak.txt"
    theirs = yard.depot.commit_on("main", "theirs", t__txt="theirs\n")
    yard.depot.git("push", "-q", bare, f"{theirs}:refs/heads/theirs")
    move = f"git -C {bare} update-ref refs/heads/main {theirs}"

    script = f"git mv a.txt A.TXT; echo odd > '{odd}'; rm 'with space é.txt'; chmod +x b.txt; {move}"
    run = yard.run(script, repository=bare, target="main")

    assert run.state == "completed", run.outcome
    listed = yard.depot.git("ls-tree", "-z", "main", cwd=tmp_path / "bare.git").rstrip("\0").split("\0")
    assert [line.partition("\t")[2] for line in listed] == ["A.TXT", "b.txt", odd, "t.txt"]
    assert listed[1].startswith("100755")
    assert work(run).files == 5


def test_signing_that_is_configured_does_not_stop_a_run_and_happens_only_when_asked(yard: Yard) -> None:
    signer = yard.depot.path.with_name("signer")
    signer.write_text(f"#!/bin/sh\necho signed >> {yard.told}\nexit 1\n")
    signer.chmod(0o755)
    for key, value in {"commit.gpgSign": "true", "gpg.program": str(signer), "user.signingKey": "x"}.items():
        yard.depot.git("config", key, value)
    theirs = yard.depot.git("-c", "commit.gpgSign=false", "commit-tree", "main^{tree}", "-p", "main", text="theirs\n")
    move = f"git -C {yard.depot.path} update-ref refs/heads/work {theirs}"

    plain = yard.run(f"echo x > x.txt; {move}")
    signed = yard.run("echo y > y.txt", sign=True, trust="repo", retry=NEVER)

    assert plain.state == "completed", plain.outcome
    assert yard.told.read_text().split()[:1] == ["signed"], "the second asked for it"
    assert signed.state == "failed"
    assert signed.outcome is not None
    assert "sign" in (signed.outcome.error or "")
