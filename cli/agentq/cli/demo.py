"""`agentq demo`: the promises, shown. In a temporary folder, with a server of its own, in a few seconds.

1. Start the embedded server and three worker processes.
2. Submit a graph: a run that everything waits for, nine that follow it, and one that waits for all nine.
3. SIGKILL a worker in the middle of a run, and let the reaper find out.
4. Show what happens as it happens, and at the end what the server says of every run.

The workers here are as small as the protocol allows: one slot, `subprocess.run`, a heartbeat in a thread. They are this
file once more, started with the server's address and a name.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import typer

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.duties.duty import Ticker
from agentq.coordinator.duties.promoter import Promoter
from agentq.coordinator.duties.reaper import Reaper
from agentq.coordinator.embedded import Embedded
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.events import BEGINNING, Event, Events
from agentq.coordinator.lease import Identity, Lease
from agentq.coordinator.life import Run
from agentq.coordinator.lifecycle import TERMINAL, OutcomeClass
from agentq.coordinator.queue import Claim, Queue
from agentq.coordinator.records import Records
from agentq.coordinator.run import Outcome, RunSpec, spec_from_wire
from agentq.coordinator.settings import Settings

WORKERS = 3
PARTS = 9
PATIENCE_MS = 60_000


def demo() -> None:
    """Run a small graph, kill a worker in the middle, and lose nothing.

    It has a server of its own in a temporary folder, takes a few seconds, and leaves nothing behind.

    \b
    Example: agentq demo
    """
    raise typer.Exit(play())


def _settings(url: str) -> Settings:
    """Times short enough to watch."""
    return Settings(url=url, heartbeat_ms=300, lease_ms=1500, reap_grace_ms=300, forget_ms=1000, tick_ms=400)


def play() -> int:
    """Play the whole of it; 0 if every promise was kept."""
    folder = Path(tempfile.mkdtemp(prefix="agentq-demo-"))
    embedded = Embedded(folder / "server")
    workers: list[subprocess.Popen[bytes]] = []
    try:
        url = embedded.start()
        print(f"A server of its own, in {folder}.")
        workers = [_worker(url, f"worker-{number + 1}") for number in range(WORKERS)]
        return _watch(Queue.open(_settings(url), client_name="agentq-demo"), workers)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        embedded.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _worker(url: str, name: str) -> subprocess.Popen[bytes]:
    """A worker process. Ctrl-C is for the demo alone, which ends its workers."""
    argv = [sys.executable, "-m", __name__, url, name]
    return subprocess.Popen(argv, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))


def _watch(queue: Queue, workers: Sequence[subprocess.Popen[bytes]]) -> int:
    settings = _settings("")
    ticker = Ticker(
        queue.store, [Promoter(queue.store, settings.tick_ms), Reaper(queue.store, settings)], settings.tick_ms
    )
    ticker.start()
    names = _submit(queue)
    print(f"{WORKERS} workers, {len(names)} runs: one first, {PARTS} that wait for it, one that waits for them all.\n")
    started_ms, live, killed = monotonic_ms(), set(names), False
    events, after = Events(queue.store), BEGINNING
    while live and monotonic_ms() - started_ms < PATIENCE_MS:
        for event in events.follow(after, 500):
            after = event.id
            print(_line(event, names, monotonic_ms() - started_ms))
            if event.state in TERMINAL:
                live.discard(event.run)
            if not killed and event.event == "started" and names[event.run].startswith("part"):
                killed = _kill(workers[int(event.worker.split("-")[-1]) - 1], event, Records(queue.store))
    ticker.stop()
    events.close()
    return _summary(Records(queue.store), names)


def _submit(queue: Queue) -> dict[str, str]:
    """The graph, by id."""

    def submit(name: str, seconds: float, after: Sequence[str] = ()) -> str:
        argv = ("sh", "-c", f"sleep {seconds}; echo {name}")
        return queue.submit(RunSpec(kind="command", name=name, argv=argv, after=tuple(after))).id

    first = submit("first", 0.2)
    parts = {submit(f"part {number + 1}", 0.6, [first]): f"part {number + 1}" for number in range(PARTS)}
    return {first: "first", **parts, submit("last", 0.2, list(parts)): "last"}


def _kill(worker: subprocess.Popen[bytes], event: Event, records: Records) -> bool:
    """Kill a worker that has a run in its hands. It is stopped first: the run may have ended since the event."""
    os.kill(worker.pid, signal.SIGSTOP)
    os.waitpid(worker.pid, os.WUNTRACED)
    records.store.time_ms()  # by the time of the answer, what the worker sent last has been executed
    run = records.get(event.run)
    if (run.state, run.worker) != ("running", event.worker):
        os.kill(worker.pid, signal.SIGCONT)
        return False
    os.kill(worker.pid, signal.SIGKILL)
    print(f"         >>> kill -9 of {event.worker}, with a run in its hands")
    return True


def _line(event: Event, names: dict[str, str], passed_ms: int) -> str:
    where = f"on {event.worker}" if event.worker else ""
    detail = f"({event.detail})" if event.detail else ""
    name = names.get(event.run, event.run)
    return f"{passed_ms / 1000:7.2f}s {name:8} {event.event:10} {where} {detail}".rstrip()


def _summary(records: Records, names: dict[str, str]) -> int:
    runs = [records.get(run) for run in names]
    completed = [run for run in runs if run.state == "completed"]
    again = [run for run in runs if run.attempt > 1]
    print(f"\n{len(completed)} of {len(runs)} runs completed, each once.")
    for run in again:
        print(f"{names[run.id]} took {run.attempt} attempts: {_history(run)}.")
    kept = len(completed) == len(runs) and bool(again)
    print("Nothing was lost, nothing was done twice." if kept else "This is not what was promised.")
    return 0 if kept else 1


def _history(run: Run) -> str:
    return ", then ".join(
        f"{attempt.outcome.class_ if attempt.outcome else '?'} on {attempt.worker}" for attempt in run.attempts
    )


def work(url: str, name: str) -> None:
    """A worker of one slot, for ever."""
    settings = _settings(url)
    queue = Queue.open(settings, client_name=f"agentq-{name}")
    lease = Lease(queue.store, Identity(id=name, queues=("default",)), settings)
    lease.register()
    held: list[Claim] = []
    threading.Thread(target=_beat, args=(lease, held, settings), daemon=True).start()
    idle = threading.Event()
    while True:
        for claim in lease.claim(1):
            held.append(claim)
            _execute(queue, claim)
            held.remove(claim)
        idle.wait(0.05)


def _beat(lease: Lease, held: list[Claim], settings: Settings) -> None:
    pause = threading.Event()
    while not pause.wait(settings.heartbeat_ms / 1000):
        lease.heartbeat(list(held))


def _execute(queue: Queue, claim: Claim) -> None:
    if queue.start([claim])[0] is not None:
        return
    spec = spec_from_wire(claim.spec, claim.lane)
    done = subprocess.run(spec.argv, capture_output=True, text=True, check=False)
    if done.returncode:
        queue.fail(claim, Outcome(class_=OutcomeClass.EXIT, exit_code=done.returncode, tail=done.stderr))
    else:
        queue.finish([(claim, Outcome(exit_code=0, tail=done.stdout))])


if __name__ == "__main__":
    try:
        work(sys.argv[1], sys.argv[2])
    except AgentqError as error:
        sys.exit(f"{sys.argv[2]}: {error}")
