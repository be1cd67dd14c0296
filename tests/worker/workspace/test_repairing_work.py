"""What goes back to the agent in its conversation: a conflict with the target, a check that fails; and how often."""

from __future__ import annotations

import shutil

import pytest
from support.agent_workers import word
from support.servers import until
from support.worktree_runs import Yard, work

from agentq.coordinator.model.agent_options import AgentTurnOptions
from agentq.coordinator.model.retry_policy import RetryPolicy
from agentq.coordinator.runs.run_record import RunRecord

PAGE = "<<<<<<< HEAD\nours\n=======\ntheirs\n>>>>>>> other\n"
"""What a page about git shows."""
PRINTED = PAGE.replace("\n", r"\n")


def classes(run: RunRecord) -> list[str]:
    """How its attempts ended."""
    return [each.outcome.class_.value for each in run.attempts if each.outcome]


def moving(yard: Yard, name: str, text: str) -> str:
    """A step of the agent's in which somebody else moves the target."""
    theirs = yard.depot.commit_on("main", "theirs", **{name: text})
    return f"RUN git -C {yard.depot.path} update-ref refs/heads/work {theirs}"


def test_a_conflict_goes_back_to_the_agent_in_its_conversation_and_its_worktree(yard: Yard) -> None:
    run = yard.submit_agent(
        "AT 1 WRITE a.txt mine",
        f"AT 1 {moving(yard, 'a__txt', 'theirs')}",
        "AT 2 REPORT prompts",
        hint="AT 2 RUN cat a.txt\nAT 2 WRITE a.txt both",
    )

    (ended,) = yard.done(run)

    assert (ended.state, classes(ended)) == ("completed", ["conflict", "ok"]), ended.outcome
    assert yard.depot.read("work", "a.txt") == "both"
    assert yard.depot.log("work")[1:] == ["theirs", "begin"]
    assert yard.delivered() == [run]
    log = yard.log(run)
    assert "these files are in conflict" in log
    assert "<<<<<<<" in log
    assert (
        len({word_of.session for word_of in (each.outcome.agent for each in ended.attempts if each.outcome) if word_of})
        == 1
    )


@pytest.mark.full("takes 2 s")
def test_a_page_that_has_markers_of_its_own_can_be_resolved(yard: Yard) -> None:
    yard.depot.commit("page", doc__md=f"{PAGE}end\n")
    run = yard.submit_agent(
        f"AT 1 RUN printf '{PRINTED}mine' > doc.md",
        f"AT 1 {moving(yard, 'doc__md', f'{PAGE}theirs')}",
        hint=f"AT 2 RUN printf '{PRINTED}both' > doc.md",
    )

    (ended,) = yard.done(run)

    assert (ended.state, classes(ended)) == ("completed", ["conflict", "ok"]), ended.outcome
    assert yard.depot.read("work", "doc.md") == f"{PAGE}both"


@pytest.mark.full("takes 2 s")
def test_a_conflict_that_is_left_in_a_page_with_markers_of_its_own_is_seen(yard: Yard) -> None:
    yard.depot.commit("page", doc__md=f"{PAGE}end\n")
    run = yard.submit_agent(
        f"AT 1 RUN printf '{PRINTED}mine' > doc.md", f"AT 1 {moving(yard, 'doc__md', f'{PAGE}theirs')}", rounds=1
    )

    (ended,) = yard.done(run)

    assert (ended.state, classes(ended)) == ("failed", ["conflict", "conflict"])


def test_an_agent_that_leaves_the_markers_there_is_asked_again_but_not_for_ever(yard: Yard) -> None:
    run = yard.submit_agent("AT 1 WRITE a.txt mine", f"AT 1 {moving(yard, 'a__txt', 'theirs')}", rounds=1)

    (ended,) = yard.done(run)

    assert (ended.state, classes(ended)) == ("failed", ["conflict", "conflict"])
    assert ended.outcome is not None
    assert "conflict" in (ended.outcome.error or "")
    assert "a.txt" in (ended.outcome.error or "")
    assert yard.depot.read(f"agentq/{run}", "a.txt") == "mine", "what it had done is still on its branch"
    assert yard.depot.read("work", "a.txt") == "theirs"


def test_a_failed_check_goes_back_with_what_it_said(yard: Yard) -> None:
    """What the check says is in the prompt: here it tells what to do."""
    check = ["sh", "-c", "test -e test.txt || { echo 'WRITE test.txt tested'; exit 1; }"]
    run = yard.submit_agent("AT 1 WRITE code.txt code", check=check)

    (ended,) = yard.done(run)

    assert (ended.state, classes(ended)) == ("completed", ["check", "ok"]), ended.outcome
    assert yard.delivered() == [run]
    assert yard.depot.git("ls-tree", "--name-only", "work").split() == ["a.txt", "b.txt", "code.txt", "test.txt"]
    assert word(ended).verdict == "ok"
    assert work(ended).merged


def test_an_agent_that_was_to_change_something_and_did_not_has_failed(yard: Yard) -> None:

    nothing, declared = yard.done(
        yard.submit_agent("SAY done", turn=AgentTurnOptions(expects="changes"), retry=None),
        yard.submit_agent(
            """RUN printf '{"no_changes": "it is right"}' > "$AGENTQ_RESULT\"""",
            turn=AgentTurnOptions(expects="changes"),
        ),
    )

    assert classes(nothing)[0] == "no_output"
    assert declared.state == "completed"
    assert yard.commits("main") == []


def test_a_resolver_mends_the_conflict_of_a_command_which_is_not_run_again(yard: Yard) -> None:
    """The stand-in does what its prompt says, which names the files: so the name of one of them says what to do."""
    odd, mend = "x\nRUN sh mend.sh", "sed -i '/^[<=>]/d' *\ngit add -A\n"
    theirs = yard.depot.commit_on("main", "theirs", **{"a__txt": "theirs\n", odd: "theirs\n", "mend__sh": mend})
    move = f"git -C {yard.depot.path} update-ref refs/heads/work {theirs}"
    write = f"for file in a.txt '{odd}'; do echo mine > \"$file\"; done"

    run = yard.submit(f"echo did >> {yard.told}; {write}; {move}", on_conflict="resolver", resolver="standin")
    (ended,) = yard.done(run)

    assert (ended.state, classes(ended)) == ("completed", ["conflict", "ok"]), ended.outcome
    assert yard.told.read_text().split() == ["did"]
    assert yard.depot.read("work", "a.txt").split() == ["mine", "theirs"]
    assert yard.delivered() == [run]


@pytest.mark.full("takes 2 s")
def test_a_resolver_that_is_not_there_is_told_by_name(yard: Yard) -> None:
    theirs = yard.depot.commit_on("main", "theirs", a__txt="theirs\n")
    move = f"git -C {yard.depot.path} update-ref refs/heads/work {theirs}"

    run = yard.submit(f"echo mine > a.txt; {move}", on_conflict="resolver", resolver="nobody", rounds=1)
    (ended,) = yard.done(run)

    assert classes(ended) == ["conflict", "conflict"]
    assert ended.outcome is not None
    assert "the resolver nobody cannot be started" in (ended.outcome.error or "")


def test_an_agent_is_told_what_the_tasks_before_it_did(yard: Yard) -> None:
    result = """printf '"17 tests"' > "$AGENTQ_RESULT\""""
    first = yard.submit(f"{result}; echo t > tests.txt", name="Write tests")
    other = yard.submit("echo o > other.txt", name="Something else")
    run = yard.submit_agent(
        "There are {{ tasks.first.result }}.", after=[first, other], inputs={"first": first}, context="dependencies"
    )

    (ended,) = yard.done(run)

    log = yard.log(run)
    assert ended.state == "completed", ended.outcome
    assert "There are 17 tests." in log
    assert "These tasks of the same plan were finished before yours" in log
    assert "Write tests" in log
    assert "Something else" in log


@pytest.mark.full("takes 2 s")
def test_a_conflict_can_be_mended_where_the_worktree_is_gone(yard: Yard) -> None:
    later = RetryPolicy.model_validate({"classes": {"conflict": {"retries": 1, "delays_ms": [1_500]}}}, strict=False)
    run = yard.submit_agent(
        "AT 1 WRITE a.txt mine",
        "AT 1 WRITE b.txt mine",
        f"AT 1 {moving(yard, 'a__txt', 'theirs')}",
        hint="AT 2 WRITE a.txt both",
        retry=later,
    )
    until(lambda: classes(yard.crew.records.get(run)) == ["conflict"], "the conflict")
    (worktree,) = yard.home.glob(f"worktrees/*/{run}")
    until(lambda: '"holder":"' not in worktree.with_suffix(".json").read_text(), "it to be left")
    shutil.rmtree(worktree)
    yard.depot.git("worktree", "prune")

    (ended,) = yard.done(run)

    assert (ended.state, classes(ended)) == ("completed", ["conflict", "ok"]), ended.outcome
    assert yard.depot.read("work", "a.txt") == "both"
    assert yard.depot.read("work", "b.txt") == "mine", "what it had done is not lost"
