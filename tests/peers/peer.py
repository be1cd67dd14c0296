"""One peer at work: its producer, its worker, and the file in which its jobs say that they began."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from peers.cores import on_cores
from peers.processes import cpu_of_tree, family, memory_of_tree
from peers.roster import ADAPTERS, Entry
from peers.server import Server

RECORD = struct.Struct("<qq")
"""The number of a job, and when it began, in nanoseconds."""
WARMING = 1_000_000
"""Jobs with this number or a higher one are not measured."""


class Peer:
    """A variant, bound to a server and to a file of records. Whatever it starts, it ends."""

    def __init__(self, entry: Entry, venv: Path, server: Server, folder: Path, profile: str | None = None) -> None:
        self.entry = entry
        self.server = server
        self.profile = profile or entry.settings.get("profile", "fast")
        self.bulk_kind: str | None = None
        self._python = venv / "bin" / "python"
        self._record = folder / f"{entry.variant}-{self.profile}-{time.time_ns()}.records"
        self._flag = self._record.with_suffix(".flag")
        self._said = self._record.with_suffix(".said")
        self._worker: subprocess.Popen[bytes] | None = None
        self._producer: subprocess.Popen[str] | None = None

    # ---- the worker

    def start_worker(self) -> None:
        with open(self._said, "ab") as said, on_cores(self.server.peer_cores):
            self._worker = subprocess.Popen(
                self._command("worker"),
                env=self._environment(),
                cwd=ADAPTERS,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )

    def stop_worker(self, grace_s: float = 3.0) -> None:
        if self._worker is None:
            return
        self._worker.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._worker.wait(grace_s)
        self.kill_worker()

    def kill_worker(self) -> None:
        """SIGKILL to each process of the worker, as a container's end or a host's."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        for _ in range(20):
            for pid in family(worker.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            worker.poll()
            if not family(worker.pid):
                break
            time.sleep(0.05)
        worker.wait()

    def worker_cpu(self) -> float:
        return cpu_of_tree(self._worker.pid) if self._worker else 0.0

    def worker_memory(self) -> dict[str, int]:
        return memory_of_tree(self._worker.pid) if self._worker else {}

    # ---- the producer

    def start_producer(self, cores: set[int] | None = None) -> None:
        with open(self._said, "ab") as said, on_cores(cores or self.server.peer_cores):
            self._producer = subprocess.Popen(
                self._command("producer"),
                env=self._environment(),
                cwd=ADAPTERS,
                start_new_session=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )
        self._reply(self._producer)

    def ask(self, verb: str, **words: Any) -> dict[str, Any]:
        """Have the producer do something, and wait until it is done."""
        producer = self._producer
        assert producer is not None
        assert producer.stdin is not None
        producer.stdin.write(json.dumps({"op": verb, **words}) + "\n")
        producer.stdin.flush()
        return self._reply(producer)

    def probe(self, number: int, *, times: int = 1, wait_s: float, gap: tuple[float, float] = (0, 0)) -> dict[str, Any]:
        """Submit jobs one after the other, each when the one before has begun; how long each took to begin."""
        return self.ask("latency", start=number, n=times, gap=list(gap), budget=wait_s, timeout=min(wait_s, 60))

    def _reply(self, producer: subprocess.Popen[str]) -> dict[str, Any]:
        assert producer.stdout is not None
        for line in producer.stdout:
            if line.startswith("{"):  # libraries print, too
                reply: dict[str, Any] = json.loads(line)
                return reply
        raise RuntimeError(f"The producer of {self.entry.variant} died.\n{self.said()}")

    def stop_producer(self) -> None:
        producer = self._producer
        if producer is None:
            return
        try:
            self.ask("quit")
            producer.wait(5)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            producer.kill()
            producer.wait()
        for pipe in (producer.stdin, producer.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._producer = None

    # ---- what its jobs have recorded

    def records(self) -> list[tuple[int, int]]:
        found = self._record.read_bytes() if self._record.exists() else b""
        return [
            (number, began) for number, began in RECORD.iter_unpack(found[: len(found) // RECORD.size * RECORD.size])
        ]

    def starts_of(self, number: int) -> list[int]:
        return [began for each, began in self.records() if each == number]

    def count(self) -> int:
        return self._record.stat().st_size // RECORD.size if self._record.exists() else 0

    def wait_for_count(self, count: int, timeout_s: float, stall_s: float = 20.0) -> bool:
        """Whether so many have begun in time; no use in waiting when none does for a while."""
        end = time.monotonic() + timeout_s
        last, moved_at = -1, time.monotonic()
        while time.monotonic() < end:
            now = self.count()
            if now >= count:
                return True
            if now != last:
                last, moved_at = now, time.monotonic()
            elif time.monotonic() - moved_at > stall_s:
                return False
            time.sleep(0.01)
        return False

    def forget(self) -> None:
        if self._record.exists():
            os.truncate(self._record, 0)

    # ---- around it

    def release(self) -> None:
        """Let the jobs go on that block until they are let."""
        self._flag.touch()

    def said(self, characters: int = 3000) -> str:
        """The end of what its processes wrote on stderr."""
        return self._said.read_text(encoding="utf-8", errors="replace")[-characters:] if self._said.exists() else ""

    def close(self) -> None:
        self.stop_producer()
        self.kill_worker()
        for path in (self._record, self._flag):
            path.unlink(missing_ok=True)

    def _command(self, role: str) -> list[str]:
        return [str(self._python), str(ADAPTERS / "launch.py"), self.entry.meta["module"], role]

    def _environment(self) -> dict[str, str]:
        kept = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        return {
            **{name: text for name, text in kept.items() if not name.startswith("AGENTQ_")},
            "BENCH_PORT": str(self.server.port),
            "BENCH_PROFILE": self.profile,
            "BENCH_RECORD": str(self._record),
            "BENCH_FLAG": str(self._flag),
            "PYTHONPATH": str(ADAPTERS),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
        }
