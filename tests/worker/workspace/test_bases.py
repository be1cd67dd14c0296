"""What the tasks of a plan start from, while people go on committing to the branch that the plan began from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from support.worktree_runs import Yard, work

from agentq.coordinator.model.retry_policy import RetryPolicy
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.model.workspace import WorkspaceSpec
from agentq.coordinator.plans.verbs import Plans, TaskSubmission
from agentq.coordinator.runs.run_record import RunRecord

NEVER = RetryPolicy(failures=0, crashes=0)


def task(yard: Yard, name: str, script: str, *needs: str, **workspace: object) -> TaskSubmission:
    fields = {"repository": str(yard.depot.path), "base": "main", "target": "work", **workspace}
    made = WorkspaceSpec.model_validate(fields)
    return TaskSubmission(
        name, RunSpec(kind="command", argv=["sh", "-ec", script], name=name, workspace=made, retry=NEVER), needs
    )


def submit(yard: Yard, *tasks: TaskSubmission) -> dict[str, str]:
    """The runs of a new plan, by task."""
    plans = Plans(yard.crew.queue)
    return plans.runs(plans.create("night", tasks), [each.id for each in tasks])


def done(yard: Yard, *tasks: TaskSubmission) -> Sequence[RunRecord]:
    return yard.done(*submit(yard, *tasks).values())


def completed(yard: Yard, *tasks: TaskSubmission) -> Sequence[RunRecord]:
    """The runs of a plan of which all complete."""
    runs = done(yard, *tasks)
    assert states(runs) == ["completed"] * len(tasks)
    return runs


def states(runs: Sequence[RunRecord]) -> list[str]:
    return [run.state.value for run in runs]


def files(yard: Yard, name: str) -> set[str]:
    return set(yard.depot.git("ls-tree", "-r", "--name-only", name).split())


def waits(file: Path) -> str:
    return f"while [ ! -e {file} ]; do sleep 0.01; done"


@pytest.mark.full("takes 2 s")
def test_a_task_has_the_work_of_what_it_needs_though_somebody_commits_to_the_base_meanwhile(yard: Yard) -> None:
    go = yard.told.with_name("go")
    runs = submit(
        yard,
        task(yard, "api", f"echo api > api.txt; echo begun >> {yard.told}; {waits(go)}"),
        task(yard, "client", "ls > seen.txt", "api"),
    )
    yard.hears("begun")
    yard.depot.commit("mine", mine__txt="mine\n")
    go.touch()

    assert states(yard.done(*runs.values())) == ["completed", "completed"]
    assert "api.txt" in yard.depot.read("work", "seen.txt").split()
    assert "mine.txt" not in files(yard, "work"), "the base of a plan is one commit, from its first task on"


@pytest.mark.full("takes 1 s")
def test_on_the_second_evening_the_target_is_brought_forward_to_the_base(yard: Yard) -> None:
    done(yard, task(yard, "first", "echo one > one.txt"))
    yard.depot.git("merge", "-q", "--no-ff", "--no-edit", "work")
    yard.depot.commit("the day after", mine__txt="mine\n")

    check = ["test", "-f", "mine.txt"]
    runs = done(
        yard,
        task(yard, "two", "ls > two.txt", check=check),
        task(yard, "three", "ls > three.txt", "two", check=check),
    )

    assert states(runs) == ["completed", "completed"], [run.outcome for run in runs]
    assert {"one.txt", "mine.txt"} <= set(yard.depot.read("work", "two.txt").split())
    assert {"one.txt", "mine.txt", "two.txt"} <= set(yard.depot.read("work", "three.txt").split())
    assert yard.commits() == ["three", "two"]
    yard.depot.git("merge", "-q", "--ff-only", "work")


def test_a_conflict_on_the_second_evening_brings_none_of_the_day_s_commits_into_the_work(yard: Yard) -> None:
    """The second task changes what the first has changed meanwhile, and the agent resolves that."""
    yard.depot.git("branch", "work")
    yard.depot.commit("the day after", mine__txt="mine\n")
    go = yard.told.with_name("go")
    merged = f"until git -C {yard.depot.path} log work --format=%s | grep -qx other; do sleep 0.02; done"
    prompt = f"AT 1 WRITE a.txt two\nAT 1 RUN touch {go}; {merged}"
    other = task(yard, "other", f"{waits(go)}; echo other > a.txt")
    agent = RunSpec(kind="agent", agent="standin", name="two", prompt=prompt, delay_ms=100)
    made = submit(yard, other, TaskSubmission("two", agent.model_copy(update={"workspace": other.spec.workspace})))
    yard.crew.queue.signal(made["two"], "hint", "here is one:\nAT 2 WRITE a.txt both")

    runs = yard.done(*made.values())

    assert states(runs) == ["completed", "completed"], [run.outcome for run in runs]
    assert [each.outcome.class_.value for each in runs[1].attempts if each.outcome] == ["conflict", "ok"]
    assert yard.depot.read("work", "a.txt") == "both"
    assert yard.depot.git("log", "--format=%s", "work", "--", "mine.txt") == "the day after"


def test_a_plan_whose_target_has_parted_from_its_base_is_refused_before_anything_runs(yard: Yard) -> None:
    other = yard.depot.commit_on("main", "elsewhere", elsewhere__txt="x\n")
    yard.depot.git("branch", "work", other)
    yard.depot.commit("mine", mine__txt="mine\n")

    (run,) = done(yard, task(yard, "api", f"echo ran >> {yard.told}"))

    assert run.outcome is not None
    assert run.outcome.class_ == "rejected"
    assert "work has parted from main" in (run.outcome.error or "")
    assert yard.told.read_text() == ""
    assert yard.depot.head("work") == other


def test_the_base_of_a_plan_stays_when_its_branch_goes(yard: Yard) -> None:
    begun = yard.depot.head()
    yard.depot.git("branch", "topic")
    runs = submit(
        yard,
        task(yard, "api", f"git -C {yard.depot.path} branch -D topic; echo api > api.txt", base="topic"),
        task(yard, "client", "ls > seen.txt", "api", base="topic"),
    )

    assert states(yard.done(*runs.values())) == ["completed", "completed"]
    assert yard.depot.git("merge-base", "work", "main") == begun


def test_a_run_that_comes_after_another_has_its_work_though_the_base_went_on(yard: Yard) -> None:
    first = yard.run("echo api > api.txt")
    yard.depot.commit("mine", mine__txt="mine\n")

    second = yard.run("ls > seen.txt", after=[first.id])

    assert second.state == "completed", second.outcome
    assert "api.txt" in yard.depot.read("work", "seen.txt").split()


def test_what_a_task_removes_of_another_one_s_work_is_told(yard: Yard) -> None:
    runs = completed(
        yard,
        task(yard, "api", "mkdir api; echo api > api/a.txt; echo api > api/b.txt"),
        task(yard, "more", "echo more >> api/a.txt; echo own > own.txt", "api"),
        task(yard, "clean", "rm api/a.txt own.txt b.txt; mv api/b.txt moved.txt", "more"),
    )

    assert [work(run).removes for run in runs] == [(), (), ("api/a.txt (api)", "api/b.txt (api)", "own.txt (more)")]
    assert "it removes what other tasks of the plan made: api/a.txt (api)" in yard.log(runs[2].id)


def test_an_agent_that_begins_a_branch_at_an_older_commit_takes_nothing_back(yard: Yard) -> None:
    runs = completed(
        yard,
        task(yard, "feature", "echo feature > feature.txt"),
        task(yard, "fix", "git checkout -q -b fix main; echo fix > fix.txt; git add -A; git commit -qm fix", "feature"),
        task(yard, "last", "ls > seen.txt", "fix"),
    )

    assert {"feature.txt", "fix.txt"} <= set(yard.depot.read("work", "seen.txt").split())
    assert work(runs[1]).removes == ()


def test_work_from_an_older_commit_that_conflicts_goes_back_to_the_agent(yard: Yard) -> None:
    feature = task(yard, "feature", "echo feature > a.txt")
    prompt = "AT 1 RUN git checkout -q -b fix main\nAT 1 WRITE a.txt fixed"
    agent = RunSpec(kind="agent", agent="standin", name="fix", prompt=prompt, delay_ms=100)
    made = submit(
        yard,
        feature,
        TaskSubmission("fix", agent.model_copy(update={"workspace": feature.spec.workspace}), ["feature"]),
    )
    yard.crew.queue.signal(made["fix"], "hint", "here is one:\nAT 2 RUN cat a.txt\nAT 2 WRITE a.txt both")

    runs = yard.done(*made.values())

    assert states(runs) == ["completed", "completed"], [run.outcome for run in runs]
    assert [each.outcome.class_.value for each in runs[1].attempts if each.outcome] == ["conflict", "ok"]
    assert yard.depot.read("work", "a.txt") == "both"
    assert "<<<<<<<" in yard.log(runs[1].id)


def test_the_commit_of_an_agent_says_what_it_was_asked_and_not_more_of_it_than_a_person_reads(yard: Yard) -> None:
    first = task(yard, "api", "echo api > api.txt")
    prompt = "WRITE docs.txt yes\nAbout {{ tasks.api.state }}.\n" + "words " * 2_000
    agent = RunSpec(kind="agent", agent="standin", name="docs", prompt=prompt)
    more = {"workspace": first.spec.workspace, "context": "plan"}
    docs = TaskSubmission("docs", agent.model_copy(update=more), ["api"], ["api"])

    assert states(done(yard, first, docs)) == ["completed", "completed"]
    told = yard.depot.git("log", "-1", "--format=%B", "work")
    assert "About completed." in told
    assert "These tasks of the same plan" not in told
    assert 4_000 < len(told) < 4_200


def test_each_check_starts_clean_unless_its_run_says_otherwise(yard: Yard) -> None:
    yard.depot.commit("ignore", __gitignore="*.o\n")
    check = ["sh", "-c", "ls *.o >/dev/null 2>&1 && echo found >> $1; touch left.o; exit 0", "-", str(yard.told)]

    runs = done(yard, task(yard, "one", "echo 1 > one", check=check), task(yard, "two", "echo 2 > two", check=check))
    assert states(runs) == ["completed", "completed"]
    assert yard.told.read_text() == ""

    yard.run("echo 3 > three", check=check, check_ignored="keep")
    assert yard.told.read_text() == "found\n"
