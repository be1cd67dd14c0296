"""A git repository: one on this machine, found from any folder in it, or a clone of an address.

A clone is bare, lives in the worker's home, and is updated whenever a run starts in it. For either kind, a base is
resolved to a commit when it is asked for, never by what happens to be checked out.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import Invalid, NotFound
from agentq.coordinator.security.git_directory import read_file_state
from agentq.worker.workspace.git.git_command import CREDENTIALS, Git, GitFailed, hide_credentials
from agentq.worker.workspace.git.repository_lock import lock_repository
from agentq.worker.workspace.git.safe_config import list_user_config

ORIGIN_REMOTE = "origin"
REMOTE_REFS = "refs/remotes/"
_COMMIT_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SCP_ADDRESS = re.compile(r"(?P<host>[^\s/:]+):(?!//)(?P<path>\S+)")

CACHE_MAX = 10_000
_known_commits: set[tuple[Path, str]] = set()
"""Full commit hashes that were seen; these never change."""
_identity_state: dict[Path, tuple[object, ...]] = {}
"""Repositories with a configured identity, and the state of the configuration that said so."""
_opened_paths: dict[Path, tuple[tuple[object, ...], Path, Path | None]] = {}
"""Paths, the state of the files that decide, and their git directory and checkout."""
_fetched_ms: dict[tuple[Path, str], int] = {}
"""When the last successful fetch began, by repository and remote."""


def is_commit_hash(text: str) -> bool:
    """Whether it is a full commit hash."""
    return _COMMIT_HASH.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class GitRepository:
    """One repository."""

    git: Git
    """Git in the git directory that all its worktrees share."""
    top: Path | None
    """The checkout whose files can be copied or linked; None for a bare one."""
    remote: str
    """The remote to push to, if work is pushed."""
    is_copy: bool = False

    @property
    def common(self) -> Path:
        return self.git.folder

    @property
    def modules(self) -> Path | None:
        """Where its submodules are; None where they are only on another machine."""
        return None if self.is_copy else self.common / "modules"

    @property
    def digest(self) -> str:
        """A short hash, unique on this machine."""
        return hashlib.blake2b(os.fsencode(self.common), digest_size=8).hexdigest()

    def identity(self, *, shared: bool = False) -> str:
        """The name of this repository in merge queues; `shared` if the remote's branch counts."""
        if self.is_copy or shared:
            return normalize_address(self.address() or "")
        return f"{socket.gethostname()}:{self.common}"

    def address(self) -> str | None:
        """The address of its remote."""
        return self.git.answers("config", "--get", f"remote.{self.remote}.url")

    @contextmanager
    def locked(self) -> Iterator[Git]:
        """Hold the lock for what git cannot do concurrently: adding and removing worktrees, and configuration."""
        with lock_repository(self.git, self.common) as git:
            yield git

    def resolved(self, base: str) -> str:
        """The commit of a base now; fetches first for a clone, or a remote's branch."""
        if _COMMIT_HASH.fullmatch(base) and (commit := self.commit(base)):
            return commit  # which later fetches do not change
        remote, _, branch = base.partition("/")
        if self.is_copy:
            self.fetch(self.remote)
            names = [f"{REMOTE_REFS}{self.remote}/{base}", f"{REMOTE_REFS}{base}", base]
            names = [f"{REMOTE_REFS}{self.remote}/HEAD"] if base == "HEAD" else names
        else:
            if branch and self.git.answers("config", "--get", f"remote.{remote}.url"):
                self.fetch(remote)
            names = [base]
        for name in names:
            if commit := self.commit(name):
                return commit
        what = f"the copy of {hide_credentials(self.address() or '')}" if self.is_copy else str(self.top or self.common)
        if not self.is_copy and base == "HEAD":
            raise Invalid(f"{what} has no commit yet, so no work can begin there; make one first.")
        raise NotFound(f"{base} is no branch, tag or commit of {what}; create it, or name another base.")

    def commit(self, name: str) -> str | None:
        """The commit of that name, if there is one."""
        if (self.common, name) in _known_commits:
            return name
        git = self.git.in_folder(self.top) if self.top else self.git  # a worktree has a HEAD of its own
        commit = git.answers("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        if commit is not None:
            if len(_known_commits) >= CACHE_MAX:
                _known_commits.clear()
            _known_commits.add((self.common, commit))
        return commit

    def fetch(self, remote: str) -> None:
        """Fetch a remote; concurrent callers share one fetch."""
        asked_ms = monotonic_ms()
        with lock_repository(self.git, self.common, "agentq-fetch.lock") as git:
            if _fetched_ms.get((self.common, remote), -1) >= asked_ms:
                return
            began_ms = monotonic_ms()
            words = ("fetch", "-q", "--no-write-fetch-head", "--recurse-submodules=no")
            git(*words, *(("--prune",) if self.is_copy else ()), remote, remote=True, wait_for_locks=True)
            if self.is_copy:
                # Which branch the remote stands on may have changed; one without a commit stands nowhere.
                self._follow_head(git, remote)
            _fetched_ms[self.common, remote] = began_ms

    def _follow_head(self, git: Git, remote: str) -> None:
        """Record the remote's HEAD branch, as `git remote set-head --auto` does without our options."""
        output = git("ls-remote", "--symref", remote, "HEAD", remote=True)
        found = re.match(r"ref: refs/heads/(\S+)\tHEAD$", output, re.MULTILINE)
        if found and git.answers("rev-parse", "--verify", "--quiet", f"{REMOTE_REFS}{remote}/{found[1]}"):
            git("symbolic-ref", f"{REMOTE_REFS}{remote}/HEAD", f"{REMOTE_REFS}{remote}/{found[1]}")

    def check_identity(self) -> None:
        """Refuse a repository without an identity for commits."""
        looks = _read_identity_states(self.common)
        if _identity_state.get(self.common) == looks:
            return
        for role in ("AUTHOR", "COMMITTER"):
            try:
                self.git("var", f"GIT_{role}_IDENT")
            except GitFailed as failed:
                raise Invalid(
                    f"Git does not know who commits in {self.top or self.common}; tell it with `git config --global "
                    "user.name NAME` and `git config --global user.email ADDRESS`, as the user of the worker."
                ) from failed
        _identity_state[self.common] = looks

    def check_clean(self) -> None:
        """Refuse a checkout with uncommitted changes."""
        if self.top is None:
            return
        changed = [line[3:] for line in self.git.in_folder(self.top)("status", "--porcelain", "-z").split("\0") if line]
        if changed:
            more = f" and {len(changed) - 3} more" if changed[3:] else ""
            raise Invalid(
                f"{self.top} has changes that are not committed, in {', '.join(changed[:3])}{more}, and the run is not "
                "to begin without them; commit or stash them."
            )


def _read_identity_states(common: Path) -> tuple[object, ...]:
    """The state of all configuration that can set the identity: a cached answer holds until one changes."""
    names = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")
    return (*map(read_file_state, (common / "config", *list_user_config())), *map(os.environ.get, names))


def find_repository(git: Git, place: str, home: Path, remote: str = ORIGIN_REMOTE) -> GitRepository:
    """The repository of a path on this machine, or the clone of an address."""
    return open_repository(git, Path(place), remote) if place.startswith("/") else clone_repository(git, place, home)


def open_repository(git: Git, path: Path, remote: str = ORIGIN_REMOTE) -> GitRepository:
    """Open from a checkout or any folder in it, a worktree, or a bare repository."""
    if not path.is_dir():
        what = "is not a folder" if path.exists() else "is not on this machine"
        raise NotFound(f"The repository {path} {what}; name one that is, or a host that has it.")
    path = path.resolve()
    looks = (read_file_state(path / ".git"), read_file_state(path / "HEAD"))
    known = _opened_paths.get(path)
    if known is not None and known[0] == looks and looks != (None, None) and (known[1] / "HEAD").exists():
        return GitRepository(git.in_folder(known[1]), known[2], remote)
    folder, top = _locate_repository(git, path)
    _opened_paths[path] = looks, folder, top
    return GitRepository(git.in_folder(folder), top, remote)


def _locate_repository(git: Git, path: Path) -> tuple[Path, Path | None]:
    """The git directory that a path belongs to, and its checkout."""
    place = git.in_folder(path).locate()
    folder = place.common.resolve()
    if place.is_bare:
        return folder, None
    top = next((each for each in (path, *path.parents) if (each / ".git").exists()), None)
    return folder, folder.parent if top is None and folder.name == ".git" else top


def clone_repository(git: Git, address: str, home: Path) -> GitRepository:
    """The clone of an address in the worker's home, made if there is none yet."""
    name = re.sub(
        r"[^A-Za-z0-9.-]+", "-", hide_credentials(address).rstrip("/").removesuffix(".git").rpartition("/")[2]
    )[:40]
    digest = hashlib.blake2b(normalize_address(address).encode(), digest_size=8).hexdigest()
    folder = home / "repositories" / f"{name.strip('.-') or 'repository'}-{digest}.git"
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock_repository(git.in_folder(folder.parent), folder.parent, f"{folder.name}.lock") as alone:
        made, inside = folder / "agentq-copy", alone.in_folder(folder)
        if not made.exists():
            alone("init", "-q", "--bare", "--template=", str(folder))
            inside("config", f"remote.{ORIGIN_REMOTE}.fetch", f"+refs/heads/*:{REMOTE_REFS}{ORIGIN_REMOTE}/*")
            made.touch()
        # A run may have changed it since, or the password in the address may be new.
        addresses = inside.answers("config", "--get-regexp", rf"^remote\.{ORIGIN_REMOTE}\.(push)?url$")
        if addresses != f"remote.{ORIGIN_REMOTE}.url {address}":
            inside("config", "--unset-all", f"remote.{ORIGIN_REMOTE}.pushurl", ok_codes=(5,))
            inside("config", "--replace-all", f"remote.{ORIGIN_REMOTE}.url", address)
    return GitRepository(git.in_folder(folder.resolve()), None, ORIGIN_REMOTE, is_copy=True)


def normalize_address(address: str) -> str:
    """One form for all ways to write an address: without user, password and a final `.git`."""
    if short := _SCP_ADDRESS.fullmatch(address):
        address = f"ssh://{short['host']}/{short['path'].lstrip('/')}"
    scheme, mark, rest = CREDENTIALS.sub("", address).partition("://")
    if not mark:
        return os.path.realpath(scheme)
    host, slash, path = rest.partition("/")
    return f"{host.rpartition('@')[2].lower()}{slash}{path.rstrip('/').removesuffix('.git')}"
