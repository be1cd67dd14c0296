"""Runs git so that it never asks a person, never runs what the repository configures, and leaves no process.

1. Calls block their thread. Every call has a time limit; a cancellation ends it from any thread.
2. The environment is scrubbed, and what a repository could make git run is switched off; see `safe_config`.
3. A failure is one sentence with git's own last line; passwords in addresses are hidden.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Self

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError, Invalid, Refused
from agentq.coordinator.security.git_directory import GitPlace
from agentq.worker.output.sanitizer import sanitize_text
from agentq.worker.workspace.git.safe_config import LOCAL_RECEIVE_PACK, SafeGitConfig, build_command_environment
from agentq.worker.workspace.git.stale_locks import remove_stale_locks

GIT_VERSION_MIN = (2, 30)
LOCAL_TIMEOUT_MS = 600_000
"""The limit of a command on this machine."""
REMOTE_TIMEOUT_MS = 1_800_000
"""The limit of a command that talks to another machine."""
STOP_GRACE_MS = 2_000
"""Git removes its locks when it is terminated, which takes a moment."""
LOCK_WAIT_MS = 30_000
"""How long to wait for a lock: at least until it would count as stale."""
RETRY_PAUSE_S = 0.05
SHOWN_CHARACTERS = 300
_LOCK_ERRORS = (".lock': File exists", "could not lock config file")
"""Git's messages when a lock is held. A branch that has moved is no lock, although git says so."""
_TRANSIENT_ERRORS = ("commondir",)
"""Git's message when a worktree of the repository comes or goes at that moment; a retry succeeds."""
CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


class GitFailed(AgentqError):
    """Git failed."""

    def __init__(self, message: str, stderr: str = "", code: int | None = None) -> None:
        super().__init__(message)
        self.stderr = stderr
        """All that git wrote to stderr."""
        self.code = code


class GitCancelled(GitFailed):
    """Git was ended by a cancellation."""


class GitCancellation:
    """Ends the git commands of one attempt and refuses new ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._cancelled = threading.Event()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """End running commands and refuse new ones."""
        with self._lock:
            self._cancelled.set()
            for one in self._running:
                _signal_group(one, signal.SIGTERM)

    def add(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._running.add(process)
            if self.is_cancelled:
                _signal_group(process, signal.SIGTERM)

    def remove(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._running.discard(process)

    def pause(self, seconds: float) -> None:
        """Wait for a moment, or until the cancellation."""
        self._cancelled.wait(seconds)
        self.check()

    def check(self) -> None:
        if self.is_cancelled:
            raise GitCancelled("Git was stopped.")


@dataclass(frozen=True, slots=True)
class Git:
    """Git in one folder."""

    folder: Path
    git_dir: Path | None = None
    """The git directory, if given; the folder's own `.git` is not trusted then."""
    work_tree: Path | None = None
    safe_config: SafeGitConfig = field(default_factory=SafeGitConfig)
    marks: Mapping[str, str] = field(default_factory=dict)
    """Variables that mark its processes as those of a run."""
    cancellation: GitCancellation = field(default_factory=GitCancellation)
    held_fds: tuple[int, ...] = ()
    """Descriptors that commands keep open: locks that must not be free before they have ended."""

    def in_folder(self, folder: Path, git_dir: Path | None = None) -> Self:
        """Git in another folder; with its git directory given, that is its working tree."""
        return replace(self, folder=folder, git_dir=git_dir, work_tree=folder if git_dir else None)

    def holding(self, *descriptors: int) -> Self:
        """Git whose commands keep these descriptors open until they have ended."""
        return replace(self, held_fds=(*self.held_fds, *descriptors))

    def __call__(
        self,
        *words: str,
        ok_codes: Sequence[int] = (),
        input: str | bytes = "",  # noqa: A002 - as subprocess calls it
        settings: Mapping[str, str] = _NO_SETTINGS,
        identity: Mapping[str, str] = _NO_SETTINGS,
        remote: bool = False,
        wait_for_locks: bool = False,
    ) -> str:
        """Its output. An exit code other than 0 and `ok_codes` raises `GitFailed`; `wait_for_locks` retries."""
        ok_codes = tuple(ok_codes)
        output = self.bytes(
            *words,
            ok_codes=ok_codes,
            input=input,
            settings=settings,
            identity=identity,
            remote=remote,
            wait_for_locks=wait_for_locks,
        )
        return os.fsdecode(output)

    def answers(self, *words: str) -> str | None:
        """Its output without the line end; None if git exits with an error."""
        try:
            return self(*words).rstrip("\n")
        except GitCancelled:
            raise
        except GitFailed as failed:
            if failed.code is None or failed.code < 0:
                raise
            return None

    def locate(self) -> GitPlace:
        """The repository that its folder is in; raises `Invalid` where there is none."""
        place = self.safe_config.locate(self.folder, self.git_dir, self.work_tree)
        if place is not None:
            return place
        try:
            self("rev-parse")
        except GitFailed as failed:
            if "not a git repository" not in failed.stderr:
                raise
        raise Invalid(f"{self.folder} is not in a git repository; begin one with `git init`, or name another.")

    def version(self) -> tuple[int, ...]:
        """The version of the installed git; raises `GitFailed` if it is too old."""
        return _read_version(os.environ.get("PATH", os.defpath))

    def pushes_to(self, remote: str) -> str:
        """The push addresses of a remote, a line each, as configured now."""
        return self.answers("remote", "get-url", "--push", "--all", remote) or remote

    def push(self, remote: str, refspec: str, *options: str, expected: str | None = None) -> None:
        """Push to a remote, unless its address has changed. For a path on this machine, hooks and programs of that
        repository do not run.
        """
        addresses = self.pushes_to(remote)
        if expected not in (None, addresses):
            raise Refused(
                f"The remote {remote} is at {hide_credentials(addresses)} and was at "
                f"{hide_credentials(expected or '')} before the run "
                "began, so nothing was pushed; set it right and retry."
            )
        receive_pack = (
            [LOCAL_RECEIVE_PACK]
            if not self.safe_config.trust and any(map(is_local_address, addresses.splitlines()))
            else []
        )
        self("push", "-q", "--no-verify", *receive_pack, *options, remote, refspec, remote=True)

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether a commit is an ancestor of another, or the same."""
        if older == newer:
            return True
        try:
            self("merge-base", "--is-ancestor", older, newer)
        except GitFailed as failed:
            if failed.code != 1:
                raise
            return False
        return True

    def _once(
        self, words: Sequence[str], ok_codes: Sequence[int], stdin: bytes, variables: Mapping[str, str], limit_ms: int
    ) -> bytes:
        self.cancellation.check()
        self.version()
        place = self.safe_config.place(words, self.folder, self.git_dir, self.work_tree)
        command = self.safe_config.words(words) if place.found else ["rev-parse", "--git-dir"]
        argv = ["git", *place.options, *command]
        code, stdout, stderr = self._run(argv, stdin, {**variables, **place.variables}, limit_ms, words[0])
        if not place.found and not code:
            raise GitFailed(f"git {words[0]} failed: the repository of {self.folder} was changed meanwhile.")
        if code and code not in ok_codes:
            self.cancellation.check()
            text = hide_credentials(stderr.decode("utf-8", "replace"))
            raise GitFailed(f"git {words[0]} failed: {_format_error(text, code)}", text, code)
        return stdout

    def _variables(self, *, remote: bool) -> dict[str, str]:
        return {**build_command_environment(os.environ, remote=remote, trust=self.safe_config.trust), **self.marks}

    def _run(
        self, argv: Sequence[str], stdin: bytes, variables: Mapping[str, str], limit_ms: int, verb: str
    ) -> tuple[int, bytes, bytes]:
        try:
            # In the worker's own session, so that `reap_orphans` does not take its exit code.
            popen = subprocess.Popen(
                argv,
                cwd=self.folder,
                env=variables,
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
                pass_fds=self.held_fds,
            )
        except OSError as error:
            raise GitFailed(f"Git cannot be started in {self.folder}: {error.strerror}.") from error
        self.cancellation.add(popen)
        try:
            stdout, stderr = popen.communicate(stdin if stdin else None, limit_ms / 1000)
        except subprocess.TimeoutExpired:
            raise GitFailed(f"git {verb} took longer than {limit_ms // 1000} s, and was ended.") from None
        finally:
            self.cancellation.remove(popen)
            _end_process(popen)
        return popen.returncode, stdout, stderr

    def bytes(
        self,
        *words: str,
        ok_codes: Sequence[int] = (),
        input: str | bytes = "",  # noqa: A002
        settings: Mapping[str, str] = _NO_SETTINGS,
        identity: Mapping[str, str] = _NO_SETTINGS,
        remote: bool = False,
        wait_for_locks: bool = False,
    ) -> bytes:
        """Its output as bytes."""
        stdin = os.fsencode(input) if isinstance(input, str) else input
        variables = {**self._variables(remote=remote), **settings, **identity}
        deadline_ms = monotonic_ms() + LOCK_WAIT_MS
        while True:
            try:
                return self._once(words, ok_codes, stdin, variables, REMOTE_TIMEOUT_MS if remote else LOCAL_TIMEOUT_MS)
            except GitFailed as failed:
                transient = (*_TRANSIENT_ERRORS, *_LOCK_ERRORS) if wait_for_locks else _TRANSIENT_ERRORS
                if not any(word in failed.stderr for word in transient) or monotonic_ms() >= deadline_ms:
                    raise
                remove_stale_locks(failed.stderr, self.folder, self.git_dir)
            self.cancellation.pause(RETRY_PAUSE_S)


def is_local_address(address: str) -> bool:
    """Whether git takes an address for a repository on this machine."""
    return address.startswith("file://") or not re.match(r"[^/]*:", address)


def hide_credentials(text: str) -> str:
    """Hide credentials of addresses in a text."""
    return CREDENTIALS.sub("***@", text)


def _end_process(popen: subprocess.Popen[bytes]) -> None:
    """End it and everything it started."""
    if popen.poll() is None:
        _signal_group(popen, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            popen.communicate(timeout=STOP_GRACE_MS / 1000)
    if popen.poll() is None or popen.returncode < 0:
        _signal_group(popen, signal.SIGKILL)
        popen.communicate()


def _signal_group(popen: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(popen.pid, number)


def _format_error(stderr: str, code: int) -> str:
    """The last line marked as an error, or the last line."""
    lines = [
        line.strip() for line in sanitize_text(stderr).splitlines() if line.strip() and not line.startswith("hint:")
    ]
    faults = [line for line in lines if line.startswith(("fatal: ", "error: "))] or lines
    if not faults:
        return f"it ended by signal {-code}." if code < 0 else f"it ended with {code}."
    line = re.sub(r"^(fatal|error): ", "", faults[-1])[:SHOWN_CHARACTERS]
    return line if line.endswith((".", "!", "?")) else f"{line}."


@cache
def _read_version(path: str) -> tuple[int, ...]:
    try:
        output = subprocess.run(
            ["git", "version"],
            env={"PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=10,
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.SubprocessError) as error:
        raise GitFailed("There is no git on this machine; install git 2.30 or newer.") from error
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", output)
    version = tuple(int(part) for part in found.groups() if part is not None) if found else ()
    if version < GIT_VERSION_MIN:
        raise GitFailed(f"The git of this machine is too old: {output.strip()[:60]}; install git 2.30 or newer.")
    return version
