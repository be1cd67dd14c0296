"""A file for data that waits for the server and does not fit in memory. Its tasks:

1. Store pieces and return them unchanged.
2. Report when there is no room, on the disk or within the bound. The caller decides what to do with the piece.
3. Become empty again once every piece was dropped.

The file has no name, so it disappears with its worker, however that ended, and needs no cleanup. The server would
refuse a killed worker's data anyway.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

SPILL_BYTES_MAX = 1 << 30


class SpilledPiece(NamedTuple):
    """The position of a piece in the file."""

    at: int
    bytes: int


class SpillFile:
    """One file of pieces, created with the first one. Not thread-safe: it belongs to one thread."""

    def __init__(self, folder: Path, bytes_max: int = SPILL_BYTES_MAX) -> None:
        self.folder = folder
        self.bytes_max = bytes_max
        self._file: int | None = None
        self._end = 0
        self._pieces = 0

    def put(self, body: bytes) -> SpilledPiece | None:
        """Store a piece; None if there is no room for it."""
        if self._end + len(body) > self.bytes_max:
            return None
        piece = SpilledPiece(self._end, len(body))
        try:
            self._write(body)
        except OSError:
            if self._file is not None:
                with suppress(OSError):
                    os.ftruncate(self._file, self._end)
            return None
        self._end += len(body)
        self._pieces += 1
        return piece

    def get(self, piece: SpilledPiece) -> bytes:
        """Return a piece; it stays stored until it is dropped."""
        assert self._file is not None
        body = b""
        while len(body) < piece.bytes:
            read = os.pread(self._file, piece.bytes - len(body), piece.at + len(body))
            if not read:
                raise OSError(f"{self.folder} holds less than was written to it")
            body += read
        return body

    def drop(self, piece: SpilledPiece) -> None:
        """Drop a piece. Its room is reusable when all pieces were dropped."""
        assert piece.at < self._end or not piece.bytes
        self._pieces -= 1
        if not self._pieces and self._file is not None:
            self._end = 0
            with suppress(OSError):
                os.ftruncate(self._file, 0)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, body: bytes) -> None:
        if self._file is None:
            self._file = self._open()
        written = 0
        while written < len(body):
            written += os.pwrite(self._file, body[written:], self._end + written)

    def _open(self) -> int:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self.folder, buffering=0) as file:
            return os.dup(file.fileno())
