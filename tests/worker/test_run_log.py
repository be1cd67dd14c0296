"""What a worker writes of each run that it starts and ends, and a command that hears of a drain."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.crew import Crew
from support.servers import Server, until

from agentq.coordinator.errors import Fenced
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.workers.messages import FunctionOutcome
from agentq.worker.reporting.report_sender import AttemptReport
from agentq.worker.reporting.run_log import RunLog, log
from agentq.worker.slots import WorkerSlots

CLAIMS = [Claim(f"run_{number}", "2-nonce", "default:5:", "") for number in range(2)]


class Kept(logging.Handler):
    """Keeps what is logged, with its fields."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append({"event": record.getMessage(), **record.fields})  # type: ignore[attr-defined]


@pytest.fixture
def kept() -> Iterator[Kept]:
    """The lines at the level `info`."""
    handler, level = Kept(), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler
    log.removeHandler(handler)
    log.setLevel(level)


def test_each_run_has_a_line_when_it_starts_and_one_when_it_has_ended(kept: Kept) -> None:
    run_log = RunLog()
    hands = WorkerSlots(2, log=run_log)
    for claim in CLAIMS:
        hands.take(claim)
    run_log.ended(AttemptReport("fail", CLAIMS[0], Outcome(class_=OutcomeClass.EXIT, exit_code=3, error="it broke")))
    hands.drop(CLAIMS[0])
    hands.drop(CLAIMS[1])

    started, _, failed, superseded = kept.lines
    assert started == {"event": "run started", "run": "run_0", "attempt": 2, "lane": "default:5:"}
    assert failed.pop("took_ms") >= 0
    told = {"report": "fail", "class": "exit", "exit_code": 3, "error": "it broke"}
    assert failed == {"event": "run ended", "run": "run_0", "attempt": 2, **told}
    assert (superseded["run"], superseded["report"]) == ("run_1", "superseded")


def test_the_ends_of_function_runs_are_written_with_what_the_server_refused(kept: Kept) -> None:
    run_log = RunLog()
    WorkerSlots(2, log=run_log).take_functions(CLAIMS)
    ended = [FunctionOutcome(claim, "ok", '{"class":"ok","result":1}', None) for claim in CLAIMS]
    run_log.calls_ended(ended, [None, Fenced("It has another attempt.")])

    assert [line["event"] for line in kept.lines] == ["run started"] * 2 + ["run ended"] * 2
    assert [line.get("refused") for line in kept.lines[2:]] == [None, "It has another attempt."]


def test_below_the_level_nothing_is_kept_of_runs(kept: Kept) -> None:
    log.setLevel(logging.WARNING)
    run_log = RunLog()
    hands = WorkerSlots(2, log=run_log)
    hands.take(CLAIMS[0])
    log.setLevel(logging.INFO)
    hands.drop(CLAIMS[0])

    assert kept.lines == []


def test_a_command_that_asks_for_it_hears_of_a_drain_and_ends_in_its_grace(
    durable: Server, make_crew: Callable[..., Crew], capfd: pytest.CaptureFixture[str]
) -> None:
    """Its worker writes lines of JSON meanwhile, and nothing else."""
    crew = make_crew(durable)
    worker = crew.worker(drain_grace="10m", log_level="info", log_json=True)
    saves = 'trap "touch saved; exit 0" USR1; touch ready; while :; do sleep 0.1; done'
    run = crew.submit(saves, on_drain="SIGUSR1")
    until((crew.folder / "ready").exists, "its trap to be set")

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(timeout=60) == 0
    assert crew.records.get(run).state == "completed"
    assert (crew.folder / "saved").exists()
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    events = [line["event"] for line in lines if line.get("run") == run]
    assert events == ["run started", "run ended"]
