"""Fingerprints a git working tree, to tell whether an agent has changed anything in its folder.

What counts is what would be lost with the folder: the commit, files that differ from it, and new files; ignored files
do not count. The repository may be hostile: programs that its configuration would run (hooks, monitors, filters, remote
helpers) are switched off, a working tree configured elsewhere is not trusted, and links are not followed. Git writes
nothing, takes no locks, and has a time limit.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agentq.coordinator.errors import AgentqError
from agentq.coordinator.security.git_directory import OwnGitDirectories, build_variables
from agentq.worker.workspace.git.git_command import Git

TIMEOUT_S = 60.0
"""Time limit of one fingerprint."""
ENTRIES_MAX = 20_000
"""Changes kept by path; more are kept as a hash."""
HASHED_BYTES_MAX = 16 << 20
"""A larger file that differs from its commit is identified by size and time."""
CONFIG_ENV_VERSION = (2, 31)
"""The first git with settings in variables, by which programs are switched off."""
_NESTED_MAX = 64
_SAFE_CONFIG = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "protocol.allow": "never",
    "status.submoduleSummary": "false",
    "status.renames": "false",
}
_own_directories = OwnGitDirectories()
_NO_FILTER = {"clean": "", "smudge": "", "process": "", "required": "false"}
_GIT_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A working tree at one moment. Equal fingerprints mean equal files."""

    top: Path
    head: str
    """The commit; `(initial)` before the first."""
    entries: Mapping[str, str] = field(default_factory=dict)
    """Paths that differ from the commit, with their state."""
    more: str = ""
    """The hash of changes beyond `ENTRIES_MAX`."""

    @classmethod
    async def of(cls, folder: Path, timeout_s: float = TIMEOUT_S) -> Fingerprint | None:
        """The fingerprint of a folder; None outside of git, or where git fails."""
        return await asyncio.to_thread(_take_fingerprint, folder, timeout_s)

    async def changed_since(self, before: Fingerprint, timeout_s: float = TIMEOUT_S) -> list[str]:
        """The changed paths, in order: at most `ENTRIES_MAX`."""
        names = self.entries.keys() | before.entries.keys()
        changed = {name for name in names if self.entries.get(name) != before.entries.get(name)}
        if self.head != before.head:
            changed.update(await asyncio.to_thread(_diff_commits, self.top, before.head, self.head, timeout_s))
        return sorted(changed)[:ENTRIES_MAX]

    def write(self, path: Path) -> None:
        """Save it for a later attempt on this machine."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        noted = {"top": str(self.top), "head": self.head, "entries": dict(self.entries), "more": self.more}
        path.write_text(json.dumps(noted), encoding="ascii")

    @classmethod
    def read(cls, path: Path) -> Fingerprint | None:
        """The saved one; None if there is none, or it is unreadable."""
        try:
            noted = json.loads(path.read_text(encoding="ascii"))
            entries = {str(name): str(looks) for name, looks in noted["entries"].items()}
            return cls(Path(noted["top"]), str(noted["head"]), entries, str(noted["more"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None


def _take_fingerprint(folder: Path, timeout_s: float) -> Fingerprint | None:
    try:
        top = _find_top(folder)
        if top is None or Git(top).version() < CONFIG_ENV_VERSION:
            return None
        return _fingerprint_tree(top, timeout_s, _NESTED_MAX)
    except (OSError, ValueError, AgentqError, subprocess.SubprocessError):
        return None


def _find_top(folder: Path) -> Path | None:
    """The working tree that contains a folder; git itself would trust a repository that says another."""
    folder = folder.resolve(strict=True)
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)


def _fingerprint_tree(top: Path, timeout_s: float, nested: int) -> Fingerprint:
    git = _SafeGit(top, timeout_s)
    status = git("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all", "--ignore-submodules=dirty")
    head, paths = _parse_status(status)
    paths.update({path: "submodule" for path in git.submodules() if path not in paths})
    entries: dict[str, str] = {}
    more = hashlib.blake2b(digest_size=16)
    for number, (path, state) in enumerate(sorted(paths.items())):
        looks = f"{state} {_describe_path(top / os.fsdecode(path), timeout_s, nested)}"
        if number < ENTRIES_MAX:
            entries[path.decode("utf-8", "replace")] = looks
        else:
            more.update(path + b"\0" + looks.encode("utf-8", "replace"))
    return Fingerprint(top, head, entries, more.hexdigest() if len(paths) > ENTRIES_MAX else "")


def _parse_status(status: bytes) -> tuple[str, dict[bytes, str]]:
    """The commit, and git's status of each path."""
    head, paths = "", {}
    for line in status.split(b"\0"):
        if line.startswith(b"# branch.oid "):
            head = line[13:].decode("ascii", "replace")
        elif line.startswith(b"1 "):
            _, state, *_, path = line.split(b" ", 8)
            paths[path] = state.decode("ascii", "replace")
        elif line.startswith(b"u "):
            paths[line.split(b" ", 10)[-1]] = "unmerged"
        elif line.startswith(b"? "):
            paths[line[2:]] = "?"
    if not head:
        raise ValueError("git did not tell the commit")
    return head, paths


def _describe_path(path: Path, timeout_s: float, nested: int) -> str:
    """The state of a path, without following or running anything. A nested repository is fingerprinted too."""
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            return f"link {hashlib.blake2b(os.fsencode(os.readlink(path)), digest_size=16).hexdigest()}"
        if stat.S_ISDIR(status.st_mode):
            return _fingerprint_nested(path, timeout_s, nested)
        if stat.S_ISREG(status.st_mode):
            return f"{status.st_mode & 0o111:o} {_hash_content(path, status)}"
    except OSError:
        return "gone"
    return f"special {status.st_mode:o}"


def _fingerprint_nested(path: Path, timeout_s: float, nested: int) -> str:
    if nested <= 0 or not (path / ".git").exists():
        return "folder"
    try:
        within = _fingerprint_tree(path, timeout_s, nested // 2)
    except (ValueError, AgentqError, subprocess.SubprocessError):
        return "broken repository"
    content = repr((within.head, sorted(within.entries.items()), within.more))
    return hashlib.blake2b(content.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _hash_content(path: Path, status: os.stat_result) -> str:
    if status.st_size > HASHED_BYTES_MAX:
        return f"{status.st_size} {status.st_mtime_ns}"
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(file, "rb") as opened:
        return hashlib.blake2b(opened.read(HASHED_BYTES_MAX + 1), digest_size=16).hexdigest()


def _diff_commits(top: Path, old: str, new: str, timeout_s: float) -> list[str]:
    """The paths in which two commits differ."""
    try:
        git = _SafeGit(top, timeout_s)
        if "(initial)" in (old, new):
            listed = git("ls-tree", "-r", "-z", "--name-only", new if old == "(initial)" else old)
        else:
            listed = git("diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new)
    except (OSError, ValueError, AgentqError, subprocess.SubprocessError):
        return []
    return [path.decode("utf-8", "replace") for path in listed.split(b"\0")[:ENTRIES_MAX] if path]


class _SafeGit:
    """Git on one working tree, with everything that the repository could make it run switched off."""

    def __init__(self, top: Path, timeout_s: float) -> None:
        self._top = top
        self._timeout_s = timeout_s
        place = _own_directories.locate(top, top / ".git")
        if place is None:
            raise ValueError("git finds no repository there")
        self._git_place = place
        self._settings = dict(_SAFE_CONFIG)
        self._settings |= {f"filter.{name}.{key}": to for name in self._filters() for key, to in _NO_FILTER.items()}

    def __call__(self, *words: str, missing: bool = False) -> bytes:
        """Its output; with `missing`, a failure is an empty output."""
        done = subprocess.run(
            ["git", f"--git-dir={self._git_place.own}", f"--work-tree={self._top}", *words],
            cwd=self._top,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=self._timeout_s,
            check=not missing,
        )
        return done.stdout

    def _environment(self) -> dict[str, str]:
        """Pass settings by variables: a name with `=` in it would split an argument anywhere."""
        own = {"PATH": os.environ.get("PATH", os.defpath), "HOME": os.environ.get("HOME", "/"), **_GIT_ENVIRONMENT}
        own |= build_variables(self._git_place, _own_directories.directory(self._git_place))
        own["GIT_CONFIG_COUNT"] = str(len(self._settings))
        for number, (key, value) in enumerate(self._settings.items()):
            own[f"GIT_CONFIG_KEY_{number}"], own[f"GIT_CONFIG_VALUE_{number}"] = key, value
        return own

    def _filters(self) -> set[str]:
        """Names of programs that git would run on the content of files."""
        listed = self("config", "-z", "--name-only", "--get-regexp", r"^filter\.", missing=True)
        keys = os.fsdecode(listed).split("\0")
        return {key.removeprefix("filter.").rpartition(".")[0] for key in keys if key.count(".") >= 2}

    def submodules(self) -> list[bytes]:
        if not (self._top / ".gitmodules").exists():
            return []
        listed = self("ls-files", "-s", "-z").split(b"\0")
        return [line.partition(b"\t")[2] for line in listed if line.startswith(b"160000 ")]
