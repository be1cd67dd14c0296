"""Progress and results, told by real programs; and what becomes of nonsense."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support.pipes import Memory, turn

from agentq.coordinator.bounds import PROGRESS_BYTES, RESULT_BYTES
from agentq.coordinator.runs.verbs import Claim
from agentq.worker.run_api.result_channel import (
    NOTES_MAX,
    ProgramResult,
    ProgressFields,
    ResultChannel,
    ResultChannels,
    parse_progress,
)

CLAIM = Claim("run_" + "0" * 23, "3-abcdefghj", "default:5", "{}")


class Line:
    """A channel that somebody listens to."""

    def __init__(self, folder: Path) -> None:
        self.channel = ResultChannel.open(folder / "channels", CLAIM)
        self.told: list[ProgressFields] = []
        self.notes: list[str] = []
        self._news = asyncio.Event()
        self.channel.listen(self._tell, self.notes.append)

    def _tell(self, progress: ProgressFields) -> None:
        self.told.append(progress)
        self._news.set()

    async def hears(self, progress: ProgressFields) -> None:
        async with asyncio.timeout(20):
            while progress not in self.told:
                self._news.clear()
                await self._news.wait()

    def start(self, *argv: str) -> subprocess.Popen[bytes]:
        """Start a program that knows of the channel; one word is a script."""
        words = argv if len(argv) > 1 else ("sh", "-c", *argv)
        environment = {**os.environ, **self.channel.variables()}
        return subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)

    async def run(self, *argv: str) -> ProgramResult:
        """Run a program to its end, and take its result."""
        process = self.start(*argv)
        await asyncio.to_thread(process.communicate, timeout=20)
        assert process.returncode == 0
        return self.channel.result()

    def write(self, content: bytes) -> None:
        with open(self.channel.variables()["AGENTQ_PROGRESS"], "wb", buffering=0) as fifo:
            fifo.write(content)


def result(folder: Path, leave: Callable[[Path], object]) -> ProgramResult:
    """The result when a program left something in its place."""
    channel = ResultChannel.open(folder / "channels", CLAIM)
    try:
        leave(Path(channel.variables()["AGENTQ_RESULT"]))
        return channel.result()
    finally:
        channel.close()
        assert list((folder / "channels").iterdir()) == []


# ---- progress


def test_a_line_of_shell_tells_progress_while_the_program_goes_on(folder: Path) -> None:
    async def main() -> None:
        line = Line(folder)
        process = line.start('echo 25% > "$AGENTQ_PROGRESS"; read go; echo 0.5 > "$AGENTQ_PROGRESS"; read go')
        await line.hears({"fraction": 0.25})
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
        await line.hears({"fraction": 0.5})
        assert process.poll() is None
        process.communicate(b"go\n", timeout=20)
        line.channel.close()
        assert (line.notes, process.returncode) == ([], 0)

    asyncio.run(main())


def test_a_program_that_keeps_it_open_tells_progress_as_json(folder: Path) -> None:
    program = """
import json, os
with open(os.environ["AGENTQ_PROGRESS"], "a") as progress:
    for done in range(1, 11):
        print(json.dumps({"done": done, "of": 10, "note": f"file {done}"}), file=progress, flush=True)
"""

    async def main() -> None:
        line = Line(folder)
        assert await line.run(sys.executable, "-c", program) == ProgramResult()
        line.channel.close()

        assert line.told[-1] == {"done": 10, "of": 10, "fraction": 1.0, "note": "file 10"}
        assert line.notes == []

    asyncio.run(main())


def test_the_last_progress_is_heard_though_the_program_has_ended(folder: Path) -> None:
    async def main() -> None:
        line = Line(folder)
        line.start('echo 0.9 > "$AGENTQ_PROGRESS"; printf 100%% > "$AGENTQ_PROGRESS"').communicate(timeout=20)
        line.channel.result()
        line.channel.close()

        assert line.told[-1] == {"fraction": 1.0}, "also without a newline"

    asyncio.run(main())


def test_progress_that_was_told_before_anybody_listened_is_heard(folder: Path) -> None:
    async def main() -> None:
        channel, told = ResultChannel.open(folder / "channels", CLAIM), list[ProgressFields]()
        with open(channel.variables()["AGENTQ_PROGRESS"], "w") as fifo:
            fifo.write("1%\n")
        channel.listen(told.append, pytest.fail)
        await turn()
        channel.close()

        assert told == [{"fraction": 0.01}]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("line", "progress"),
    [
        ("0.42", {"fraction": 0.42}),
        ("42%", {"fraction": 0.42}),
        ("  100 % \r", {"fraction": 1.0}),
        (".5", {"fraction": 0.5}),
        ("0", {"fraction": 0.0}),
        ("1", {"fraction": 1.0}),
        ('{"done": 3, "of": 10, "note": "x"}', {"done": 3, "of": 10, "note": "x", "fraction": 0.3}),
        ('{"done": 12, "of": 10}', {"done": 12, "of": 10, "fraction": 1.0}),
        ('{"done": 3, "of": 0}', {"done": 3, "of": 0}),
        ('{"done": 3}', {"done": 3}),
        ('{"fraction": 0.5, "more": [1, 2]}', {"fraction": 0.5}),
        ('{"note": "\\u001b[31mred\\u001b[0m \\u001b]0;x\\u0007"}', {"note": "red ␛]0;x␇"}),
    ],
)
def test_progress_is_a_number_a_percentage_or_an_object(line: str, progress: ProgressFields) -> None:
    assert parse_progress(line.encode()) == progress


@pytest.mark.parametrize(
    "line",
    ["compiling", "1.5", "101%", "-1", "nan", "inf", "1e-1", "0x1", "1_0", "9" * 400, "0." + "0" * PROGRESS_BYTES,
     "{}", "[]", "null", '"0.5"', "{", "[" * 1000, '{"done": "3"}', '{"done": true}', '{"done": -1}', '{"done": 1e999}',
     '{"done": NaN}', '{"fraction": 2}', '{"note": 1}', '{"note": "\\ud800"}', '{"done": ' + "9" * 500 + ', "of": 1}'],
)  # fmt: skip
def test_what_cannot_be_progress_is_not_understood(line: str) -> None:
    assert parse_progress(line.encode()) is None


def test_nonsense_is_noted_a_few_times_and_does_no_harm(folder: Path) -> None:
    async def main() -> None:
        line = Line(folder)
        for number in range(20):
            line.write(b"compiling \x1b[31m \xff %d\n\n \n" % number)
            await turn()
        line.write(b"50%\n")
        await turn()
        line.channel.close()

        assert line.told == [{"fraction": 0.5}]
        assert len(line.notes) == NOTES_MAX
        assert line.notes[0].startswith("progress is told as 0.42, 42% or a JSON object, not as 'compiling ")
        assert line.notes[-1].endswith("(no more of these are shown)")
        assert all("\x1b" not in note for note in line.notes)

    asyncio.run(main())


def test_of_a_flood_of_progress_the_newest_counts(folder: Path) -> None:
    async def main() -> None:
        line, memory = Line(folder), Memory()
        await line.run('seq -f "{\\"done\\": %.0f, \\"of\\": 300000}" 300000 > "$AGENTQ_PROGRESS"')
        line.channel.close()

        assert line.told[-1] == {"done": 300_000, "of": 300_000, "fraction": 1.0}
        assert line.notes == []
        assert memory.growth_mib() < 20

    asyncio.run(main())


def test_a_line_without_end_is_refused_once_and_the_next_one_is_heard(folder: Path) -> None:
    async def main() -> None:
        line, memory = Line(folder), Memory()
        await line.run('{ head -c 20000000 /dev/zero | tr "\\0" x; echo; echo 0.5; } > "$AGENTQ_PROGRESS"')
        line.channel.close()

        assert line.told == [{"fraction": 0.5}]
        assert len(line.notes) == 1
        assert memory.growth_mib() < 20

    asyncio.run(main())


def test_the_rest_of_a_line_that_is_too_long_is_not_taken_for_another_line(folder: Path) -> None:
    async def main() -> None:
        line = Line(folder)
        line.write(b"x" * 2 * PROGRESS_BYTES)
        await turn()
        line.write(b"y" * 2 * PROGRESS_BYTES)
        await turn()
        line.write(b"0.9\n")
        await turn()
        assert line.told == []
        line.write(b"0.5\n")
        await turn()
        line.channel.close()

        assert line.told == [{"fraction": 0.5}]
        assert len(line.notes) == 1

    asyncio.run(main())


# ---- results


@pytest.mark.parametrize("value", [{"passed": 118}, [1, 2.5, None], "text", 0, False, "größe \0", {"deep": [[[[1]]]]}])
def test_the_result_is_any_json(folder: Path, value: object) -> None:
    assert result(folder, lambda path: path.write_text(json.dumps(value))) == ProgramResult(value)  # type: ignore[arg-type]


def test_a_program_leaves_its_result(folder: Path) -> None:
    async def main() -> None:
        line = Line(folder)
        assert await line.run('echo "{\\"passed\\": 118}" > "$AGENTQ_RESULT"') == ProgramResult({"passed": 118})
        line.channel.close()

    asyncio.run(main())


def test_no_file_or_an_empty_one_is_no_result(folder: Path) -> None:
    assert result(folder, lambda path: None) == ProgramResult()  # noqa: ARG005
    assert result(folder, lambda path: path.write_text(" \n")) == ProgramResult()


@pytest.mark.parametrize(
    ("leave", "why"),
    [
        (lambda path: path.write_text("{'a': 1}"), "it is not JSON"),
        (lambda path: path.write_text('{"a": 1} trailing'), "it is not JSON"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "it is not JSON"),
        (lambda path: path.write_text("[" * 100_000), "it is not JSON"),
        (lambda path: path.write_text("NaN"), "it is not JSON"),
        (lambda path: path.write_bytes(b" " * RESULT_BYTES + b"1"), f"it has more than {RESULT_BYTES} bytes"),
        (lambda path: path.mkdir(), "it is not a file"),
        (lambda path: os.mkfifo(path), "it is not a file"),
        (lambda path: path.symlink_to("/etc/passwd"), "it cannot be read"),
    ],
)
def test_what_cannot_be_a_result_is_said_in_one_sentence(
    folder: Path, leave: Callable[[Path], object], why: str
) -> None:
    told = result(folder, leave)

    assert told.value is None
    assert told.error is not None
    assert told.error.startswith(f"The program left no valid result in $AGENTQ_RESULT: {why}")
    assert told.error.endswith(".")
    assert "\n" not in told.error
    assert len(told.error) < 300


def test_a_result_that_grows_when_it_is_written_again_is_refused(folder: Path) -> None:
    """Numbers may be written shorter than agentq writes them."""
    told = result(folder, lambda path: path.write_text("[" + ",".join(["1e15"] * 200_000) + "]"))

    assert told.error is not None
    assert "the result" in told.error


# ---- the folder


def test_nobody_else_may_look_into_the_folder_and_it_goes_with_the_attempt(folder: Path) -> None:
    async def main() -> None:
        line = Line(folder)
        place = line.channel.folder
        assert place.stat().st_mode & 0o777 == 0o700
        assert line.channel.variables() == {
            "AGENTQ_RESULT": f"{place}/result",
            "AGENTQ_PROGRESS": f"{place}/progress",
        }
        line.channel.close()
        line.channel.close()
        assert not place.exists()
        assert [path for path in opened() if path.startswith(str(place))] == []

    asyncio.run(main())


def opened() -> list[str]:
    """What is open in this process; other threads open and close files of their own meanwhile."""
    paths = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            paths.append(os.readlink(f"/proc/self/fd/{number}"))
    return paths


# ---- one folder for several attempts


def opened_again(
    channels: ResultChannels, *, after: Callable[[ResultChannel], object] = lambda _: None
) -> tuple[int, int]:
    """The inodes of the folders that an attempt gets, and the one after it."""
    first = channels.open(CLAIM)
    before = first.folder.stat().st_ino
    after(first)
    channels.release(first)
    second = channels.open(CLAIM._replace(fence="2-other"))
    assert second.folder.name == f"{CLAIM.id}-2-other"
    assert os.listdir(second.folder) == ["progress"]
    assert stat.S_ISFIFO((second.folder / "progress").stat().st_mode)
    inode = second.folder.stat().st_ino
    second.close()
    return before, inode


def test_a_folder_that_was_left_as_it_was_serves_the_next_attempt(folder: Path) -> None:
    channels = ResultChannels(folder / "channels")
    before, after = opened_again(channels)

    assert before == after
    channels.close()
    assert os.listdir(folder / "channels") == []


@pytest.mark.parametrize("name", ["result", "other"])
def test_a_folder_with_something_in_it_serves_nobody_else(folder: Path, name: str) -> None:
    opened_again(ResultChannels(folder / "channels"), after=lambda first: (first.folder / name).write_text("{}"))

    assert os.listdir(folder / "channels") == []


def test_a_folder_whose_fifo_was_replaced_serves_nobody_else(folder: Path) -> None:
    def replace(channel: ResultChannel) -> None:
        (channel.folder / "progress").unlink()
        (channel.folder / "progress").write_text("")

    opened_again(ResultChannels(folder / "channels"), after=replace)

    assert os.listdir(folder / "channels") == []


def test_a_folder_that_was_removed_is_made_again(folder: Path) -> None:
    channels = ResultChannels(folder / "channels")
    first = channels.open(CLAIM)
    channels.release(first)
    shutil.rmtree(folder / "channels")
    second = channels.open(CLAIM)

    assert os.listdir(second.folder) == ["progress"]
    second.close()
