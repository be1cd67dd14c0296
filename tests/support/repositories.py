"""Real repositories for tests: made in a moment, with an identity of their own and nothing of this machine's."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

ALONE = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "false",
}


class Depot:
    """One repository."""

    def __init__(self, path: Path, branch: str = "main", *, bare: bool = False) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "-q", "-b", branch, *(["--bare"] if bare else []))
        self.git("config", "user.name", "Ada")
        self.git("config", "user.email", "ada@example.org")

    def copy(self, path: Path) -> Depot:
        """Another, with all that is in this one."""
        copied = Depot.__new__(Depot)
        copied.path = path
        shutil.copytree(self.path, path, symlinks=True)
        return copied

    def git(self, *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, text: str = "") -> str:
        """What git says, without the end of the last line."""
        done = subprocess.run(
            ["git", *words],
            cwd=cwd or self.path,
            env={**os.environ, **ALONE, **(env or {})},
            input=text,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"git {' '.join(words)}: {done.stderr}"
        return done.stdout.removesuffix("\n")

    def write(self, **files: str) -> None:
        """Files in its checkout; `__` in a name stands for a dot."""
        for name, text in files.items():
            path = self.path / name.replace("__", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def commit(self, message: str, **files: str) -> str:
        """A commit on the branch that is checked out."""
        self.write(**files)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.head()

    def commit_on(self, base: str, message: str, **files: str | None) -> str:
        """A commit on another, beside any checkout; a file that is None goes."""
        index = {"GIT_INDEX_FILE": str(self.path / "beside-index")}
        self.git("read-tree", base, env=index)
        for name, text in files.items():
            path = name.replace("__", ".")
            if text is None:
                self.git("update-index", "--force-remove", path, env=index)
                continue
            blob = self.git("hash-object", "-w", "--stdin", text=text)
            self.git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", env=index)
        tree = self.git("write-tree", env=index)
        (self.path / "beside-index").unlink()
        return self.git("commit-tree", tree, "-p", base, text=message)

    def head(self, name: str = "HEAD") -> str:
        return self.git("rev-parse", "--verify", f"{name}^{{commit}}")

    def read(self, name: str, path: str) -> str:
        """A file as it is in a commit."""
        return self.git("show", f"{name}:{path}")

    def log(self, name: str, form: str = "%s") -> list[str]:
        """The commits of a branch, newest first."""
        return self.git("log", f"--format={form}", name).split("\n")

    def status(self) -> str:
        return self.git("status", "--porcelain")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's own configuration of git decides."""
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def depot(tmp_path: Path) -> Depot:
    """With one commit on `main`, which is checked out."""
    made = Depot(tmp_path / "depot")
    made.commit("begin", a__txt="one\ntwo\nthree\n", b__txt="b\n")
    return made
