"""`agentq demo`: shows the guarantees in a few seconds, with a server of its own in a temporary folder.

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
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.duties.promoter import Promoter
from agentq.coordinator.duties.reaper import Reaper
from agentq.coordinator.duties.ticker import Ticker
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.events.stream import STREAM_START, Event, PartitionEvents
from agentq.coordinator.model.lifecycle import TERMINAL_STATES, OutcomeClass
from agentq.coordinator.model.spec import Outcome, RunSpec, parse_spec
from agentq.coordinator.runs.queries import RunQueries
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import Claim, RunVerbs
from agentq.coordinator.storage.embedded import EmbeddedServer
from agentq.coordinator.workers.lease import WorkerIdentity, WorkerLease

WORKERS = 3
MIDDLE_RUNS = 9
TIMEOUT_MS = 60_000


def demo() -> None:
    """Run a small graph, kill a worker in the middle, and lose nothing.

    Uses a server of its own in a temporary folder, takes a few seconds and leaves nothing behind.

    \b
    Example: agentq demo
    """
    raise typer.Exit(run_demo())


def _demo_settings(url: str) -> Settings:
    """Times short enough to watch."""
    return Settings(url=url, heartbeat_ms=300, lease_ms=1500, reap_grace_ms=300, forget_ms=1000, tick_ms=400)


def run_demo() -> int:
    """Play the whole of it; 0 if every promise was kept."""
    folder = Path(tempfile.mkdtemp(prefix="agentq-demo-"))
    embedded = EmbeddedServer(folder / "server")
    workers: list[subprocess.Popen[bytes]] = []
    try:
        url = embedded.start()
        print(f"A server of its own, in {folder}.")
        workers = [_start_worker(url, f"worker-{number + 1}") for number in range(WORKERS)]
        return _watch_runs(RunVerbs.open(_demo_settings(url), client_name="agentq-demo"), workers)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        embedded.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _start_worker(url: str, name: str) -> subprocess.Popen[bytes]:
    """A worker process. Ctrl-C is for the demo alone, which ends its workers."""
    argv = [sys.executable, "-m", __name__, url, name]
    return subprocess.Popen(argv, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))


def _watch_runs(queue: RunVerbs, workers: Sequence[subprocess.Popen[bytes]]) -> int:
    settings = _demo_settings("")
    ticker = Ticker(
        queue.store, [Promoter(queue.store, settings.tick_ms), Reaper(queue.store, settings)], settings.tick_ms
    )
    ticker.start()
    names = _submit_graph(queue)
    print(
        f"{WORKERS} workers, {len(names)} runs: one first, {MIDDLE_RUNS} that wait for it, one that waits for them "
        f"all.\n"
    )
    started_ms, live, killed = monotonic_ms(), set(names), False
    events, after = PartitionEvents(queue.store), STREAM_START
    while live and monotonic_ms() - started_ms < TIMEOUT_MS:
        for event in events.follow(after, 500):
            after = event.id
            print(_event_line(event, names, monotonic_ms() - started_ms))
            if event.state in TERMINAL_STATES:
                live.discard(event.run)
            if not killed and event.event == "started" and names[event.run].startswith("part"):
                killed = _kill_worker(workers[int(event.worker.split("-")[-1]) - 1], event, RunQueries(queue.store))
    ticker.stop()
    events.close()
    return _print_summary(RunQueries(queue.store), names)


def _submit_graph(queue: RunVerbs) -> dict[str, str]:
    """The graph, by id."""

    def submit(name: str, seconds: float, after: Sequence[str] = ()) -> str:
        argv = ("sh", "-c", f"sleep {seconds}; echo {name}")
        return queue.submit(RunSpec(kind="command", name=name, argv=argv, after=tuple(after))).id

    first = submit("first", 0.2)
    parts = {submit(f"part {number + 1}", 0.6, [first]): f"part {number + 1}" for number in range(MIDDLE_RUNS)}
    return {first: "first", **parts, submit("last", 0.2, list(parts)): "last"}


def _kill_worker(worker: subprocess.Popen[bytes], event: Event, records: RunQueries) -> bool:
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


def _event_line(event: Event, names: dict[str, str], passed_ms: int) -> str:
    where = f"on {event.worker}" if event.worker else ""
    detail = f"({event.detail})" if event.detail else ""
    name = names.get(event.run, event.run)
    return f"{passed_ms / 1000:7.2f}s {name:8} {event.event:10} {where} {detail}".rstrip()


def _print_summary(records: RunQueries, names: dict[str, str]) -> int:
    runs = [records.get(run) for run in names]
    completed = [run for run in runs if run.state == "completed"]
    again = [run for run in runs if run.attempt > 1]
    print(f"\n{len(completed)} of {len(runs)} runs completed, each once.")
    for run in again:
        print(f"{names[run.id]} took {run.attempt} attempts: {_attempt_history(run)}.")
    kept = len(completed) == len(runs) and bool(again)
    print("Nothing was lost, nothing was done twice." if kept else "This is not what was promised.")
    return 0 if kept else 1


def _attempt_history(run: RunRecord) -> str:
    return ", then ".join(
        f"{attempt.outcome.class_ if attempt.outcome else '?'} on {attempt.worker}" for attempt in run.attempts
    )


def run_worker(url: str, name: str) -> None:
    """A worker of one slot, for ever."""
    settings = _demo_settings(url)
    queue = RunVerbs.open(settings, client_name=f"agentq-{name}")
    lease = WorkerLease(queue.store, WorkerIdentity(id=name, queues=("default",)), settings)
    lease.register()
    held: list[Claim] = []
    threading.Thread(target=_send_heartbeats, args=(lease, held, settings), daemon=True).start()
    idle = threading.Event()
    while True:
        for claim in lease.claim(1):
            held.append(claim)
            _execute_run(queue, claim)
            held.remove(claim)
        idle.wait(0.05)


def _send_heartbeats(lease: WorkerLease, held: list[Claim], settings: Settings) -> None:
    pause = threading.Event()
    while not pause.wait(settings.heartbeat_ms / 1000):
        lease.heartbeat(list(held))


def _execute_run(queue: RunVerbs, claim: Claim) -> None:
    if queue.start([claim])[0] is not None:
        return
    spec = parse_spec(claim.spec, claim.lane)
    done = subprocess.run(spec.argv, capture_output=True, text=True, check=False)
    if done.returncode:
        queue.fail(claim, Outcome(class_=OutcomeClass.EXIT, exit_code=done.returncode, tail=done.stderr))
    else:
        queue.finish([(claim, Outcome(exit_code=0, tail=done.stdout))])


if __name__ == "__main__":
    try:
        run_worker(sys.argv[1], sys.argv[2])
    except AgentqError as error:
        sys.exit(f"{sys.argv[2]}: {error}")
