"""What a worker costs, beside what the machine and the server can do at best: `python -m agentq.worker.bench [URL]`.

Without an address it measures on an embedded server of its own. The worker is a process like any other; the bare loops
that it is compared with run in turn with it, so that what disturbs one disturbs both.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

from agentq.coordinator.embedded import Embedded
from agentq.coordinator.identity import new_nonce
from agentq.coordinator.lifecycle import TERMINAL, State
from agentq.coordinator.logs import Logs
from agentq.coordinator.outcomes import Outcomes
from agentq.coordinator.queue import Queue
from agentq.coordinator.records import Records
from agentq.coordinator.run import RunSpec
from agentq.coordinator.settings import Settings

WORK = """
import json, sys
from pathlib import Path
from agentq.coordinator.settings import Settings
from agentq.worker.options import WorkerOptions
from agentq.worker.worker import serve
url, namespace, slots, home = json.loads(sys.argv[1])
raise SystemExit(serve(Settings(url=url, namespace=namespace), WorkerOptions(slots=slots), Path(home)))
"""

PINGS = 200
BULK = 1_500
IDLE_S = 30
SLOTS = 8

Row = tuple[str, str, str, str]
"""A measure, what was found, its ratio to the bare thing, and what was aimed at."""


class Bench:
    """One server, and a worker on it."""

    def __init__(self, url: str, folder: Path) -> None:
        self.settings = Settings(url=url, namespace=f"bench-{new_nonce()}")
        self.folder = folder
        self.queue = Queue.open(self.settings)
        self.connection = self.queue.store.connection
        self.records = Records(self.queue.store)

    def rows(self) -> Iterator[Row]:
        """Every measure, one after the other."""
        yield from self.latency()
        yield self.rate()
        yield from self.idle()

    def latency(self) -> Iterator[Row]:
        """From submit to the first line of output, with the worker idle, against a bare wake-up plus a bare spawn."""
        ours, bare = [], []
        with self.worker(1):
            self._first_line()
            for _ in range(PINGS):
                bare.append(self._wake_up() + _bare_spawn())
                ours.append(self._first_line())
        ratio = median(ours) / median(bare)
        found = f"{median(ours) * 1e3:.2f} ms, bare {median(bare) * 1e3:.2f} ms"
        yield "submit → first line, p50", found, f"{ratio:.2f}", "≤ 1.5 × the bare"
        ours99, bare99 = quantiles(ours, n=100)[98], quantiles(bare, n=100)[98]
        found = f"{ours99 * 1e3:.2f} ms, bare p50 {median(bare) * 1e3:.2f} ms, bare p99 {bare99 * 1e3:.2f} ms"
        yield "submit → first line, p99", found, f"{ours99 / median(bare):.2f}", "< 3 × the bare p50"

    def _first_line(self) -> float:
        """Seconds from before the submit until the line is in the run's log."""
        with closing(Logs(self.queue.store)) as reader:
            started = perf_counter()
            run = self.queue.submit(RunSpec(kind="command", argv=("echo", "hello"))).id
            next(line for line in reader.follow(run) if "hello" in line.text)
            took = perf_counter() - started
        _until(lambda: self.records.get(run).state in TERMINAL)
        return took

    def _wake_up(self) -> float:
        """Seconds from an XADD until a blocked XREADGROUP of another connection has it."""
        key = f"agentq:{{{self.settings.namespace}}}:bare"
        self.connection.command("DEL", key)
        self.connection.command("XGROUP", "CREATE", key, "bare", "0", "MKSTREAM")
        reader = self.connection.another()
        ready, got = threading.Event(), list[float]()

        def read() -> None:
            ready.set()
            reader.block("XREADGROUP", "GROUP", "bare", "c", "BLOCK", 5000, "STREAMS", key, ">", timeout_ms=5000)
            got.append(perf_counter())

        thread = threading.Thread(target=read)
        thread.start()
        ready.wait()
        while not self._blocked():
            threading.Event().wait(0.001)
        started = perf_counter()
        self.connection.command("XADD", key, "*", "run", "x")
        thread.join()
        reader.close()
        return got[0] - started

    def _blocked(self) -> bool:
        info = self.connection.command("INFO", "clients")
        return int(info.partition("blocked_clients:")[2].split()[0]) >= 2

    def rate(self) -> Row:
        """`true` in a row: one worker against a bare asyncio loop at its best concurrency."""
        bare = max(asyncio.run(_bare_rate(wide)) for wide in (2, 4, 8, 16))
        with self.worker(SLOTS), closing(Outcomes(self.queue.store)) as outcomes:
            best = 0.0
            for _ in range(2):
                started = perf_counter()
                specs = (RunSpec(kind="command", argv=("true",)) for _ in range(BULK))
                ids = [receipt.id for receipt in self.queue.submit_many(specs)]
                outcomes.wait_all(ids, 120_000)
                best = max(best, BULK / (perf_counter() - started))
        return "`true` in a row", f"{best:.0f} runs/s, bare {bare:.0f} /s", f"{best / bare:.2f}", "≥ 0.8 of bare"

    def idle(self) -> Iterator[Row]:
        """What a worker with nothing to do sends and uses."""
        with self.worker(SLOTS) as worker:
            threading.Event().wait(3)
            before, cpu = self._calls(), _cpu_s(worker.pid)
            threading.Event().wait(IDLE_S)
            calls, used = self._calls() - before - 1, _cpu_s(worker.pid) - cpu
            resident = _resident_bytes(worker.pid)
        yield "idle worker, commands sent", f"{calls / IDLE_S:.2f} /s", "", "≤ 1 /s"
        yield "idle worker, CPU", f"{used / IDLE_S:.2%}", "", "≤ 0.2 %"
        yield "idle worker, resident memory", f"{resident / 2**20:.0f} MiB", "", "≤ 60 MiB"

    def _calls(self) -> int:
        """What clients sent: the server's count of reads from their sockets, a command each here."""
        info = self.connection.command("INFO", "stats")
        return int(info.partition("total_reads_processed:")[2].split()[0])

    @contextmanager
    def worker(self, slots: int) -> Iterator[subprocess.Popen[bytes]]:
        """A worker process, registered."""
        argument = json.dumps([self.settings.url, self.settings.namespace, slots, str(self.folder / "home")])
        process = subprocess.Popen([sys.executable, "-c", WORK, argument])
        try:
            _until(lambda: bool(self.records.workers()))
            yield process
        finally:
            process.terminate()
            process.wait()
            _until(lambda: not self.records.count([State.RUNNING]))


def _bare_spawn() -> float:
    """Seconds from before a spawn until its first line is read."""
    started = perf_counter()
    with subprocess.Popen(("echo", "hello"), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        return perf_counter() - started


async def _bare_rate(wide: int) -> float:
    """`true` a second from a bare asyncio loop that captures output, `wide` at a time."""
    rest = iter(range(BULK))

    async def spawn() -> None:
        for _ in rest:
            process = await asyncio.create_subprocess_exec(
                "true", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            await process.communicate()

    started = perf_counter()
    await asyncio.gather(*(spawn() for _ in range(wide)))
    return BULK / (perf_counter() - started)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        threading.Event().wait(0.05)


def main(url: str | None) -> None:
    """Measure, and print a table in Markdown."""
    folder = Path(tempfile.mkdtemp(prefix="aq"))
    embedded = None if url else Embedded(folder / "server")
    try:
        write = sys.stdout.write
        write("| measure | found | ratio | aim |\n| --- | --- | --- | --- |\n")
        for row in Bench(url or (embedded.start() if embedded else ""), folder).rows():
            write(f"| {' | '.join(row)} |\n")
            sys.stdout.flush()
    finally:
        if embedded:
            embedded.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
