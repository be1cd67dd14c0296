"""The server is away for long, and what runs say in the meantime is more than a worker keeps in memory."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from chaos.fleet import passed
from support.crew import Crew
from support.servers import Server, until

from agentq.coordinator.model.ids import new_nonce
from agentq.coordinator.runs.logs import Logs
from agentq.worker.reporting.log_upload import MEMORY_CHARACTERS, UPLOAD_WAIT_MS
from agentq.worker.reporting.report_sender import MEMORY_BYTES_MAX

MakeCrew = Callable[..., Crew]

RUNS = 14
RESULT_BYTES = 900_000
"""Together half as much again as the outcomes that a worker keeps in memory."""
LINES = 100_000
"""Of seven bytes each: less than a run may write as fast as it likes, and together more than is kept in memory."""
GO = 'while [ ! -e "$GO" ]; do sleep 0.05; done'
TELL = f"seq 100000 {100_000 + LINES - 1}"
TOLD = "".join(f"{100_000 + place}\n" for place in range(LINES))
LEAVE = f"(printf '\"'; head -c {RESULT_BYTES} /dev/zero | tr '\\0' x; printf '\"') > \"$AGENTQ_RESULT\""


@pytest.fixture
def full_disk(folder: Path) -> Iterator[Path]:
    """Where a worker puts what it has no memory for: a disk of 64 KiB."""
    spill = folder / "home" / "spill"
    spill.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(spill)], check=True)
    yield spill
    subprocess.run(["umount", "-l", str(spill)], check=True)


@contextmanager
def away(server: Server) -> Iterator[None]:
    server.signal(signal.SIGKILL)
    yield
    server.start()


def crew_of(make_crew: MakeCrew, server: Server) -> Crew:
    """Whose leases outlast the outage."""
    times = {"heartbeat_ms": 1000, "lease_ms": 40_000, "forget_ms": 30_000}
    return make_crew(server, namespace=new_nonce(), **times)


def begun(crew: Crew, folder: Path, script: str) -> list[str]:
    """Runs that do something as soon as the file `go` is there."""
    runs = [crew.submit(f"{GO}; {script}", env={"GO": str(folder / "go")}) for _ in range(RUNS)]
    until(lambda: len(crew.effects("begin")) == RUNS, "the runs to begin")
    until(lambda: {crew.state(run) for run in runs} == {"running"}, "the server to hear of it")
    return runs


def spilled(worker: subprocess.Popen[bytes]) -> list[int]:
    """The sizes of the files, which have no name, where the worker puts what it has no memory for."""
    sizes = []
    for end in Path(f"/proc/{worker.pid}/fd").iterdir():
        try:
            if "/spill/" in os.readlink(end):
                sizes.append(end.stat().st_size)
        except FileNotFoundError:
            continue
    return sizes


def told(crew: Crew, run: str) -> tuple[str, int]:
    """What came into a run's log, and how much is missing by its notes."""
    entries = list(Logs(crew.queue.store).read(run))
    notes = [entry.text for entry in entries if entry.stream == "note"]
    assert {note.partition(" ")[2] for note in notes} <= {"characters left out here: the server was out of reach.\n"}
    text = "".join(entry.text for entry in entries if entry.stream == "out")
    return text, sum(int(note.split()[0]) for note in notes)


def all_completed_with_their_results(crew: Crew, runs: list[str]) -> None:
    records = [crew.records.get(run) for run in runs]
    assert {(record.state.value, record.attempt) for record in records} == {("completed", 1)}
    assert [len(str(record.outcome.result)) for record in records if record.outcome] == [RESULT_BYTES] * RUNS


@pytest.mark.full("takes 2 s")
def test_p1_outcomes_and_output_of_an_outage_that_exceed_the_memory_come_in_whole_from_the_disk(
    durable: Server, make_crew: MakeCrew, folder: Path
) -> None:
    crew = crew_of(make_crew, durable)
    worker = crew.worker(slots=RUNS)
    runs = begun(crew, folder, f"{TELL}; {LEAVE}")
    with away(durable):
        (folder / "go").touch()
        until(lambda: len(crew.effects("end")) == RUNS, "the runs to end")
        # The output of one run may be in a call that is made again and again.
        too_much = RUNS * RESULT_BYTES - MEMORY_BYTES_MAX + (RUNS - 1) * len(TOLD) - MEMORY_CHARACTERS
        until(lambda: sum(spilled(worker)) >= too_much, "the disk to take what is too much")

    crew.wait(runs)

    all_completed_with_their_results(crew, runs)
    assert [told(crew, run) for run in runs] == [(TOLD, 0)] * RUNS
    until(lambda: spilled(worker) == [0, 0], "the disk to be given back")
    assert list((folder / "home" / "spill").iterdir()) == []
    crew.check()


@pytest.mark.full("takes 10 s")
def test_p1_a_full_disk_in_an_outage_costs_no_outcome_and_of_the_output_no_more_than_a_note_says(
    durable: Server, make_crew: MakeCrew, folder: Path, full_disk: Path
) -> None:
    crew = crew_of(make_crew, durable)
    worker = crew.worker(slots=RUNS)
    runs = begun(crew, folder, f"{TELL}; {LEAVE}")
    with away(durable):
        (folder / "go").touch()
        until(lambda: len(crew.effects("end")) == RUNS, "the runs to end")
        until(lambda: len(spilled(worker)) == 2, "both files to be tried")
        assert sum(spilled(worker)) <= shutil.disk_usage(full_disk).total

    crew.wait(runs)

    all_completed_with_their_results(crew, runs)
    logs = [told(crew, run) for run in runs]
    assert {len(text) + missing for text, missing in logs} == {len(TOLD)}
    assert all(TOLD.endswith(text[-len(TOLD) // 4 :]) for text, _ in logs), "what is kept is the newest"
    missing = sum(missing for _, missing in logs)
    assert 0 < missing < RUNS * len(TOLD) // 2
    crew.check()


@pytest.mark.full("takes 8 s")
def test_p1_what_a_run_said_last_is_not_lost_because_it_ended_in_an_outage(
    durable: Server, make_crew: MakeCrew, folder: Path
) -> None:
    """An outcome waits for the output before it, and the time in which neither could be said does not count."""
    crew = crew_of(make_crew, durable)
    crew.worker(slots=RUNS)
    runs = begun(crew, folder, "echo its last words")
    with away(durable):
        (folder / "go").touch()
        until(lambda: len(crew.effects("end")) == RUNS, "the runs to end")
        until(passed(UPLOAD_WAIT_MS + 1000), "more time to pass than an outcome waits for a server that answers")

    crew.wait(runs)

    assert [told(crew, run) for run in runs] == [("its last words\n", 0)] * RUNS
    assert {crew.records.get(run).attempt for run in runs} == {1}
    crew.check()
