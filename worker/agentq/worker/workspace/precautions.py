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
from agentq.worker.workspace.metadata import text_of

SETTINGS = {
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
PROTOCOLS = {
    "protocol.allow": "never",
    "protocol.ext.allow": "never",
    **{f"protocol.{name}.allow": "always" for name in ("https", "http", "ssh", "git")},
    "protocol.file.allow": "user",
}
"""By which git may reach another repository; what the worker's user has said of these counts more, but of `ext`."""
TRUSTED = ("core.hooksPath",)
"""What is left alone in a repository that is trusted."""
SIGNING = ("commit.gpgSign",)
SSH = "ssh -oBatchMode=yes"
"""Asks nothing."""
ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": ":",
    "GIT_SEQUENCE_EDITOR": ":",
    "GIT_PROXY_COMMAND": "",
    "LC_ALL": "C",
}
NOTHING_BY_ITSELF = {"GIT_NO_LAZY_FETCH": "1"}
"""Git 2.39.4 and newer fetch nothing that a partial clone lacks."""
KEPT = (
    *("GIT_SSH_COMMAND", "GIT_SSH", "GIT_ASKPASS", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_LFS_SKIP_SMUDGE"),
    *("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"),
    *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH"),
)
"""What the worker's user may have set for git; no other variable of git's goes on."""
NEAR = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"),
        *("GNUPGHOME", "GPG_TTY", "SSH_AUTH_SOCK", "LD_LIBRARY_PATH"),
    )
)
"""What goes on to a command that stays on this machine. One that speaks with another gets all but what is agentq's."""

_MERGE = "git merge-file --marker-size=%L %A %O %B"
_NOT_NEEDED = "true"
HARMLESS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), value)
    for pattern, value in (
        (r"filter\..*\.(clean|smudge|process)", ""),
        (r"filter\..*\.required", "false"),
        (r"merge\..*\.driver", _MERGE),
        (r"diff\..*\.textconv", "cat"),
        (r"diff\.(external|.*\.command)", _NOT_NEEDED),
        (r"core\.(askpass|alternaterefscommand|editor)", _NOT_NEEDED),
        (r"core\.sshcommand", SSH),
        (r"sequence\.editor", _NOT_NEEDED),
        (r"gpg\.(.*\.)?(program|defaultkeycommand)", _NOT_NEEDED),
        (r"credential\.(.*\.)?helper", ""),
        (r"remote\..*\.vcs", "none"),
        (r"trailer\..*\.(command|cmd)", _NOT_NEEDED),
        (r"submodule\..*\.update", "checkout"),
        (r"hook\..*\.command", _NOT_NEEDED),
        (r"protocol\..*\.allow", "never"),
        (r"lfs\.customtransfer\..*\.path", _NOT_NEEDED),
        (r"lfs\.extension\..*\.(clean|smudge)", "cat"),
    )
)
"""Settings that name a program, and what stands in place of those that are a repository's; see also `SETTINGS`."""
AT_THE_OTHER_END = {
    **dict.fromkeys(("fetch", "ls-remote"), "--upload-pack=git-upload-pack"),
    "push": "--receive-pack=git-receive-pack",
}
"""What the other end of a connection runs. Of these settings the first counts, so only an option overrides them."""
ON_THIS_MACHINE = (
    "--receive-pack=git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.alternateRefsCommand=true "
    "-c receive.denyCurrentBranch=refuse -c receive.autogc=false receive-pack"
)
"""For a push to a path: that repository's configuration names programs, too, and no setting given here reaches it."""
_PROGRAM_THERE = re.compile(r"remote\..*\.uploadpack", re.DOTALL)
_PROMISED = re.compile(r"extensions\.partialclone|remote\..*\.promisor", re.DOTALL)
"""Git fetches what is missing by itself there, and gives that fetch no option."""
_HELPER = re.compile(r"credential\.(.*\.)?helper", re.IGNORECASE | re.DOTALL)
"""Of these there may be several, all of which count."""
_INCLUDES = ("include.", "includeif.")

REMEMBERED = 1_000
ASKED_S = 60

Look = tuple[int, int, int, int]
"""Of a file: enough to see that it has not changed; when its content was changed last, nobody can make up."""


@dataclass(slots=True)
class Precautions:
    """What is set for each command, for one repository or for several."""

    trust: bool = False
    """Whether the repository's hooks and programs may run."""
    sign: bool = False
    _known: dict[tuple[tuple[Path, Look], ...], list[tuple[str, str]]] = field(default_factory=dict)
    _folders: dict[Path, tuple[Path, ...]] = field(default_factory=dict)

    def settings(self, folder: Path, git_dir: Path | None) -> list[tuple[str, str]]:
        """For a command in a folder, in order: of one name the last counts."""
        settings = [
            (key, value) for key, value in (SETTINGS | PROTOCOLS).items() if not (self.trust and key in TRUSTED)
        ]
        if self.sign:
            settings += [(key, "true") for key in SIGNING]
        return settings + self._of_repository(folder, git_dir)

    def words(self, words: Sequence[str]) -> list[str]:
        """A command with the options that it needs to be harmless."""
        option = AT_THE_OTHER_END.get(words[0])
        return list(words) if option is None or self.trust else [words[0], option, *words[1:]]

    def _of_repository(self, folder: Path, git_dir: Path | None) -> list[tuple[str, str]]:
        """What its configuration makes necessary; looked at again when that has changed."""
        own = _looks(self._files(folder, git_dir))
        looks = (*own, *_looks(of_user()))
        if own and looks in self._known:
            return self._known[looks]
        listed = _ask(folder, git_dir, "config", "-z", "--show-scope", "--list")
        if listed is None:
            return []  # no repository, or a broken one: git itself will say so
        entries = list(_entries(listed))
        settings = overriding(entries, trust=self.trust)
        if own and not any(name.startswith(_INCLUDES) for scope, name, _ in entries if not _own(scope)):
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[looks] = settings
        return settings

    def _files(self, folder: Path, git_dir: Path | None) -> tuple[Path, ...]:
        """Where the configuration of a repository stands; nothing where there is none."""
        if git_dir is not None:
            return _configuration(git_dir, _common_of(git_dir))
        if folder not in self._folders:
            told = _ask(folder, git_dir, "rev-parse", "--absolute-git-dir", "--git-common-dir")
            if told is None:
                return ()
            if len(self._folders) >= REMEMBERED:
                self._folders.clear()
            own, common = (folder / os.fsdecode(line) for line in told.splitlines()[:2])
            self._folders[folder] = _configuration(own, common)
        return self._folders[folder]


def of_user() -> tuple[Path, ...]:
    """Where the user's own configuration stands."""
    if said := os.environ.get("GIT_CONFIG_GLOBAL"):
        return (Path(said),)
    home = Path(os.environ.get("HOME", "/"))
    return home / ".gitconfig", Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config", "git", "config")


def _configuration(git_dir: Path, common: Path) -> tuple[Path, ...]:
    common = Path(os.path.normpath(common))
    return common / "config", common / "config.worktree", git_dir / "config.worktree"


def _common_of(git_dir: Path) -> Path:
    """The git directory that a worktree's has in common with the others of its repository."""
    return git_dir / text_of(git_dir / "commondir").strip()


def overriding(entries: Iterable[tuple[str, str, str]], *, trust: bool = False) -> list[tuple[str, str]]:
    """What overrides the programs that a repository's settings name; raises `Refused` where that cannot be done."""
    own: dict[str, str] = {}
    helpers: list[tuple[str, str]] = []
    foreign: dict[str, str] = {}
    fetched_by_itself: list[str] = []
    for scope, key, value in entries:
        if trust or _own(scope):
            own[key] = value
            helpers += [(key, value)] if _HELPER.fullmatch(key) else []
        elif (harmless := _harmless(key)) is not None:
            foreign[key] = harmless
        elif _PROGRAM_THERE.fullmatch(key) or _PROMISED.fullmatch(key):
            fetched_by_itself.append(key)
    program = next(filter(_PROGRAM_THERE.fullmatch, fetched_by_itself), None)
    if program is not None and any(map(_PROMISED.fullmatch, fetched_by_itself)):
        raise Refused(
            f"The repository is a partial clone and has the setting {program[:80]!r}, which cannot be made harmless; "
            "remove that."
        )
    for key in foreign:
        if "=" in key:
            raise Refused(f"The repository has the setting {key[:80]!r}, which cannot be made harmless; remove it.")
    settings = [(key, own.get(key, harmless)) for key, harmless in foreign.items() if not _HELPER.fullmatch(key)]
    if any(_HELPER.fullmatch(key) for key in foreign):
        settings += [("credential.helper", ""), *helpers]  # a blank one ends the list, and it begins again
    settings += [(key, own.get(key, value)) for key, value in PROTOCOLS.items() if key != "protocol.ext.allow"]
    return settings if "core.sshcommand" in own else [*settings, ("core.sshCommand", SSH)]


def _harmless(key: str) -> str | None:
    """What stands in place of a repository's setting; None where that may stay."""
    return next((harmless for pattern, harmless in HARMLESS if pattern.fullmatch(key)), None)


def surrounding(inherited: Mapping[str, str], *, far: bool, trust: bool = False) -> dict[str, str]:
    """The variables of a command."""
    kept = {name: value for name, value in inherited.items() if name in KEPT}
    if far:
        passed = {name: each for name, each in inherited.items() if not name.startswith(("GIT_", "AGENTQ_", "SSH_ASK"))}
    else:
        passed = {name: value for name, value in inherited.items() if name in NEAR}
    return {**passed, **kept, **ENVIRONMENT, **({} if trust else NOTHING_BY_ITSELF)}


def _own(scope: str) -> bool:
    return scope not in ("local", "worktree")


def _entries(listed: bytes) -> Iterable[tuple[str, str, str]]:
    """Scope, key and value of each setting."""
    words = os.fsdecode(listed).split("\0")
    for scope, entry in zip(words[::2], words[1::2], strict=False):
        key, _, value = entry.partition("\n")
        yield scope, key, value


def _ask(folder: Path, git_dir: Path | None, *words: str) -> bytes | None:
    """What runs nothing and needs no precautions."""
    place = [f"--git-dir={git_dir}"] if git_dir else []
    try:
        done = subprocess.run(
            ["git", *place, *words],
            cwd=folder,
            env=surrounding(os.environ, far=False),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=ASKED_S,
        )
    except subprocess.TimeoutExpired:
        raise Refused(f"The configuration of {git_dir or folder} cannot be read: git did not end in time.") from None
    return done.stdout if done.returncode == 0 else None


def _looks(files: Iterable[Path]) -> tuple[tuple[Path, Look], ...]:
    """Of those that there are."""
    return tuple((file, look) for file in files if (look := look_at(file)) is not None)


def look_at(file: Path) -> Look | None:
    """How a file looks; None if there is none."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
