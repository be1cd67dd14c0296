"""What a program can tell its worker beside its output: a result, progress, or that it wants to wait. Its tasks:

1. Give each attempt a folder with a fifo, and the program both paths in its environment.
2. Read progress without polling: any program that can write a line can report progress.
3. Read the result once the processes have ended, and say in one sentence if it is unusable.
4. Give a resumed program what it waited for, in a file.

The program may write anything, anywhere in that folder, at any speed: input is bounded, and invalid lines are noted in
the log a few times, then ignored.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic_core import from_json, to_json

from agentq.coordinator.bounds import ERROR_CHARACTERS, PROGRESS_BYTES, RESULT_BYTES
from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.runs.wait import Resumption, RunWait
from agentq.worker.output.sanitizer import sanitize_text
from agentq.worker.run_api.park_request import PARK_FIELD, parse_park_request

READ_BYTES = 64 << 10
LINES_A_READ = 100
"""Of a flood of progress only the newest lines are parsed."""
NOTES_MAX = 5
SHOWN_CHARACTERS = 80
SPARE_CHANNELS_MAX = 64

_PROGRESS_NUMBER = re.compile(r"(\d{1,9}(?:\.\d{0,20})?|\.\d{1,20})\s*(%?)")

ProgressFields = dict[str, object]
ProgressAmount = Annotated[int | float, Field(ge=0, le=1e15)]


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """What the program left as its result; `error` says why it is unusable. Or what it wants to wait for."""

    value: JsonValue = None
    error: str | None = None
    wait: RunWait | None = None


class ResultChannels:
    """The channel folders of a worker's attempts.

    An unused folder is reassigned to the next attempt: most programs never touch theirs, and creating and removing one
    costs a fifth of a short run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._spare: list[ResultChannel] = []

    def open(self, claim: Claim) -> ResultChannel:
        """A channel for an attempt."""
        while self._spare:
            channel = self._spare.pop()
            if channel.reassign(claim):
                return channel
            channel.close()
        return ResultChannel.open(self._folder, claim)

    def release(self, channel: ResultChannel) -> None:
        """An attempt has ended: keep its channel for another, or remove it."""
        if len(self._spare) < SPARE_CHANNELS_MAX and channel.stop_and_check_unused():
            self._spare.append(channel)
        else:
            channel.close()

    def close(self) -> None:
        """Remove all spare channels."""
        while self._spare:
            self._spare.pop().close()


class ResultChannel:
    """The folder of one attempt, and its fifo. Lives on the worker's event loop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._fifo: int | None = None
        self._listening = False
        self._used = False
        self._resumes = False
        self._on_progress: Callable[[ProgressFields], None] = lambda _: None
        self._note: Callable[[str], None] = lambda _: None
        self._line = b""
        self._skips_line = False
        self._notes = 0

    @classmethod
    def open(cls, folder: Path, claim: Claim) -> ResultChannel:
        """Create the folder of an attempt; only this user can read it."""
        channel = cls(folder / f"{claim.id}-{claim.fence}")
        channel.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        channel.folder.mkdir(mode=0o700)
        os.mkfifo(channel._progress_path, 0o600)
        # Open for writing as well: so there is always a reader and a writer, and neither the program's open nor our
        # read ever blocks.
        channel._fifo = os.open(channel._progress_path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        return channel

    def reassign(self, claim: Claim) -> bool:
        """Rename the folder for another attempt; false if it has been removed."""
        try:
            self.folder = self.folder.rename(self.folder.with_name(f"{claim.id}-{claim.fence}"))
        except OSError:
            return False
        return True

    def stop_and_check_unused(self) -> bool:
        """Stop reading; returns whether the folder was never used."""
        self._stop_listening()
        if self._fifo is None or self._used:
            return False
        try:
            with os.scandir(self.folder) as entries:
                return [entry.inode() for entry in entries] == [os.fstat(self._fifo).st_ino]
        except OSError:
            return False

    def variables(self) -> dict[str, str]:
        """The variables for the program."""
        resume = {"AGENTQ_RESUME": str(self._resume_path)} if self._resumes else {}
        return {"AGENTQ_RESULT": str(self._result_path), "AGENTQ_PROGRESS": str(self._progress_path), **resume}

    def resume(self, resumption: Resumption) -> None:
        """Write what the program waited for, before it starts."""
        with open(os.open(self._resume_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(resumption.to_json())
        self._resumes = True

    def listen(self, on_progress: Callable[[ProgressFields], None], note: Callable[[str], None]) -> None:
        """Read progress from now on: `on_progress` gets valid progress, `note` a sentence about invalid lines."""
        assert self._fifo is not None
        self._on_progress, self._note = on_progress, note
        self._listening = True
        asyncio.get_running_loop().add_reader(self._fifo, self._read)

    def result(self) -> ProgramResult:
        """After the processes have ended: read the last progress and the result."""
        while self._listening and self._read():
            pass
        if self._line and not self._skips_line:
            self._handle_lines([self._line])
            self._line = b""
        try:
            text = _read_file(self._result_path, RESULT_BYTES)
            value = None if text is None else _parse_json(text)
        except ValueError as error:
            return ProgramResult(error=f"The program left no valid result in $AGENTQ_RESULT: {error}.")
        if not isinstance(value, dict) or value.keys() != {PARK_FIELD}:
            return ProgramResult(value)
        try:
            return ProgramResult(wait=parse_park_request(value[PARK_FIELD]))
        except Invalid as invalid:
            return ProgramResult(error=str(invalid)[:ERROR_CHARACTERS])

    def close(self) -> None:
        """Stop reading and remove the folder."""
        self._stop_listening()
        if self._fifo is not None:
            os.close(self._fifo)
            self._fifo = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def _stop_listening(self) -> None:
        if self._listening:
            assert self._fifo is not None
            asyncio.get_running_loop().remove_reader(self._fifo)
            self._listening = False

    @property
    def _result_path(self) -> Path:
        return self.folder / "result"

    @property
    def _resume_path(self) -> Path:
        return self.folder / "resume.json"

    @property
    def _progress_path(self) -> Path:
        return self.folder / "progress"

    # ---- progress

    def _read(self) -> bool:
        """Read once; false when there was nothing."""
        assert self._fifo is not None
        try:
            piece = os.read(self._fifo, READ_BYTES)
        except BlockingIOError:
            return False
        self._used = True
        *lines, self._line = (self._line + piece).rsplit(b"\n", LINES_A_READ)
        if lines and self._skips_line:
            del lines[0]
            self._skips_line = False
        if len(self._line) > PROGRESS_BYTES:
            if not self._skips_line:
                self._note_invalid(self._line)
            self._line, self._skips_line = b"", True
        # With more lines, the first element holds all lines before the newest ones.
        self._handle_lines(lines[1:] if len(lines) == LINES_A_READ else lines)
        return True

    def _handle_lines(self, lines: list[bytes]) -> None:
        """Report the newest valid line."""
        newest = None
        for line in filter(bytes.strip, lines):
            progress = parse_progress(line)
            if progress is None:
                self._note_invalid(line)
            else:
                newest = progress
        if newest is not None:
            self._on_progress(newest)

    def _note_invalid(self, line: bytes) -> None:
        self._notes += 1
        if self._notes <= NOTES_MAX:
            shown = line[: SHOWN_CHARACTERS * 4].decode("utf-8", "replace").strip()[:SHOWN_CHARACTERS]
            last = " (no more of these are shown)" if self._notes == NOTES_MAX else ""
            self._note(f"progress is told as 0.42, 42% or a JSON object, not as {shown!r}{last}")


class _ProgressMessage(BaseModel):
    """Progress as a JSON object. Other fields are ignored."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    done: ProgressAmount | None = None
    of: ProgressAmount | None = None
    fraction: Annotated[float, Field(ge=0, le=1)] | None = None
    note: str | None = None


def parse_progress(line: bytes) -> ProgressFields | None:
    """The progress in a line; None if it is invalid. `fraction`, where known, is from 0 to 1."""
    if len(line) > PROGRESS_BYTES:
        return None
    text = line.decode("utf-8", "replace").strip()
    number = _PROGRESS_NUMBER.fullmatch(text)
    if number is not None:
        fraction = float(number[1]) / (100 if number[2] else 1)
        return {"fraction": fraction} if fraction <= 1 else None
    try:
        progress = _ProgressMessage.model_validate_json(text).model_dump(exclude_none=True)
    except ValidationError:
        return None
    if "note" in progress:
        progress["note"] = sanitize_text(progress["note"])
    if progress.get("of") and "done" in progress:
        progress.setdefault("fraction", min(progress["done"] / progress["of"], 1.0))
    return progress if progress and len(to_json(progress)) <= PROGRESS_BYTES else None


# ---- the result


def _read_file(path: Path, most_bytes: int) -> bytes | None:
    """The content of a file, if it is a regular one: no link, and nothing that could block."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"it cannot be read ({error.strerror})") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise ValueError("it is not a file")
    with open(fd, "rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"it has more than {most_bytes} bytes")
    return content if content.strip() else None


def _parse_json(text: bytes) -> JsonValue:
    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error})") from None
    try:
        return Outcome(result=value).result
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"]) from None
