"""Where an agent keeps a conversation, and how it travels to another host: as one file, packed with its place.

A place is what a profile's `transcript` says: a glob, of which the part before the first star is fixed, and may well
lead through links that somebody has made of their home. Below that part nothing is followed: neither when a file is
packed nor when it is put down, whatever a run has left there.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import translate
from glob import escape, glob
from pathlib import Path

from agentq.coordinator.errors import Invalid
from agentq.coordinator.identity import new_nonce
from agentq.worker.agents import filling
from agentq.worker.agents.profile import Profile

VERSION = 1
PACKED_BYTES = 64 << 20
"""A longer conversation stays where it is."""
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@+-]{0,199}")
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class Place:
    """Where the conversation of a session lies, for an agent with these variables."""

    fixed: Path
    parts: tuple[str, ...]
    """Patterns of the folders below `fixed`, and of the file."""

    @classmethod
    def of(cls, profile: Profile, variables: Mapping[str, str], session: str) -> Place | None:
        """None for an agent whose conversations stay where they are, or for what is no session's name."""
        if profile.transcript is None or not _SESSION.fullmatch(session):
            return None
        parts = profile.transcript.split("/")
        first = next(index for index, part in enumerate(parts) if re.search(r"[*?]|\{session\}", part))
        rest = tuple(part.replace("{session}", escape(session)) for part in parts[first:])
        return cls(Path(filling.text("/".join(parts[:first]), variables)), rest)

    def files(self) -> list[Path]:
        """Those that there are, the newest first: an agent that went on elsewhere has begun another file."""
        found = []
        for text in glob(str(Path(escape(str(self.fixed)), *self.parts)), include_hidden=True):
            with suppress(OSError):
                found.append((os.lstat(text).st_mtime_ns, Path(text)))
        return [path for _, path in sorted(found, reverse=True)]

    def holds(self, parts: tuple[str, ...]) -> bool:
        """Whether a file that is called so, from `fixed` on, is of this session."""
        return len(parts) == len(self.parts) and all(
            name not in ("", ".", "..") and "/" not in name and "\0" not in name and re.match(translate(pattern), name)
            for name, pattern in zip(parts, self.parts, strict=True)
        )


def transcripts(profile: Profile, variables: Mapping[str, str], session: str) -> list[Path]:
    """The files of a conversation on this host, the newest first."""
    place = Place.of(profile, variables, session)
    return [] if place is None else place.files()


def packed(profile: Profile, variables: Mapping[str, str], session: str) -> bytes | None:
    """The newest file of a conversation with its place, in bytes; None if there is none, or none that can travel."""
    place = Place.of(profile, variables, session)
    if place is None:
        return None
    for path in place.files():
        parts = path.relative_to(place.fixed).parts
        with suppress(OSError), _folder(place.fixed, parts[:-1], make=False) as folder:
            number = os.open(parts[-1], _PLAIN, dir_fd=folder)
            with os.fdopen(number, "rb") as file:
                about = os.fstat(number)
                if stat.S_ISREG(about.st_mode) and about.st_size <= PACKED_BYTES:
                    return json.dumps({"v": VERSION, "path": parts}).encode() + b"\n" + _whole(parts[-1], file.read())
    return None


def _whole(name: str, content: bytes) -> bytes:
    """Without the line that the agent is just writing."""
    return content[: content.rfind(b"\n") + 1] if name.endswith(".jsonl") else content


def restored(profile: Profile, variables: Mapping[str, str], session: str, body: bytes) -> Path:
    """Put a packed conversation where the agent looks for it, in the place of an older one; or say why it cannot be."""
    place = Place.of(profile, variables, session)
    if place is None:
        raise Invalid("The conversation cannot be put here: its agent keeps none that travels.")
    parts, content = _unpacked(body)
    if not place.holds(parts):
        raise Invalid(f"The conversation cannot be put here: {'/'.join(parts)[:200]!r} is not where its agent looks.")
    try:
        place.fixed.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _folder(place.fixed, parts[:-1], make=True) as folder:
            _write(folder, parts[-1], content)
    except OSError as error:
        raise Invalid(f"The conversation cannot be put here: {'/'.join(parts)}: {error.strerror}.") from error
    return place.fixed.joinpath(*parts)


def _unpacked(body: bytes) -> tuple[tuple[str, ...], bytes]:
    head, _, content = body.partition(b"\n")
    try:
        said = json.loads(head)
        parts = tuple(said["path"])
        known = said["v"] == VERSION and all(isinstance(part, str) for part in parts)
    except (ValueError, TypeError, KeyError):
        known = False
    if not known:
        raise Invalid("The conversation cannot be put here: it was packed by another version of agentq, or is broken.")
    return parts, content


@contextmanager
def _folder(fixed: Path, names: tuple[str, ...], *, make: bool) -> Iterator[int]:
    """The folder below a fixed one, reached step by step, through no link."""
    folder = os.open(fixed, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=folder)
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _write(folder: int, name: str, content: bytes) -> None:
    """All of it or nothing, in the place of what has this name."""
    draft = f".{new_nonce()}.agentq"
    number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft, dir_fd=folder)
        raise
