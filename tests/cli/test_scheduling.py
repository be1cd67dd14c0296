"""`agentq schedule`, and where else a schedule shows."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from cli.conftest import Answer, Cli, sentence
from support.servers import until
from support.world import World

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.model.durations import format_iso

FIELDS = [
    "name", "state", "why", "cron", "tz", "every_ms", "start_at", "at", "until", "jitter_ms", "missed", "catch_up_ms",
    "overlap", "next_at", "last_at", "made_by", "created_at", "paused_at", "ended_at", "live", "spec",
]  # fmt: skip


def said(answer: Answer) -> Any:
    assert answer.code == 0, answer.err
    return json.loads(answer.out)


def test_a_schedule_is_added_shown_and_removed(cli: Cli, real: World) -> None:
    argv = ["schedule", "add", "nightly", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", "--overlap", "cancel-old"]
    made = said(
        cli(*argv, "--jitter", "5m", "--queue", "builds", "--retries", "2", "--json", "--", "make", "-k", "test")
    )

    assert list(made) == FIELDS
    assert (made["cron"], made["tz"], made["overlap"]) == ("30 2 * * *", "Europe/Berlin", "cancel_old")
    assert made["spec"]["argv"] == ["make", "-k", "test"]
    assert (made["spec"]["queue"], made["spec"]["retry"]) == ("builds", {"failures": 2})
    assert [said(cli("schedule", "ls", "--json"))] == [made]
    (line,) = cli("schedule", "ls").lines
    assert line.split("\t")[:4] == ["nightly", "active", "30 2 * * * (Europe/Berlin)", made["next_at"]]
    shown = said(cli("schedule", "show", "nightly", "--json"))
    assert list(shown) == [*FIELDS, "next", "history"]
    assert (len(shown["next"]), shown["next"][0], shown["history"]) == (5, made["next_at"], [])
    assert "make -k test" in cli("schedule", "show", "nightly").out

    assert cli("schedule", "rm", "nightly").out == "nightly\tremoved\n"
    assert cli("schedule", "ls").out == ""
    assert real.records.page().runs == []


def test_adding_prints_when_it_is_next(cli: Cli) -> None:
    answer = cli("schedule", "add", "once", "--at", format_iso(wall_ms() + 3_600_000), "--", "true")

    assert answer.out == f"once\t{said(cli('schedule', 'show', 'once', '--json'))['next_at']}\n"


def test_a_run_tells_which_schedule_made_it(cli: Cli) -> None:
    cli("schedule", "add", "poll", "--every", "10m", "--", "./poll.sh")

    run = cli("schedule", "run", "poll").out.strip()

    assert said(cli("show", run, "--json"))["schedule"] == "poll"
    assert "poll" in cli("show", run).out
    assert "The schedule poll submitted it, for " in cli("why", run).out
    history = said(cli("schedule", "show", "poll", "--json"))["history"]
    assert [(each["what"], each["run"]) for each in history] == [("asked", run)]
    assert f"asked  {run}" in cli("schedule", "show", "poll").out


def test_a_schedule_is_paused_and_resumed(cli: Cli) -> None:
    cli("schedule", "add", "poll", "--every", "10m", "--", "./poll.sh")

    paused = said(cli("schedule", "pause", "poll", "--why", "the disk is full", "--json"))
    assert (paused["state"], paused["why"]) == ("paused", "the disk is full")
    assert "paused: the disk is full" in cli("schedule", "show", "poll").out
    assert said(cli("schedule", "show", "poll", "--json"))["next"] == []
    assert cli("schedule", "resume", "poll").out.startswith("poll\tactive\t20")


@pytest.mark.redis_only("agentq reap does the duties of the store itself")
def test_reap_alone_runs_what_is_due(cli: Cli, real: World) -> None:
    """As from cron, where no worker lives: one call does all of it."""
    cli(
        "schedule",
        "add",
        "poll",
        "--every",
        "1s",
        "--overlap",
        "allow",
        "--catch-up",
        "1h",
        "--missed",
        "all",
        "--",
        "true",
    )
    partition = real.schedules.partition("poll")
    key = real.store.key(partition, "schedule", "poll")
    began_ms = wall_ms() - 60_500
    rule = json.dumps({"every_ms": 1000, "start_ms": began_ms, "missed": "all", "catch_up_ms": 3_600_000})
    real.store.connection.command("HSET", key, "rule", rule, "next_at_ms", began_ms + 1000)
    real.store.connection.command("ZADD", real.store.key(partition, "schedules"), began_ms + 1000, "poll")

    made = said(cli("reap", "--json"))["scheduled"]

    assert 60 <= made <= (wall_ms() - began_ms) // 1000
    assert len(real.schedules.get("poll").live) == made


@pytest.mark.redis_only("a worker is run on Redis itself; through a coordinator it has --connect")
@pytest.mark.full("takes 4 s")
def test_a_worker_runs_a_schedule_in_time(cli: Cli, real: World) -> None:
    """A worker in a process of its own, whose duties sleep longer than the schedule that is added meanwhile."""
    worker = subprocess.Popen([sys.executable, "-m", "agentq.cli.main", "worker"], stderr=subprocess.PIPE)
    try:
        until(lambda: cli("worker", "ls").lines, "a worker to register")
        until(lambda: real.store.connection.command("EXISTS", real.store.key(0, "duty_owner")), "a scheduler")
        cli("schedule", "add", "beat", "--every", "1s", "--", "true")
        until(lambda: [each.what for each in real.schedules.history("beat")].count("made") >= 3, "three ticks")
        cli("schedule", "pause", "beat")
        until(lambda: not real.schedules.get("beat").live, "the last run to end")
    finally:
        worker.terminate()
        worker.communicate(timeout=30)

    made = [each for each in real.schedules.history("beat") if each.what == "made"]
    assert {real.get(each.run or "").state for each in made} == {"completed"}
    assert max(each.at_ms - (each.tick_ms or 0) for each in made) < real.settings.tick_ms // 2


def test_a_stdin_is_read_when_the_schedule_is_added(cli: Cli, real: World) -> None:
    cli("schedule", "add", "feed", "--every", "1h", "--stdin", "-", "--", "cat", stdin="bytes")

    run = cli("schedule", "run", "feed").out.strip()

    assert real.get(run).spec.stdin == "bytes"


ADD = ["schedule", "add", "new"]
DAILY = [*ADD, "--cron", "@daily"]

WRONG = {
    "a wrong minute": ([*ADD, "--cron", "61 * * * *", "--", "true"], "'61 * * * *' has a wrong minute"),
    "too few fields": ([*ADD, "--cron", "5 * *", "--", "true"], "five fields"),
    "never": ([*ADD, "--cron", "0 0 30 2 *", "--", "true"], "--cron"),
    "a zone that is none": ([*DAILY, "--tz", "Europe/Berln", "--", "true"], "perhaps Europe/Berlin"),
    "a zone for an interval": ([*ADD, "--every", "1h", "--tz", "UTC", "--", "true"], "nothing without --cron"),
    "no interval": ([*ADD, "--every", "0s", "--", "true"], "--every: it should be greater than or equal to 1s"),
    "a negative interval": ([*ADD, "--every=-5m", "--", "true"], "--every: '-5m' is not a duration"),
    "an interval in words": ([*ADD, "--every", "often", "--", "true"], "--every: 'often' is not a duration"),
    "two rules": ([*DAILY, "--every", "1h", "--", "true"], "--cron and --every contradict each other"),
    "three rules": ([*DAILY, "--every", "1h", "--at", "14:30", "--", "true"], "contradict each other"),
    "no rule": ([*ADD, "--", "true"], "A schedule needs --cron, --every or --at"),
    "a time that has passed": ([*ADD, "--at", "2020-01-01", "--", "true"], "has passed already"),
    "an end that has passed": ([*DAILY, "--until", "2020-01-01", "--", "true"], "has passed already"),
    "an end before the first": ([*ADD, "--every", "2d", "--until", "23:59", "--", "true"], "No tick of"),
    "no command": (DAILY, "There is no command to run"),
    "no name": (["schedule", "add", "--cron", "@daily"], "Missing argument 'NAME'"),
    "what is no name": (["schedule", "add", "a b", "--cron", "@daily", "--", "true"], "not the name of a schedule"),
    "an unknown policy": ([*DAILY, "--overlap", "panic", "--", "true"], "there are skip, queue, cancel-old, allow"),
    "to miss nothing": ([*DAILY, "--missed", "all", "--", "true"], "--missed means nothing without --catch-up"),
    "to miss what?": ([*DAILY, "--catch-up", "1h", "--missed", "some", "--", "true"], "there are latest and all"),
    "to catch up for ages": ([*DAILY, "--catch-up", "99d", "--", "true"], "--catch-up: it should be less"),
    "to catch up with nothing": ([*DAILY, "--catch-up", "0s", "--", "true"], "--catch-up: it should be greater"),
    "jitter beyond the next": ([*ADD, "--every", "1m", "--jitter", "1m", "--", "true"], "not less than the interval"),
    "an option of its run": ([*DAILY, "--priority", "10", "--", "true"], "--priority: it should be less than"),
    "an option that runs have and it has not": ([*DAILY, "--after", "x", "--", "true"], "No such option: --after"),
    "an unknown schedule to show": (["schedule", "show", "new"], "There is no schedule new"),
    "an unknown schedule to pause": (["schedule", "pause", "old", "new"], "There is no schedule new"),
    "an unknown schedule to resume": (["schedule", "resume", "new"], "There is no schedule new"),
    "an unknown schedule to run": (["schedule", "run", "new"], "There is no schedule new"),
    "an unknown schedule to remove": (["schedule", "rm", "old", "new"], "There is no schedule new"),
    "an unknown verb": (["schedule", "fire", "old"], "No such command 'fire'"),
}  # fmt: skip


@pytest.mark.parametrize(("argv", "words"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_input_gets_a_sentence_and_changes_nothing(cli: Cli, real: World, argv: list[str], words: str) -> None:
    cli("schedule", "add", "old", "--cron", "@daily", "--", "true")

    with real.unchanged():
        answer = cli(*argv)

    assert words in sentence(answer)
    assert answer.code == 2


@pytest.mark.redis_only("behind a coordinator no worker need be on this machine")
def test_a_folder_that_is_not_there_is_refused(cli: Cli, real: World) -> None:
    with real.unchanged():
        answer = cli(*DAILY, "--cwd", "/nowhere", "--", "true")

    assert sentence(answer) == "--cwd: there is no folder /nowhere."
    assert answer.code == 2


def test_a_name_that_is_taken_is_refused_unless_it_is_to_be_replaced(cli: Cli, real: World) -> None:
    cli("schedule", "add", "old", "--cron", "@daily", "--", "true")

    with real.unchanged():
        answer = cli("schedule", "add", "old", "--every", "1h", "--", "true")
    assert "There is a schedule old already; `--replace` puts this one in its place." in sentence(answer)
    assert answer.code == 5

    assert (
        said(cli("schedule", "add", "old", "--every", "1h", "--replace", "--json", "--", "true"))["every_ms"]
        == 3_600_000
    )
