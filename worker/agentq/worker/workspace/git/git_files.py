"""Files of a git directory that a run may have changed: read without following links or blocking, removed whatever they
are.

A run can put a pipe, a link, a folder or any bytes in the place of `HEAD`, `MERGE_HEAD`, `index.lock` and the like.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

FILE_BYTES_MAX = 64 << 10


def read_text(path: Path) -> str:
    """The content of a file; empty if it is no regular text file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        content = os.read(descriptor, FILE_BYTES_MAX) if is_file else b""
    finally:
        os.close(descriptor)
    return "" if b"\0" in content else os.fsdecode(content)


def remove_path(path: Path) -> None:
    """Remove a file, link or folder, if it exists; a link itself, not its target."""
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


def remove_tree(path: Path) -> None:
    """Remove a folder, even with unwritable parts, however deep it is."""

    def make_writable(function: object, name: str, _: object) -> None:
        folder = Path(name).parent
        folder.chmod(0o700)
        if function is os.unlink:
            os.unlink(name)
        elif Path(name).is_dir() and not Path(name).is_symlink():
            Path(name).chmod(0o700)
            shutil.rmtree(name)

    with suppress(RecursionError):
        shutil.rmtree(path, onerror=make_writable)
        return
    subprocess.run(["rm", "-rf", "--", path], check=True, stdin=subprocess.DEVNULL, capture_output=True)
