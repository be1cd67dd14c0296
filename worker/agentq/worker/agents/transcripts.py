"""Where an agent stores a conversation, and how it moves to another host: as one file, packed with its path.

The path is a profile's `transcript`: a glob whose part before the first star is fixed, and may lead through links in
the home. Below that part no link is followed, neither on packing nor on restoring, because a run may have created them.
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
from agentq.coordinator.model.ids import new_nonce
from agentq.worker.agents.profiles import templates
from agentq.worker.agents.profiles.profile import Profile

PACKAGE_VERSION = 1
PACKAGE_BYTES_MAX = 64 << 20
"""A larger conversation stays on its host."""
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@+-]{0,199}")
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class TranscriptPath:
    """The path of a session's conversation, for an agent with these variables."""

    fixed: Path
    parts: tuple[str, ...]
    """Patterns of the folders below `fixed`, and of the file."""

    @classmethod
    def of(cls, profile: Profile, variables: Mapping[str, str], session: str) -> TranscriptPath | None:
        """None for an agent whose conversations do not move, or for an invalid session id."""
        if profile.transcript is None or not _SESSION_ID.fullmatch(session):
            return None
        parts = profile.transcript.split("/")
        first = next(index for index, part in enumerate(parts) if re.search(r"[*?]|\{session\}", part))
        rest = tuple(part.replace("{session}", escape(session)) for part in parts[first:])
        return cls(Path(templates.fill_text("/".join(parts[:first]), variables)), rest)

    def files(self) -> list[Path]:
        """The existing files, the newest first: an agent that continued elsewhere has begun another file."""
        found = []
        for text in glob(str(Path(escape(str(self.fixed)), *self.parts)), include_hidden=True):
            with suppress(OSError):
                found.append((os.lstat(text).st_mtime_ns, Path(text)))
        return [path for _, path in sorted(found, reverse=True)]

    def contains(self, parts: tuple[str, ...]) -> bool:
        """Whether a file with this path, below `fixed`, is of this session."""
        return len(parts) == len(self.parts) and all(
            name not in ("", ".", "..") and "/" not in name and "\0" not in name and re.match(translate(pattern), name)
            for name, pattern in zip(parts, self.parts, strict=True)
        )


def find_transcripts(profile: Profile, variables: Mapping[str, str], session: str) -> list[Path]:
    """The files of a conversation on this host, the newest first."""
    place = TranscriptPath.of(profile, variables, session)
    return [] if place is None else place.files()


def pack_transcript(profile: Profile, variables: Mapping[str, str], session: str) -> bytes | None:
    """The newest file of a conversation, packed with its path; None if there is none, or it is too large."""
    place = TranscriptPath.of(profile, variables, session)
    if place is None:
        return None
    for path in place.files():
        parts = path.relative_to(place.fixed).parts
        with suppress(OSError), _open_folder(place.fixed, parts[:-1], make=False) as folder:
            number = os.open(parts[-1], _OPEN_FLAGS, dir_fd=folder)
            with os.fdopen(number, "rb") as file:
                about = os.fstat(number)
                if stat.S_ISREG(about.st_mode) and about.st_size <= PACKAGE_BYTES_MAX:
                    return (
                        json.dumps({"v": PACKAGE_VERSION, "path": parts}).encode()
                        + b"\n"
                        + _drop_partial_line(parts[-1], file.read())
                    )
    return None


def _drop_partial_line(name: str, content: bytes) -> bytes:
    """The content without a line that the agent is just writing."""
    return content[: content.rfind(b"\n") + 1] if name.endswith(".jsonl") else content


def restore_transcript(profile: Profile, variables: Mapping[str, str], session: str, body: bytes) -> Path:
    """Write a packed conversation to where the agent looks for it, replacing an older one; raises `Invalid`."""
    place = TranscriptPath.of(profile, variables, session)
    if place is None:
        raise Invalid("The conversation cannot be put here: its agent keeps none that travels.")
    parts, content = _unpack_package(body)
    if not place.contains(parts):
        raise Invalid(f"The conversation cannot be put here: {'/'.join(parts)[:200]!r} is not where its agent looks.")
    try:
        place.fixed.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _open_folder(place.fixed, parts[:-1], make=True) as folder:
            _write_atomically(folder, parts[-1], content)
    except OSError as error:
        raise Invalid(f"The conversation cannot be put here: {'/'.join(parts)}: {error.strerror}.") from error
    return place.fixed.joinpath(*parts)


def _unpack_package(body: bytes) -> tuple[tuple[str, ...], bytes]:
    head, _, content = body.partition(b"\n")
    try:
        header = json.loads(head)
        parts = tuple(header["path"])
        known = header["v"] == PACKAGE_VERSION and all(isinstance(part, str) for part in parts)
    except (ValueError, TypeError, KeyError):
        known = False
    if not known:
        raise Invalid("The conversation cannot be put here: it was packed by another version of agentq, or is broken.")
    return parts, content


@contextmanager
def _open_folder(fixed: Path, names: tuple[str, ...], *, make: bool) -> Iterator[int]:
    """Open a folder below a fixed one, step by step, without following links."""
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


def _write_atomically(folder: int, name: str, content: bytes) -> None:
    """Write a file completely or not at all, replacing what has its name."""
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
