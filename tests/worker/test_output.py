"""Output, from the pipe to whoever wants it: whatever a program does, it is drained, and nothing grows."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
from pathlib import Path

import pytest
from support.pipes import Heard, Memory, Pipes, turn
from support.processes import alive
from support.servers import until

from agentq.coordinator.bounds import LOG_BYTES
from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.runs.logs import LogChunk
from agentq.worker.output import log_file, output_pipes
from agentq.worker.output.output_pipes import BACKLOG_BYTES, BURST_BYTES, CHUNK_MS, READ_BYTES

GIB = 1_000_000_000
GROWTH_MIB_MAX = 50


# ---- handing on


def test_the_first_line_and_any_after_a_pause_is_handed_on_at_once(folder: Path) -> None:
    """At once: as soon as the loop looks at the pipe, before any time has passed."""

    async def main() -> None:
        pipes = Pipes(folder)
        os.write(pipes.out, b"first\n")
        await turn()
        assert pipes.heard.chunks == [LogChunk("out", "first\n")]

        await asyncio.sleep(CHUNK_MS / 1000)
        os.write(pipes.err, b"after a pause\n")
        await turn()
        assert pipes.heard.chunks[1:] == [LogChunk("err", "after a pause\n")]
        await pipes.end()

    asyncio.run(main())


def test_what_comes_quickly_is_gathered(folder: Path) -> None:
    async def main() -> None:
        began_ms, pipes = monotonic_ms(), Pipes(folder)
        for number in range(100):
            os.write(pipes.out, f"{number}\n".encode())
            await turn()
        await pipes.heard.hears("99\n")
        took_ms = monotonic_ms() - began_ms
        assert pipes.heard.text() == "".join(f"{number}\n" for number in range(100))
        assert pipes.heard.calls <= 2 + took_ms // (CHUNK_MS - 1), "at once, and then once for each moment"
        await pipes.end()

    asyncio.run(main())


def test_both_streams_are_kept_apart_and_in_the_order_they_came_in(folder: Path) -> None:
    async def main() -> None:
        pipes = Pipes(folder)
        for number in range(0, 20, 2):
            os.write(pipes.out, f"{number} ".encode())
            await turn()
            os.write(pipes.err, f"{number + 1} ".encode())
            await turn()
        await pipes.end()

        in_order = "".join(f"{number} " for number in range(20))
        assert pipes.heard.text() == in_order
        assert pipes.heard.text("err") == "1 3 5 7 9 11 13 15 17 19 "
        assert pipes.file.read_text() == in_order
        assert pipes.output.tail() == in_order
        assert (pipes.output.bytes_out, pipes.output.bytes_err) == (25, 25)

    asyncio.run(main())


def test_a_note_comes_after_what_was_written_before_it(folder: Path) -> None:
    async def main() -> None:
        pipes = Pipes(folder)
        for line in (b"one\n", b"two\n"):
            os.write(pipes.out, line)
            await turn()
        pipes.output.note("something \x1b]0;happened\x07")
        await pipes.end()
        pipes.output.note("after the end")

        assert [chunk.stream for chunk in pipes.heard.chunks] == ["out", "out", "note", "note"]
        assert pipes.heard.text("note") == "something ␛]0;happened␇\nafter the end\n"

    asyncio.run(main())


def test_a_burst_comes_into_the_log_whole(folder: Path) -> None:
    async def main() -> None:
        pipes = Pipes(folder)
        lines = BURST_BYTES // 8
        await pipes.run(f"seq -w {10**6} {10**6 + lines - 1}")

        assert pipes.heard.text("note") == ""
        assert pipes.heard.text().encode() == pipes.file.read_bytes()
        assert pipes.output.bytes_out == BURST_BYTES

    asyncio.run(main())


def test_of_more_than_a_burst_every_byte_is_in_the_log_or_counted_in_a_note(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_pipes, "monotonic_ms", lambda: 0)  # what it may write after a burst grows with time

    async def main() -> None:
        pipes = Pipes(folder)
        await pipes.run("seq 1 3000000")

        text = pipes.heard.text()
        assert pipes.heard.left_out() + len(text) == pipes.output.bytes_out == len(pipes.file.read_bytes())
        assert text.startswith("1\n2\n3\n")
        assert text.endswith("\n2999999\n3000000\n")
        assert len(text) < LOG_BYTES
        assert set(re.findall(r"\D+", text)) == {"\n"}, "what follows a note begins with a whole line"

    asyncio.run(main())


# ---- what programs do


def test_invalid_utf8_and_characters_that_come_in_two_pieces(folder: Path) -> None:
    async def main() -> None:
        pipes = Pipes(folder)
        for piece in (
            b"gr\xc3",
            b"\xbc\xc3\x9fe \xe2\x82",
            b"\xac \xff\xfe \xf0\x9f",
            b"\x98\x80 \xe2",
            b"\x28 \xf0\x9f",
        ):
            os.write(pipes.out, piece)
            os.write(pipes.err, b"\xc3\xa4"[:1])
            await turn()
            os.write(pipes.err, b"\xc3\xa4"[1:])
            await asyncio.sleep(CHUNK_MS / 1000)
        await pipes.end()

        assert pipes.heard.text("out") == "grüße € \ufffd\ufffd 😀 \ufffd( \ufffd"
        assert pipes.heard.text("err") == "ä" * 5

    asyncio.run(main())


def test_control_bytes_stay_in_the_file_and_are_harmless_in_the_log(folder: Path) -> None:
    raw = b"\0nul \x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J 10%\r20%\r\nbell\x07 \x7f \xc2\x9b2J\ttab\n"

    async def main() -> None:
        pipes = Pipes(folder)
        os.write(pipes.out, raw)
        await pipes.end()

        assert pipes.file.read_bytes() == raw
        expected = "␀nul red ␛]0;title␇ ␛[2J 10%\n20%\nbell␇ ␡ \ufffd2J\ttab\n"
        assert pipes.heard.text() == expected
        assert pipes.output.tail() == expected

    asyncio.run(main())


def test_a_program_that_closes_stdout_early_is_heard_on_stderr(folder: Path) -> None:
    async def main() -> None:
        pipes = Pipes(folder)
        assert await pipes.run("echo bye; exec >&-; echo still here >&2")

        assert (pipes.heard.text("out"), pipes.heard.text("err")) == ("bye\n", "still here\n")

    asyncio.run(main())


def test_a_program_that_says_nothing_leaves_no_file(folder: Path) -> None:
    async def main() -> None:
        pipes = Pipes(folder)
        assert await pipes.run("true")

        assert (pipes.heard.chunks, pipes.output.tail(), pipes.file.exists()) == ([], "", False)

    asyncio.run(main())


def test_a_grandchild_that_keeps_the_pipe_does_not_hold_up_the_end(folder: Path) -> None:
    async def main() -> None:
        pipes = Pipes(folder)
        process = pipes.start("sleep 1000 & echo $!")
        await asyncio.to_thread(process.wait, 20)
        await pipes.heard.hears("\n")

        assert not await pipes.output.drain(50)

        os.kill(int(pipes.heard.text()), signal.SIGKILL)

    asyncio.run(main())


def test_a_grandchild_that_writes_without_end_does_not_hold_up_the_end(folder: Path) -> None:
    """When nobody drains it any more, its pipe is broken, and so it ends."""

    async def main() -> None:
        pipes = Pipes(folder)
        process = pipes.start(f"echo begin; yes & echo $! > {folder}/pid")
        await asyncio.to_thread(process.wait, 20)
        await pipes.heard.hears("begin\ny\n")

        assert not await pipes.output.drain(50)

        assert pipes.heard.text().startswith("begin\ny\n")
        assert pipes.output.tail()[-100:].strip("y\n") == ""
        pid = int((folder / "pid").read_text())
        await asyncio.to_thread(until, lambda: not alive(pid), "the grandchild to end")

    asyncio.run(main())


def test_what_is_in_the_pipe_when_the_time_is_over_is_still_read(folder: Path) -> None:
    async def main() -> None:
        pipes = Pipes(folder)
        os.write(pipes.out, b"last words\n")
        assert not await pipes.output.drain(0)
        pipes.let_go()

        assert pipes.heard.text() == pipes.file.read_text() == "last words\n"

    asyncio.run(main())


def test_sixty_four_programs_at_once_lose_nothing(folder: Path) -> None:
    async def main() -> None:
        memory = Memory()
        all_pipes = [Pipes(folder, str(number)) for number in range(64)]
        runs = [pipes.run(f"yes {number} | head -n 100000") for number, pipes in enumerate(all_pipes)]
        assert all(await asyncio.gather(*runs))

        assert memory.growth_mib() < GROWTH_MIB_MAX
        for number, pipes in enumerate(all_pipes):
            assert pipes.file.read_text() == f"{number}\n" * 100_000
            assert pipes.heard.text() == pipes.file.read_text()

    asyncio.run(main())


def test_the_time_of_the_last_byte_is_known(folder: Path) -> None:
    async def main() -> None:
        before, pipes = monotonic_ms(), Pipes(folder)
        began = pipes.output.last_byte_ms
        assert before <= began <= monotonic_ms()
        await asyncio.sleep(0.01)
        assert pipes.output.last_byte_ms == began

        os.write(pipes.err, b".")
        await turn()
        assert began < pipes.output.last_byte_ms <= monotonic_ms()
        await pipes.end()

    asyncio.run(main())


# ---- the disk


def test_the_pipes_wait_for_a_slow_disk_and_nothing_is_lost(folder: Path) -> None:
    async def main() -> None:
        pipes, disk = Pipes(folder), threading.Event()
        try:
            log_file._writer_pool.submit(disk.wait)
            process = pipes.start("seq 1000000")
            async with asyncio.timeout(20):
                while pipes.output.file.backlog <= BACKLOG_BYTES:
                    await asyncio.sleep(0.001)
            stuck = pipes.output.bytes_out
            await turn()
            assert stuck == pipes.output.bytes_out <= BACKLOG_BYTES + READ_BYTES
            assert process.poll() is None
        finally:
            disk.set()
        await asyncio.to_thread(process.wait, 20)
        assert await pipes.output.drain(20_000)
        assert pipes.file.read_text() == "".join(f"{number}\n" for number in range(1, 1_000_001))

    asyncio.run(main())


def test_a_pause_for_a_disk_that_is_done_already_does_not_last(folder: Path) -> None:
    async def main() -> None:
        pipes = Pipes(folder)
        pipes.output._pause()
        os.write(pipes.out, b"not lost\n")
        await pipes.heard.hears("not lost\n")
        await pipes.end()

    asyncio.run(main())


def test_a_run_goes_on_without_its_file_and_a_note_says_so(folder: Path) -> None:
    (folder / "logs").write_text("a file, where a folder should be")

    async def main() -> None:
        pipes = Pipes(folder)
        assert await pipes.run("echo one; seq 100000; echo two")

        assert pipes.heard.text().startswith("one\n1\n")
        assert pipes.heard.text().endswith("100000\ntwo\n")
        assert pipes.heard.text("note").count("is incomplete: Not a directory") == 1

    asyncio.run(main())


def test_nobody_else_may_look_into_the_files(folder: Path) -> None:
    async def main() -> Pipes:
        pipes = Pipes(folder)
        await pipes.run("echo secret")
        return pipes

    pipes = asyncio.run(main())
    assert pipes.file.stat().st_mode & 0o777 == 0o600
    assert pipes.file.parent.stat().st_mode & 0o777 == 0o700


def test_an_output_that_nobody_waits_for_can_be_closed(folder: Path) -> None:
    async def main() -> Heard:
        pipes = Pipes(folder)
        os.write(pipes.out, b"unfinished \xc3")
        await turn()
        pipes.output.close().result(20)
        pipes.let_go()
        return pipes.heard

    assert asyncio.run(main()).text() == "unfinished \ufffd"
