"""How runs are named on the command line: by the beginning or the end of an id, as PLAN/TASK, or not at all."""

from __future__ import annotations

import json

import pytest
from cli.conftest import Cli, sentence
from support.world import World

from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.plans.verbs import Plans, TaskSubmission
from agentq.coordinator.runs.logs import LogChunk


def a_plan(world: World, name: str = "shop") -> tuple[str, dict[str, str]]:
    """A plan of two tasks, and their runs."""
    plans = Plans(world.queue)
    plan = plans.create(
        name, [TaskSubmission(each, RunSpec(kind="command", argv=["true"])) for each in ("docs", "tests")]
    )
    return plan, plans.runs(plan, ["docs", "tests"])


def test_the_end_of_an_id_is_as_good_as_its_beginning(cli: Cli, real: World) -> None:
    run, *_ = [real.submit() for _ in range(3)]

    for text in (run[-6:], run[-6:].upper(), run[-12:], run):
        assert cli("show", text).out.startswith(run), text
        assert cli("why", text).out.startswith(run), text


def test_an_end_that_fits_several_runs_lists_them(cli: Cli, real: World) -> None:
    run = real.submit()
    other = run[:8] + ("0" if run[8] != "0" else "1") + run[9:]
    real.queue.submit(RunSpec(kind="command", argv=["true"]), run_id=other)

    answer = cli("show", run[-8:])

    assert all(each in sentence(answer) for each in (run, other))
    assert answer.code == 2


def test_an_end_is_found_below_many_newer_runs(cli: Cli, real: World) -> None:
    run = real.submit()
    list(real.queue.submit_many([RunSpec(kind="command", argv=["true"])] * 2500))

    assert cli("show", run[-10:], "--json").code == 0


def test_a_run_may_be_named_by_its_plan_and_its_task(cli: Cli, real: World) -> None:
    plan, runs = a_plan(real)

    for text in (f"{plan}/docs", "shop/docs"):
        assert cli("show", text).out.startswith(runs["docs"])
        assert cli("why", text).out.startswith(runs["docs"])
    assert cli("cancel", "shop/tests").out.startswith(runs["tests"])
    assert cli("retry", "shop/tests").out.startswith(runs["tests"])
    assert cli("signal", "shop/docs", "go").out.startswith(runs["docs"])
    assert cli("approve", "shop/docs").out.startswith(runs["docs"])
    child = cli("submit", "--after", "shop/docs", "--", "true").out.strip()
    assert list(real.get(child).spec.after) == [runs["docs"]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("shop/doc", "There is no task 'doc' in the plan"),
        ("shop/doc", "did you mean docs?"),
        ("shap/docs", "There is no plan 'shap'; did you mean shop"),
    ],
)
def test_a_task_that_does_not_exist_is_said(cli: Cli, real: World, text: str, words: str) -> None:
    a_plan(real)

    answer = cli("why", text)

    assert words in sentence(answer)
    assert answer.code == 2


def test_without_a_run_the_newest_is_meant_and_said(cli: Cli, real: World) -> None:
    real.submit()
    held = real.held("w1", started=True)
    real.queue.log(held, 1, [LogChunk("out", "hello\n")])
    real.queue.finish([(held, Outcome(exit_code=0))])

    for command in ("show", "why", "logs", "wait"):
        answer = cli(command)
        assert answer.code == 0, command
        assert answer.err.splitlines()[0] == f"agentq: the newest run is {held.id}.", command
    assert cli("logs").out == "hello\n"


def test_without_any_run_that_is_said(cli: Cli) -> None:
    assert "There are no runs yet" in sentence(cli("show"))


def test_cancel_without_a_run_takes_the_newest_live_one_once_it_is_allowed(cli: Cli, real: World) -> None:
    live = real.submit()
    real.queue.cancel(real.submit())

    with real.unchanged():
        refused = cli("cancel")
    done = cli("cancel", "--yes")

    assert f"{live}, the newest live run, would be cancelled; --yes does it" in sentence(refused)
    assert refused.code == 2
    assert done.out.startswith(live)
    assert real.state(live) == "cancelled"


def test_cancel_by_filter_counts_first(cli: Cli, real: World) -> None:
    held = real.held("w1", started=True)
    plan, _ = a_plan(real)
    labelled = [real.submit(queue="builds", labels={"team": "a"}) for _ in range(2)]
    other = real.submit(queue="builds", labels={"team": "b"})

    with real.unchanged():
        refused = cli("cancel", "--queue", "builds", "--label", "team=a")
        shown = cli("cancel", "--queue", "builds", "--dry-run")
        both = cli("cancel", held.id, "--queue", "builds")
        ended = cli("cancel", "--state", "completed")
    done = cli("cancel", "--queue", "builds", "--label", "team=a", "--yes", "--json")
    of_plan = cli("cancel", "--plan", plan, "--state", "pending", "--yes")

    assert "2 runs would be cancelled; --yes does it, --dry-run only shows it." in sentence(refused)
    assert shown.out.split("\n")[:-1] == sorted([*labelled, other], reverse=True)
    assert "not both" in sentence(both)
    assert "has ended" in sentence(ended)
    assert {json.loads(line)["id"] for line in done.lines} == set(labelled)
    assert len(of_plan.lines) == 2
    assert real.state(other) == "pending"
    assert real.get(held.id).stop_at_ms is None
    assert "There are no such runs" in cli("cancel", "--queue", "nowhere", "--yes").err
