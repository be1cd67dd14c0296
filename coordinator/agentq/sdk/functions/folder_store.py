"""The store of results in a folder: one file for each, named by its digest, written whole or not at all."""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import Invalid

_DIGEST_PATTERN = re.compile(r"[0-9a-f]{64}")


class Folder:
    """Results in a folder, which every machine that writes or reads them must see under the same path."""

    def __init__(self, path: Path) -> None:
        if not path.is_absolute():
            raise Invalid(f"The folder of results {str(path)!r} is not an absolute path; write file:///path.")
        self.path = path

    def put(self, name: str, body: bytes) -> None:
        """Write a result; one that is there already is kept for as long as a new one."""
        target = self._file(name)
        with suppress(FileNotFoundError):
            os.utime(target)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(dir=target.parent, prefix=".")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, target)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise

    def get(self, name: str) -> bytes:
        try:
            return self._file(name).read_bytes()
        except FileNotFoundError as error:
            raise KeyError(name) from error

    def delete(self, name: str) -> None:
        self._file(name).unlink(missing_ok=True)

    def prune(self, older_than: timedelta) -> int:
        """Delete files written longer ago; returns their number. The operator of the folder calls it, as
        from cron, with the longest time that runs are kept."""
        oldest = wall_ms() / 1000 - older_than.total_seconds()
        gone = 0
        for file in self.path.glob("??/*"):
            with suppress(FileNotFoundError):
                if file.stat().st_mtime < oldest:
                    file.unlink()
                    gone += 1
        return gone

    def _file(self, name: str) -> Path:
        """Where a result lies. A name is a digest and nothing else, so no reference leads out of the folder."""
        if not _DIGEST_PATTERN.fullmatch(name):
            raise Invalid(f"{name[:80]!r} is not the name of a stored result.")
        return self.path / name[:2] / name
