"""`agentq dead`: what failed for good, one by one and many at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from cli.conftest import Cli, sentence
from support.world import World

from agentq.coordinator.bounds import KEEP_MS_MIN
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome

MakeDead = Callable[..., str]


@pytest.fixture
def dead(real: World) -> MakeDead:
    def make(class_: str = "exit", **fields: Any) -> str:
        claim = real.held(f"w{len(real.records.workers())}", **fields)
        outcome = Outcome(class_=OutcomeClass(class_), error=f"{class_} it was")
        real.queue.fail(claim, outcome)
        return claim.id

    return make


def age(real: World, *runs: str, by_ms: int = KEEP_MS_MIN) -> None:
    """Let runs have ended so long ago; the world here is in real time."""
    for run in runs:
        ended_ms = real.get(run).finished_at_ms or 0
        real.store.connection.command("HSET", real.store.key(0, "run", run), "finished_at_ms", ended_ms - by_ms)


def test_the_list_tells_how_each_failed(cli: Cli, real: World, dead: MakeDead) -> None:
    timeout, exit_ = dead("timeout"), dead("exit")
    real.submit()

    assert [line.split("\t")[:3] for line in cli("dead", "ls").lines] == [
        [exit_, "exit", "1"], [timeout, "timeout", "1"],
    ]  # fmt: skip
    assert cli("dead", "ls", "--class", "timeout").out.split("\t")[-1] == "timeout it was\n"
    records = [json.loads(line) for line in cli("dead", "ls", "--json", "--limit", "1").lines]
    assert [record["id"] for record in records] == [exit_]
    assert cli("dead", "ls", "--cursor", exit_).lines[0].startswith(timeout)


def test_only_what_failed_in_a_time_is_listed(cli: Cli, real: World, dead: MakeDead) -> None:
    old, new = dead(), dead()
    age(real, old, by_ms=7_200_000)

    assert [line.split("\t")[0] for line in cli("dead", "ls", "--since", "1h").lines] == [new]
    assert [line.split("\t")[0] for line in cli("dead", "ls", "--older", "1h").lines] == [old]


def test_show_says_why_it_is_not_tried_again(cli: Cli, dead: MakeDead) -> None:
    run = dead("timeout", retry={"failures": 2, "final": ["timeout"]})

    shown = cli("dead", "show", run)
    record = json.loads(cli("dead", "show", run, "--json").out)

    assert "a run that ends with timeout is not tried again." in shown.out
    assert "timeout it was" in shown.out
    assert record["attempts"][0]["worker"] == "w0"
    assert any("is not tried again" in each for each in record["because"])


def test_retry_of_one_keeps_its_history(cli: Cli, real: World, dead: MakeDead) -> None:
    run = dead()

    answer = cli("dead", "retry", run)

    assert answer.lines == [f"{run}\tpending"]
    assert answer.err == "agentq: 1 run begins again.\n"
    assert real.get(run).attempts[0].verb == "requeue"


def test_retry_by_what_they_have_in_common(cli: Cli, real: World, dead: MakeDead) -> None:
    wanted = [dead("timeout") for _ in range(3)]
    rest = [dead("exit"), dead("timeout", plan="other")]
    age(real, rest[1], by_ms=7_200_000)

    answer = cli("dead", "retry", "--class", "timeout", "--queue", "default", "--since", "1h", "--json")

    assert {json.loads(line)["id"] for line in answer.lines} == set(wanted)
    assert answer.err == "agentq: 3 runs begin again.\n"
    assert set(real.states(rest)) == {"failed"}
    assert cli("dead", "retry", "--all").err == "agentq: 2 runs begin again.\n"
    assert cli("dead", "ls").out == ""


def test_purge_forgets_what_is_old_enough(cli: Cli, real: World, dead: MakeDead) -> None:
    old, older, new = dead(), dead(queue="default"), dead()
    age(real, old, older, by_ms=7_200_000)
    live = real.submit()

    assert cli("dead", "purge", "--older", "1h", "--yes", "--json").out == '{"forgotten":2}\n'
    assert cli("dead", "purge", "--all").out == "0 forgotten\n", "what failed just now stays"
    assert cli("show", old).code == 2
    assert real.states([new, live]) == ["failed", "pending"]


def test_purge_of_a_selection_asks_for_yes_and_shows_what_it_would_do(cli: Cli, real: World, dead: MakeDead) -> None:
    runs = [dead() for _ in range(3)]
    age(real, *runs, by_ms=7_200_000)

    with real.unchanged():
        shown = cli("dead", "purge", "--all", "--dry-run")
        refused = cli("dead", "purge", "--all")
    one = cli("dead", "purge", runs[0])
    done = cli("dead", "purge", "--all", "--yes")

    assert shown.out == "3 would be forgotten\n"
    assert "3 failed runs would be forgotten, with their logs; --yes does it, --dry-run only shows" in sentence(refused)
    assert refused.code == 2
    assert (one.out, done.out) == ("1 forgotten\n", "2 forgotten\n")


def test_purge_of_one_that_failed_just_now_says_when(cli: Cli, real: World, dead: MakeDead) -> None:
    run = dead()

    with real.unchanged():
        answer = cli("dead", "purge", run)

    assert "ended less than a minute ago" in answer.err
    assert answer.code == 75


def test_what_is_not_dead_is_left_alone(cli: Cli, real: World) -> None:
    run = real.submit()

    with real.unchanged():
        shown, retried, purged = cli("dead", "show", run), cli("dead", "retry", run), cli("dead", "purge", run)

    assert f"The run {run} is pending, and not dead" in sentence(shown)
    assert f"The run {run} is pending" in retried.err
    assert f"The run {run} is pending" in purged.err
    assert (shown.code, retried.code, purged.code) == (5, 5, 5)
