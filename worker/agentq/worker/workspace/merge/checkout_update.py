"""Updates a person's checkout when the target moves. It changes only if it is clean, and never halfway. Its tasks:

1. Lock the checkout: `index.lock` keeps the person's git commands out while it changes, as git's own does.
2. Record in `agentq-update` the commits before and after, before anything changes. The next update finishes what was
   interrupted, or takes it back where the branch had not moved yet.
3. Change the files and a copy of the index, which then replaces the index in one step.

A file that is neither as before nor as after, nor an unfinished part of that, is a person's work: then nothing changes,
and an error says so.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import Refused
from agentq.worker.workspace.git.git_command import LOCK_WAIT_MS, RETRY_PAUSE_S, Git, GitFailed
from agentq.worker.workspace.merge.target_branch import TargetMoved

LOCK_CONTENT = b"agentq\n"
"""The content of our `index.lock`; git's own contains an index, or nothing yet."""
NAMED_FILES_MAX = 3
"""How many paths an error names."""


RECENT_EDIT_MS = 600_000
"""How long to wait for uncommitted changes, usually a file being edited."""
EDIT_PAUSE_S = 0.5


class _CheckoutInUse(Exception):
    """A person is working in the checkout and may finish soon; the argument says what to do."""

    def __init__(self, sentence: str, patience_ms: int, pause_s: float) -> None:
        super().__init__(sentence)
        self.patience_ms = patience_ms
        self.pause_s = pause_s


class CheckoutUpdate:
    """Updates one checkout."""

    def __init__(
        self,
        git: Git,
        path: Path,
        note: Callable[[str], None] = lambda _: None,
        *,
        locked_ms: int = LOCK_WAIT_MS,
        edited_ms: int = RECENT_EDIT_MS,
    ) -> None:
        self.path = path
        self._note = note
        self._locked_ms = locked_ms
        self._edited_ms = edited_ms
        self._git = git.in_folder(path)
        self._folder = Path(self._git("rev-parse", "--absolute-git-dir").strip())
        self._index = self._folder / "index"
        self._lock = self._folder / "index.lock"
        self._new_index = self._folder / "agentq-index"

    def follow(self, old: str, new: str, move: Callable[[], None]) -> None:
        """Move the branch, and the files with it; waits for a while for a person at work there."""
        began_ms, noted = monotonic_ms(), False
        while True:
            try:
                return self._follow(old, new, move)
            except _CheckoutInUse as occupied:
                if monotonic_ms() - began_ms >= occupied.patience_ms:
                    raise Refused(str(occupied)) from None
                pause_s = occupied.pause_s
                if not noted and pause_s >= EDIT_PAUSE_S:
                    noted = True
                    self._note(f"waits: {occupied}")
            self._git.cancellation.pause(pause_s)

    def _follow(self, old: str, new: str, move: Callable[[], None]) -> None:
        with self._noted() as note:
            self._take_lock()
            try:
                self._check(old, new)
                note.write({"old": old, "new": new})
                try:
                    move()
                except BaseException:
                    note.clear()
                    raise
                self._change(old, new)
                note.clear()
            finally:
                if note.is_clear():
                    self._new_index.unlink(missing_ok=True)
                    self._lock.unlink(missing_ok=True)

    def finish(self) -> bool:
        """Finish an interrupted update; returns whether there was one."""
        if not (self._folder / "agentq-update").exists():
            return False
        with self._noted() as note:
            return note.finished

    @contextmanager
    def _noted(self) -> Iterator[_UpdateNote]:
        """Hold the record of updates, with no interrupted update before."""
        with (self._folder / "agentq-update").open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            note = _UpdateNote(file.fileno())
            left = note.read()
            if left is not None:
                self._finish(left["old"], left["new"])
                note.clear()
                note.finished = True
            self._give_back_lock()
            yield note

    def _take_lock(self) -> None:
        try:
            made = os.open(self._lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            raise _CheckoutInUse(
                f"git is at work in {self.path}, or was killed there: {self._lock} exists. "
                "If no git runs there, remove it, and retry the run.",
                self._locked_ms,
                RETRY_PAUSE_S,
            ) from None
        os.write(made, LOCK_CONTENT)
        os.close(made)

    def _give_back_lock(self) -> None:
        with suppress(FileNotFoundError):
            if self._lock.read_bytes() == LOCK_CONTENT:
                self._lock.unlink()

    def _check(self, old: str, new: str) -> None:
        """Check that it is on that commit, clean, and free where new files go."""
        output = self._git("status", "--porcelain", "-z", "--untracked-files=no", "--ignore-submodules=dirty")
        changed = [line[3:] for line in output.split("\0") if line]
        if changed:
            more = f" and {len(changed) - NAMED_FILES_MAX} more" if changed[NAMED_FILES_MAX:] else ""
            raise _CheckoutInUse(
                f"The checkout {self.path} has changes in {', '.join(changed[:NAMED_FILES_MAX])}{more}; "
                "commit or stash them, and retry the run.",
                self._edited_ms,
                EDIT_PAUSE_S,
            )
        if self._git("rev-parse", "--verify", "HEAD^{commit}").strip() != old:
            raise TargetMoved
        shutil.copy2(self._index, self._new_index)
        try:
            self._on_new_index("update-index", "-q", "--refresh", also=(1,))
            self._on_new_index("read-tree", "-n", "-m", "-u", old, new)
        except GitFailed as failed:
            raise Refused(f"The checkout {self.path} cannot follow: {failed}") from failed

    def _change(self, old: str, new: str) -> None:
        self._on_new_index("read-tree", "-m", "-u", old, new)
        self._new_index.replace(self._index)

    def _on_new_index(self, *words: str, also: tuple[int, ...] = (), fed: str = "") -> str:
        return self._git(*words, ok_codes=also, input=fed, settings={"GIT_INDEX_FILE": str(self._new_index)})

    # ---- what was interrupted

    def _finish(self, old: str, new: str) -> None:
        now = self._git("rev-parse", "--verify", "HEAD^{commit}").strip()
        if now != old and self._git.is_ancestor(new, now):
            changes = self._changes(old, now)
            theirs = sorted(path for path in changes if self._is_somebodys(path, old, now, changes[path]))
            if theirs:
                raise Refused(
                    f"An update of {self.path} was interrupted, and {', '.join(theirs[:NAMED_FILES_MAX])} was "
                    f"changed since; "
                    f"bring it to {now[:12]} yourself (`git reset` and `git checkout` are safe), and retry the run."
                )
            self._put(now, changes)
        self._new_index.unlink(missing_ok=True)
        (self._folder / "agentq-index.lock").unlink(missing_ok=True)

    def _changes(self, old: str, new: str) -> dict[str, str]:
        fields = self._git("diff-tree", "-r", "-z", "--name-status", "--no-renames", old, new).split("\0")
        return {fields[at + 1]: fields[at] for at in range(0, len(fields) - 1, 2)}

    def _is_somebodys(self, path: str, old: str, new: str, change: str) -> bool:
        file = self.path / path
        if file.is_symlink() or not file.is_file():
            return False
        content = file.read_bytes()
        if change != "A" and content == self._content(old, path):
            return False
        # A file that was being written has the beginning of what it is to be.
        return change == "D" or not self._content(new, path).startswith(content)

    def _content(self, commit: str, path: str) -> bytes:
        return self._git.bytes("cat-file", "--filters", f"{commit}:{path}")

    def _put(self, new: str, changes: dict[str, str]) -> None:
        self._new_index.unlink(missing_ok=True)
        (self._folder / "agentq-index.lock").unlink(missing_ok=True)
        self._on_new_index("read-tree", new)
        for path, change in changes.items():
            if change == "D":
                (self.path / path).unlink(missing_ok=True)
        stay = "".join(f"{path}\0" for path, change in changes.items() if change != "D")
        self._on_new_index("checkout-index", "-q", "-f", "-u", "-z", "--stdin", fed=stay)
        self._on_new_index("update-index", "-q", "--refresh", also=(1,))
        self._new_index.replace(self._index)


class _UpdateNote:
    """The file that records an update; locked while it is open."""

    def __init__(self, file: int) -> None:
        self._file = file
        self.finished = False

    def read(self) -> dict[str, str] | None:
        text = os.pread(self._file, 1 << 16, 0)
        try:
            note = json.loads(text)
            return {"old": str(note["old"]), "new": str(note["new"])}
        except (ValueError, KeyError, TypeError):
            return None  # nothing is noted, or it was killed while it wrote: then nothing has begun

    def is_clear(self) -> bool:
        return os.fstat(self._file).st_size == 0

    def write(self, note: dict[str, str]) -> None:
        os.ftruncate(self._file, 0)
        os.write(self._file, json.dumps(note).encode())
        os.fsync(self._file)

    def clear(self) -> None:
        os.ftruncate(self._file, 0)
