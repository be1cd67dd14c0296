"""How attempts ended that a worker could not report before it left: the next one on the host reports it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.crew import Crew
from support.network_line import Line
from support.servers import Server, until
from support.world import World

from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.coordinator.runs.wait import RunWait
from agentq.worker.reporting.report_sender import AttemptReport
from agentq.worker.reporting.unsent_reports import UnsentReports


@pytest.fixture
def said() -> list[str]:
    return []


def report(home: Path, world: World, said: list[str]) -> None:
    """What the next worker does at its start."""

    @contextmanager
    def queue_of(_: str) -> Iterator[RunVerbs]:
        yield world.queue

    UnsentReports(home, world.store.keyspace.namespace).send_all(queue_of, said.append)


def keep(home: Path, world: World, *reports: AttemptReport) -> str:
    return UnsentReports(home, world.store.keyspace.namespace).save("w1", reports)


def test_every_kind_of_end_is_kept_and_reported(world: World, tmp_path: Path, said: list[str]) -> None:
    done, failed, parked, released = (world.held(f"w{number}", started=True) for number in range(4))

    sentence = keep(
        tmp_path,
        world,
        AttemptReport("finish", done, Outcome(result={"answer": 42})),
        AttemptReport("fail", failed, Outcome(class_=OutcomeClass.EXIT, exit_code=3)),
        AttemptReport("park", parked, wait=RunWait(signals=("go",), for_ms=1000)),
        AttemptReport("release", released, reason="its worker is leaving"),
    )
    report(tmp_path, world, said)

    assert done.id in sentence
    assert world.states([done.id, failed.id, parked.id, released.id]) == ["completed", "failed", "waiting", "pending"]
    outcome = world.get(done.id).outcome
    assert outcome is not None
    assert outcome.result == {"answer": 42}
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]
    assert said == ["reported how 4 runs of the worker w1 ended."]


def test_an_end_of_a_run_that_has_gone_on_meanwhile_does_not_count(
    world: World, tmp_path: Path, said: list[str]
) -> None:
    claim = world.held(started=True)
    keep(tmp_path, world, AttemptReport("finish", claim, Outcome()))
    world.queue.release(claim)

    report(tmp_path, world, said)

    assert world.state(claim.id) == "pending"
    assert said == ["1 run of the worker w1 has continued without its unsent report."]


def test_what_the_server_does_not_know_and_what_cannot_be_read_hold_up_nothing(
    world: World, tmp_path: Path, said: list[str]
) -> None:
    """It may be another server of the same namespace: what is of a run that it does not know is kept."""
    claim, unknown = world.held(started=True), world.held("w2")._replace(id="run_1m7t2dw6z008fvnyt0yjank")
    keep(tmp_path, world, AttemptReport("finish", unknown, Outcome()), AttemptReport("finish", claim, Outcome()))
    (file,) = (file for file in tmp_path.rglob("*") if file.is_file())
    file.write_text("rubbish\n" + file.read_text())

    report(tmp_path, world, said)

    assert world.state(claim.id) == "completed"
    assert [json.loads(line)["run"] for line in file.read_text().splitlines()] == [unknown.id]


@pytest.mark.full("takes 15 s")
def test_a_worker_that_leaves_while_its_server_is_away_says_what_it_keeps_and_the_next_one_reports_it(
    valkey: Server, make_crew: Callable[..., Crew], folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    crew = make_crew(valkey, namespace=folder.name, heartbeat_ms=500, lease_ms=60_000)
    gate = folder / "gate"
    with Line(valkey) as line:
        worker = crew.worker(url=line.url, slots=2)
        done = crew.submit(f"until [ -e {gate} ]; do sleep 0.02; done")
        held = crew.submit("sleep 300", stop_grace_ms=0)
        until(lambda: {crew.state(run) for run in (done, held)} == {"running"}, "both to run")
        line.lead_to(Server("", folder / "never started"))
        gate.touch()
        until(lambda: crew.effects("end")[done] == 1, "the run to end")

        until(lambda: "goes on meanwhile" in capfd.readouterr().err, "the outage to be told")
        worker.send_signal(signal.SIGTERM)
        worker.send_signal(signal.SIGINT)

        assert worker.wait(timeout=30) == 3
    told = capfd.readouterr().err
    assert done in told
    assert held in told

    crew.worker()
    crew.wait([done])
    until(lambda: crew.state(held) != "running", "the other to be handed back")

    assert crew.effects("begin")[done] == 1, "it is not executed again"
    assert (crew.records.get(done).attempt, crew.records.get(held).crashes) == (1, 0)
