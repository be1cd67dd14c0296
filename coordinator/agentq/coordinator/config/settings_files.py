"""The settings files, and which settings each file may contain.

1. The system's file, the user's file and a file that was named (`--config`, `AGENTQ_CONFIG`) may set everything.
2. The nearest `agentq.toml`, in the current folder or one above it, may have come with a repository or an archive. So
   it may set only what does no harm (`settings.NEARBY`), and it counts only if no other user can have written it. A
   file that was named is read in its place.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentq.coordinator.errors import Invalid

FILE_NAME = "agentq.toml"
SYSTEM_FILE = Path("/etc/agentq", FILE_NAME)
CONFIG_VARIABLE = "AGENTQ_CONFIG"
"""The variable that names a settings file."""
ROOT_UID = 0


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A file that exists."""

    path: Path
    nearby: bool = False
    """Whether it was found in the current folder or above, so that it may set only what does no harm."""
    fault: str = ""
    """Why nothing in it counts, if so."""


@dataclass(frozen=True, slots=True)
class IgnoredSetting:
    """A setting of a file that does not count."""

    name: str
    """As in `agentq config`; `agents` for all profiles; empty for the whole file."""
    source: str
    why: str


def user_settings_file(environment: Mapping[str, str]) -> Path:
    """The user's own file, whether it exists or not."""
    own = environment.get("XDG_CONFIG_HOME", "")
    base = Path(own) if own.startswith("/") else Path(environment.get("HOME", "/"), ".config")
    return base / "agentq" / "config.toml"


def find_settings_files(environment: Mapping[str, str], folder: Path) -> Iterator[SettingsFile]:
    """The files that exist, the one that counts least first."""
    if SYSTEM_FILE.is_file():
        yield SettingsFile(SYSTEM_FILE, fault=_find_untrusted_writer(SYSTEM_FILE, {ROOT_UID, os.geteuid()}))
    if (own := user_settings_file(environment)).is_file():
        yield SettingsFile(own)
    if named := environment.get(CONFIG_VARIABLE):
        yield SettingsFile(_resolve_named_file(named))
    else:
        yield from _find_nearby_files(folder)


def _resolve_named_file(text: str) -> Path:
    path = Path(text).expanduser().absolute()
    if not path.is_file():
        raise Invalid(f"There is no settings file {text[:200]!r}, which --config or {CONFIG_VARIABLE} names.")
    return path


def _find_nearby_files(folder: Path) -> Iterator[SettingsFile]:
    """The nearest file that counts, and those before it that do not."""
    for path in (above / FILE_NAME for above in (folder, *folder.parents)):
        if path != SYSTEM_FILE and path.is_file():
            found = SettingsFile(path, nearby=True, fault=_find_untrusted_writer(path, {os.geteuid()}))
            yield found
            if not found.fault:
                return


def _find_untrusted_writer(path: Path, owners: set[int]) -> str:
    """How another user can have written a file, or put another in its place; empty if none can."""
    real = path.resolve()
    for each in (path, real):
        found = each.lstat()
        if found.st_uid not in owners:
            return f"it belongs to {_user_name(found.st_uid)}"
        if not stat.S_ISLNK(found.st_mode) and _is_writable_by_others(found):
            return "other users may write to it"
    for each in (path.parent, real.parent):
        found = each.stat()
        if found.st_uid not in {ROOT_UID, *owners}:
            return f"its folder belongs to {_user_name(found.st_uid)}"
        if _is_writable_by_others(found) and not found.st_mode & stat.S_ISVTX:
            return "other users may write to its folder"
    return ""


def _is_writable_by_others(found: os.stat_result) -> bool:
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_private_group(found.st_gid, found.st_uid)


def _is_private_group(group: int, user: int) -> bool:
    """Whether a group is its user's alone, as many systems make one for each."""
    try:
        of_group, name = grp.getgrgid(group), pwd.getpwuid(user).pw_name
    except KeyError:
        return False
    return of_group.gr_name == name and set(of_group.gr_mem) <= {name}


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"the user {number}"
