"""Runs git in an untrusted repository: none of its configuration is read, none of its hooks are found.

Git takes its configuration from `GIT_COMMON_DIR`. A directory of our own stands there: links lead from it to the
repository's objects, branches and worktrees, and its `config` holds the repository's settings that `ALLOWED_SETTINGS`
names. These say what the files are, where remotes are, and who commits. What is not named there is not read: programs,
files, proxies, includes. A change of the repository's configuration while git runs has no effect.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import Refused
from agentq.coordinator.storage.embedded import data_folder

ALLOWED_SETTINGS = re.compile(
    "|".join(
        (
            r"core\.(repositoryformatversion|bare|filemode|ignorecase|symlinks|precomposeunicode|logallrefupdates)",
            r"core\.(autocrlf|eol|safecrlf|sharedrepository|trustctime|checkstat|sparsecheckout|sparsecheckoutcone)",
            r"extensions\.(objectformat|compatobjectformat|refstorage|partialclone|preciousobjects|noop)",
            r"(user|author|committer)\.(name|email)",
            r"user\.signingkey|gpg\.format|i18n\.commitencoding",
            r"remote\..*\.(url|pushurl|fetch|tagopt|prune|promisor|partialclonefilter)",
            r"branch\..*\.(remote|merge)",
            r"url\..*\.(insteadof|pushinsteadof)",
            r"http\.(.*\.)?(extraheader|postbuffer|version|lowspeedlimit|lowspeedtime)",
            r"merge\.(conflictstyle|renames|renamelimit|directoryrenames|renormalize)",
            r"diff\.(algorithm|renames|renamelimit)",
            r"submodule\.(active|.*\.(url|active|branch))",
            r"lfs\.(url|pushurl|fetchinclude|fetchexclude|repositoryformatversion)",
        )
    ),
    re.DOTALL,
)
"""What a repository may say, as git lists it."""
LINKED_PATHS = ("objects", "refs", "packed-refs", "reftable", "logs", "info", "worktrees", "shallow", "HEAD", "lfs")
"""What git shares between the worktrees of a repository, but for its configuration and hooks."""
PASSED_VARIABLES = (
    *("PATH", "HOME", "XDG_CONFIG_HOME", "LD_LIBRARY_PATH", "TMPDIR"),
    *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH"),
)
"""What git needs to read a configuration."""
OBJECTS_AS_THEY_ARE = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": os.devnull}
"""A commit is what its name says, not what a repository puts in its place."""
CACHE_MAX = 1_000
CONFIG_BYTES_MAX = 4 << 20
QUERY_TIMEOUT_S = 60
UNUSED_MS_MAX = 30 * 86_400_000

FileState = tuple[int, int, int, int]
"""Of a file: enough to see that it has not changed; when its content was changed last, nobody can make up."""


@dataclass(frozen=True, slots=True)
class GitPlace:
    """Where a repository is."""

    own: Path
    """The git directory of the worktree."""
    common: Path
    """The git directory that all worktrees of the repository share."""
    top: Path | None
    """The working tree; None within a git directory."""
    is_bare: bool = False

    def files(self) -> tuple[Path, ...]:
        """Where its configuration is."""
        return self.common / "config", self.own / "config.worktree"


@dataclass(slots=True)
class OwnGitDirectories:
    """The directories of ours, as they were made for repositories."""

    _places: dict[Path, tuple[object, GitPlace]] = field(default_factory=dict)
    _made: dict[object, tuple[Path, FileState | None]] = field(default_factory=dict)

    def locate(self, folder: Path, git_dir: Path | None = None) -> GitPlace | None:
        """The repository that a folder is in, or of a git directory that is said, whoever owns it; None where git finds
        none that it may use.
        """
        looks = git_dir, _link_state(folder / ".git")
        known = self._places.get(folder)
        if known is not None and known[0] == looks and (known[1].own / "HEAD").exists():
            return known[1]
        words = ("rev-parse", "--is-bare-repository", "--absolute-git-dir", "--git-common-dir")
        told = query_git(*words, folder=folder, git_dir=git_dir)
        if told is None:
            return None
        bare, *paths = os.fsdecode(told).split("\n")
        own, common = (Path(os.path.normpath(folder / path)) for path in paths[:2])
        place = GitPlace(own, common, _find_top(folder, own), bare == "true")
        _make_room(self._places)
        self._places[folder] = looks, place
        return place

    def directory(self, place: GitPlace, *, apart: bool = False, sparse: bool = False) -> Path:
        """The one for a repository, with its settings as they are now. One that is apart is of this worktree alone, for
        a command that writes settings; a sparse one has settings of its own in the worktree.
        """
        looks = (place.own, sparse, tuple(map(read_file_state, place.files())))
        known = self._made.get(looks)
        if known is not None and not apart and known[1] == read_file_state(known[0] / "config"):
            return known[0]
        settings = list(_list_allowed(place))
        text = format_settings([*settings, ("extensions.worktreeConfig", "true")] if sparse else settings)
        own_directory = _make_directory(place.common, text, f"{place.own}\n" if apart else "")
        if not apart:
            _make_room(self._made)
            self._made[looks] = own_directory, read_file_state(own_directory / "config")
        return own_directory


def _list_allowed(place: GitPlace) -> Iterator[tuple[str, str | None]]:
    for file in place.files():
        for key, value in read_settings(file):
            shared = file == place.common / "config"
            if ALLOWED_SETTINGS.fullmatch(key) and (shared or key.startswith("core.sparse")):
                yield key, value


def build_variables(place: GitPlace, directory: Path) -> dict[str, str]:
    """By which git takes our directory."""
    implicit = {"GIT_IMPLICIT_WORK_TREE": "0"} if place.is_bare and place.top is None else {}
    return {"GIT_COMMON_DIR": str(directory), **implicit, **OBJECTS_AS_THEY_ARE}


def is_passive(words: Sequence[str]) -> bool:
    """Whether a command runs nothing, and is about a file that is named or writes the repository's own settings."""
    reads = any(word.startswith("--get") for word in words) and "--file" not in words
    return words[0] in ("init", "version") or (words[0] == "config" and not reads)


def find_real_checkout(told: Path) -> Path:
    """A checkout that git tells of: the repository's own bears the name of our directory."""
    if told.parent != _get_folder():
        return told
    common = Path(os.readlink(told / "objects")).parent
    return common.parent if common.name == ".git" else common


def read_settings(file: Path) -> list[tuple[str, str | None]]:
    """All that a file of configuration sets, in order; a key without a value has None. What it includes is not read."""
    try:
        content = _read_plain_file(file)
    except FileNotFoundError:
        return []
    except OSError:
        content = None
    words = ("config", "-z", "--no-includes", "--file", "-", "--list")
    listed = None if content is None else query_git(*words, git_dir=Path(os.devnull), given=content)
    if listed is None:
        raise Refused(f"The configuration {file} of the repository cannot be read; fix it.")
    entries = (entry.partition("\n") for entry in os.fsdecode(listed).split("\0") if entry)
    return [(key, value if mark else None) for key, mark, value in entries]


def _read_plain_file(file: Path) -> bytes | None:
    """Without waiting for a pipe; None if it is no plain file, or too long."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        content = opened.read(CONFIG_BYTES_MAX + 1)
    return content if len(content) <= CONFIG_BYTES_MAX else None


def format_settings(settings: Iterable[tuple[str, str | None]]) -> str:
    """The text of a file of configuration."""
    lines = []
    for key, value in settings:
        section, _, rest = key.partition(".")
        middle, mark, name = rest.rpartition(".")
        lines.append(f"[{section} {_quote(middle)}]" if mark else f"[{section}]")
        lines.append(f"\t{name}" if value is None else f"\t{name} = {_quote(value)}")
    return "".join(f"{line}\n" for line in lines)


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def query_git(
    *words: str,
    folder: Path | None = None,
    git_dir: Path | None = None,
    variables: Mapping[str, str] | None = None,
    given: bytes = b"",
) -> bytes | None:
    """What git prints of a question that runs nothing; None where it says no."""
    environment = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
    place = [f"--git-dir={git_dir}"] if git_dir else []
    try:
        done = subprocess.run(
            ["git", *place, *words],
            cwd=folder or "/",
            env={**environment, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", **(variables or {})},
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=QUERY_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise Refused(f"The configuration of {git_dir or folder} cannot be read: git did not end in time.") from None
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def read_file_state(file: Path) -> FileState | None:
    """How a file looks; None if there is none."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _link_state(path: Path) -> object:
    """Of a folder only which it is: what is in it changes all the time."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return (status.st_ino, status.st_mode, status.st_mtime_ns if path.is_file() else 0)


def _find_top(folder: Path, own: Path) -> Path | None:
    """The working tree around a folder, whatever its configuration says."""
    folder = folder.resolve()
    if folder.is_relative_to(own.resolve()):
        return None
    return next((each for each in (folder, *folder.parents) if os.path.lexists(each / ".git")), None)


def _get_folder() -> Path:
    return data_folder() / "git"


def _make_directory(common: Path, text: str, apart: str) -> Path:
    """One with these settings: the same for all who need the same."""
    folder = _get_folder()
    digest = hashlib.blake2b(os.fsencode(f"{common}\n{apart}\n{text}"), digest_size=16).hexdigest()
    own_directory = folder / digest
    if _is_whole(own_directory, common, text):
        os.utime(own_directory)
        return own_directory
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_unused(folder)
    new = Path(tempfile.mkdtemp(prefix="new-", dir=folder))
    try:
        (new / "config").write_bytes(os.fsencode(text))
        for name in LINKED_PATHS:
            (new / name).symlink_to(common / name)
        _put_in_place(new, own_directory)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return own_directory


def _put_in_place(new: Path, own_directory: Path) -> None:
    """The whole directory, or of one that is there the files that differ."""
    with suppress(OSError):
        new.rename(own_directory)
        return
    for name in (*LINKED_PATHS, "config"):
        (new / name).replace(own_directory / name)


def _is_whole(own_directory: Path, common: Path, text: str) -> bool:
    try:
        return (own_directory / "config").read_bytes() == os.fsencode(text) and all(
            os.readlink(own_directory / name) == str(common / name) for name in LINKED_PATHS
        )
    except OSError:
        return False


def _remove_unused(folder: Path) -> None:
    """Those of settings that no repository has any more."""
    before_s = (wall_ms() - UNUSED_MS_MAX) / 1000
    for each in folder.iterdir():
        with suppress(OSError):
            if each.lstat().st_mtime < before_s:
                shutil.rmtree(each, ignore_errors=True)


def _make_room(cache: dict[Any, Any]) -> None:
    if len(cache) >= CACHE_MAX:
        cache.clear()
