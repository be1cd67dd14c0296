"""Every example in the help of every command works."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from cli.conftest import Cli
from support.generated_docs import every_command
from support.servers import until
from support.world import World

from agentq.cli.commands import demo
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.events.event_filter import EventFilter
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.plans.verbs import Plans, TaskSubmission
from agentq.coordinator.schedules.verbs import make_schedule_rule
from agentq.coordinator.security.tokens import Tokens
from agentq.coordinator.sessions.verbs import Sessions
from agentq.coordinator.webhooks.verbs import Webhooks

EXAMPLES = [
    example
    for _, command in every_command()
    for example in re.findall(r"Example: agentq (.*)", f"{command.help}\n{command.epilog or ''}")
]
OF_LIVE_RUNS = ("cancel", "signal", "approve", "deny")
UNTIL_STOPPED = ("up", "worker --")
BY_THEMSELVES = (
    "webhook test",
    "webhook redeliver",
    "worktree open",
    "run ",
    "resume",
    "plan resume",
    "demo",
    "bench",
    "serve",
)
"""These have tests of their own."""
ON_REDIS = ("doctor", "reap", "rq")
SAMPLE = 3
PUBLIC_ADDRESS = "93.184.216.34"
"""In the place of a host's name, which a coordinator looks up and a test cannot."""


def sampled() -> list[Any]:
    """Every example; the default lane has one in three, by a hash of its words."""
    found = [each for each in EXAMPLES if not each.startswith(UNTIL_STOPPED + BY_THEMSELVES)]
    left_out = pytest.mark.full(f"one example in {SAMPLE} is enough for every change")
    on_redis = pytest.mark.redis_only("it works on Redis itself")

    def marks(example: str) -> list[pytest.MarkDecorator]:
        chosen = [on_redis] if example.startswith(ON_REDIS) else []
        return [*chosen, left_out] if crc32(example.encode()) % SAMPLE else chosen

    return [pytest.param(each, marks=marks(each)) for each in found]


@pytest.mark.promise("P8")
@pytest.mark.parametrize("example", sampled())
def test_an_example_in_the_help_works(
    cli: Cli, real: World, example: str, background: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTQ_RESULT", str(here / "result"))
    done = real.held("w1", started=True)
    if example.startswith("dead"):
        real.queue.fail(done, Outcome(class_=OutcomeClass.EXIT))
    else:
        assert real.queue.finish([(done, Outcome(exit_code=0))]) == [None]
    if "--wait" in example:
        background(lambda claim: real.queue.finish([(claim, Outcome(exit_code=0))]))
    real.schedules.add("SCHEDULE", make_schedule_rule(cron="@daily"), RunSpec(kind="command", argv=["true"]))
    run = real.submit(queue="other") if example.startswith(OF_LIVE_RUNS) else done.id
    if example.startswith("hint"):
        run = real.submit(kind="agent", agent="claude", argv=(), prompt="x", queue="other")
    plan = a_plan(real, here) if example.startswith("plan") or "PLAN" in example else ""
    Sessions(real.store).new("SESSION", "claude")
    Tokens(real.store).new("TOKEN", ["read"])
    Webhooks(real.store).add("WEBHOOK", "https://example.com/agentq", EventFilter())
    real.limits.shut("some:limit", wall_ms() + 3_600_000)
    real.limits.set("some:limit", most=1)
    real.queues.pause("other")
    words = example.replace("RUN", run).replace("WORKER", "w1").replace("LIMIT", "some:limit").replace("QUEUE", "other")
    words = words.replace("PLAN", plan).replace("//example.com/", f"//{PUBLIC_ADDRESS}/")

    answer = cli(*shlex.split(words))

    assert answer.code == 0, answer.err


def a_plan(world: World, folder: Path) -> str:
    """A plan of which a task failed, and files such as the examples name."""
    (folder / "plan.yaml").write_text("tasks: [{id: parser, command: make}, {id: docs, needs: parser, command: make}]")
    (folder / "TASKS.md").write_text("- [ ] Mend the parser")
    tasks = [TaskSubmission(name, RunSpec(kind="command", argv=["false"])) for name in ("parser", "docs")]
    plan = Plans(world.queue).create("shop", tasks)
    (claim, *_) = world.worker("w2").claim(1)
    world.queue.fail(claim, Outcome(class_=OutcomeClass.EXIT))
    return plan


@pytest.mark.redis_only("through a coordinator a worker is run with --connect")
@pytest.mark.parametrize("example", [each for each in EXAMPLES if each.startswith(UNTIL_STOPPED)])
def test_an_example_that_runs_until_it_is_stopped_works(cli: Cli, real: World, example: str) -> None:
    """In a process of its own, with the settings that `cli` made."""
    worker = subprocess.Popen([sys.executable, "-m", "agentq.cli.main", *shlex.split(example)], stderr=subprocess.PIPE)
    try:
        until(lambda: cli("worker", "ls").lines, "a worker to register")
        worker.send_signal(signal.SIGTERM)
        _, said = worker.communicate(timeout=30)
        assert worker.returncode == 0
        assert b"Traceback" not in said
    finally:
        worker.kill()
        worker.wait()
    assert real.records.workers() == []


@pytest.mark.promise("P1", "P3")
@pytest.mark.slow("the first command of the README")
def test_the_demo_keeps_every_promise(fresh_home: dict[str, str]) -> None:
    argv = [sys.executable, "-m", "agentq.cli.main", "demo"]
    done = subprocess.run(argv, env=fresh_home, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "Nothing was lost, nothing was done twice." in done.stdout
    assert "demo" in EXAMPLES


def test_the_demo_kills_a_worker_only_with_a_run_in_its_hands(real: World) -> None:
    ended, running = real.held("w1", started=True), real.held("w2", started=True)
    real.queue.finish([(ended, Outcome(exit_code=0))])
    events = {event.run: event for event in real.events() if event.event == "started"}
    with subprocess.Popen(["sleep", "600"]) as worker:
        try:
            assert not demo._kill_worker(worker, events[ended.id], real.records)
            assert worker.poll() is None
            assert demo._kill_worker(worker, events[running.id], real.records)
            assert worker.wait(20) == -signal.SIGKILL
        finally:
            worker.kill()


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 25
