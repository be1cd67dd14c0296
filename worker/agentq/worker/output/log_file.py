"""The file with an attempt's output: all of it up to a bound, beyond that the beginning and the end.

While the attempt runs, the beginning is in `<attempt>.log`, and what follows in `<attempt>.log.newer`, which becomes
`<attempt>.log.older` when it is full. When the attempt has ended the three become one file, with a line where something
is left out. If the worker dies before, the parts stay, and nothing is lost.

One thread writes for the whole worker, so that a slow disk never blocks the event loop.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

HEAD_BYTES = 16 << 20
TAIL_BYTES = 24 << 20
"""At least this much of the end is kept, and less than twice as much."""

_writer_pool = ThreadPoolExecutor(1, thread_name_prefix="agentq-logfile")


class LogFile:
    """One attempt's file. Created with the first output, in a folder that only this user can read."""

    def __init__(
        self,
        path: Path,
        on_written: Callable[[], None] = lambda: None,
        *,
        head_bytes: int = HEAD_BYTES,
        tail_bytes: int = TAIL_BYTES,
    ) -> None:
        assert tail_bytes > 0
        self.path = path
        self.error: OSError | None = None
        self.backlog = 0
        """Bytes that wait for the disk."""
        self._on_written = on_written
        self._tail_bytes = tail_bytes
        self._older, self._newer = path.with_name(path.name + ".older"), path.with_name(path.name + ".newer")
        self._lock = threading.Lock()
        self._waiting: list[bytes] = []
        self._file: int | None = None
        self._part_bytes_left = head_bytes
        self._in_head = True
        self._left_out = 0
        self._closed = False

    def write(self, piece: bytes) -> None:
        """Queue a piece; `on_written` is called, on the writer's thread, after writing."""
        with self._lock:
            if self._closed:
                return
            self._waiting.append(piece)
            self.backlog += len(piece)
            first = len(self._waiting) == 1
        if first:
            _writer_pool.submit(self._write_waiting)

    def close(self) -> Future[None]:
        """Write what is queued and join the parts. Later pieces are ignored."""
        with self._lock:
            self._closed = True
        return _writer_pool.submit(self._finish)

    # ---- on the writer's thread

    def _write_waiting(self) -> None:
        with self._lock:
            pieces, self._waiting = self._waiting, []
        joined = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        try:
            if self.error is None:
                self._write(memoryview(joined))
        except OSError as error:
            # The run continues without its file; `OutputPipes` notes the error.
            self.error = error
        with self._lock:
            self.backlog -= len(joined)
        self._on_written()

    def _write(self, rest: memoryview) -> None:
        if self._file is None:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = _open_file(self.path)
        while rest:
            if not self._part_bytes_left:
                self._file = self._rotate(self._file)
            count = os.write(self._file, rest[: self._part_bytes_left])
            self._part_bytes_left -= count
            rest = rest[count:]

    def _rotate(self, full: int) -> int:
        """Continue in the next part; of two full ones the older is dropped."""
        os.close(full)
        if not self._in_head:
            with contextlib.suppress(FileNotFoundError):
                self._left_out += self._older.stat().st_size
            self._newer.replace(self._older)
        self._in_head, self._part_bytes_left = False, self._tail_bytes
        return _open_file(self._newer)

    def _finish(self) -> None:
        if self._file is None:
            return
        os.close(self._file)
        self._file = None
        if not self._in_head:
            try:
                self._join()
            except OSError as error:
                self.error = error

    def _join(self) -> None:
        with self.path.open("ab") as whole:
            if self._left_out:
                whole.write(f"\n[agentq: {self._left_out} bytes left out here]\n".encode())
            for part in (self._older, self._newer):
                if part.exists():
                    with part.open("rb") as source:
                        shutil.copyfileobj(source, whole, 1 << 20)
                    part.unlink()


def _open_file(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
