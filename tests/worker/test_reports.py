"""What attempts have to say is said once the server hears it, in order, and the worker is told the answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.servers import until
from support.world import World

from agentq.coordinator.errors import AgentqError, Fenced
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome
from agentq.worker.reporting.report_sender import AttemptReport, ReportSender
from agentq.worker.reporting.spill import SpillFile

LIMIT = Outcome(class_=OutcomeClass.LIMIT, error="the weekly limit")
Heard = list[tuple[AttemptReport, AgentqError | None]]


@pytest.fixture
def heard() -> Heard:
    return []


@pytest.fixture
def reports(world: World, heard: Heard, tmp_path: Path) -> Iterator[ReportSender]:
    reports = ReportSender(
        world.queue,
        SpillFile(tmp_path / "spill"),
        lambda report, answer: heard.append((report, answer)),
        lambda fault: pytest.fail(str(fault)),
    )
    reports.start()
    yield reports
    assert reports.close(5_000)


def test_an_attempt_is_put_off_until_its_limit_ends(world: World, reports: ReportSender, heard: Heard) -> None:
    claim, due_at_ms = world.held(), world.now_ms + 60_000

    reports.send(AttemptReport("defer", claim, LIMIT, due_at_ms=due_at_ms))
    until(lambda: len(heard) == 1, "the answer")

    run = world.get(claim.id)
    assert (run.state, run.due_at_ms, run.deferrals) == ("scheduled", due_at_ms, 1)
    assert heard[0][1] is None


@pytest.mark.parametrize(("delay_ms", "waits_ms"), [(7_000, 7_000), (None, 500)])
def test_an_attempt_is_put_off_for_a_while_or_as_its_policy_backs_off(
    world: World, reports: ReportSender, heard: Heard, delay_ms: int | None, waits_ms: int
) -> None:
    claim = world.held()

    reports.send(AttemptReport("defer", claim, LIMIT, delay_ms=delay_ms))
    until(lambda: len(heard) == 1, "the answer")

    assert world.get(claim.id).due_at_ms == world.now_ms + waits_ms


def test_a_deferral_of_an_attempt_that_was_superseded_is_refused_and_told(
    world: World, reports: ReportSender, heard: Heard
) -> None:
    claim = world.held()
    world.queue.release(claim)

    reports.send(AttemptReport("defer", claim, LIMIT))
    until(lambda: len(heard) == 1, "the answer")

    assert isinstance(heard[0][1], Fenced)
    assert world.state(claim.id) == "pending"
