"""A worker reads its settings again while it works: what runs goes on, and what is wrong changes nothing."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.crew import LASTING, Crew
from support.servers import Server, until

from agentq.coordinator.model.ids import new_nonce
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.queries import WorkerRecord

MakeCrew = Callable[..., Crew]
TESTS = str(Path(__file__).parent.parent)
Popen = subprocess.Popen[bytes]
MANY_LABELS = "{" + ", ".join(f"{number:0100} = '{number:0100}'" for number in range(100)) + "}"


class Reader:
    """A crew whose worker is the command, with a file of settings that can be written again."""

    def __init__(self, crew: Crew, folder: Path, environment: dict[str, str]) -> None:
        self.crew = crew
        self.file = folder / "agentq.toml"
        self.said = folder / "said"
        self.folder = folder
        times = {f"AGENTQ_{name.upper()}": str(value) for name, value in LASTING.items()}
        self.environment = {**environment, **times, "AGENTQ_URL": crew.server.url, "AGENTQ_CONFIG": str(self.file)}

    def configure(self, text: str) -> None:
        """A file is replaced as a whole, so nobody ever reads half of one."""
        new = self.file.with_suffix(".new")
        new.write_text(f"namespace = '{self.crew.settings.namespace}'\n{text}")
        new.replace(self.file)

    def start(self, *flags: str, **given: object) -> Popen:
        argv = [sys.executable, "-m", "agentq.cli.main", "worker", *flags]
        with self.said.open("ab") as said:
            worker = Popen(argv, env=self.environment, cwd=self.folder, **{"stderr": said, **given})  # type: ignore[call-overload]
        self.crew.workers.append(worker)
        until(self.crew.records.workers, "the worker to register")
        return worker  # type: ignore[no-any-return]

    def reload(self, worker: Popen, text: str, words: str) -> None:
        """Change the settings, and wait until the worker has said what became of it."""
        self.configure(text)
        before = self._lines(words)
        worker.send_signal(signal.SIGHUP)
        until(lambda: self._lines(words) > before, f"the worker to say {words!r}")

    def _lines(self, words: str) -> int:
        """How many whole lines hold these words."""
        return sum(words in line and line.endswith("\n") for line in self.said.read_text().splitlines(keepends=True))

    def record(self) -> WorkerRecord:
        (record,) = self.crew.records.workers()
        return record


@pytest.fixture
def reader(valkey: Server, make_crew: MakeCrew, folder: Path, fresh_home: dict[str, str]) -> Iterator[Reader]:
    crew = make_crew(valkey, namespace=new_nonce())
    reader = Reader(crew, folder, fresh_home)
    yield reader
    crew.close()
    crew.check()


def test_more_slots_and_other_queues_count_at_once_and_cost_no_run(reader: Reader) -> None:
    crew = reader.crew
    reader.configure("[worker]\nslots = 1\nqueues = ['a']\n")
    worker = reader.start("--drain-grace", "0s")
    first = crew.submit("sleep 300", queue="a")
    until(lambda: crew.effects("begin")[first] == 1, "the run to begin")
    others = [crew.submit(queue="b"), crew.submit(queue="b", demands={"gpu": "a100"})]
    before = reader.record()

    reader.reload(
        worker, "[worker]\nslots = 3\nqueues = ['b']\nlabels = {gpu = 'a100'}\n", "slots 1 to 3; queues a to b"
    )

    crew.wait(others)
    now = reader.record()
    assert (now.identity.slots, now.identity.queues) == (3, ("b",))
    assert now.identity.labels == before.identity.labels | {"gpu": "a100"}, "it keeps those that it has by itself"
    assert (now.id, now.epoch, now.runs) == (before.id, before.epoch, [first]), "it is the same worker as before"
    assert crew.effects("begin")[first] == 1
    assert crew.state(crew.submit(queue="a")) == "pending"
    crew.wait([crew.submit(queue="b")])
    assert crew.records.workers()[0].runs == [first]


def test_fewer_slots_end_no_run_and_take_none_until_there_is_room(reader: Reader) -> None:
    crew = reader.crew
    reader.configure("[worker]\nslots = 3\n")
    worker = reader.start()
    held = [crew.submit(f'while [ ! -e "{reader.folder}/go{number}" ]; do sleep 0.05; done') for number in range(3)]
    until(lambda: len(crew.effects("begin")) == 3, "3 runs to begin")

    reader.reload(worker, "[worker]\nslots = 1\n", "slots 3 to 1")

    waiting = crew.submit()
    for number in (0, 1):
        (reader.folder / f"go{number}").touch()
    crew.wait(held[:2])
    until(lambda: reader.record().runs == [held[2]], "two slots to be given back")
    assert crew.state(waiting) == "pending", "the last run has the only slot"
    (reader.folder / "go2").touch()
    crew.wait([*held, waiting])
    assert set(crew.effects("begin").values()) == {1}


@pytest.mark.full("takes 2 s")
def test_the_grace_of_a_drain_is_the_one_that_was_read_last(reader: Reader) -> None:
    crew = reader.crew
    reader.configure("[worker]\ndrain_grace_ms = 600000\n")
    worker = reader.start()
    run = crew.submit("sleep 300")
    until(lambda: crew.effects("begin")[run] == 1, "the run to begin")

    reader.reload(worker, "[worker]\ndrain_grace_ms = 100\n", "drain_grace_ms 600000 to 100")
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(timeout=60) == 0
    assert crew.state(run) == "pending"


def test_a_flag_stands_above_the_file_that_is_read_again(reader: Reader) -> None:
    reader.configure("[worker]\nslots = 2\nqueues = ['a']\n")
    worker = reader.start("--slots", "5")

    reader.reload(worker, "[worker]\nslots = 3\nqueues = ['b']\n", "read the settings again: queues a to b.")

    until(lambda: reader.record().identity.queues == ("b",), "the server to hear of it")
    assert reader.record().identity.slots == 5


@pytest.mark.full("takes 2 s")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[worker]\nslots = 0\n", "slots"),
        ("[worker]\nslots = 4\nqueues = ['no name']\n", "queues"),
        ("[worker]\nslots = 4\nspeed = 1\n", "There is no setting 'worker.speed'"),
        ("[worker\n", "cannot be read"),
        ("lease_ms = 1\n[worker]\nslots = 4\n", "lease_ms must be at least"),
        (f"[worker]\nslots = 4\nlabels = {MANY_LABELS}\n", "16384"),
    ],
)
def test_settings_that_are_wrong_change_nothing_and_are_told_in_a_sentence(
    reader: Reader, text: str, words: str
) -> None:
    crew = reader.crew
    reader.environment = {name: value for name, value in reader.environment.items() if name != "AGENTQ_LEASE_MS"}
    reader.configure("[worker]\nslots = 2\n")
    worker = reader.start()
    before = reader.said.read_text()

    reader.reload(worker, text, words)

    said = reader.said.read_text().removeprefix(before)
    assert said.startswith("agentq: the settings stay as they were. ")
    assert said.count("\n") == 1
    crew.wait([crew.submit()])
    assert reader.record().identity.slots == 2
    reader.reload(worker, "[worker]\nslots = 4\n", "slots 2 to 4")


@pytest.mark.full("takes 2 s")
def test_what_cannot_change_is_told_and_left(reader: Reader) -> None:
    reader.configure("[worker]\nslots = 2\n")
    worker = reader.start()
    name, namespace = reader.record().id, reader.crew.settings.namespace
    del reader.environment["AGENTQ_TICK_MS"]

    reader.file.write_text(f"namespace = '{new_nonce()}'\npartitions = 2\n[worker]\nslots = 3\nname = 'other'\n")
    worker.send_signal(signal.SIGHUP)

    words = "agentq: namespace, partitions, worker.name cannot change while a worker works; start it again for that.\n"
    until(lambda: words in reader.said.read_text(), "the worker to say so")
    until(lambda: reader.record().identity.slots == 3, "what can change to have changed")
    assert reader.record().id == name
    assert reader.crew.settings.namespace == namespace


@pytest.mark.full("takes 1 s")
def test_a_worker_whose_terminal_goes_away_drains(reader: Reader) -> None:
    """The same signal; only that there is nobody who could have meant the settings."""
    reader.configure("")
    mine, theirs = pty.openpty()
    name = os.ttyname(theirs)

    def sit_down() -> None:
        os.close(os.open(name, os.O_RDWR))

    worker = reader.start(start_new_session=True, stdin=theirs, stderr=theirs, preexec_fn=sit_down)
    os.close(theirs)
    run = reader.crew.submit("sleep 0.5")
    until(lambda: reader.crew.effects("begin")[run] == 1, "the run to begin")

    os.close(mine)

    assert worker.wait(timeout=60) == 0
    assert reader.crew.state(run) == "completed"


@pytest.mark.full("takes 6 s")
def test_slots_change_while_functions_run(reader: Reader) -> None:
    crew = reader.crew
    reader.environment |= {"AGENTQ_WORKER_FUNCTIONS": "support.functions", "PYTHONPATH": TESTS}
    reader.configure("[worker]\nslots = 1\n")
    reader.start()
    spec = RunSpec(kind="function", function="support.functions:napped", args=(0.02,))
    runs = [each.id for each in crew.queue.submit_many(spec for _ in range(400))]
    crew.wait(runs[:10])

    for slots in (3, 2, 1):
        reader.reload(crew.workers[0], f"[worker]\nslots = {slots}\n", "read the settings again")
        crew.wait(runs[: 120 * (4 - slots)])
    crew.wait(runs)

    assert {(crew.state(run), crew.records.get(run).crashes) for run in runs} == {("completed", 0)}


def test_an_agent_that_is_installed_or_described_while_a_worker_works_is_offered(reader: Reader) -> None:
    reader.environment["PATH"] = f"{reader.folder}{os.pathsep}{reader.environment['PATH']}"
    reader.configure("[agents.mine]\nlike = 'command'\ncommand = 'my-own-agent'\n")
    worker = reader.start()
    assert not offered(reader) & {"mine", "other"}

    program = reader.folder / "my-own-agent"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = "[agents.mine]\nlike = 'command'\ncommand = 'my-own-agent'\n[agents.other]\nlike = 'mine'\n"
    reader.reload(worker, text, "read the settings again")

    until(lambda: offered(reader) >= {"mine", "other"}, "both agents to be offered")
    reader.reload(worker, "[agents.other]\nlike = 'mine'\n", "the settings stay as they were. The profile of other in ")
    assert offered(reader) >= {"mine", "other"}


def offered(reader: Reader) -> set[str]:
    """The agents that the worker can take runs of."""
    everyone = reader.crew.records.workers()
    labels = [label for record in everyone for label in record.identity.labels]
    return {label.removeprefix("agent.") for label in labels if label.startswith("agent.")}
