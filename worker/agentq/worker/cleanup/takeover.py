"""Requeues the runs of workers of this host whose process is dead, before their lease ends.

A process counts as dead only if nothing else is possible: it started on this machine since the same boot, in the same
process and time namespaces, by the same user, and no process with its number began when it did. All others are left to
the reaper, which goes by the lease: a worker in a container that only shares the host name, one of another user, one on
a machine without /proc.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from agentq.coordinator.runs.queries import RunQueries, WorkerRecord
from agentq.coordinator.storage.store import NamespaceStore
from agentq.coordinator.workers.lease import replace_worker
from agentq.worker.process import procfs
from agentq.worker.process.process_tree import Cgroups, end_dead_trees

PROCESS_FIELD = "process"
"""The field of a worker's record with the mark of its process."""
DEAD_REASON = "its worker's process is dead"

SweepProcesses = Callable[[], Awaitable[object]]

log = logging.getLogger("agentq.worker")

_BOOT_ID_PATH = "sys/kernel/random/boot_id"
_NAMESPACE_KINDS = ("pid", "time", "user")


def describe_process() -> dict[str, str]:
    """The mark of this process for a worker's record: host, number and start. Empty where that is unknown."""
    own = procfs.read_stat(os.getpid())
    return {PROCESS_FIELD: f"{_get_process_space()}/{own.name}"} if _get_process_space() and own is not None else {}


def is_process_dead(mark: str) -> bool:
    """Whether the process with this mark has certainly ended."""
    host, _, name = mark.rpartition("/")
    pid, _, began = name.partition("-")
    if not host or host != _get_process_space() or not pid.isdecimal() or not began.isdecimal():
        return False
    status = procfs.read_stat(int(pid))
    return not procfs.pid_exists(int(pid)) if status is None else not status.alive or status.began != int(began)


def is_process_alive(mark: str) -> bool:
    """Whether the process with this mark runs here."""
    return bool(_get_process_space()) and mark.startswith(f"{_get_process_space()}/") and not is_process_dead(mark)


@cache
def _get_process_space() -> str:
    """The boot and namespaces by which process numbers are counted here, and the user; empty if unknown."""
    with suppress(OSError):
        if os.readlink(f"{procfs.PROC_FOLDER}/self") != str(os.getpid()):
            return ""  # /proc of another process namespace
        boot = Path(procfs.PROC_FOLDER, _BOOT_ID_PATH).read_text(encoding="ascii").strip()
        spaces = [
            os.stat(f"{procfs.PROC_FOLDER}/self/ns/{space}").st_ino
            for space in _NAMESPACE_KINDS
            if _is_same_space(space)
        ]
        return "/".join(map(str, (boot, *spaces, os.geteuid())))
    return ""


def _is_same_space(space: str) -> bool:
    return os.path.exists(f"{procfs.PROC_FOLDER}/self/ns/{space}")


def find_dead_workers(records: RunQueries) -> list[WorkerRecord]:
    """The registered workers whose process on this host has ended, one for each partition."""
    return [
        worker for worker in records.workers() if is_process_dead(str(worker.identity.about.get(PROCESS_FIELD, "")))
    ]


async def take_over_runs(store: NamespaceStore, end_processes: SweepProcesses) -> list[WorkerRecord]:
    """Requeue the runs of dead workers of this host, after ending their processes; returns the workers."""
    dead = await asyncio.to_thread(find_dead_workers, RunQueries(store))
    if dead:
        await end_processes()
        await asyncio.to_thread(_replace_workers, store, dead)
    return dead


def take_over_locally(store: NamespaceStore, namespace: str) -> list[WorkerRecord]:
    """Take over runs from a process that is no worker."""
    return asyncio.run(take_over_runs(store, lambda: end_dead_trees(namespace, cgroups=Cgroups.detect())))


def _replace_workers(store: NamespaceStore, dead: list[WorkerRecord]) -> None:
    for worker in dead:
        replace_worker(store, worker.partition, worker.id, worker.epoch, DEAD_REASON)


class RemoteWorkerNote(NamedTuple):
    """A worker that was registered through a coordinator, with its epoch in each partition."""

    id: str
    epochs: Sequence[str]

    def replace(self, store: NamespaceStore) -> None:
        """End the worker's lease, on a connection of that worker."""
        for partition, epoch in enumerate(self.epochs):
            replace_worker(store, partition, self.id, epoch, DEAD_REASON)


class RemoteWorkerNotes:
    """The workers of one home that registered through a coordinator, which shows no worker another's record.

    Each has a file with the mark of its process and its epochs, until it leaves.
    """

    def __init__(self, home: Path, coordinator: str) -> None:
        self._folder = home / "connected" / sha256(coordinator.encode()).hexdigest()[:16]

    def save(self, worker: str, epochs: Sequence[str]) -> None:
        """Note the registration of a worker of this process; without epochs, it has left."""
        if not epochs:
            self.forget(worker)
            return
        note = {"process": describe_process().get(PROCESS_FIELD, ""), "epochs": list(epochs)}
        file = self._file(worker)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            written = file.with_name(f"{worker}.new")
            written.write_text(json.dumps(note))
            written.replace(file)
        except OSError as error:
            log.warning("cannot write %s: if this worker dies, its runs wait until the lease has ended", error)

    def forget(self, worker: str) -> None:
        self._file(worker).unlink(missing_ok=True)

    def dead(self) -> list[RemoteWorkerNote]:
        """The workers whose process has ended."""
        found: list[RemoteWorkerNote] = []
        for file in sorted(self._folder.glob("*.json")):
            mark, epochs = _read_note(file)
            if is_process_dead(mark):
                found.append(RemoteWorkerNote(file.name.removesuffix(".json"), epochs))
        return found

    def _file(self, worker: str) -> Path:
        return self._folder / f"{worker}.json"


def remove_old_notes(home: Path, oldest_ms: int) -> None:
    """Remove old notes that are useless here: from before a reboot, or of another host."""
    for file in (home / "connected").glob("*/*"):
        with suppress(FileNotFoundError):
            if file.stat().st_mtime_ns // 1_000_000 < oldest_ms and not is_process_alive(_read_note(file)[0]):
                file.unlink()


def _read_note(file: Path) -> tuple[str, list[str]]:
    """The mark and the epochs of a note; empty if it cannot be read."""
    try:
        note = json.loads(file.read_text())
        return str(note["process"]), [str(epoch) for epoch in note["epochs"]]
    except (OSError, ValueError, KeyError, TypeError):
        return "", []
