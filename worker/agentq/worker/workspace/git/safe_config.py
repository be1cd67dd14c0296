"""What git is not to do, whatever a repository says: run programs, ask questions, sign, or look after itself.

A repository's own configuration is not believed where it names a program: hooks, monitors, filters, drivers, helpers.
In its place stands what the user's own configuration says, or what does no harm. So LFS works where the user has set it
up for themselves, as `git lfs install` does; else its pointers stay pointers. With `trust`, the repository is believed.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentq.coordinator.errors import Refused
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
"""For every command."""
PROTOCOL_SETTINGS = {
    "protocol.allow": "never",
    "protocol.ext.allow": "never",
    **{f"protocol.{name}.allow": "always" for name in ("https", "http", "ssh", "git")},
    "protocol.file.allow": "user",
}
"""By which git may reach another repository; what the worker's user has said of these counts more, but of `ext`."""
TRUSTED_SETTINGS = ("core.hooksPath",)
"""What is left alone in a repository that is trusted."""
SIGNING_SETTINGS = ("commit.gpgSign",)
SSH_COMMAND = "ssh -oBatchMode=yes"
"""Asks nothing."""
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
"""Git 2.39.4 and newer fetch nothing that a partial clone lacks."""
KEPT_VARIABLES = (
    *("GIT_SSH_COMMAND", "GIT_SSH", "GIT_ASKPASS", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_LFS_SKIP_SMUDGE"),
    *("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"),
    *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH"),
)
"""What the worker's user may have set for git; no other variable of git's goes on."""
LOCAL_VARIABLES = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"),
        *("GNUPGHOME", "GPG_TTY", "SSH_AUTH_SOCK", "LD_LIBRARY_PATH"),
    )
)
"""What goes on to a command that stays on this machine. One that speaks with another gets all but what is agentq's."""

_MERGE_DRIVER = "git merge-file --marker-size=%L %A %O %B"
_NO_OP_COMMAND = "true"
HARMLESS_VALUES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), value)
    for pattern, value in (
        (r"filter\..*\.(clean|smudge|process)", ""),
        (r"filter\..*\.required", "false"),
        (r"merge\..*\.driver", _MERGE_DRIVER),
        (r"diff\..*\.textconv", "cat"),
        (r"diff\.(external|.*\.command)", _NO_OP_COMMAND),
        (r"core\.(askpass|alternaterefscommand|editor)", _NO_OP_COMMAND),
        (r"core\.sshcommand", SSH_COMMAND),
        (r"sequence\.editor", _NO_OP_COMMAND),
        (r"gpg\.(.*\.)?(program|defaultkeycommand)", _NO_OP_COMMAND),
        (r"credential\.(.*\.)?helper", ""),
        (r"remote\..*\.vcs", "none"),
        (r"trailer\..*\.(command|cmd)", _NO_OP_COMMAND),
        (r"submodule\..*\.update", "checkout"),
        (r"hook\..*\.command", _NO_OP_COMMAND),
        (r"protocol\..*\.allow", "never"),
        (r"lfs\.customtransfer\..*\.path", _NO_OP_COMMAND),
        (r"lfs\.extension\..*\.(clean|smudge)", "cat"),
    )
)
"""Settings that name a program, and what stands in place of those that are a repository's; see also `SETTINGS`."""
REMOTE_PROGRAMS = {
    **dict.fromkeys(("fetch", "ls-remote"), "--upload-pack=git-upload-pack"),
    "push": "--receive-pack=git-receive-pack",
}
"""What the other end of a connection runs. Of these settings the first counts, so only an option overrides them."""
LOCAL_RECEIVE_PACK = (
    "--receive-pack=git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.alternateRefsCommand=true "
    "-c receive.denyCurrentBranch=refuse -c receive.autogc=false receive-pack"
)
"""For a push to a path: that repository's configuration names programs, too, and no setting given here reaches it."""
_UPLOAD_PACK_KEY = re.compile(r"remote\..*\.uploadpack", re.DOTALL)
_PARTIAL_CLONE_KEY = re.compile(r"extensions\.partialclone|remote\..*\.promisor", re.DOTALL)
"""Git fetches what is missing by itself there, and gives that fetch no option."""
_CREDENTIAL_HELPER_KEY = re.compile(r"credential\.(.*\.)?helper", re.IGNORECASE | re.DOTALL)
"""Of these there may be several, all of which count."""
_INCLUDE_PREFIXES = ("include.", "includeif.")

CACHE_MAX = 1_000
CONFIG_TIMEOUT_S = 60

FileState = tuple[int, int, int, int]
"""Of a file: enough to see that it has not changed; when its content was changed last, nobody can make up."""


@dataclass(slots=True)
class SafeGitConfig:
    """What is set for each command, for one repository or for several."""

    trust: bool = False
    """Whether the repository's hooks and programs may run."""
    sign: bool = False
    _known: dict[tuple[tuple[Path, FileState], ...], list[tuple[str, str]]] = field(default_factory=dict)
    _folders: dict[Path, tuple[Path, ...]] = field(default_factory=dict)

    def settings(self, folder: Path, git_dir: Path | None) -> list[tuple[str, str]]:
        """For a command in a folder, in order: of one name the last counts."""
        settings = [
            (key, value)
            for key, value in (SAFE_SETTINGS | PROTOCOL_SETTINGS).items()
            if not (self.trust and key in TRUSTED_SETTINGS)
        ]
        if self.sign:
            settings += [(key, "true") for key in SIGNING_SETTINGS]
        return settings + self._of_repository(folder, git_dir)

    def words(self, words: Sequence[str]) -> list[str]:
        """A command with the options that it needs to be harmless."""
        option = REMOTE_PROGRAMS.get(words[0])
        return list(words) if option is None or self.trust else [words[0], option, *words[1:]]

    def _of_repository(self, folder: Path, git_dir: Path | None) -> list[tuple[str, str]]:
        """What its configuration makes necessary; looked at again when that has changed."""
        own = _read_file_states(self._files(folder, git_dir))
        looks = (*own, *_read_file_states(list_user_config()))
        if own and looks in self._known:
            return self._known[looks]
        listed = _query_git(folder, git_dir, "config", "-z", "--show-scope", "--list")
        if listed is None:
            return []  # no repository, or a broken one: git itself will say so
        entries = list(_parse_entries(listed))
        settings = override_programs(entries, trust=self.trust)
        if own and not any(
            name.startswith(_INCLUDE_PREFIXES) for scope, name, _ in entries if not _is_user_scope(scope)
        ):
            if len(self._known) >= CACHE_MAX:
                self._known.clear()
            self._known[looks] = settings
        return settings

    def _files(self, folder: Path, git_dir: Path | None) -> tuple[Path, ...]:
        """Where the configuration of a repository stands; nothing where there is none."""
        if git_dir is not None:
            return _list_config_files(git_dir, _find_common_dir(git_dir))
        if folder not in self._folders:
            told = _query_git(folder, git_dir, "rev-parse", "--absolute-git-dir", "--git-common-dir")
            if told is None:
                return ()
            if len(self._folders) >= CACHE_MAX:
                self._folders.clear()
            own, common = (folder / os.fsdecode(line) for line in told.splitlines()[:2])
            self._folders[folder] = _list_config_files(own, common)
        return self._folders[folder]


def list_user_config() -> tuple[Path, ...]:
    """Where the user's own configuration stands."""
    if said := os.environ.get("GIT_CONFIG_GLOBAL"):
        return (Path(said),)
    home = Path(os.environ.get("HOME", "/"))
    return home / ".gitconfig", Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config", "git", "config")


def _list_config_files(git_dir: Path, common: Path) -> tuple[Path, ...]:
    common = Path(os.path.normpath(common))
    return common / "config", common / "config.worktree", git_dir / "config.worktree"


def _find_common_dir(git_dir: Path) -> Path:
    """The git directory that a worktree's has in common with the others of its repository."""
    return git_dir / read_text(git_dir / "commondir").strip()


def override_programs(entries: Iterable[tuple[str, str, str]], *, trust: bool = False) -> list[tuple[str, str]]:
    """What overrides the programs that a repository's settings name; raises `Refused` where that cannot be done."""
    own: dict[str, str] = {}
    helpers: list[tuple[str, str]] = []
    foreign: dict[str, str] = {}
    fetched_by_itself: list[str] = []
    for scope, key, value in entries:
        if trust or _is_user_scope(scope):
            own[key] = value
            helpers += [(key, value)] if _CREDENTIAL_HELPER_KEY.fullmatch(key) else []
        elif (harmless := _find_harmless_value(key)) is not None:
            foreign[key] = harmless
        elif _UPLOAD_PACK_KEY.fullmatch(key) or _PARTIAL_CLONE_KEY.fullmatch(key):
            fetched_by_itself.append(key)
    program = next(filter(_UPLOAD_PACK_KEY.fullmatch, fetched_by_itself), None)
    if program is not None and any(map(_PARTIAL_CLONE_KEY.fullmatch, fetched_by_itself)):
        raise Refused(
            f"The repository is a partial clone and has the setting {program[:80]!r}, which cannot be made harmless; "
            "remove that."
        )
    for key in foreign:
        if "=" in key:
            raise Refused(f"The repository has the setting {key[:80]!r}, which cannot be made harmless; remove it.")
    settings = [
        (key, own.get(key, harmless)) for key, harmless in foreign.items() if not _CREDENTIAL_HELPER_KEY.fullmatch(key)
    ]
    if any(_CREDENTIAL_HELPER_KEY.fullmatch(key) for key in foreign):
        settings += [("credential.helper", ""), *helpers]  # a blank one ends the list, and it begins again
    settings += [(key, own.get(key, value)) for key, value in PROTOCOL_SETTINGS.items() if key != "protocol.ext.allow"]
    return settings if "core.sshcommand" in own else [*settings, ("core.sshCommand", SSH_COMMAND)]


def _find_harmless_value(key: str) -> str | None:
    """What stands in place of a repository's setting; None where that may stay."""
    return next((harmless for pattern, harmless in HARMLESS_VALUES if pattern.fullmatch(key)), None)


def build_command_environment(inherited: Mapping[str, str], *, far: bool, trust: bool = False) -> dict[str, str]:
    """The variables of a command."""
    kept = {name: value for name, value in inherited.items() if name in KEPT_VARIABLES}
    if far:
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


def _query_git(folder: Path, git_dir: Path | None, *words: str) -> bytes | None:
    """What runs nothing and needs no precautions."""
    place = [f"--git-dir={git_dir}"] if git_dir else []
    try:
        done = subprocess.run(
            ["git", *place, *words],
            cwd=folder,
            env=build_command_environment(os.environ, far=False),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=CONFIG_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise Refused(f"The configuration of {git_dir or folder} cannot be read: git did not end in time.") from None
    return done.stdout if done.returncode == 0 else None


def _read_file_states(files: Iterable[Path]) -> tuple[tuple[Path, FileState], ...]:
    """Of those that there are."""
    return tuple((file, look) for file in files if (look := read_file_state(file)) is not None)


def read_file_state(file: Path) -> FileState | None:
    """How a file looks; None if there is none."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
