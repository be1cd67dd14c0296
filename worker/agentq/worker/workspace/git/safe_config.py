"""The git configuration that keeps a repository from making git run programs, ask questions, sign, or maintain itself.

Of a repository's own configuration only harmless settings are read; see `git_directory`. The user's configuration
counts. So LFS works if the user has set it up, by `git lfs install`; otherwise its pointers stay pointers. With
`trust`, the repository is trusted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentq.coordinator.security.git_directory import (
    GitPlace,
    OwnGitDirectories,
    build_variables,
    is_passive,
    query_git,
    read_file_state,
)
from agentq.worker.workspace.git.git_files import read_text

SAFE_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "commit.gpgSign": "false",
    "push.gpgSign": "false",
    "log.showSignature": "false",
    "submodule.recurse": "false",
    "diff.ignoreSubmodules": "dirty",
    "fetch.recurseSubmodules": "false",
    "push.recurseSubmodules": "no",
    "safe.bareRepository": "all",
    "user.useConfigOnly": "true",
    "rerere.enabled": "false",
    "commit.template": "",
    "advice.addEmbeddedRepo": "false",
    "core.quotePath": "false",
    "core.preferSymlinkRefs": "false",
    "color.ui": "false",
}
"""Settings of every command."""
PROTOCOL_SETTINGS = {
    "protocol.allow": "never",
    "protocol.ext.allow": "never",
    **{f"protocol.{name}.allow": "always" for name in ("https", "http", "ssh", "git")},
    "protocol.file.allow": "user",
}
"""Protocols by which git may reach another repository; the user's settings override these, except for `ext`."""
TRUSTED_SETTINGS = ("core.hooksPath",)
"""Settings that are left alone in a trusted repository."""
SIGNING_SETTINGS = ("commit.gpgSign",)
SSH_COMMAND = "ssh -oBatchMode=yes"
"""Never asks."""
GIT_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": ":",
    "GIT_SEQUENCE_EDITOR": ":",
    "GIT_PROXY_COMMAND": "",
    "LC_ALL": "C",
}
NO_LAZY_FETCH = {"GIT_NO_LAZY_FETCH": "1"}
"""Git 2.39.4 and newer do not fetch objects that a partial clone lacks."""
KEPT_VARIABLES = (
    *("GIT_SSH_COMMAND", "GIT_SSH", "GIT_ASKPASS", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_LFS_SKIP_SMUDGE"),
    *("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"),
    *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH"),
)
"""Git variables of the worker's user that are passed on; no others are."""
LOCAL_VARIABLES = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"),
        *("GNUPGHOME", "GPG_TTY", "SSH_AUTH_SOCK", "LD_LIBRARY_PATH"),
    )
)
"""Variables for a command on this machine. One that talks to another gets all except agentq's."""

REMOTE_PROGRAMS = {
    **dict.fromkeys(("fetch", "ls-remote"), "--upload-pack=git-upload-pack"),
    "push": "--receive-pack=git-receive-pack",
}
"""Programs on the other end of a connection. The first of these settings counts, so only an option overrides them."""
LOCAL_RECEIVE_PACK = (
    "--receive-pack=git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.alternateRefsCommand=true "
    "-c receive.denyCurrentBranch=refuse -c receive.autogc=false receive-pack"
)
"""For a push to a path: that repository's configuration names programs too, and no setting given here reaches it."""
_USER_SETTING = re.compile(r"protocol\..*|core\.sshcommand", re.DOTALL)
"""Settings of each command, unless the user has set them."""
_SPARSE_COMMAND = "sparse-checkout"
_WRITING_COMMANDS = frozenset(("submodule", _SPARSE_COMMAND))
"""Commands that write settings for the commands that they start."""

CACHE_MAX = 1_000


@dataclass(frozen=True, slots=True)
class CommandPlace:
    """The options and variables that tell a command its repository."""

    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    found: bool = True
    """Whether there is a repository; if not, git reports it."""


@dataclass(slots=True)
class SafeGitConfig:
    """The settings of git commands, for one or several repositories."""

    trust: bool = False
    """Whether the repository's hooks and programs may run."""
    sign: bool = False
    _directories: OwnGitDirectories = field(default_factory=OwnGitDirectories)
    _known: dict[object, list[tuple[str, str]]] = field(default_factory=dict)

    def place(self, words: Sequence[str], folder: Path, git_dir: Path | None, work_tree: Path | None) -> CommandPlace:
        """Where a command finds its repository, and the settings that count; of one name the last does."""
        if self.trust or is_passive(words):
            given = GitPlace(git_dir, git_dir, work_tree) if git_dir else None
            return CommandPlace((*_build_options(given), *_as_options(self._fixed() + self._trusted(folder, git_dir))))
        place = self.locate(folder, git_dir, work_tree)
        if place is None:
            return CommandPlace(found=False)
        directory = self._directories.directory(
            place, apart=words[0] in _WRITING_COMMANDS, sparse=words[0] == _SPARSE_COMMAND
        )
        settings = self._fixed() + self._of_user(place, build_variables(place, directory))
        return CommandPlace((*_build_options(place), *_as_options(settings)), build_variables(place, directory))

    def locate(self, folder: Path, git_dir: Path | None, work_tree: Path | None) -> GitPlace | None:
        """The repository of a folder, or the given one."""
        if git_dir is None:
            return self._directories.locate(folder)
        return GitPlace(git_dir, Path(os.path.normpath(_find_common_dir(git_dir))), work_tree)

    def _fixed(self) -> list[tuple[str, str]]:
        settings = [
            (key, value) for key, value in SAFE_SETTINGS.items() if not (self.trust and key in TRUSTED_SETTINGS)
        ]
        return settings + [(key, "true") for key in SIGNING_SETTINGS if self.sign]

    def _trusted(self, folder: Path, git_dir: Path | None) -> list[tuple[str, str]]:
        """The settings of a trusted repository count like the user's."""
        place = self.locate(folder, git_dir, None) if self.trust else None
        return [] if place is None else self._of_user(place, {})

    def _of_user(self, place: GitPlace, variables: Mapping[str, str]) -> list[tuple[str, str]]:
        """The settings that the user's own configuration decides; read again when that has changed."""
        files = (*place.files(), *list_user_config()) if self.trust else list_user_config()
        looks = (place.own, *variables.values(), *map(read_file_state, files))
        if looks not in self._known:
            words = ("config", "-z", "--show-scope", "--list")
            output = query_git(*words, folder=place.own, git_dir=place.own, variables=variables) or b""
            if len(self._known) >= CACHE_MAX:
                self._known.clear()
            self._known[looks] = choose_user_settings(_parse_entries(output), trust=self.trust)
        return self._known[looks]

    def words(self, words: Sequence[str]) -> list[str]:
        """A command with the options that make it harmless."""
        option = REMOTE_PROGRAMS.get(words[0])
        return list(words) if option is None or self.trust else [words[0], option, *words[1:]]


def list_user_config() -> tuple[Path, ...]:
    """The files of the user's own configuration."""
    if said := os.environ.get("GIT_CONFIG_GLOBAL"):
        return (Path(said),)
    home = Path(os.environ.get("HOME", "/"))
    return home / ".gitconfig", Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config", "git", "config")


def _find_common_dir(git_dir: Path) -> Path:
    """The git directory that all worktrees of the repository share."""
    return git_dir / read_text(git_dir / "commondir").strip()


def choose_user_settings(entries: Iterable[tuple[str, str, str]], *, trust: bool = False) -> list[tuple[str, str]]:
    """Protocols and ssh command to reach another repository: the user's, or agentq's."""
    own = {
        key: value
        for scope, key, value in entries
        if (trust or _is_user_scope(scope)) and _USER_SETTING.fullmatch(key) and "=" not in key
    }
    settings = {**PROTOCOL_SETTINGS, **own, "protocol.ext.allow": "never"}
    return [*settings.items(), *([("core.sshCommand", SSH_COMMAND)] if "core.sshcommand" not in own else [])]


def _build_options(place: GitPlace | None) -> tuple[str, ...]:
    if place is None:
        return ()
    return (f"--git-dir={place.own}", *([f"--work-tree={place.top}"] if place.top else []))


def _as_options(settings: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(word for pair in settings for word in ("-c", "=".join(pair)))


def build_command_environment(inherited: Mapping[str, str], *, remote: bool, trust: bool = False) -> dict[str, str]:
    """The environment of a command."""
    kept = {name: value for name, value in inherited.items() if name in KEPT_VARIABLES}
    if remote:
        passed = {name: each for name, each in inherited.items() if not name.startswith(("GIT_", "AGENTQ_", "SSH_ASK"))}
    else:
        passed = {name: value for name, value in inherited.items() if name in LOCAL_VARIABLES}
    return {**passed, **kept, **GIT_ENVIRONMENT, **({} if trust else NO_LAZY_FETCH)}


def _is_user_scope(scope: str) -> bool:
    return scope not in ("local", "worktree")


def _parse_entries(listed: bytes) -> Iterable[tuple[str, str, str]]:
    """Scope, key and value of each setting."""
    words = os.fsdecode(listed).split("\0")
    for scope, entry in zip(words[::2], words[1::2], strict=False):
        key, _, value = entry.partition("\n")
        yield scope, key, value
