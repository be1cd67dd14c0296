"""Many workers at once, runs that take the machine for themselves, and runs that leave something behind."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.attempt_journal import Journal
from support.crew import Crew
from support.processes import alive
from support.servers import Server, until

from agentq.coordinator.duties.reaper import Reaper
from agentq.coordinator.duties.ticker import Ticker
from agentq.coordinator.events.stream import PartitionEvents

MakeCrew = Callable[..., Crew]
WORKERS = 200
CROWD = """
import ctypes, json, os, signal, sys
from pathlib import Path
from agentq.coordinator.config.settings import Settings
from agentq.worker.options import WorkerOptions
from agentq.worker.server_backends import RedisWorkerBackend
from agentq.worker.worker import serve_worker
settings, options, home, count = json.loads(sys.argv[1])
def work():
    pid = os.fork()
    if not pid:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # none outlives this one
        os._exit(serve_worker(RedisWorkerBackend(Settings(**settings)), WorkerOptions(**options), Path(home)))
    return pid
pids = [work() for _ in range(count)]
signal.signal(signal.SIGTERM, lambda *_: [os.kill(pid, signal.SIGTERM) for pid in pids])
raise SystemExit(max(os.waitpid(pid, 0)[1] for pid in pids))
"""


@pytest.fixture
def journal(folder: Path) -> Journal:
    return Journal(folder / "journal")


@pytest.fixture
def alone(durable: Server, make_crew: MakeCrew) -> Crew:
    """On a server where nobody else says anything, with leases for a machine that is busy."""
    return make_crew(durable, heartbeat_ms=10_000, lease_ms=60_000, forget_ms=20_000, tick_ms=10_000)


def begin_workers(crew: Crew, count: int) -> subprocess.Popen[bytes]:
    """Workers that all begin at the same moment: children of one process that had imported everything before."""
    argument = json.dumps([crew.settings.model_dump(), {}, str(crew.folder / "home"), count])
    crew.workers.append(subprocess.Popen([sys.executable, "-c", CROWD, argument], stdin=subprocess.DEVNULL))
    return crew.workers[-1]


def said(crew: Crew, name: str) -> int:
    """How often the server was told something, by everybody."""
    told = crew.queue.store.connection.command("INFO", "commandstats")
    return sum(int(calls) for calls in re.findall(rf"cmdstat_{name}:calls=(\d+)", told))


@pytest.mark.full("takes 14 s")
def test_p3_two_hundred_workers_that_come_at_once_are_registered_and_one_submit_wakes_one(
    alone: Crew, journal: Journal
) -> None:
    crowd = begin_workers(alone, WORKERS)
    until(lambda: len(alone.records.workers()) == WORKERS, "all to be registered", 100)
    blocked = r"name=agentq:worker:\S+ .*?cmd=xreadgroup"
    clients = alone.queue.store.connection.command
    until(lambda: len(re.findall(blocked, clients("CLIENT", "LIST"))) == WORKERS, "all to wait for work", 60)

    before = said(alone, "xreadgroup")
    runs = [alone.queue.submit(journal.spec(0)).id for _ in range(10)]
    alone.wait(runs)
    after = said(alone, "xreadgroup")

    assert journal.begun() == 10
    # Each run: one read that brings it, one when its worker waits again, one that a claim makes; and those whose time
    # was over in the meantime. A herd would be all of them, ten times.
    assert after - before < 5 * WORKERS
    assert len(alone.records.workers()) == WORKERS
    alone.check()

    crowd.send_signal(signal.SIGTERM)
    assert crowd.wait(timeout=60) == 0, "each leaves in peace"
    assert alone.records.workers() == []
    assert alone.queue.store.connection.command("KEYS", "*:worker:*:*") == []


@pytest.mark.full("takes 2 s")
@pytest.mark.parametrize(
    "hog",
    [
        "for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; wait",
        "bomb() { [ $1 = 0 ] || { bomb $(($1 - 1)) & bomb $(($1 - 1)) & }; sleep 1000; }; bomb 6",
    ],
    ids=["every core", "a tree of 127 processes"],
)
def test_p3_p6_a_run_that_takes_the_machine_for_itself_stops_no_heartbeat_and_leaves_nothing(
    durable: Server, make_crew: MakeCrew, journal: Journal, hog: str
) -> None:
    crew = make_crew(durable, heartbeat_ms=1000, lease_ms=12_000, tick_ms=1000, forget_ms=10_000)
    crew.worker(slots=2)
    greedy = crew.queue.submit(journal.spec(0.5, before=f"({hog}) &", timeout_ms=20_000, caps={"nice": 19})).id
    modest = [crew.queue.submit(journal.spec(0.1)).id for _ in range(5)]

    crew.wait([greedy, *modest])

    assert {crew.state(run) for run in modest} == {"completed"}
    told = {event.event for event in PartitionEvents(crew.queue.store).replay()}
    assert not told & {"lost", "released"}
    assert journal.survivors() == []
    crew.check()


@pytest.mark.promise("P6")
def test_p6_a_daemon_that_a_run_leaves_behind_dies_with_it(
    durable: Server, make_crew: MakeCrew, journal: Journal
) -> None:
    crew = make_crew(durable)
    crew.worker()
    daemon = journal.path.with_name("daemon")
    leave = f"setsid sh -c 'echo $$ > {daemon}; exec sleep 1000' </dev/null >/dev/null 2>&1 & "
    run = crew.queue.submit(journal.spec(0, before=f"{leave} until [ -s {daemon} ]; do sleep 0.02; done;")).id

    crew.wait([run])

    assert crew.state(run) == "completed"
    assert not alive(int(daemon.read_text()))
    assert journal.survivors() == []


@contextmanager
def reaper_elsewhere(crew: Crew) -> Iterator[list[str]]:
    """Somebody on no host of ours who is the first to do the reaper's duty, and does it to the end; those it lost."""
    lost: list[str] = []
    reaper = Reaper(crew.queue.store, crew.settings, lost=lost.append)
    ticker = Ticker(crew.queue.store, [reaper], crew.settings.tick_ms, owner="elsewhere")
    ticker.start()
    keeper = crew.queue.store.key(0, "duty_owner")
    until(lambda: crew.queue.store.connection.command("GET", keeper) == "elsewhere", "the duty to be taken")
    yield lost
    ticker.stop()


@pytest.mark.full("takes 10 s")
@pytest.mark.parametrize("other", ["comes later", "is there"])
def test_p6_what_a_killed_worker_leaves_is_ended_by_the_other_on_the_host_before_the_runs_begin_again(
    durable: Server, make_crew: MakeCrew, journal: Journal, other: str
) -> None:
    """One that comes later finds its predecessor dead; to one that is there, a reaper elsewhere tells nothing."""
    crew = make_crew(durable)
    leave = "setsid sleep 1000 </dev/null >/dev/null 2>&1 &"
    with reaper_elsewhere(crew) as lost:
        victim = crew.worker(slots=3)
        runs = [crew.queue.submit(journal.spec(5, before=f'trap "" TERM; {leave}')).id for _ in range(3)]
        until(lambda: journal.begun() == 3, "3 runs to begin")
        if other == "is there":
            crew.worker(slots=3)
        name = crew.name_of(victim)
        victim.kill()
        victim.wait()
        if other == "comes later":
            crew.worker(slots=3)
        else:
            crew.lose(victim)
            until(lambda: name in lost, "the reaper elsewhere to have been the one that declared it lost")

        crew.wait(runs)

    assert journal.overlaps() == []
    assert {crew.state(run) for run in runs} == {"completed"}
    assert journal.survivors() == []
    crew.check()
